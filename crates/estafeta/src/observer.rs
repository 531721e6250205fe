//! What a node reports to the surrounding program while it runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::identity::{Epoch, MemberId};
use crate::keys::RingName;
use crate::message::Message;
use crate::partition::Partition;

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
    /// Handlers have ended, and Redis has recorded what became of their messages.
    Timed {
        /// The times of all messages of one step.
        times: &'a [HandlingTimes],
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
    /// Redis has answered a step. The node makes many of them, so an observer should be quick with this notice.
    StepAnswered {
        /// The name of the step, such as `turn`.
        step: &'static str,
        /// The time from the last request to its answer.
        took: Duration,
    },
    /// The control thread runs. This notice comes about once per second while the node is in its ring or on its way
    /// back, whether Redis answers or not. If it stays away, the process hangs.
    StillRunning,
    /// The node was asked to stop. Handlers may finish their current messages until the deadline.
    Stopping,
    /// The node left the ring.
    Left {
        /// Messages that were not finished and went back to the queue.
        returned: u64,
    },
}

/// How long one message waited, and how long its handler took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlingTimes {
    /// From the publish of the message to the start of its handler, by Redis' clock. None if it was delivered before,
    /// because it then waited for another reason.
    pub waited: Option<Duration>,
    /// How long the handler took.
    pub took: Duration,
    /// What became of the message.
    pub result: HandlingResult,
}

/// What became of a message after its handler had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandlingResult {
    /// It is done.
    Done,
    /// It became a dead letter.
    Failed,
    /// It failed, and waits for another attempt.
    Retried,
    /// Its handler snoozed it.
    Snoozed,
}

impl fmt::Display for HandlingResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Snoozed => "snoozed",
        })
    }
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

/// A function that receives the notices of a node, and the partition of each.
pub(crate) type Observer = Box<dyn Fn(Partition, &Notice<'_>) + Send + Sync>;

/// Everyone who hears of the notices of a node in one partition: the log, and the functions in the order in which they
/// were added.
pub(crate) struct Observers {
    ring: RingName,
    partition: Partition,
    functions: Arc<[Observer]>,
}

impl Observers {
    pub fn new(ring: RingName, partition: Partition, functions: Arc<[Observer]>) -> Self {
        Self { ring, partition, functions }
    }

    /// Logs the notice, and calls all functions. A panic of one goes no further.
    pub fn notice(&self, notice: Notice<'_>) {
        log(&self.ring, &notice);
        for observer in &*self.functions {
            if catch_unwind(AssertUnwindSafe(|| observer(self.partition, &notice))).is_err() {
                tracing::warn!("an observer panicked");
            }
        }
    }
}

/// What a program that has no observer must still be able to see. The level is what an operator would choose.
fn log(ring: &RingName, notice: &Notice<'_>) {
    const TARGET: &str = "estafeta::notices";
    match notice {
        Notice::Joined { member } => tracing::info!(target: TARGET, %ring, %member, "joined"),
        Notice::DeclaredDead => tracing::warn!(target: TARGET, %ring, "declared dead, joining again"),
        Notice::BecameGenerator { epoch, .. } => {
            tracing::info!(target: TARGET, %ring, %epoch, "became generator")
        }
        Notice::BecameHandler => tracing::info!(target: TARGET, %ring, "became handler"),
        Notice::Settled { messages, failures, .. } => {
            for (at, reason) in *failures {
                let (id, attempt) = (messages[*at].id, messages[*at].attempt());
                tracing::warn!(target: TARGET, %ring, id, attempt, reason, "a message became a dead letter");
            }
        }
        Notice::Postponed { messages, .. } => {
            for postponed in *messages {
                let Postponed { message, after, failure } = postponed;
                let (id, attempt) = (message.id, message.attempt());
                // Nobody reads the nanoseconds of a random wait.
                let after = Duration::from_millis(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
                match failure {
                    Some(reason) => {
                        tracing::warn!(target: TARGET, %ring, id, attempt, ?after, reason, "a message failed")
                    }
                    None => tracing::debug!(target: TARGET, %ring, id, ?after, "a message was snoozed"),
                }
            }
        }
        Notice::HandlerSlow { message, limit } => {
            tracing::warn!(target: TARGET, %ring, id = message.id, ?limit, "a handler is slow");
        }
        Notice::HandlerStuck { message, stuck } => {
            tracing::error!(target: TARGET, %ring, id = message.id, stuck, "a handler is stuck");
        }
        Notice::HandlerBroken { message, reason, rest } => {
            tracing::error!(target: TARGET, %ring, id = message.id, reason, ?rest, "a handler is broken");
        }
        Notice::Buried { member, returned, gave_up } => {
            tracing::info!(target: TARGET, %ring, %member, returned, gave_up, "buried a dead member");
        }
        Notice::SourceFailed { reason, in_a_row, .. } => {
            tracing::warn!(target: TARGET, %ring, in_a_row, reason, "the source failed");
        }
        Notice::RedisLost { reason } => tracing::warn!(target: TARGET, %ring, reason, "lost Redis"),
        Notice::RedisBack => tracing::info!(target: TARGET, %ring, "Redis is back"),
        Notice::Left { returned } => tracing::info!(target: TARGET, %ring, returned, "left the ring"),
        Notice::Generated { .. } | Notice::Timed { .. } | Notice::LimitReached { .. } => {}
        Notice::Stopping | Notice::StepAnswered { .. } | Notice::StillRunning => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct LogText(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogText {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_about_a_notice_names_the_ring_and_rounds_its_times() {
        let text = LogText::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .without_time()
            .with_ansi(false)
            .finish();
        let message = Message::sample("orders", 17, "two pizzas");
        let after = Duration::from_nanos(1_203_456_789);
        let failed = Postponed { message: message.clone(), after, failure: Some("no dough".to_owned()) };
        let snoozed = Postponed { message, after, failure: None };
        tracing::subscriber::with_default(subscriber, || {
            let observers =
                Observers::new("orders".parse().unwrap(), Partition { index: 0, count: 1 }, Arc::new([]));
            observers.notice(Notice::Joined { member: MemberId(3) });
            observers.notice(Notice::Postponed { member: MemberId(3), messages: &[failed, snoozed] });
        });
        let text = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        let expected = [
            "INFO estafeta::notices: joined ring=orders member=3",
            "WARN estafeta::notices: a message failed ring=orders id=17 attempt=1 after=1.203s reason=\"no dough\"",
            "DEBUG estafeta::notices: a message was snoozed ring=orders id=17 after=1.203s",
        ];
        assert_eq!(lines, expected);
    }
}
