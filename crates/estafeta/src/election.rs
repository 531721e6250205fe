//! Who reaches for the office, and when.
//!
//! Nobody is asked and no votes are counted: the scripts decide, atomically, and `lead` looks at the incumbent itself
//! before it hands the office over. What is decided here is only *when to try*. Every beat tells how the incumbent
//! looks:
//!
//! - nobody is in office (resigned, buried, or the first copy ever): try at once;
//! - its lease ran out (frozen, cut off, power cord): try at once;
//! - its connection is gone (crashed): remember when that was first seen, in Redis' time, look again, and try when the
//!   absence has lasted for the grace, for a live copy reconnects faster than that;
//! - it is well: forget all suspicion.
//!
//! A belief is trusted only through a connection that has settled: after a restart of Redis everybody looks dead to
//! whoever is back first. A wrong try costs nothing, since `lead` answers `follows`; a right one that comes too late
//! costs a tick. So the heir looks most often, the second in line less, and all others look only as often as they beat
//! anyway: the cost of watching does not grow with the ring, and all of them must die for the office to stay empty.

use std::time::{Duration, Instant};

use crate::member_id::Incarnation;
use crate::store::{Health, Office, Stand};

pub(crate) struct Election {
    last_well: Instant,
    /// The incumbent that was missed, and since when in Redis' time.
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
        Self { last_well: Instant::now(), missed: None }
    }

    /// Whether to try for the office now.
    pub fn consider(&mut self, stand: &Stand, settled: bool, grace: Duration) -> Option<Vacancy> {
        let absent_since_ms = match &stand.office {
            Office::Empty => 0,
            Office::Held { health: Health::Expired, .. } if settled => 0,
            Office::Held { health: Health::Absent, by } if settled => {
                let since = match self.missed {
                    Some((who, since)) if who == *by => since,
                    _ => stand.now_ms,
                };
                self.missed = Some((*by, since));
                if u128::from(stand.now_ms.saturating_sub(since)) < grace.as_millis() {
                    return None;
                }
                since
            }
            Office::Held { health: Health::Expired | Health::Absent, .. } => return None,
            Office::Held { .. } | Office::Mine(_) => {
                self.last_well = Instant::now();
                self.missed = None;
                return None;
            }
        };
        Some(Vacancy { absent_since_ms, silence: self.last_well.elapsed() })
    }

    /// How long to wait before the next look.
    pub fn pace(&self, stand: &Stand, look: Duration, beat: Duration, grace: Duration) -> Duration {
        if let Some((_, since)) = self.missed {
            let seen = Duration::from_millis(stand.now_ms.saturating_sub(since));
            // Once the grace is over there was a try already; it needs no hurry to try again.
            return if seen < grace { grace - seen } else { look };
        }
        match stand.office {
            Office::Mine(_) => beat,
            _ => beat.min(look * 4_u32.saturating_pow(stand.rank.min(8) as u32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member_id::Epoch;

    const GRACE: Duration = Duration::from_millis(100);

    fn stand(now_ms: u64, rank: u64, office: Office) -> Stand {
        Stand { now_ms, overslept: false, rank, office, published: 0, outstanding: 0 }
    }

    fn held(by: Incarnation, health: Health) -> Office {
        Office::Held { by, health }
    }

    #[test]
    fn absence_counts_only_after_the_grace_and_only_of_the_same_incumbent() {
        let (one, other) = (Incarnation::random(), Incarnation::random());
        let mut election = Election::new();
        let mut tries = |now, who, health| {
            let vacancy = election.consider(&stand(now, 0, held(who, health)), true, GRACE);
            vacancy.map(|vacancy| vacancy.absent_since_ms)
        };
        assert_eq!(tries(1000, one, Health::Absent), None);
        assert_eq!(tries(1099, one, Health::Absent), None);
        assert_eq!(tries(1100, one, Health::Absent), Some(1000));
        assert_eq!(tries(1150, other, Health::Absent), None);
        assert_eq!(tries(1200, other, Health::Well), None);
        assert_eq!(tries(1300, other, Health::Absent), None, "all suspicion is forgotten");
    }

    #[test]
    fn an_unsettled_connection_believes_in_nobodys_death() {
        let who = Incarnation::random();
        let mut election = Election::new();
        for now in [9000, 9200] {
            for health in [Health::Expired, Health::Absent] {
                assert_eq!(election.consider(&stand(now, 0, held(who, health)), false, GRACE), None);
            }
        }
        // What was seen before it settled is no evidence afterwards either.
        assert_eq!(election.consider(&stand(9300, 0, held(who, Health::Absent)), true, GRACE), None);
        assert!(election.consider(&stand(9000, 0, Office::Empty), false, GRACE).is_some());
    }

    #[test]
    fn the_heir_looks_often_and_the_rest_only_when_they_beat() {
        let (look, beat) = (Duration::from_millis(50), Duration::from_millis(500));
        let election = Election::new();
        let pace = |rank| {
            let stand = stand(0, rank, held(Incarnation::random(), Health::Well));
            election.pace(&stand, look, beat, GRACE).as_millis()
        };
        assert_eq!([pace(0), pace(1), pace(2), pace(100)], [50, 200, 500, 500]);
        let mine = stand(0, 0, Office::Mine(Epoch(1)));
        assert_eq!(election.pace(&mine, look, beat, GRACE), beat);
    }

    #[test]
    fn an_incumbent_that_is_missed_is_looked_at_again_when_its_grace_is_over() {
        let (look, beat, who) = (Duration::from_millis(7), Duration::from_millis(500), Incarnation::random());
        let mut election = Election::new();
        let mut pace = |now| {
            let stand = stand(now, 5, held(who, Health::Absent));
            election.consider(&stand, true, GRACE);
            election.pace(&stand, look, beat, GRACE).as_millis()
        };
        assert_eq!([1000, 1030, 1099, 1100, 1500].map(&mut pace), [100, 70, 1, 7, 7]);
    }
}
