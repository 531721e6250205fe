//! What a node has counted of waiting and handling times and not handed over yet.
//!
//! The clerk adds the times of what it settled. The heartbeat hands them over with its beats, at most once per second. A
//! group of latencies has a number and stays unchanged until a beat with it was answered. So a beat that is repeated
//! after a lost reply adds nothing twice. If a membership ends before the answer, the group is dropped: it may have
//! arrived.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::latency::Latencies;
use crate::steps::LatencyGroup;

/// How long a node gathers latencies before it hands them over.
const GATHERING: Duration = Duration::from_secs(1);

/// Latencies on their way to Redis.
#[derive(Default)]
pub(crate) struct LatencyLog {
    gathered: Mutex<(Latencies, Latencies)>,
}

impl LatencyLog {
    /// Adds waiting times and handling times.
    pub fn add(&self, wait: &Latencies, handling: &Latencies) {
        let mut gathered = self.gathered.lock().expect("no panic while held");
        gathered.0.merge(wait);
        gathered.1.merge(handling);
    }

    fn take(&self) -> (Latencies, Latencies) {
        std::mem::take(&mut self.gathered.lock().expect("no panic while held"))
    }
}

/// The side of the heartbeat: which group the next beat carries.
#[derive(Default)]
pub(crate) struct LatencyGroups {
    last_n: u64,
    pending: LatencyGroup,
    taken_at: Option<Instant>,
}

impl LatencyGroups {
    /// The group for the next beat: the pending one, or a new one if a second has passed. Its number is 0 if there is
    /// nothing to hand over.
    pub fn next(&mut self, log: &LatencyLog, now: Instant) -> &LatencyGroup {
        let is_time = self.taken_at.is_none_or(|at| now.saturating_duration_since(at) >= GATHERING);
        if self.pending.n == 0 && is_time {
            let (wait, handling) = log.take();
            if wait.total() + handling.total() > 0 {
                self.last_n += 1;
                self.pending = LatencyGroup { n: self.last_n, wait, handling };
                self.taken_at = Some(now);
            }
        }
        &self.pending
    }

    /// A beat was answered, or its membership is over.
    pub fn let_go(&mut self) {
        self.pending = LatencyGroup::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Latencies {
        let mut one = Latencies::default();
        one.record(Duration::from_millis(3));
        one
    }

    #[test]
    fn a_group_stays_the_same_until_its_beat_was_answered() {
        let (log, mut groups, now) = (LatencyLog::default(), LatencyGroups::default(), Instant::now());
        assert_eq!(groups.next(&log, now).n, 0, "nothing to hand over");
        log.add(&one(), &Latencies::default());
        let first = groups.next(&log, now).clone();
        assert_eq!((first.n, first.wait.total()), (1, 1));
        log.add(&one(), &one());
        assert_eq!(*groups.next(&log, now + GATHERING), first, "its beat was not answered yet");
        groups.let_go();
        assert_eq!(groups.next(&log, now + GATHERING / 2).n, 0, "only once per second");
        let second = groups.next(&log, now + GATHERING).clone();
        assert_eq!((second.n, second.wait.total(), second.handling.total()), (2, 1, 1));
    }
}
