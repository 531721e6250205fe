//! What a command learns about a message: from its environment, or from one line of JSON.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use estafeta::{Headers, Job};
use serde_json::{Map, Value, json};

/// Variables of a child process, as the kernel wants them.
#[derive(Clone, Debug)]
pub(crate) struct Environment(Vec<CString>);

impl Environment {
    /// The variables of this process, without those that belong to a message.
    pub fn inherited() -> Self {
        let own = |name: &OsString| {
            let name = name.to_string_lossy();
            name.starts_with("ESTAFETA_MESSAGE_") || name == "ESTAFETA_HEADERS" || name == "TRACEPARENT"
        };
        let mut all = Self(Vec::new());
        for (name, value) in std::env::vars_os().filter(|(name, _)| !own(name)) {
            let pair = [name.into_vec(), value.into_vec()].join(&b'=');
            all.0.extend(CString::new(pair).ok());
        }
        all
    }

    /// Sets a variable. A value with a NUL byte cannot be passed on, and the variable is then missing.
    pub fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.remove(name);
        self.add(name, value);
    }

    pub fn remove(&mut self, name: &str) {
        let prefix = format!("{name}=");
        self.0.retain(|pair| !pair.as_bytes().starts_with(prefix.as_bytes()));
    }

    /// Like [`set`](Self::set), for a variable that is not there yet.
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.extend(CString::new(format!("{name}={value}")).ok());
    }

    /// The same variables, and those of a message.
    pub fn with_message(&self, job: &Job<Bytes>, deadline: Instant) -> Self {
        let mut all = self.clone();
        let message = job.message();
        all.add("ESTAFETA_MESSAGE_ID", job.id());
        if let Some(partition) = job.ring().partition() {
            all.add("ESTAFETA_PARTITION", partition);
        }
        all.add("ESTAFETA_MESSAGE_NAME", job.message_name());
        all.add("ESTAFETA_MESSAGE_ATTEMPT", job.attempt());
        all.add("ESTAFETA_MESSAGE_ATTEMPTS", job.attempts());
        all.add("ESTAFETA_MESSAGE_DELIVERY", job.delivery());
        all.add("ESTAFETA_MESSAGE_EPOCH", message.epoch);
        all.add("ESTAFETA_MESSAGE_PUBLISHED_MS", message.published_ms);
        all.add("ESTAFETA_DEADLINE_MS", deadline_ms(deadline));
        all.add("ESTAFETA_HEADERS", headers(job.headers()));
        if let Some(key) = job.publish_key() {
            all.add("ESTAFETA_MESSAGE_KEY", key);
        }
        if let Some(tick) = tick_ms(job) {
            all.add("ESTAFETA_MESSAGE_TICK", tick);
        }
        if let Some(carry) = job.carry() {
            all.add("ESTAFETA_MESSAGE_CARRY", carry);
        }
        if let Some(traceparent) = job.traceparent() {
            all.add("TRACEPARENT", traceparent);
        }
        all
    }

    pub fn as_slice(&self) -> &[CString] {
        &self.0
    }
}

/// A message as one line of JSON, with its line end.
pub(crate) fn line(job: &Job<Bytes>, deadline: Instant) -> Vec<u8> {
    let message = job.message();
    let mut object = json!({
        "id": job.id(),
        "name": job.message_name(),
        "attempt": job.attempt(),
        "attempts": job.attempts(),
        "delivery": job.delivery(),
        "epoch": message.epoch.0,
        "publishedMs": message.published_ms,
        "deadlineMs": deadline_ms(deadline),
        "key": job.publish_key(),
        "tick": tick_ms(job),
        "carry": job.carry(),
        "headers": headers(job.headers()),
    });
    if let Some(partition) = job.ring().partition() {
        object["partition"] = partition.into();
    }
    match std::str::from_utf8(&job.body) {
        Ok(text) => object["body"] = text.into(),
        Err(_) => object["bodyBase64"] = STANDARD.encode(&job.body).into(),
    }
    let mut line = object.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn tick_ms(job: &Job<Bytes>) -> Option<u128> {
    Some(job.tick()?.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis())
}

/// The headers that the publisher has set, as a JSON object. Those of the ring have their own fields.
fn headers(headers: &Headers) -> Value {
    let own = headers.iter().filter(|(name, _)| !name.starts_with("estafeta-"));
    Value::Object(own.map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>())
}

/// A moment as milliseconds since 1970, by the clock of this machine.
fn deadline_ms(deadline: Instant) -> u128 {
    let left = deadline.saturating_duration_since(Instant::now());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    (now + left).as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_body_as_text_or_as_base64() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let read = |body: &'static [u8]| -> Value {
            let line = line(&Job::sample(Bytes::from_static(body)), deadline);
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
            serde_json::from_slice(&line).unwrap()
        };
        let text = read("two\nlines, ünïcode".as_bytes());
        assert_eq!((&text["body"], &text["id"]), (&json!("two\nlines, ünïcode"), &json!(1)));
        assert_eq!(
            (&text["attempt"], &text["attempts"], &text["headers"]),
            (&json!(1), &json!(8), &json!({}))
        );
        assert_eq!((&text["key"], &text["tick"]), (&Value::Null, &Value::Null));
        let bytes = read(b"\xff\x00");
        assert_eq!((bytes.get("body"), &bytes["bodyBase64"]), (None, &json!("/wA=")));
    }

    #[test]
    fn a_variable_of_a_message_replaces_an_inherited_one() {
        let mut all = Environment(vec![c"PATH=/bin".into(), c"ESTAFETA_RING=old".into()]);
        all.set("ESTAFETA_RING", "orders");
        let job = Job::sample(Bytes::new()).with_carry("page 3").with_publish_key("order-17");
        let all = all.with_message(&job, Instant::now());
        let find = |name: &str| {
            let pairs = all.as_slice().iter().map(|pair| pair.to_str().unwrap());
            pairs.filter_map(|pair| pair.strip_prefix(&format!("{name}="))).collect::<Vec<_>>()
        };
        assert_eq!((find("PATH"), find("ESTAFETA_RING")), (vec!["/bin"], vec!["orders"]));
        assert_eq!(
            (find("ESTAFETA_MESSAGE_ID"), find("ESTAFETA_MESSAGE_CARRY")),
            (vec!["1"], vec!["page 3"])
        );
        assert_eq!((find("ESTAFETA_HEADERS"), find("ESTAFETA_MESSAGE_TICK")), (vec!["{}"], vec![]));
        assert_eq!(find("ESTAFETA_MESSAGE_KEY"), ["order-17"]);
    }
}
