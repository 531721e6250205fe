//! The state of a node in its ring. Only the heartbeat writes it, and all other parts await it.

use std::time::Instant;

use crate::identity::{Epoch, Identity};
use crate::steps::Term;

#[derive(Clone, Debug)]
pub(crate) enum MemberState {
    /// Not a member: the node was declared dead and is not yet back.
    Away,
    Handler(Identity),
    Generator(Identity, Term, ServerClock),
}

impl MemberState {
    pub fn identity(&self) -> Option<Identity> {
        match self {
            Self::Away => None,
            Self::Handler(me) | Self::Generator(me, ..) => Some(*me),
        }
    }

    /// Whether this node may claim messages. `both` is whether it handles even while it is the generator.
    pub fn handles(&self, both: bool) -> bool {
        match self {
            Self::Away => false,
            Self::Handler(_) => true,
            Self::Generator(..) => both,
        }
    }

    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Generator(_, term, _) => Some(term.epoch),
            _ => None,
        }
    }
}

/// Redis' clock. Between two replies, this node's monotonic clock advances it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerClock {
    ms: u64,
    at: Instant,
}

impl ServerClock {
    pub fn new(now_ms: u64) -> Self {
        Self { ms: now_ms, at: Instant::now() }
    }

    /// When this node heard from Redis.
    pub fn heard_at(&self) -> Instant {
        self.at
    }

    /// What Redis' clock shows at a local moment.
    pub fn ms_at(&self, moment: Instant) -> u64 {
        self.ms + u64::try_from(moment.saturating_duration_since(self.at).as_millis()).unwrap_or(0)
    }

    /// The local moment at which Redis' clock will show `ms`. A time in the past counts as now.
    pub fn instant(&self, ms: u64) -> Instant {
        self.at + std::time::Duration::from_millis(ms.saturating_sub(self.ms))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_servers_clock_goes_on_between_two_answers() {
        let clock = ServerClock::new(5_000);
        assert_eq!(clock.ms_at(clock.at + Duration::from_millis(250)), 5_250);
        assert_eq!(clock.instant(5_250), clock.at + Duration::from_millis(250));
        assert_eq!(clock.instant(4_000), clock.at, "the past is now");
    }
}
