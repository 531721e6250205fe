//! What a node reports to the surrounding program while it runs.

use std::time::Duration;

use crate::identity::{Epoch, MemberId};
use crate::message::Message;

/// One thing that happened to this node.
#[derive(Debug)]
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

/// Receives notices of what happens. The node calls it from several threads, between two steps, so it should be quick.
pub trait Observer: Send + Sync + 'static {
    /// Called when something happened.
    fn notice(&self, notice: Notice<'_>);
}

/// An observer that ignores everything.
impl Observer for () {
    fn notice(&self, _: Notice<'_>) {}
}
