//! What the publishers recorded: each call with its answer.

use std::collections::{BTreeMap, HashMap};

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
}

impl<'a> Publications<'a> {
    pub fn of(evidence: &'a Evidence) -> Self {
        let (mut calls, mut cancellations) = (Vec::new(), BTreeMap::<u64, Vec<CancelCall>>::new());
        let records = evidence.work.iter().flat_map(|work| &work.publishers);
        for record in records {
            let (mut receipts, mut answers) = (HashMap::new(), HashMap::new());
            for line in record {
                match &line.step {
                    Step::Receipts { call, receipts: its } => drop(receipts.insert(*call, &its[..])),
                    Step::Cancelled { call, is_cancelled } => {
                        answers.insert(*call, (line.at_ms, *is_cancelled));
                    }
                    _ => {}
                }
            }
            for line in record {
                match &line.step {
                    Step::Submits { call, messages } => {
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
        Self { calls, cancellations }
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
