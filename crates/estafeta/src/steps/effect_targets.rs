//! What the effects of a turn write to, as keys and arguments of the script.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;

use super::{Call, millis};
use crate::effects::{Effect, Effects};
use crate::error::{Error, Result};
use crate::identity::Epoch;
use crate::keys::{Keys, RingName};
use crate::layout::{Layouts, known_words};
use crate::message::{Message, Numbers};
use crate::partition;

/// The effects of a message: the name of its element, its position in it, and its id.
#[derive(Clone, Debug)]
pub(crate) struct MessageEffects {
    pub name: String,
    pub index: usize,
    pub id: u64,
    pub effects: Box<Effects>,
}

/// A message that became a dead letter because one of its effects is bad: its position among the messages with effects,
/// and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadEffects {
    pub position: usize,
    pub reason: String,
}

/// What the effects of a turn write to.
pub(super) struct EffectTargets<'a> {
    messages: &'a [MessageEffects],
    /// The rings to which messages are forwarded.
    rings: Vec<(&'a RingName, Keys)>,
    /// The other keys, each once.
    keys: Vec<String>,
    /// Which of the keys or of the rings each effect changes, counted from 1, in the order of all effects.
    numbers: Vec<usize>,
    /// How many bytes the effects have, about.
    pub bytes: usize,
}

impl<'a> EffectTargets<'a> {
    /// Returns None for a turn without effects.
    pub fn of(keys: &Keys, messages: &'a [MessageEffects]) -> Option<Self> {
        if messages.is_empty() {
            return None;
        }
        let mut targets =
            Self { messages, rings: Vec::new(), keys: Vec::new(), numbers: Vec::new(), bytes: 0 };
        let mut number_of = HashMap::new();
        for MessageEffects { id, effects, .. } in messages {
            targets.bytes += effects.cost();
            for effect in &effects.0 {
                let key = match effect {
                    Effect::Set { key, .. }
                    | Effect::Add { key, .. }
                    | Effect::Append { stream: key, .. } => keys.user_key(key),
                    Effect::Result { .. } => keys.result(*id),
                    Effect::Forward { ring, .. } => {
                        let number = targets.number_of_ring(ring);
                        targets.numbers.push(number);
                        continue;
                    }
                };
                let number = *number_of.entry(key).or_insert_with_key(|key| {
                    targets.keys.push(key.clone());
                    targets.keys.len()
                });
                targets.numbers.push(number);
            }
        }
        Some(targets)
    }

    fn number_of_ring(&mut self, ring: &'a RingName) -> usize {
        let at = self.rings.iter().position(|(other, _)| *other == ring);
        at.unwrap_or_else(|| {
            self.rings.push((ring, Keys::new(ring)));
            self.rings.len() - 1
        }) + 1
    }

    /// The keys, each with its name in the header of the script.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, &str)> {
        fn of_ring<'k>((_, keys): &'k (&RingName, Keys)) -> [(&'static str, &'k str); 5] {
            [
                ("to-schema", &keys.schema),
                ("to-requires", &keys.requires),
                ("to-application", &keys.application),
                ("to-ledger", &keys.ledger),
                ("to-ready", &keys.ready),
            ]
        }
        self.rings.iter().flat_map(of_ring).chain(self.keys.iter().map(|key| ("key", key.as_str())))
    }

    /// Adds the arguments for all effects. `application` is that of the other rings, if it is not the name of each.
    /// `partitions` is the number of partitions of the node's own ring.
    pub fn write(&self, call: &mut Call, application: Option<&str>, partitions: u32) {
        call.arg("rings", self.rings.len())
            .arg("oldest", Layouts::KNOWN.oldest)
            .arg("newest", Layouts::KNOWN.newest)
            .arg("known-words", known_words(&partition::word(partitions)));
        for (ring, keys) in &self.rings {
            call.arg("ring", ring.as_str())
                .arg("to-wakeup-prefix", &keys.wakeups)
                .arg("to-application", application.unwrap_or(ring.as_str()));
        }
        let of_message =
            |message: &'a MessageEffects| message.effects.0.iter().map(move |one| (message, one));
        let effects = self.messages.iter().flat_map(of_message);
        for ((MessageEffects { name, index, .. }, effect), number) in effects.zip(&self.numbers) {
            let (word, option, values) = words(effect);
            call.arg("name", name).arg("index", index).arg("effect", word).arg("key-number", number);
            call.arg("option", option).arg("count", values.len());
            for value in values {
                call.arg("value", &value[..]);
            }
        }
    }
}

/// The name of an effect, its option and its values.
fn words(effect: &Effect) -> (&'static str, u64, Vec<Bytes>) {
    match effect {
        Effect::Set { value, ttl, .. } => ("set", ttl.map_or(0, to_live), vec![value.clone()]),
        Effect::Add { n, .. } => ("add", 0, vec![n.to_string().into()]),
        Effect::Append { fields, maxlen, .. } => {
            let fields = fields.iter().flat_map(|(name, value)| [name.clone(), value.clone()]);
            ("append", maxlen.unwrap_or(0), fields.collect())
        }
        Effect::Result { value, ttl } => ("result", to_live(*ttl), vec![value.clone()]),
        Effect::Forward { ring, headers, body } => {
            let message = Message::new(ring, 0, Epoch(0), 0, body.clone()).with_headers(headers.clone());
            let mut element = Vec::with_capacity(headers.bytes() + body.len() + 16);
            message.write_rest(&mut element);
            ("forward", 0, vec![element.into()])
        }
    }
}

/// The time to live of a value. A time below one millisecond would be none.
fn to_live(ttl: Duration) -> u64 {
    millis(ttl).max(1)
}

impl BadEffects {
    /// Reads `position bytes reason` for each message whose effects are bad.
    pub(super) fn read(text: &[u8]) -> Result<Vec<Self>> {
        let mut numbers = Numbers { bytes: text, at: 0 };
        let mut bad = Vec::new();
        while numbers.at < text.len() {
            let mut next = || {
                let (position, length) = (numbers.next()?.checked_sub(1)?, numbers.next()?);
                let end = numbers.at.checked_add(usize::try_from(length).ok()?)?;
                let reason = String::from_utf8_lossy(text.get(numbers.at..end)?).into_owned();
                numbers.at = end;
                Some(Self { position: usize::try_from(position).ok()?, reason })
            };
            let unreadable =
                || Error::Answer(format!("the bad effects of turn are '{}'", String::from_utf8_lossy(text)));
            bad.push(next().ok_or_else(unreadable)?);
        }
        Ok(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_effects_are_read_back_with_reasons_of_any_text() {
        let bad = |position, reason: &str| BadEffects { position, reason: reason.into() };
        let read = |text: &str| BadEffects::read(text.as_bytes()).ok();
        assert_eq!(read(""), Some(vec![]));
        assert_eq!(read("1 2 no3 0 12 5 2 2 1"), Some(vec![bad(0, "no"), bad(2, ""), bad(11, "2 2 1")]));
        for unreadable in ["1", "1 ", "1 3 no", "0 2 no", "x 2 no", "1 999999999999999 no"] {
            assert_eq!(read(unreadable), None, "{unreadable}");
        }
    }
}
