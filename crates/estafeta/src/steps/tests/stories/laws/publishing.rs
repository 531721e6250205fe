//! What the generator and publishers publish.

use std::collections::{BTreeMap, BTreeSet};

use crate::keys::Keys;
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
    if let (StoryCall::Publish(publication), Answer::Published { first, .. }) = (call, answer) {
        expected_ticks.extend(publication.ticks.iter().map(|(name, ms)| (name.clone(), ms.to_string())));
        expected_checkpoint = publication.checkpoint.clone().or(expected_checkpoint);
        let waiting: BTreeSet<u64> =
            list(after, &keys.ready).iter().flat_map(|element| ids_in(element)).collect();
        let ids = *first..first + publication.bodies.len() as u64;
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

/// What publishers were told, as a second opinion about keys and repeats.
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
        let (StoryCall::Submit(call), Answer::Submitted { first, duplicates }) = (call, answer) else {
            return Vec::new();
        };
        let mut broken = Vec::new();
        let former = self.publishes.insert((call.publisher, call.sequence), *first);
        if let Some(former) = former {
            broken.push(format!("a publish was applied twice, from #{former} and from #{first}"));
        }
        let duplicates: Vec<u64> =
            duplicates.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let mut next_id = *first;
        for (position, draft) in (1..).zip(&call.messages) {
            let duplicate = duplicates.chunks(2).find(|pair| pair[0] == position).map(|pair| pair[1]);
            let id = duplicate.unwrap_or(next_id);
            next_id += u64::from(duplicate.is_none());
            if let Some(key) = draft.key {
                let known = *self.keys.entry(key).or_insert(id);
                if known != id {
                    broken
                        .push(format!("two messages have the key '{key}' in its window: #{known} and #{id}"));
                }
            } else if duplicate.is_some() && draft.single.is_none() {
                broken.push(format!("message {position} has no key and is a duplicate of #{id}"));
            }
        }
        broken
    }
}
