//! Effects: what messages that are done write, and the ring to which some of them forward messages.

use std::collections::BTreeMap;

use super::super::simulated_node::NEXT_RING;
use super::{Failed, ModelClock, ModelMessage, ModelRing};
use crate::effects::Effect;
use crate::steps::{MessageEffects, Settlement};

/// What effects have written.
#[derive(Clone, Default)]
pub(in super::super) struct Written {
    /// The keys of users.
    pub keys: BTreeMap<String, UserValue>,
    /// The results of messages: epoch, time and value.
    pub results: BTreeMap<u64, (u64, u64, Vec<u8>)>,
    pub next: NextRing,
}

#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum UserValue {
    Text(Vec<u8>),
    /// The entries of a stream.
    Entries(Vec<Vec<u8>>),
}

/// A ring without members, to which messages are forwarded.
#[derive(Clone, Default)]
pub(in super::super) struct NextRing {
    pub application: Option<String>,
    pub born: Option<u64>,
    pub ready: Vec<ModelMessage>,
}

/// The greatest number that Lua counts with.
const MOST: i64 = 999_999_999_999_999;

impl ModelRing {
    /// Applies the effects of messages that are done, in the order of the call. Either all effects of a message are
    /// applied, or it fails with the reason. Returns which messages failed, as Redis answers it.
    pub(super) fn affect(
        &mut self,
        settled: &[(String, usize, ModelMessage)],
        asks: &Settlement,
        number: u64,
        clock: &ModelClock,
    ) -> (Vec<u64>, String) {
        let (mut failed, mut faults) = (Vec::new(), String::new());
        for (position, MessageEffects { name, index, effects, .. }) in (1..).zip(&asks.effects) {
            let at = |(its_name, its_index, _): &&(String, usize, _)| its_name == name && its_index == index;
            let (.., message) = settled.iter().find(at).expect("what has effects was settled");
            let (mut after, mut forwarded, mut own) = (self.written.clone(), Vec::new(), Vec::new());
            let fault = effects.0.iter().find_map(|effect| match effect {
                Effect::Forward { ring, body, .. } => {
                    let is_next = ring.as_str() == NEXT_RING;
                    let theirs = if is_next {
                        after.next.application.clone()
                    } else {
                        self.application.map(ToOwned::to_owned)
                    };
                    let ours = asks.application.clone().unwrap_or_default();
                    if let Some(theirs) = theirs.filter(|theirs| *theirs != ours) {
                        let why = format!("belongs to the application {theirs}, expected {ours}");
                        return Some(format!("forward to {ring}: it {why}"));
                    }
                    if is_next {
                        forwarded.push(body.to_vec())
                    } else {
                        own.push(body.to_vec())
                    }
                    None
                }
                effect => after.write(effect, message, clock),
            });
            if let Some(reason) = fault {
                faults.push_str(&format!("{position} {} {reason}", reason.len()));
                failed.push(message.id);
                let message = ModelMessage { failures: message.failures + 1, pack: None, ..message.clone() };
                self.errors.push(Failed { message, failed_ms: clock.now(), member: number, reason });
                self.effects.push("bad effect");
                continue;
            }
            self.written = after;
            self.effects.push("effects applied");
            for body in own {
                self.add("published", 1);
                self.add("submitted", 1);
                let id = self.count("published");
                self.ready.push(ModelMessage::new(id, clock.now(), clock.now(), body));
                self.effects.push("forwarded to itself");
            }
            for body in forwarded {
                let next = &mut self.written.next;
                next.application = asks.application.clone();
                next.born.get_or_insert(clock.now());
                let id = next.ready.len() as u64 + 1;
                next.ready.push(ModelMessage::new(id, clock.now(), clock.now(), body));
                self.effects.push("forwarded");
            }
        }
        (failed, faults)
    }
}

impl Written {
    /// Writes one effect. Returns why it is bad.
    fn write(&mut self, effect: &Effect, message: &ModelMessage, clock: &ModelClock) -> Option<String> {
        let (kind, name) = match effect {
            Effect::Set { key, .. } => ("set", key),
            Effect::Add { key, .. } => ("add", key),
            Effect::Append { stream, .. } => ("append", stream),
            Effect::Result { value, .. } => {
                self.results.insert(message.id, (message.epoch, clock.now(), value.to_vec()));
                return None;
            }
            Effect::Forward { .. } => unreachable!("the ring forwards"),
        };
        let key = format!("{{estafeta}}:u:{name}");
        let value = self.keys.get(name);
        match (effect, value) {
            (Effect::Append { .. }, Some(UserValue::Text(_))) => {
                return Some(format!("{kind} {key}: expected a stream, got a string"));
            }
            (Effect::Set { .. } | Effect::Add { .. }, Some(UserValue::Entries(_))) => {
                return Some(format!("{kind} {key}: expected a string, got a stream"));
            }
            _ => {}
        }
        let new = match (effect, value) {
            (Effect::Set { value, .. }, _) => UserValue::Text(value.to_vec()),
            (Effect::Add { n, .. }, value) => {
                let text = match value {
                    Some(UserValue::Text(text)) => String::from_utf8_lossy(text).into_owned(),
                    _ => "0".into(),
                };
                let number = text.parse::<i64>().ok();
                // Redis counts only with numbers that are written as it writes them.
                let exact = number.filter(|number| number.to_string() == text && number.abs() <= MOST);
                let Some(sum) = exact.map(|number| number + n) else {
                    let expected = "expected a whole number of at most 15 digits";
                    return Some(format!("add {key}: {expected}, got another text"));
                };
                if sum.abs() > MOST {
                    return Some(format!("add {key}: expected a sum of at most 15 digits, got more"));
                }
                UserValue::Text(sum.to_string().into())
            }
            (Effect::Append { fields, .. }, value) => {
                let mut entries = match value {
                    Some(UserValue::Entries(entries)) => entries.clone(),
                    _ => Vec::new(),
                };
                let texts: Vec<&[u8]> =
                    fields.iter().flat_map(|(name, value)| [&name[..], &value[..]]).collect();
                entries.push(texts.join(&b'|'));
                UserValue::Entries(entries)
            }
            _ => unreachable!("matched above"),
        };
        self.keys.insert(name.clone(), new);
        None
    }
}
