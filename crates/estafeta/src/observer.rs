//! What a copy tells the program around it while it runs.

use std::time::Duration;

use crate::member_id::{Epoch, MemberId};
use crate::message::Message;

/// One thing that happened to this copy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The copy is a member of the ring, for the first time or again.
    Joined {
        /// Its number.
        member: MemberId,
    },
    /// The ring does not know the copy any more: it was declared dead, and what it held has gone back, or the ring was
    /// wiped. It joins again as a new member.
    DeclaredDead,
    /// The copy is the generator from now on.
    BecameGenerator {
        /// The term.
        epoch: Epoch,
        /// Who led before, if anybody did.
        from: Option<MemberId>,
        /// For how long the office was vacant, or its holder not heard of.
        silence: Duration,
    },
    /// The copy handles messages from now on.
    BecameHandler,
    /// Messages were published: Redis has them.
    Generated {
        /// All of one step.
        messages: &'a [Message],
    },
    /// Messages got their outcome: Redis has recorded it.
    Settled {
        /// The number under which this copy held them.
        member: MemberId,
        /// All of one step.
        messages: &'a [Message],
        /// Those that failed: position among `messages`, and why.
        failures: &'a [(usize, String)],
    },
    /// A dead member was removed, and what it held went back.
    Buried {
        /// Its number.
        member: MemberId,
        /// Messages that went back to the queue.
        returned: u64,
        /// Messages that became errors because their attempts are used up.
        gave_up: u64,
    },
    /// The ring has published as many messages as it may.
    LimitReached {
        /// The limit.
        limit: u64,
    },
    /// Redis does not serve this copy at the moment; it keeps trying.
    RedisLost {
        /// Why.
        reason: &'a str,
    },
    /// Redis serves this copy again.
    RedisBack,
    /// The copy was told to stop; what is being handled is finished, until the deadline.
    Stopping,
    /// The copy left the ring.
    Left {
        /// Messages that were not finished and went back to the queue.
        returned: u64,
    },
}

/// Is told what happens. It is called from several threads, between two steps of the copy: it should be quick.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn notice(&self, notice: Notice<'_>);
}

/// Nobody watches.
impl Observer for () {
    fn notice(&self, _: Notice<'_>) {}
}
