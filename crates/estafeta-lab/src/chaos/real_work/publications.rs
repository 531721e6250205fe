//! What the publishers recorded: each call with its answer. An answer that Redis may have lost counts as none: nobody
//! knows what became of the call.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::node::GENERATED;
use crate::chaos::judge::Evidence;
use crate::record::Step;

/// One call of a publisher.
pub struct PublishCall<'a> {
    pub messages: &'a [(Option<String>, String)],
    pub receipts: Option<&'a [(u64, bool)]>,
}

/// One call that cancels a message: when it was answered, and whether the message was cancelled.
#[derive(Clone, Copy)]
pub struct CancelCall {
    pub answer: Option<(u64, bool)>,
}

/// What the publishers recorded.
pub struct Publications<'a> {
    pub calls: Vec<PublishCall<'a>>,
    pub cancellations: BTreeMap<u64, Vec<CancelCall>>,
    /// Calls that Redis refused, although the earlier message with their key was cancelled for sure.
    pub refused: Vec<u64>,
    /// When publishers were told the ids of messages.
    receipts: HashMap<u64, Vec<u64>>,
}

impl<'a> Publications<'a> {
    pub fn of(evidence: &'a Evidence) -> Self {
        let (mut calls, mut cancellations) = (Vec::new(), BTreeMap::<u64, Vec<CancelCall>>::new());
        let mut refused = Vec::new();
        let mut all_receipts = HashMap::<u64, Vec<u64>>::new();
        let records = evidence.work.iter().flat_map(|work| &work.publishers);
        for record in records {
            let (mut receipts, mut answers) = (HashMap::new(), HashMap::new());
            // A publisher uses a key again only right after it has cancelled the earlier message with that key.
            let (mut was_cancelled, mut not_published) = (true, HashSet::new());
            for line in record {
                let is_sure = !evidence.losses.cover(line.at_ms);
                match &line.step {
                    Step::Receipts { call, receipts: its } => {
                        its.iter().for_each(|(id, _)| all_receipts.entry(*id).or_default().push(line.at_ms));
                        if is_sure {
                            receipts.insert(*call, &its[..]);
                        }
                    }
                    Step::Refused { call } => {
                        not_published.insert(*call);
                        if was_cancelled {
                            refused.push(*call);
                        }
                    }
                    Step::Cancelled { call, is_cancelled } => {
                        was_cancelled = is_sure;
                        if is_sure {
                            answers.insert(*call, (line.at_ms, *is_cancelled));
                        }
                    }
                    _ => {}
                }
            }
            for line in record {
                match &line.step {
                    Step::Submits { call, messages } if !not_published.contains(call) => {
                        calls.push(PublishCall { messages, receipts: receipts.get(call).copied() });
                    }
                    Step::Cancels { call, id } => {
                        let cancellation = CancelCall { answer: answers.get(call).copied() };
                        cancellations.entry(*id).or_default().push(cancellation);
                    }
                    _ => {}
                }
            }
        }
        Self { calls, cancellations, refused, receipts: all_receipts }
    }

    /// When publishers were told this id.
    pub fn receipts_of(&self, id: u64) -> impl Iterator<Item = u64> {
        self.receipts.get(&id).into_iter().flatten().copied()
    }

    /// Whether the message was cancelled, as far as anyone knows. Nobody knows what became of a call without an answer.
    pub fn may_be_cancelled(&self, id: u64) -> bool {
        let maybe = |one: &CancelCall| one.answer.is_none_or(|(_, is_cancelled)| is_cancelled);
        self.cancellations.get(&id).is_some_and(|all| all.iter().any(maybe))
    }

    pub fn was_cancelled(&self, id: u64) -> bool {
        let surely = |one: &CancelCall| one.answer.is_some_and(|(_, is_cancelled)| is_cancelled);
        self.cancellations.get(&id).is_some_and(|all| all.iter().any(surely))
    }
}

/// Whether a publisher made this body, and not the generator.
pub fn is_from_outside(body: &str) -> bool {
    !body.starts_with(GENERATED)
}
