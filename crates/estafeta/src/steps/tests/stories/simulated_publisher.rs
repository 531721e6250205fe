//! A simulated publisher outside the ring. If an answer is lost, it sends the same call again, or it gives up and goes on
//! with its next publish.

use std::fmt;
use std::time::Duration;

use super::super::*;
use super::actions::PARTITIONS;
use super::simulated_node::BODIES;
use crate::steps::Call;

pub(super) const PUBLISHERS: usize = 3;
const APPLICATIONS: [&str; PUBLISHERS] = ["", "ours", "theirs"];
/// With few keys, most of them are taken.
pub(super) const KEYS: [&str; 2] = ["a", "b: c"];

/// Single names. A choice of a message decides which of them it has.
const SINGLES: [(u32, &str); 2] = [(10, "s"), (6, "1 2:t")];

/// One publisher. The first may use any ring, and the last runs another application than most nodes.
#[derive(Default)]
pub(super) struct SimulatedPublisher {
    sequence: u64,
    unanswered: Option<StorySubmission>,
}

#[derive(Clone, Debug)]
pub(super) struct StorySubmission {
    pub publisher: usize,
    pub application: &'static str,
    pub partitions: u32,
    pub sequence: u64,
    pub messages: Vec<StoryDraft>,
    pub max_waiting: u64,
}

#[derive(Clone, Debug)]
pub(super) struct StoryDraft {
    pub body: Vec<u8>,
    pub headers: Headers,
    pub key: Option<&'static str>,
    pub single: Option<&'static str>,
    pub delay_ms: u64,
}

impl SimulatedPublisher {
    /// `choices` has four bits for each message.
    pub fn submit(&mut self, publisher: usize, count: u8, choices: u32, room: u8) -> StorySubmission {
        // In one case of eight it gives up.
        if let Some(same) = self.unanswered.as_ref().filter(|_| !room.is_multiple_of(8)) {
            return same.clone();
        }
        self.sequence += 1;
        let draft = |at: u8| {
            let choice = choices >> (4 * at) & 15;
            let key = KEYS.get(choice as usize & 3).copied();
            // Messages with the same key are equal in most cases.
            let body = match key {
                Some(_) => vec![if choice == 12 || choice == 13 { 0xb } else { 0xa }],
                None => {
                    let body = BODIES[usize::from(room.wrapping_add(at)) % BODIES.len()];
                    [body, format!("@{publisher}.{}.{at}", self.sequence).as_bytes()].concat()
                }
            };
            let single = SINGLES.iter().find(|(its, _)| *its == choice).map(|(_, name)| *name);
            let mut headers = Headers::new();
            if let Some(name) = single {
                headers.insert("estafeta-single", name).expect("a short header");
            }
            if choice == 7 {
                headers.insert("h", "1").expect("a short header");
            }
            // Some of the messages are delayed, with a key (choices 9 and 13) or without.
            let delay_ms = match choice {
                9 | 11 | 13 => 10_000 * u64::from(room % 4 + 1),
                _ => 0,
            };
            StoryDraft { body, headers, key, single, delay_ms }
        };
        let submission = StorySubmission {
            publisher,
            application: APPLICATIONS[publisher],
            partitions: partitions(publisher, self.sequence),
            sequence: self.sequence,
            messages: (0..count).map(draft).collect(),
            max_waiting: 6 + u64::from(room % 12),
        };
        self.unanswered = Some(submission.clone());
        submission
    }

    /// It gives up a publish whose answer was lost. It never repeats a cancel by itself, but any call may arrive again.
    pub fn cancel(&mut self, publisher: usize, which: MessageRef<'static>) -> StoryCancellation {
        self.sequence += 1;
        self.unanswered = None;
        let (application, sequence) = (APPLICATIONS[publisher], self.sequence);
        let partitions = partitions(publisher, sequence);
        StoryCancellation { publisher, application, partitions, sequence, which }
    }

    /// Whatever the answer was, the publisher has received it.
    pub fn receive(&mut self) {
        self.unanswered = None;
    }
}

/// The last publisher does not always know how many partitions the ring has.
fn partitions(publisher: usize, sequence: u64) -> u32 {
    if publisher == PUBLISHERS - 1 && sequence.is_multiple_of(2) { 1 } else { PARTITIONS }
}

/// A publisher takes a delayed message back.
#[derive(Clone, Debug)]
pub(super) struct StoryCancellation {
    pub publisher: usize,
    pub application: &'static str,
    pub partitions: u32,
    pub sequence: u64,
    pub which: MessageRef<'static>,
}

impl StoryCancellation {
    pub fn build(&self, keys: &Keys) -> Call {
        let publisher = StorySubmission::incarnation(self.publisher);
        let Self { application, partitions, sequence, which, .. } = *self;
        cancel::call(keys, &Cancellation { application, partitions, publisher, sequence, which })
    }
}

impl fmt::Display for StoryCancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "publisher {} cancels {:?} (sequence {})", self.publisher, self.which, self.sequence)
    }
}

impl StoryDraft {
    /// Whether it shares a pack with its neighbours.
    pub fn is_plain(&self) -> bool {
        self.key.is_none() && self.headers.is_empty() && self.delay_ms == 0
    }

    pub fn fingerprint(&self) -> String {
        fingerprint(&self.body)
    }
}

/// Two bodies have the same fingerprint only if they are equal.
pub(super) fn fingerprint(body: &[u8]) -> String {
    body.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A key of a message with this body.
pub(super) fn story_key(name: &str, body: &[u8]) -> MessageKey {
    let (name, window) = (name.to_owned(), Duration::from_secs(24 * 3600));
    MessageKey { name, window, fingerprint: fingerprint(body) }
}

impl StorySubmission {
    pub fn incarnation(publisher: usize) -> Incarnation {
        format!("{:016x}", 0xf0 + publisher).parse().expect("sixteen digits")
    }

    pub fn build(&self, keys: &Keys) -> Call {
        let message = |draft: &StoryDraft| {
            let message = Message::new(&RingName::sample(), 0, Epoch(0), 0, draft.body.clone());
            let key = draft.key.map(|name| story_key(name, &draft.body));
            let delay = Duration::from_millis(draft.delay_ms);
            NewMessage {
                message: message.with_headers(draft.headers.clone()),
                terms: PublishTerms { key, delay },
            }
        };
        let messages: Vec<_> = self.messages.iter().map(message).collect();
        let submission = Submission {
            application: self.application,
            partitions: self.partitions,
            publisher: Self::incarnation(self.publisher),
            sequence: self.sequence,
            max_waiting: self.max_waiting,
            messages: &messages,
        };
        submit::call(keys, &submission)
    }
}

impl fmt::Display for StorySubmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "publisher {} sends submit(sequence {}", self.publisher, self.sequence)?;
        for draft in &self.messages {
            match draft.key {
                Some(key) => write!(f, ", {:?} with key '{key}'", draft.body)?,
                None => write!(f, ", a message")?,
            }
            if let Some(name) = draft.single {
                write!(f, " with the single name '{name}'")?;
            } else if !draft.headers.is_empty() {
                f.write_str(" with headers")?;
            }
            if draft.delay_ms > 0 {
                write!(f, " in {} ms", draft.delay_ms)?;
            }
        }
        write!(f, ", room {})", self.max_waiting)
    }
}
