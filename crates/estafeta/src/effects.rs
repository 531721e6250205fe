//! What a message that is done writes in Redis, in the step that settles it.
//!
//! The set of effects is closed, because `turn` checks all of them before it writes anything. This module refuses what
//! no ring would accept, before anything is sent. The step checks what depends on the contents of Redis.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::config::TEN_YEARS;
use crate::headers::Headers;
use crate::keys::RingName;
use crate::message::MOST_NUMBER;
use crate::trace::TraceContext;

/// The most effects of one message, besides messages that it forwards.
pub(crate) const MOST_EFFECTS: usize = 16;
/// The most messages that one message forwards.
pub(crate) const MOST_FORWARDS: usize = 100;
/// The most bytes of all effects of one message: names, values, fields, headers and bodies together.
pub(crate) const MOST_BYTES: usize = 256 * 1024;
/// The most bytes of effects in one turn.
pub(crate) const MOST_BYTES_OF_TURN: usize = 1024 * 1024;
/// What an effect costs a turn beyond its bytes. Therefore one turn has at most 4,096 effects.
const COST: usize = 256;
/// The longest name of a key in bytes.
const MOST_NAME: usize = 200;
/// The most fields that one effect appends to a stream.
const MOST_FIELDS: usize = 100;

/// One thing that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Set { key: String, value: Bytes, ttl: Option<Duration> },
    Add { key: String, n: i64 },
    Append { stream: String, fields: Vec<(Bytes, Bytes)>, maxlen: Option<u64> },
    Result { value: Bytes, ttl: Duration },
    Forward { ring: RingName, headers: Headers, body: Bytes },
}

/// All effects of one message, in the order in which they are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects(pub Vec<Effect>);

impl Effects {
    pub fn push(&mut self, effect: Effect) {
        // A message has one result.
        if matches!(effect, Effect::Result { .. }) {
            self.0.retain(|other| !matches!(other, Effect::Result { .. }));
        }
        self.0.push(effect);
    }

    /// Adds the trace of the message that has these effects to the messages that it forwards.
    pub fn carry_on(&mut self, trace: &TraceContext) {
        for effect in &mut self.0 {
            if let Effect::Forward { headers, .. } = effect {
                trace.carry_on(headers);
            }
        }
    }

    /// The size of all names, values, fields, headers and bodies.
    fn bytes(&self) -> usize {
        self.0.iter().map(Effect::bytes).sum()
    }

    /// What these effects use up of [`MOST_BYTES_OF_TURN`].
    pub fn cost(&self) -> usize {
        self.bytes() + COST * self.0.len()
    }

    /// Whether one of them forwards a message to a ring other than this one.
    pub fn leave(&self, ring: &RingName) -> bool {
        self.0.iter().any(|effect| matches!(effect, Effect::Forward { ring: other, .. } if other != ring))
    }

    /// Fails with the reason if no step could apply these effects for a message of this ring.
    pub fn check(&self, ring: &RingName, max_body: usize) -> Result<(), String> {
        let forwards = self.0.iter().filter(|effect| matches!(effect, Effect::Forward { .. })).count();
        let others = self.0.len() - forwards;
        if others > MOST_EFFECTS {
            return Err(format!("effects: expected at most {MOST_EFFECTS} besides forwards, got {others}"));
        }
        if forwards > MOST_FORWARDS {
            return Err(format!("effects: expected at most {MOST_FORWARDS} forwards, got {forwards}"));
        }
        self.0.iter().try_for_each(|effect| effect.check(ring, max_body))?;
        let bytes = self.bytes();
        if bytes > MOST_BYTES {
            return Err(format!("effects: expected at most {MOST_BYTES} bytes, got {bytes}"));
        }
        Ok(())
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { key, value, ttl: None } => write!(f, "set {key} to {} bytes", value.len()),
            Self::Set { key, value, ttl: Some(ttl) } => {
                write!(f, "set {key} to {} bytes for {ttl:?}", value.len())
            }
            Self::Add { key, n } => write!(f, "add {n} to {key}"),
            Self::Append { stream, fields, .. } => write!(f, "append {} fields to {stream}", fields.len()),
            Self::Result { value, ttl } => write!(f, "result of {} bytes for {ttl:?}", value.len()),
            Self::Forward { ring, body, .. } => write!(f, "forward {} bytes to {ring}", body.len()),
        }
    }
}

impl Effect {
    /// A message for another ring, without headers.
    pub fn forward(ring: RingName, body: impl Into<Bytes>) -> Self {
        Self::Forward { ring, headers: Headers::new(), body: body.into() }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Set { key, value, .. } => key.len() + value.len(),
            Self::Add { key, .. } => key.len(),
            Self::Append { stream, fields, .. } => {
                stream.len() + fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
            }
            Self::Result { value, .. } => value.len(),
            Self::Forward { headers, body, .. } => headers.bytes() + body.len(),
        }
    }

    fn check(&self, own: &RingName, max_body: usize) -> Result<(), String> {
        match self {
            Self::Set { key, ttl, .. } => {
                check_name("set", key)?;
                ttl.map_or(Ok(()), |ttl| check_ttl("set", ttl))
            }
            Self::Add { key, n } => {
                check_name("add", key)?;
                if n.unsigned_abs() > MOST_NUMBER {
                    return Err(format!("add {key}: expected a number of at most 15 digits, got {n}"));
                }
                Ok(())
            }
            Self::Append { stream, fields, maxlen } => {
                check_name("append", stream)?;
                if !(1..=MOST_FIELDS).contains(&fields.len()) {
                    let count = fields.len();
                    return Err(format!("append {stream}: expected 1 to {MOST_FIELDS} fields, got {count}"));
                }
                if maxlen.is_some_and(|most| !(1..=MOST_NUMBER).contains(&most)) {
                    let most = maxlen.unwrap_or_default();
                    return Err(format!(
                        "append {stream}: expected a length of 1 to {MOST_NUMBER} entries, got {most}"
                    ));
                }
                Ok(())
            }
            Self::Result { ttl, .. } => check_ttl("result", *ttl),
            Self::Forward { ring, body, .. } => {
                if !own.shares_slot_with(ring) {
                    return Err(format!(
                        "forward to {ring}: expected a ring of the same group as {own}, such as shop/orders and \
                         shop/mails"
                    ));
                }
                let size = body.len();
                if size > max_body {
                    return Err(format!(
                        "forward to {ring}: expected a body of at most {max_body} bytes, got {size}"
                    ));
                }
                Ok(())
            }
        }
    }
}

fn check_name(effect: &str, name: &str) -> Result<(), String> {
    if (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    // A long name would fill the reason.
    let shown: String = name.chars().take(40).flat_map(char::escape_default).collect();
    let dots = if name.chars().nth(40).is_some() { "..." } else { "" };
    Err(format!("{effect}: expected a key of 1 to {MOST_NAME} visible ASCII characters, got '{shown}{dots}'"))
}

fn check_ttl(effect: &str, ttl: Duration) -> Result<(), String> {
    if !ttl.is_zero() && ttl <= TEN_YEARS {
        return Ok(());
    }
    Err(format!("{effect}: expected a time to live of 1ms to 10 years, got {ttl:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    const SECOND: Duration = Duration::from_secs(1);

    fn own() -> RingName {
        "shop/orders".parse().unwrap()
    }

    fn fault(effects: Vec<Effect>) -> Option<String> {
        Effects(effects).check(&own(), 1000).err()
    }

    fn set(key: &str, value: &'static str) -> Effect {
        Effect::Set { key: key.into(), value: value.into(), ttl: None }
    }

    fn append(fields: usize, maxlen: Option<u64>) -> Effect {
        Effect::Append { stream: "s".into(), fields: vec![("f".into(), "v".into()); fields], maxlen }
    }

    fn forward(ring: &str, bytes: usize) -> Effect {
        Effect::forward(ring.parse().unwrap(), vec![b'x'; bytes])
    }

    #[test]
    fn each_limit_is_taken_up_to_it_and_refused_beyond() {
        let longest = "k".repeat(200);
        let good = [
            vec![set("a:{b}/c", ""), set(&longest, "")],
            vec![set("k", ""); 16],
            vec![forward("shop/mails", 1000); 100],
            vec![Effect::Add { key: "k".into(), n: -999_999_999_999_999 }],
            vec![append(1, None), append(100, Some(1))],
            vec![Effect::Result { value: Bytes::new(), ttl: Duration::from_nanos(1) }],
            vec![Effect::Result { value: Bytes::new(), ttl: TEN_YEARS }],
            vec![Effect::Set { key: "k".into(), value: vec![0; MOST_BYTES - 1].into(), ttl: None }],
            vec![forward("shop/orders", 1), forward("shop", 1)],
        ];
        for effects in good {
            assert_eq!(fault(effects.clone()), None, "{effects:?}");
        }
        let bad: [(Vec<Effect>, &str); 17] = [
            (vec![set("", "")], "set: expected a key of 1 to 200 visible ASCII characters, got ''"),
            (
                vec![set(&"k".repeat(201), "")],
                "set: expected a key of 1 to 200 visible ASCII characters, got 'kkk",
            ),
            (vec![set("a b", "")], "set: expected a key"),
            (vec![Effect::Add { key: "ключ".into(), n: 1 }], "add: expected a key"),
            (vec![Effect::Add { key: "k\n".into(), n: 1 }], "add: expected a key"),
            (vec![set("k", ""); 17], "effects: expected at most 16 besides forwards, got 17"),
            (vec![forward("shop/mails", 1); 101], "effects: expected at most 100 forwards, got 101"),
            (
                vec![Effect::Add { key: "k".into(), n: i64::MIN }],
                "add k: expected a number of at most 15 digits",
            ),
            (vec![append(0, None)], "append s: expected 1 to 100 fields, got 0"),
            (vec![append(101, None)], "append s: expected 1 to 100 fields, got 101"),
            (vec![append(1, Some(0))], "append s: expected a length of 1 to"),
            (
                vec![Effect::Result { value: Bytes::new(), ttl: Duration::ZERO }],
                "result: expected a time to live of 1ms to 10 years, got 0ns",
            ),
            (
                vec![Effect::Set { key: "k".into(), value: Bytes::new(), ttl: Some(TEN_YEARS + SECOND) }],
                "set: expected a time to live",
            ),
            (
                vec![Effect::Set { key: "k".into(), value: vec![0; MOST_BYTES].into(), ttl: None }],
                "effects: expected at most 262144 bytes, got 262145",
            ),
            (
                vec![forward("shops/mails", 1)],
                "forward to shops/mails: expected a ring of the same group as shop/orders",
            ),
            (vec![forward("mails", 1)], "forward to mails: expected a ring of the same group as shop/orders"),
            (
                vec![forward("shop/mails", 1001)],
                "forward to shop/mails: expected a body of at most 1000 bytes",
            ),
        ];
        for (effects, reason) in bad {
            let found = fault(effects).unwrap_or_else(|| panic!("no fault: {reason}"));
            assert!(found.starts_with(reason), "{found}");
        }
    }

    #[test]
    fn the_header_that_forwards_carry_on_counts_towards_the_limit() {
        let fits = set("k", "").bytes() + forward("shop/mails", 1000).bytes();
        let value = vec![0; MOST_BYTES - fits].into();
        let mut effects =
            Effects(vec![Effect::Set { key: "k".into(), value, ttl: None }, forward("shop/mails", 1000)]);
        assert_eq!(effects.check(&own(), 1000), Ok(()));
        let traced = Message::sample("r", 1, "").with_header("traceparent", "t");
        effects.carry_on(&TraceContext::of(&traced).unwrap());
        let reason = "effects: expected at most 262144 bytes, got 262161";
        assert_eq!(effects.check(&own(), 1000), Err(reason.to_owned()));
    }

    #[test]
    fn a_message_has_one_result_and_it_is_the_last_one() {
        let result = |value: &'static str| Effect::Result { value: value.into(), ttl: SECOND };
        let mut effects = Effects::default();
        [result("one"), set("k", ""), result("two")].into_iter().for_each(|effect| effects.push(effect));
        assert_eq!(effects.0, [set("k", ""), result("two")]);
    }
}
