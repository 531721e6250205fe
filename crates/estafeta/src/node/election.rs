//! Decides when a node tries to take office, and so when a take-over happens.
//!
//! Nodes do not ask each other, and no votes are counted. The scripts decide atomically, and `lead` checks the
//! generator itself before it hands over the office. This module decides only *when to try*. Every beat reports the
//! state of the generator:
//!
//! - No member is in office (it resigned or was buried, or this is the first node ever): try at once.
//! - The generator's lease expired (frozen, cut off, power loss): try at once.
//! - Its connection is gone (crashed): remember when this was first seen, in Redis' time, and look again. Try once the
//!   absence has lasted for the grace period, because a live node reconnects faster than that.
//! - It is alive: forget all suspicion.
//!
//! A node believes that the generator is dead only if its own connection is trusted and its own lease had not run out.
//! After a restart of Redis, every member looks dead to the first node that reconnects. After a pause of the whole
//! machine, every member looks dead to the first node that beats. A wrong try costs nothing, because `lead` returns
//! `follows`. A right try that comes too late costs a tick. So the heir looks most often, and the second in line looks
//! less often. All other nodes look only as often as they beat anyway. The cost of watching therefore does not grow
//! with the ring, and the office stays empty only if all nodes die.

use std::time::{Duration, Instant};

use crate::identity::Incarnation;
use crate::steps::{BeatReport, Health, Office};

pub(crate) struct Election {
    last_alive: Instant,
    /// The incumbent that was found absent, and since when in Redis' time.
    missed: Option<(Incarnation, u64)>,
}

/// A reason to try for the office.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Vacancy {
    pub absent_since_ms: u64,
    pub silence: Duration,
}

impl Election {
    pub fn new() -> Self {
        Self { last_alive: Instant::now(), missed: None }
    }

    /// Whether to try for the office now.
    pub fn consider(&mut self, report: &BeatReport, is_trusted: bool, grace: Duration) -> Option<Vacancy> {
        // A node that overslept sees every other lease expired, even if all nodes slept or only the clock jumped.
        let is_trusted = is_trusted && !report.overslept;
        let absent_since_ms = match &report.office {
            Office::Empty => 0,
            Office::Held { health: Health::Expired, .. } if is_trusted => 0,
            Office::Held { health: Health::Absent, by } if is_trusted => {
                let since = match self.missed {
                    Some((who, since)) if who == *by => since,
                    _ => report.now_ms,
                };
                self.missed = Some((*by, since));
                if u128::from(report.now_ms.saturating_sub(since)) < grace.as_millis() {
                    return None;
                }
                since
            }
            Office::Held { health: Health::Expired | Health::Absent, .. } => return None,
            Office::Held { .. } | Office::Mine(_) => {
                self.last_alive = Instant::now();
                self.missed = None;
                return None;
            }
        };
        Some(Vacancy { absent_since_ms, silence: self.last_alive.elapsed() })
    }

    /// How long to wait before the next look.
    pub fn pace(&self, report: &BeatReport, look: Duration, beat: Duration, grace: Duration) -> Duration {
        if let Some((_, since)) = self.missed {
            let seen = Duration::from_millis(report.now_ms.saturating_sub(since));
            // The node tried as soon as the grace period was over. It need not hurry to try again.
            return if seen < grace { grace - seen } else { look };
        }
        match report.office {
            Office::Mine(_) => beat,
            _ => beat.min(look * 4_u32.saturating_pow(report.rank.min(8) as u32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Epoch;

    const GRACE: Duration = Duration::from_millis(100);

    fn report(now_ms: u64, rank: u64, office: Office) -> BeatReport {
        BeatReport {
            now_ms,
            overslept: false,
            rank,
            office,
            epoch: Epoch(0),
            published: 0,
            outstanding: 0,
            born: 0,
            members: 2,
        }
    }

    fn held(by: Incarnation, health: Health) -> Office {
        Office::Held { by, health }
    }

    #[test]
    fn absence_counts_only_after_the_grace_and_only_of_the_same_incumbent() {
        let (one, other) = (Incarnation::random(), Incarnation::random());
        let mut election = Election::new();
        let mut tries = |now, who, health| {
            let vacancy = election.consider(&report(now, 0, held(who, health)), true, GRACE);
            vacancy.map(|vacancy| vacancy.absent_since_ms)
        };
        assert_eq!(tries(1000, one, Health::Absent), None);
        assert_eq!(tries(1099, one, Health::Absent), None);
        assert_eq!(tries(1100, one, Health::Absent), Some(1000));
        assert_eq!(tries(1150, other, Health::Absent), None);
        assert_eq!(tries(1200, other, Health::Alive), None);
        assert_eq!(tries(1300, other, Health::Absent), None, "all suspicion is forgotten");
    }

    #[test]
    fn an_untrusted_connection_believes_in_nobodys_death() {
        let who = Incarnation::random();
        let mut election = Election::new();
        for now in [9000, 9200] {
            for health in [Health::Expired, Health::Absent] {
                assert_eq!(election.consider(&report(now, 0, held(who, health)), false, GRACE), None);
            }
        }
        // What the node saw before its connection was trusted is no evidence afterwards either.
        assert_eq!(election.consider(&report(9300, 0, held(who, Health::Absent)), true, GRACE), None);
        assert!(election.consider(&report(9000, 0, Office::Empty), false, GRACE).is_some());
    }

    #[test]
    fn a_node_that_overslept_believes_in_nobodys_death() {
        let (who, mut election) = (Incarnation::random(), Election::new());
        for health in [Health::Expired, Health::Absent] {
            let overslept = BeatReport { overslept: true, ..report(9000, 0, held(who, health)) };
            assert_eq!(election.consider(&overslept, true, GRACE), None);
        }
        assert_eq!(election.consider(&report(9300, 0, held(who, Health::Absent)), true, GRACE), None);
        assert!(election.consider(&report(9300, 0, held(who, Health::Expired)), true, GRACE).is_some());
    }

    #[test]
    fn the_heir_looks_often_and_the_rest_only_when_they_beat() {
        let (look, beat) = (Duration::from_millis(50), Duration::from_millis(500));
        let election = Election::new();
        let pace = |rank| {
            let report = report(0, rank, held(Incarnation::random(), Health::Alive));
            election.pace(&report, look, beat, GRACE).as_millis()
        };
        assert_eq!([pace(0), pace(1), pace(2), pace(100)], [50, 200, 500, 500]);
        let mine = report(0, 0, Office::Mine(Epoch(1)));
        assert_eq!(election.pace(&mine, look, beat, GRACE), beat);
    }

    #[test]
    fn an_incumbent_that_is_missed_is_looked_at_again_when_its_grace_is_over() {
        let (look, beat, who) = (Duration::from_millis(7), Duration::from_millis(500), Incarnation::random());
        let mut election = Election::new();
        let mut pace = |now| {
            let report = report(now, 5, held(who, Health::Absent));
            election.consider(&report, true, GRACE);
            election.pace(&report, look, beat, GRACE).as_millis()
        };
        assert_eq!([1000, 1030, 1099, 1100, 1500].map(&mut pace), [100, 70, 1, 7, 7]);
    }
}
