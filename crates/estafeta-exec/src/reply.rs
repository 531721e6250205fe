//! What a command answers, as one JSON object, and what it means.
//!
//! A reply is read strictly where it decides what becomes of a message. A word that this version does not know is never
//! taken for a success.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use estafeta::{Failure, Outcome, RingName};
use serde::Deserialize;
use serde_json::{Map, Value};

/// How long a result is kept if neither the command nor an option says so.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(3600);

/// A reply. Only replies to lines have an id.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandReply {
    #[serde(default)]
    outcome: String,
    reason: Option<String>,
    after: Option<Value>,
    carry: Option<String>,
    result: Option<Value>,
    result_base64: Option<String>,
    ttl: Option<Value>,
    #[serde(default)]
    effects: Vec<Map<String, Value>>,
}

impl CommandReply {
    /// Reads one JSON object.
    pub fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(bytes).map_err(|error| {
            Failure::new(format_args!(
                "reply: expected a JSON object with an outcome ({error}), got {}",
                quoted(bytes)
            ))
        })
    }

    /// Whether the command says that the message is done.
    pub fn is_done(&self) -> bool {
        self.outcome == "done"
    }

    /// What becomes of the message. `ttl` is how long its result is kept.
    pub fn answer(self, ttl: Duration) -> Result<Outcome, Failure> {
        let reason = self.reason.clone().unwrap_or_else(|| "the handler gave no reason".to_owned());
        let after = self.after.as_ref().map(|value| duration("after", value)).transpose();
        match self.outcome.as_str() {
            "done" => self.outcome(ttl),
            "retry" => match after? {
                Some(after) => Err(Failure::retry_after(after, reason)),
                None => Err(Failure::new(reason)),
            },
            "snooze" => {
                let after =
                    after?.ok_or_else(|| Failure::new("reply: expected a snooze with after, got none"))?;
                let outcome = Outcome::snooze(after);
                Ok(match self.carry {
                    Some(state) => outcome.carry(state),
                    None => outcome,
                })
            }
            "fail" => Err(Failure::fatal(reason)),
            other => Err(Failure::new(format_args!(
                "reply: expected the outcome done, retry, snooze or fail, got {}",
                quoted(other.as_bytes())
            ))),
        }
    }

    fn outcome(self, ttl: Duration) -> Result<Outcome, Failure> {
        let ttl = self.ttl.as_ref().map_or(Ok(ttl), |value| duration("ttl", value))?;
        let mut outcome = Outcome::done();
        if let Some(result) = self.result {
            outcome = outcome.result(text(result), ttl);
        }
        if let Some(encoded) = self.result_base64 {
            outcome = outcome.result(base64("resultBase64", &encoded)?, ttl);
        }
        self.effects.into_iter().try_fold(outcome, apply)
    }
}

/// Adds an effect to an outcome. An effect that is not understood makes the message a dead letter, because no further
/// attempt would mend it.
fn apply(outcome: Outcome, mut effect: Map<String, Value>) -> Result<Outcome, Failure> {
    let shown = Value::Object(effect.clone()).to_string();
    let wrong = |expected: &str| {
        Failure::fatal(format_args!("effect: expected {expected}, got {}", quoted(shown.as_bytes())))
    };
    let mut take = |name: &str| effect.remove(name);
    let name =
        |value: Value| value.as_str().map(ToOwned::to_owned).ok_or_else(|| wrong("a name that is a string"));
    let outcome = if let Some(key) = take("add") {
        let n = take("n").and_then(|n| n.as_i64()).ok_or_else(|| wrong("an integer n"))?;
        outcome.add(name(key)?, n)
    } else if let Some(key) = take("set") {
        let value = content(take("value"), take("valueBase64"))?.ok_or_else(|| wrong("a value"))?;
        let ttl = take("ttl").map(|ttl| duration("ttl", &ttl)).transpose()?;
        outcome.set(name(key)?, value, ttl)
    } else if let Some(stream) = take("append") {
        let Some(Value::Object(fields)) = take("fields") else {
            return Err(wrong("fields that are an object"));
        };
        let maxlen =
            take("maxlen").map(|most| most.as_u64().ok_or_else(|| wrong("a number maxlen"))).transpose()?;
        outcome.append(name(stream)?, fields.into_iter().map(|(name, value)| (name, text(value))), maxlen)
    } else if let Some(ring) = take("forward") {
        let ring: RingName =
            name(ring)?.parse().map_err(|error| Failure::fatal(format_args!("forward: {error}")))?;
        let body = content(take("body"), take("bodyBase64"))?.ok_or_else(|| wrong("a body"))?;
        outcome.forward(&ring, body)
    } else {
        return Err(wrong("one of add, set, append and forward"));
    };
    match effect.keys().next() {
        Some(_) => Err(wrong("only the fields of that effect")),
        None => Ok(outcome),
    }
}

fn content(plain: Option<Value>, encoded: Option<Value>) -> Result<Option<Bytes>, Failure> {
    match (plain, encoded) {
        (Some(value), _) => Ok(Some(text(value))),
        (None, Some(Value::String(encoded))) => base64("base64", &encoded).map(Some),
        _ => Ok(None),
    }
}

/// A string as it is, and everything else as JSON.
fn text(value: Value) -> Bytes {
    match value {
        Value::String(text) => text.into(),
        other => other.to_string().into(),
    }
}

pub(crate) fn base64(what: &str, encoded: &str) -> Result<Bytes, Failure> {
    let decoded = STANDARD.decode(encoded);
    decoded
        .map(Bytes::from)
        .map_err(|error| Failure::fatal(format_args!("{what}: expected base64, got {error}")))
}

/// A time such as "30s", or a number of seconds.
pub(crate) fn duration(what: &str, value: &Value) -> Result<Duration, Failure> {
    let seconds = |number: f64| Duration::try_from_secs_f64(number).ok();
    let read = match value {
        Value::String(text) => humantime::parse_duration(text).ok(),
        Value::Number(number) => number.as_f64().and_then(seconds),
        _ => None,
    };
    read.ok_or_else(|| {
        let got = quoted(value.to_string().as_bytes());
        Failure::new(format_args!(
            "{what}: expected a time such as \"30s\" or a number of seconds, got {got}"
        ))
    })
}

/// The beginning of what a command wrote, for a reason.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 100;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    let dots = if bytes.len() > SHOWN { "..." } else { "" };
    format!("'{shown}{dots}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Result<Outcome, Failure> {
        CommandReply::parse(text.as_bytes())?.answer(DEFAULT_TTL)
    }

    #[test]
    fn each_outcome_is_understood() {
        let second = Duration::from_secs(1);
        assert_eq!(answer(r#"{"outcome":"done"}"#), Ok(Outcome::done()));
        assert_eq!(
            answer(r#"{"id":7,"outcome":"done","new":[1]}"#),
            Ok(Outcome::done()),
            "unknown fields are ignored"
        );
        let result = |value: &'static str, ttl| Ok(Outcome::done().result(value, ttl));
        assert_eq!(answer(r#"{"outcome":"done","result":"x"}"#), result("x", DEFAULT_TTL));
        assert_eq!(answer(r#"{"outcome":"done","result":{"a":1},"ttl":"1s"}"#), result(r#"{"a":1}"#, second));
        assert_eq!(answer(r#"{"outcome":"done","resultBase64":"eA=="}"#), result("x", DEFAULT_TTL));
        assert_eq!(answer(r#"{"outcome":"retry","reason":"503"}"#), Err(Failure::new("503")));
        assert_eq!(
            answer(r#"{"outcome":"retry","reason":"503","after":"1s"}"#),
            Err(Failure::retry_after(second, "503"))
        );
        assert_eq!(answer(r#"{"outcome":"snooze","after":1}"#), Ok(Outcome::snooze(second)));
        assert_eq!(
            answer(r#"{"outcome":"snooze","after":"1s","carry":"p"}"#),
            Ok(Outcome::snooze(second).carry("p"))
        );
        assert_eq!(answer(r#"{"outcome":"fail","reason":"no user"}"#), Err(Failure::fatal("no user")));
        let effects = r#"{"outcome":"done","effects":[{"add":"sold","n":-1},{"set":"k","value":"v","ttl":"1s"},
            {"append":"s","fields":{"a":"b"},"maxlen":9},{"forward":"shop/mails","body":"x"}]}"#;
        let ring = "shop/mails".parse().unwrap();
        let expected = Outcome::done().add("sold", -1).set("k", "v", Some(second));
        let expected = expected.append("s", [("a", "b")], Some(9)).forward(&ring, "x");
        assert_eq!(answer(effects), Ok(expected));
    }

    #[test]
    fn what_is_not_understood_is_never_a_success() {
        for text in [
            "",
            "null",
            "7",
            "[]",
            "{}",
            "done",
            r#"{"outcome":"Done"}"#,
            r#"{"outcome":"ok"}"#,
            r#"{"outcome":1}"#,
            r#"{"outcome":"snooze"}"#,
            r#"{"outcome":"snooze","after":"soon"}"#,
            r#"{"outcome":"snooze","after":-1}"#,
            r#"{"outcome":"retry","after":[]}"#,
            r#"{"outcome":"done","ttl":"x","result":""}"#,
            r#"{"outcome":"done","resultBase64":"?"}"#,
            r#"{"outcome":"done","effects":[{}]}"#,
            r#"{"outcome":"done","effects":[{"add":"k"}]}"#,
            r#"{"outcome":"done","effects":[{"add":"k","n":1.5}]}"#,
            r#"{"outcome":"done","effects":[{"add":7,"n":1}]}"#,
            r#"{"outcome":"done","effects":[{"del":"k"}]}"#,
            r#"{"outcome":"done","effects":[{"add":"k","n":1,"set":"k"}]}"#,
            r#"{"outcome":"done","effects":[{"set":"k"}]}"#,
            r#"{"outcome":"done","effects":[{"append":"s"}]}"#,
            r#"{"outcome":"done","effects":[{"forward":"a b","body":""}]}"#,
            r#"{"outcome":"done","effects":{"add":"k","n":1}}"#,
        ] {
            assert!(answer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_reason_quotes_only_the_beginning() {
        let reason = answer(&format!("\u{1b}[2J{}", "x".repeat(5000))).unwrap_err().reason().to_owned();
        assert!(reason.len() < 400 && reason.ends_with("xxx...'"), "{reason}");
    }
}
