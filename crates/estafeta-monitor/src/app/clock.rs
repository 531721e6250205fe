//! The time of the monitor, and its intervals.

use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior};

/// The time between two ticks of the model. Changes that no key caused are drawn at the next tick.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// The time between two plain lines, and between two fetches for the open errors view.
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// A clock that runs evenly, even if the clock of this machine is set meanwhile.
pub(super) struct MonotonicClock {
    pub(super) wall_ms: u64,
    pub(super) since: Instant,
}

impl MonotonicClock {
    pub(super) fn now_ms(&self) -> u64 {
        self.wall_ms + u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0)
    }
}

pub(super) fn ticks(period: Duration) -> Interval {
    ticks_from(tokio::time::Instant::now(), period)
}

/// An interval that ticks once after a standstill and not once per missed tick.
pub(super) fn ticks_from(first: tokio::time::Instant, period: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(first, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
