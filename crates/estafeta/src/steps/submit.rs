//! Publishes messages of a publisher outside the ring.

use std::time::Duration;

use super::{Call, NEVER, millis, script};
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::layout::{Layouts, known_words};
use crate::message::Message;
use crate::pack;
use crate::partition;
use crate::redis::{Reply, Store};

script!("submit" "" uses "clock" "notify" "lists" "ledger" "layout" "publishers" "brakes" "queue" "later" "drafts" "wakeup" "singles");

/// How long the ring remembers the last call of a publisher, to recognise a repeat of it.
pub(super) const MEMORY: Duration = Duration::from_secs(600);

/// The messages of one call, and the conditions under which they are published.
pub(crate) struct Submission<'a> {
    /// The application whose nodes share the ring. Empty for a publisher that may use any ring.
    pub application: &'a str,
    /// How many partitions the ring must have.
    pub partitions: u32,
    pub publisher: Incarnation,
    /// Grows with every publish of this publisher. Repeats have the same one.
    pub sequence: u64,
    pub max_waiting: u64,
    pub messages: &'a [NewMessage],
}

/// A message that is to be published. The script decides about its id, its epoch and its time.
#[derive(Clone, Debug)]
pub(crate) struct NewMessage {
    pub message: Message,
    pub terms: PublishTerms,
}

/// Whether and when a message is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PublishTerms {
    pub key: Option<MessageKey>,
    /// How long it waits before it goes to the queue.
    pub delay: Duration,
}

impl PublishTerms {
    /// Whether it is published at once and in any case. Then it may share an element with others.
    pub fn is_plain(&self) -> bool {
        self.key.is_none() && self.delay.is_zero()
    }
}

/// What makes a publish idempotent: no other message is published with this name while the window lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageKey {
    pub name: String,
    pub window: Duration,
    /// Equal for messages that may pass for the same one. Hexadecimal digits.
    pub fingerprint: String,
}

/// The different keys of some messages, in the order in which a script gets them.
#[derive(Default)]
pub(super) struct KeyNames<'a>(Vec<&'a str>);

impl<'a> KeyNames<'a> {
    /// The number of this key, counted from 1. Without a key, it is 0.
    pub fn number(&mut self, key: Option<&'a MessageKey>) -> usize {
        let Some(key) = key else { return 0 };
        let names = &mut self.0;
        names.iter().position(|name| *name == key.name).unwrap_or_else(|| {
            names.push(&key.name);
            names.len() - 1
        }) + 1
    }

    /// The keys of Redis that hold them.
    pub fn keys(&self, keys: &Keys) -> Vec<String> {
        self.0.iter().map(|name| keys.message_key(name)).collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Submit {
    /// The id of each message. For a duplicate, that is the id of the first message with its key or its single name.
    Submitted(Vec<Submitted>),
    /// The message at this position has the key of another message. Nothing was published.
    Reused(usize),
    Full,
    /// Producing is paused for this time, or until it is resumed.
    Paused(Option<Duration>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub id: u64,
    pub duplicate: bool,
}

pub(super) fn call(keys: &Keys, submission: &Submission<'_>) -> Call {
    let mut names = KeyNames::default();
    let mut groups = Vec::new();
    let share = |one: &NewMessage, next: &NewMessage| one.terms.is_plain() && next.terms.is_plain();
    for alike in submission.messages.chunk_by(share) {
        let (key, delay) = (alike[0].terms.key.as_ref(), alike[0].terms.delay);
        let number = names.number(key);
        let elements = pack::new_elements(&alike.iter().map(|new| &new.message).collect::<Vec<_>>());
        groups.extend(elements.into_iter().map(|(count, element)| (count, number, key, delay, element)));
    }
    let bytes = groups.iter().map(|(.., element)| element.len() + 128).sum();
    let publisher = keys.publisher(submission.publisher);
    let taken = names.keys(keys);
    let mut all = vec![
        ("schema", keys.schema.as_str()),
        ("requires", &keys.requires),
        ("application", &keys.application),
        ("ledger", &keys.ledger),
        ("ready", &keys.ready),
        ("later", &keys.later),
        ("delayed", &keys.delayed),
        ("singles", &keys.singles),
        ("publisher", &publisher),
    ];
    all.extend(taken.iter().map(|key| ("key", key.as_str())));
    let mut call = SCRIPT.call_with_room(&all, all.len() + 6 * groups.len(), bytes);
    let word = partition::word(submission.partitions);
    call.arg("oldest", Layouts::KNOWN.oldest)
        .arg("newest", Layouts::KNOWN.newest)
        .arg("known-words", known_words(&word))
        .arg("application", submission.application)
        .arg("sequence", submission.sequence)
        .arg("memory-ms", millis(MEMORY))
        .arg("max-waiting", submission.max_waiting)
        .arg("wakeup-prefix", &keys.wakeups)
        .arg("demand", &word);
    for (count, number, key, delay, element) in groups {
        call.arg("count", count)
            .arg("key-number", number)
            .arg("fingerprint", key.map_or("", |key| &key.fingerprint))
            .arg("window-ms", key.map_or(0, |key| millis(key.window).max(1)))
            .arg("delay-ms", millis(delay))
            .arg("element", element);
    }
    call
}

/// The ids of `count` messages. The script names the first id, and each duplicate with its position.
fn ids(first_id: u64, duplicates: &str, count: usize) -> Option<Vec<Submitted>> {
    let numbers = duplicates.split_whitespace().map(|number| number.parse::<u64>().ok());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let (mut next_id, mut pairs) = (first_id, numbers.chunks_exact(2).peekable());
    let mut all = Vec::with_capacity(count);
    for position in 1..=count as u64 {
        match pairs.next_if(|pair| pair[0] == position) {
            Some(pair) => all.push(Submitted { id: pair[1], duplicate: true }),
            None => {
                all.push(Submitted { id: next_id, duplicate: false });
                next_id += 1;
            }
        }
    }
    pairs.peek().is_none().then_some(all)
}

impl Store {
    pub async fn submit(&self, submission: &Submission<'_>) -> Result<Submit> {
        let mut reply: Reply = self.run(&SCRIPT, &call(self.keys(), submission)).await?;
        match reply.text()?.as_str() {
            "submitted" | "already" => {
                let (first_id, duplicates) = (reply.number()?, reply.text()?);
                let ids = ids(first_id, &duplicates, submission.messages.len());
                let unreadable = || Error::Answer(format!("the duplicates of submit are '{duplicates}'"));
                ids.map(Submit::Submitted).ok_or_else(unreadable)
            }
            "reused" => {
                let position = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
                Ok(Submit::Reused(position.saturating_sub(1)))
            }
            "full" => Ok(Submit::Full),
            "paused" => {
                let (now, end) = (reply.number()?, reply.number()?);
                let left = Duration::from_millis(end.saturating_sub(now));
                Ok(Submit::Paused((end < NEVER).then_some(left)))
            }
            other => {
                let Submission { application, partitions, .. } = submission;
                Err(self.refusal(other, &mut reply, Layouts::KNOWN, application, *partitions)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_keep_their_ids_and_the_others_have_consecutive_ones() {
        let shown = |first, duplicates, count| -> Option<Vec<(u64, bool)>> {
            ids(first, duplicates, count).map(|ids| ids.iter().map(|it| (it.id, it.duplicate)).collect())
        };
        assert_eq!(shown(5, "", 2), Some(vec![(5, false), (6, false)]));
        assert_eq!(shown(5, "1 3 3 5 ", 3), Some(vec![(3, true), (5, false), (5, true)]));
        for unreadable in ["4 1 ", "x 1 ", "2 1 1 1 "] {
            assert_eq!(shown(5, unreadable, 3), None, "{unreadable}");
        }
    }
}
