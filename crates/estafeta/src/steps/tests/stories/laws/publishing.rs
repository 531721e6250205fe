//! What the generator and publishers publish.

use std::collections::{BTreeMap, BTreeSet};

use super::delayed_in;
use super::hands::hand_in;
use crate::keys::{Keys, RingName};
use crate::message::{ENTRY, Message};
use crate::steps::tests::stories::accident::LOST_OPEN;
use crate::steps::tests::stories::answer::Answer;
use crate::steps::tests::stories::call::{StoryCall, ids_in};
use crate::steps::tests::stories::keyspace::{Keyspace, list, table};

/// Reports if a checkpoint or a tick moved without the messages of its publish, or they without it.
pub(in super::super) fn moved_apart(
    keys: &Keys,
    call: &StoryCall,
    answer: &Answer,
    before: &Keyspace,
    after: &Keyspace,
) -> Vec<String> {
    let ticks = |keyspace| table(keyspace, &keys.ticks);
    let checkpoint = |keyspace| {
        let stored = list(keyspace, &keys.checkpoint).first();
        stored.map(|stored| String::from_utf8_lossy(stored).into_owned())
    };
    let (mut expected_ticks, mut expected_checkpoint) = (ticks(before), checkpoint(before));
    let mut broken = Vec::new();
    if let (StoryCall::Publish(publication), Answer::Published { first, duplicates, .. }) = (call, answer) {
        expected_ticks.extend(publication.ticks.iter().map(|(name, ms)| (name.clone(), ms.to_string())));
        expected_checkpoint = publication.checkpoint.clone().or(expected_checkpoint);
        let delayed = delayed_in(keys, after);
        let waiting: BTreeSet<u64> =
            list(after, &keys.ready).iter().chain(&delayed).flat_map(|element| ids_in(element)).collect();
        let count = publication.bodies.len() - duplicates.split_whitespace().count() / 2;
        let ids = *first..first + count as u64;
        if !ids.clone().all(|id| waiting.contains(&id)) {
            broken.push(format!("the messages {ids:?} of a publish wait: {waiting:?}"));
        }
    }
    if ticks(after) != expected_ticks {
        broken.push(format!("ticks move with their messages: {:?} is not {expected_ticks:?}", ticks(after)));
    }
    if checkpoint(after) != expected_checkpoint {
        broken.push(format!(
            "a checkpoint moves with its messages: {:?} is not {expected_checkpoint:?}",
            checkpoint(after)
        ));
    }
    broken
}

/// The messages of schedule entries that wait, are delayed or in flight are open, and no others. An error that a user
/// retried is not open again. `failed` lists every message that ever was an error.
pub(in super::super) fn wrong_open(keys: &Keys, found: &Keyspace, failed: &BTreeSet<u64>) -> Option<String> {
    let hands = found.iter().filter(|(key, _)| key.contains(":member:"));
    let held = hands.flat_map(|(_, member)| hand_in(member)).map(|(_, element)| element.as_bytes().to_vec());
    let all = list(found, &keys.ready).iter().cloned().chain(delayed_in(keys, found)).chain(held);
    let singles = all.filter(|element| !element.starts_with(b"*"));
    let messages = singles.map(|element| Message::parse(&RingName::sample(), element.into()));
    let expected: BTreeMap<String, String> = messages
        .filter(|message| !failed.contains(&message.id))
        .filter_map(|message| Some((message.id.to_string(), message.headers().get(ENTRY)?.to_owned())))
        .collect();
    let mut open = table(found, &keys.open);
    open.remove(&LOST_OPEN.to_string());
    (open != expected).then(|| format!("messages without an outcome are open: {open:?} for {expected:?}"))
}

/// Reports if the plan of a schedule changed without a publish that names it.
pub(in super::super) fn wrong_plan(
    keys: &Keys,
    call: &StoryCall,
    answer: &Answer,
    before: &Keyspace,
    after: &Keyspace,
) -> Option<String> {
    let mut expected = table(before, &keys.schedule);
    if let (StoryCall::Publish(publication), Answer::Published { .. }) = (call, answer) {
        expected = publication.plan.clone().unwrap_or(expected);
    }
    let plan = table(after, &keys.schedule);
    (plan != expected).then(|| format!("the plan is that of the last publish: {plan:?} is not {expected:?}"))
}

/// What Redis answered to publishers, as a second opinion about keys and repeats.
#[derive(Default)]
pub(in super::super) struct Receipts {
    /// The id of each key, as long as its window lasts.
    keys: BTreeMap<&'static str, u64>,
    /// The first id of each publish, by publisher and sequence.
    publishes: BTreeMap<(usize, u64), u64>,
}

impl Receipts {
    pub fn end_key(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// Reports if a publish was applied twice, or if two messages were published with one key.
    pub fn broken(&mut self, call: &StoryCall, answer: &Answer) -> Vec<String> {
        let mut broken = Vec::new();
        // Whether each message has a single name, and its key.
        let drafts: Vec<(bool, Option<&'static str>)> = match (call, answer) {
            (StoryCall::Submit(call), Answer::Submitted { first, .. }) => {
                let former = self.publishes.insert((call.publisher, call.sequence), *first);
                if let Some(former) = former {
                    broken.push(format!("a publish was applied twice, from #{former} and from #{first}"));
                }
                call.messages.iter().map(|draft| (draft.single.is_some(), draft.key)).collect()
            }
            (StoryCall::Publish(call), Answer::Published { .. }) => {
                call.terms.iter().map(|(key, _)| (false, *key)).collect()
            }
            _ => return broken,
        };
        let (Answer::Submitted { first, duplicates } | Answer::Published { first, duplicates, .. }) = answer
        else {
            return broken;
        };
        let duplicates: Vec<u64> =
            duplicates.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let mut next_id = *first;
        for (position, (is_single, key)) in (1..).zip(drafts) {
            let duplicate = duplicates.chunks(2).find(|pair| pair[0] == position).map(|pair| pair[1]);
            let id = duplicate.unwrap_or(next_id);
            next_id += u64::from(duplicate.is_none());
            if let Some(key) = key {
                let known = *self.keys.entry(key).or_insert(id);
                if known != id {
                    broken
                        .push(format!("two messages have the key '{key}' in its window: #{known} and #{id}"));
                }
            } else if duplicate.is_some() && !is_single {
                broken.push(format!("message {position} has no key and is a duplicate of #{id}"));
            }
        }
        broken
    }
}
