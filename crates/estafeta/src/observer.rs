//! What a node reports to the surrounding program while it runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::identity::{Epoch, MemberId};
use crate::message::Message;

/// One thing that happened to this node.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The node is a member of the ring, for the first time or again.
    Joined {
        /// Its number.
        member: MemberId,
    },
    /// The ring no longer knows the node. Either the node was declared dead and the messages it held went back, or the
    /// ring was wiped. The node joins again as a new member.
    DeclaredDead,
    /// The node is the generator from now on.
    BecameGenerator {
        /// The term.
        epoch: Epoch,
        /// The previous generator, if there was one.
        from: Option<MemberId>,
        /// How long the office was vacant, or its holder was not heard from.
        silence: Duration,
    },
    /// The node handles messages from now on.
    BecameHandler,
    /// Messages were published: Redis has them.
    Generated {
        /// All of one step.
        messages: &'a [Message],
    },
    /// Messages got their outcome: Redis has recorded it.
    Settled {
        /// The member number under which this node held them.
        member: MemberId,
        /// All of one step.
        messages: &'a [Message],
        /// The messages that failed: position in `messages`, and reason.
        failures: &'a [(usize, String)],
    },
    /// Messages wait in Redis for another delivery: Redis has recorded that.
    Postponed {
        /// The member number under which this node held them.
        member: MemberId,
        /// All of one step.
        messages: &'a [Postponed],
    },
    /// The handler has used 80 % of its time limit for a message, and is not done.
    HandlerSlow {
        /// The message.
        message: &'a Message,
        /// The time limit.
        limit: Duration,
    },
    /// The handler blocks its thread beyond the time limit. Its message counts as failed. Its lane handles nothing until
    /// the handler returns.
    HandlerStuck {
        /// The message.
        message: &'a Message,
        /// How many lanes of this node are stuck.
        stuck: usize,
    },
    /// The handler can handle no message at the moment. The message went back to the queue, and the lane rests.
    HandlerBroken {
        /// The message.
        message: &'a Message,
        /// Why.
        reason: &'a str,
        /// How long the lane takes no message.
        rest: Duration,
    },
    /// A dead member was removed, and the messages it held went back.
    Buried {
        /// Its number.
        member: MemberId,
        /// Messages that went back to the queue.
        returned: u64,
        /// Messages that became dead letters because too many nodes died with them.
        gave_up: u64,
    },
    /// The source of this generator failed or panicked. The node calls it again after a pause.
    SourceFailed {
        /// Why.
        reason: &'a str,
        /// How often the source has failed since it last made a message.
        in_a_row: u64,
        /// The pause.
        pause: Duration,
    },
    /// The ring has published as many messages as its limit allows.
    LimitReached {
        /// The limit.
        limit: u64,
    },
    /// Redis does not serve this node at the moment. The node keeps trying.
    RedisLost {
        /// Why.
        reason: &'a str,
    },
    /// Redis serves this node again.
    RedisBack,
    /// The node was asked to stop. Handlers may finish their current messages until the deadline.
    Stopping,
    /// The node left the ring.
    Left {
        /// Messages that were not finished and went back to the queue.
        returned: u64,
    },
}

/// A message that waits for another delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Postponed {
    /// The message, as it was delivered.
    pub message: Message,
    /// How long it waits.
    pub after: Duration,
    /// Why it failed. None if its handler snoozed it.
    pub failure: Option<String>,
}

type Observer = dyn Fn(&Notice<'_>) + Send + Sync;

/// The functions that receive the notices of a node, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Observers(Vec<Box<Observer>>);

impl Observers {
    pub fn add(&mut self, observer: impl Fn(&Notice<'_>) + Send + Sync + 'static) {
        self.0.push(Box::new(observer));
    }

    /// Logs the notice, and calls all of them. A panic of one goes no further.
    pub fn notice(&self, notice: Notice<'_>) {
        log(&notice);
        for observer in &self.0 {
            if catch_unwind(AssertUnwindSafe(|| observer(&notice))).is_err() {
                tracing::warn!("an observer panicked");
            }
        }
    }
}

/// What a program that has no observer must still be able to see. The level is what an operator would choose.
fn log(notice: &Notice<'_>) {
    const TARGET: &str = "estafeta::notices";
    match notice {
        Notice::Joined { member } => tracing::info!(target: TARGET, %member, "joined"),
        Notice::DeclaredDead => tracing::warn!(target: TARGET, "declared dead, joining again"),
        Notice::BecameGenerator { epoch, .. } => tracing::info!(target: TARGET, %epoch, "became generator"),
        Notice::BecameHandler => tracing::info!(target: TARGET, "became handler"),
        Notice::Settled { messages, failures, .. } => {
            for (at, reason) in *failures {
                let (id, attempt) = (messages[*at].id, messages[*at].attempt());
                tracing::warn!(target: TARGET, id, attempt, reason, "a message became a dead letter");
            }
        }
        Notice::Postponed { messages, .. } => {
            for postponed in *messages {
                let Postponed { message, after, failure } = postponed;
                let (id, attempt) = (message.id, message.attempt());
                match failure {
                    Some(reason) => {
                        tracing::warn!(target: TARGET, id, attempt, ?after, reason, "a message failed")
                    }
                    None => tracing::debug!(target: TARGET, id, ?after, "a message was snoozed"),
                }
            }
        }
        Notice::HandlerSlow { message, limit } => {
            tracing::warn!(target: TARGET, id = message.id, ?limit, "a handler is slow");
        }
        Notice::HandlerStuck { message, stuck } => {
            tracing::error!(target: TARGET, id = message.id, stuck, "a handler is stuck");
        }
        Notice::HandlerBroken { message, reason, rest } => {
            tracing::error!(target: TARGET, id = message.id, reason, ?rest, "a handler is broken");
        }
        Notice::Buried { member, returned, gave_up } => {
            tracing::info!(target: TARGET, %member, returned, gave_up, "buried a dead member");
        }
        Notice::SourceFailed { reason, in_a_row, .. } => {
            tracing::warn!(target: TARGET, in_a_row, reason, "the source failed");
        }
        Notice::RedisLost { reason } => tracing::warn!(target: TARGET, reason, "lost Redis"),
        Notice::RedisBack => tracing::info!(target: TARGET, "Redis is back"),
        Notice::Left { returned } => tracing::info!(target: TARGET, returned, "left the ring"),
        Notice::Generated { .. } | Notice::LimitReached { .. } | Notice::Stopping => {}
    }
}
