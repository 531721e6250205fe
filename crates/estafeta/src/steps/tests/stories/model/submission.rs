//! `submit` and `cancel`: what publishers outside the ring publish, at once or for later, and what they take back.

use std::collections::BTreeMap;

use super::super::answer::Answer;
use super::super::simulated_publisher::{StoryCancellation, StoryDraft, StorySubmission};
use crate::steps::MessageRef;

use super::{Delayed, ModelClock, ModelMessage, ModelRing};

/// The message that has taken a key.
#[derive(Clone)]
pub(in super::super) struct TakenKey {
    pub id: u64,
    /// When the ring began in which it was published.
    pub born: u64,
    pub fingerprint: String,
}

/// The last call of a publisher, and what was answered to it. For a cancel, `first` is 1 if the message was cancelled.
#[derive(Clone)]
pub(in super::super) struct LastCall {
    pub sequence: u64,
    pub first: u64,
    pub duplicates: String,
}

impl ModelRing {
    pub(super) fn submit(&mut self, call: &StorySubmission, clock: &ModelClock) -> Answer {
        let ours = Self::LAYOUT;
        if let Some(refusal) = self.refuse_publisher(call.application, call.partitions, true) {
            return refusal;
        }
        match self.publishers.get(&call.publisher) {
            Some(last) if last.sequence > call.sequence => return Answer::Late,
            Some(LastCall { sequence, first, duplicates }) if *sequence == call.sequence => {
                return Answer::AlreadySubmitted { first: *first, duplicates: duplicates.clone() };
            }
            _ => {}
        }
        let now = clock.now();
        let born = self.ledger.get("born").copied().unwrap_or(now);
        let first = self.count("published") + 1;
        let (mut next_id, mut duplicates, mut taken) = (first, String::new(), BTreeMap::new());
        let (mut added, mut delayed, mut singles) = (Vec::new(), Vec::new(), BTreeMap::new());
        for group in call.messages.chunk_by(|one, next| one.is_plain() && next.is_plain()) {
            let pack = (group.len() > 1).then_some(next_id);
            for draft in group {
                let position = next_id - first + 1 + duplicates.split_whitespace().count() as u64 / 2;
                if let Some(key) = draft.key {
                    let former = self.keys.get(key).filter(|former| former.born == born);
                    if let Some(former) = taken.get(key).or(former) {
                        if former.fingerprint != draft.fingerprint() {
                            return Answer::Reused { positions: position.to_string() };
                        }
                        duplicates.push_str(&format!("{position} {} ", former.id));
                        continue;
                    }
                    let fingerprint = draft.fingerprint();
                    taken.insert(key, TakenKey { id: next_id, born, fingerprint });
                }
                if let Some(name) = draft.single {
                    if let Some(waiting) = singles.get(name).or(self.singles.get(name)) {
                        duplicates.push_str(&format!("{position} {waiting} "));
                        self.effects.push("single duplicate");
                        continue;
                    }
                    singles.insert(name, next_id);
                }
                let message = new_message(draft, next_id, now, pack);
                if draft.delay_ms > 0 {
                    delayed.push(Delayed { due: clock.in_ms(draft.delay_ms), message });
                } else {
                    added.push(message);
                }
                next_id += 1;
            }
        }
        if let Some(end) =
            self.producing_end.filter(|end| *end > now && !(added.is_empty() && delayed.is_empty()))
        {
            return Answer::Paused { end };
        }
        if !added.is_empty() && (self.ready.len() + added.len()) as u64 > call.max_waiting {
            return Answer::Full;
        }

        self.schema = Some(ours);
        self.application = self.application.or(Some(call.application).filter(|ours| !ours.is_empty()));
        self.partitions = self.partitions.or(Some(call.partitions).filter(|count| *count > 1));
        self.ledger.entry("born").or_insert(now);
        self.keys.extend(taken);
        self.singles.extend(singles);
        let last = LastCall { sequence: call.sequence, first, duplicates: duplicates.clone() };
        self.publishers.insert(call.publisher, last);
        let was_empty = self.ready.is_empty();
        self.add("published", added.len() + delayed.len());
        self.add("submitted", added.len() + delayed.len());
        self.ready.extend(added);
        let soonest = self.soonest();
        for one in delayed {
            self.later.insert(one.message.id, one);
            self.effects.push("published for later");
        }
        if self.end_pause(clock) || was_empty || self.soonest() != soonest {
            self.wake(None, false, clock);
        }
        Answer::Submitted { first, duplicates }
    }

    /// The answer to a publisher that may not use the ring.
    fn refuse_publisher(&self, application: &str, partitions: u32, demands: bool) -> Option<Answer> {
        if let Some(theirs) = self.schema.filter(|theirs| *theirs != Self::LAYOUT) {
            return Some(Answer::Schema { theirs: theirs.into() });
        }
        self.refuse(application, Some(partitions), demands)
    }

    /// Only a message that was never delivered is cancelled.
    pub(super) fn cancel(&mut self, call: &StoryCancellation) -> Answer {
        if let Some(refusal) = self.refuse_publisher(call.application, call.partitions, false) {
            return refusal;
        }
        match self.publishers.get(&call.publisher) {
            Some(last) if last.sequence > call.sequence => return Answer::Late,
            Some(last) if last.sequence == call.sequence => {
                return Answer::AlreadyCancelled { was_delayed: last.first == 1 };
            }
            _ => {}
        }
        if self.schema.is_none() {
            return Answer::Cancelled { was_delayed: false };
        }
        let id = match call.which {
            MessageRef::Id(id) => id,
            MessageRef::Key(key) => {
                let born = self.count("born");
                self.keys.get(key).filter(|taken| taken.born == born).map_or(0, |taken| taken.id)
            }
        };
        let was_delayed = self.later.get(&id).is_some_and(|delayed| delayed.message.deliveries == 0);
        let (sequence, first) = (call.sequence, was_delayed.into());
        self.publishers.insert(call.publisher, LastCall { sequence, first, duplicates: String::new() });
        if was_delayed {
            self.later.remove(&id);
            self.end(id, "open message cancelled");
            self.cancelled.push(id);
            self.add("cancelled", 1);
            if let MessageRef::Key(key) = call.which {
                self.keys.remove(key);
            }
        }
        Answer::Cancelled { was_delayed }
    }
}

fn new_message(draft: &StoryDraft, id: u64, now: u64, pack: Option<u64>) -> ModelMessage {
    let mut headers = Vec::new();
    draft.headers.write(&mut headers);
    ModelMessage { headers, pack, ..ModelMessage::new(id, now, now, draft.body.clone()) }
}
