//! The last minutes of the ring, one sample a second, for the charts.

use std::collections::{HashMap, VecDeque};

use estafeta::{Health, MemberId, Snapshot};

use super::rows::Pace;

/// Ten minutes.
const KEPT: usize = 600;
/// A rate is told over so many milliseconds: at two messages a second a shorter time would make it jump.
const RATE_MS: u64 = 3000;

/// Messages a second over one second, and what waited at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub generated: f64,
    pub handled: f64,
    pub errors: f64,
    pub waiting: u64,
}

/// Counts at one moment.
#[derive(Clone, Copy)]
struct Mark {
    at_ms: u64,
    published: u64,
    settled: u64,
    failed: u64,
}

#[derive(Default)]
pub struct History {
    /// None: Redis did not answer in that second.
    samples: VecDeque<Option<Sample>>,
    /// How many samples there ever were.
    pushed: usize,
    mark: Option<Mark>,
    members: HashMap<MemberId, Trace>,
}

/// The last looks at one member.
#[derive(Default)]
struct Trace {
    /// When, and how much it had done by then.
    counts: VecDeque<(u64, u64)>,
    /// The longest and the last time that its lease had to run.
    longest_lease: i64,
    lease: i64,
}

impl History {
    /// Takes a look into account.
    pub fn look(&mut self, now_ms: u64, snapshot: &Snapshot) {
        let failed = failed(snapshot);
        let mark =
            Mark { at_ms: now_ms, published: snapshot.published, settled: snapshot.done + failed, failed };
        let last = *self.mark.get_or_insert(mark);
        let elapsed = now_ms.saturating_sub(last.at_ms);
        if elapsed >= 1000 {
            // A second in which nobody could look has no figures of its own.
            let missed = (elapsed / 1000 - 1).min(KEPT as u64);
            (0..missed).for_each(|_| self.push(None));
            // A count that fell was wiped.
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 * 1000.0 / elapsed as f64;
            self.push(Some(Sample {
                generated: rate(mark.published, last.published),
                handled: rate(mark.settled, last.settled),
                errors: rate(mark.failed, last.failed),
                waiting: snapshot.waiting,
            }));
            self.mark = Some(mark);
        }
        self.members.retain(|id, _| snapshot.members.iter().any(|member| member.id == *id));
        for member in &snapshot.members {
            let trace = self.members.entry(member.id).or_default();
            // After a jump of Redis' clock a lease seems to run for hours, until it is cut.
            if member.state != Health::Ahead {
                trace.lease = member.lease_ms;
                trace.longest_lease = trace.longest_lease.max(member.lease_ms);
            }
            let counts = &mut trace.counts;
            counts.push_back((now_ms, member.generated + member.processed));
            while counts.len() > 2 && counts[1].0 + RATE_MS <= now_ms {
                counts.pop_front();
            }
        }
    }

    fn push(&mut self, sample: Option<Sample>) {
        self.pushed += 1;
        self.samples.push_back(sample);
        if self.samples.len() > KEPT {
            self.samples.pop_front();
        }
    }

    /// What was measured last.
    pub fn now(&self) -> Option<Sample> {
        *self.samples.back()?
    }

    pub fn pace_of(&self, member: MemberId) -> Pace {
        let Some(trace) = self.members.get(&member) else {
            return Pace::default();
        };
        let (Some(first), Some(last)) = (trace.counts.front(), trace.counts.back()) else {
            return Pace::default();
        };
        let elapsed = last.0.saturating_sub(first.0).max(1);
        Pace {
            rate: last.1.saturating_sub(first.1) as f64 * 1000.0 / elapsed as f64,
            // A lease is renewed when a quarter of it is over.
            silent: trace.lease < trace.longest_lease / 2,
        }
    }

    /// How many seconds each of `width` columns stands for, so that they reach back three minutes at least.
    pub fn seconds_a_column(width: usize) -> usize {
        180_usize.div_ceil(width.max(1))
    }

    /// `width` columns, the last one now; each the highest of its seconds.
    pub fn columns(&self, width: usize, value: impl Fn(&Sample) -> f64) -> Vec<Option<f64>> {
        let seconds = Self::seconds_a_column(width);
        let chunk =
            |from: usize, to: usize| self.samples.range(from..to).flatten().map(&value).reduce(f64::max);
        // A column that is full stays as it is: only the last one grows, or every sample would move each second.
        let mut end = self.samples.len();
        let mut size = match self.pushed % seconds {
            0 => seconds,
            rest => rest,
        };
        let mut columns = Vec::with_capacity(width);
        for _ in 0..width {
            let from = end.saturating_sub(size);
            columns.push(chunk(from, end));
            (end, size) = (from, seconds);
        }
        columns.reverse();
        columns
    }
}

/// Messages that ever became errors.
pub fn failed(snapshot: &Snapshot) -> u64 {
    snapshot.errors_kept + snapshot.errors_taken + snapshot.retried
}
