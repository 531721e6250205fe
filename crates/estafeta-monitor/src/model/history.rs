//! The last ten minutes of the ring, one sample per second, for the charts.
//!
//! The history also observes each member over several polls. It computes the member's rate and notices if the member
//! no longer renews its lease.

use std::collections::{HashMap, VecDeque};

use estafeta::{Health, MemberId, Snapshot};

use crate::model::rows::MemberPace;

/// How many samples are kept: ten minutes.
const KEPT: usize = 600;
/// A member's rate is an average over this time. At two messages per second, a shorter time would make it jump.
const RATE_MS: u64 = 3000;

/// Messages per second, averaged over one second, and how many messages waited at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateSample {
    pub generated: f64,
    pub handled: f64,
    pub errors: f64,
    pub waiting: u64,
}

/// The counts of the ring at one moment.
#[derive(Clone, Copy)]
struct Mark {
    at_ms: u64,
    published: u64,
    settled: u64,
    failed: u64,
}

#[derive(Default)]
pub struct History {
    /// None for a second without a successful poll.
    samples: VecDeque<Option<RateSample>>,
    /// How many samples there ever were, including those that are no longer kept.
    pushed: usize,
    /// The counts from which the next sample is measured.
    mark: Option<Mark>,
    members: HashMap<MemberId, Trace>,
}

/// What the last polls showed of one member.
#[derive(Default)]
struct Trace {
    /// The time of each poll, and how many messages the member had generated or processed by then.
    counts: VecDeque<(u64, u64)>,
    /// The longest remaining lease that a poll ever showed, in milliseconds.
    longest_lease: i64,
    /// The remaining lease at the last poll.
    lease: i64,
}

impl History {
    /// Records a snapshot.
    pub fn record(&mut self, now_ms: u64, snapshot: &Snapshot) {
        let failed = failed(snapshot);
        let mark =
            Mark { at_ms: now_ms, published: snapshot.published, settled: snapshot.done + failed, failed };
        let last = *self.mark.get_or_insert(mark);
        let elapsed = now_ms.saturating_sub(last.at_ms);
        if elapsed >= 1000 {
            // A second without a poll has no sample.
            let missed = (elapsed / 1000 - 1).min(KEPT as u64);
            (0..missed).for_each(|_| self.push(None));
            // A count falls only if the ring was wiped or rolled back. The rate is zero then.
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 * 1000.0 / elapsed as f64;
            self.push(Some(RateSample {
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
            // After the clock of Redis went back, a lease seems to last for hours until the ring shortens it.
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

    fn push(&mut self, sample: Option<RateSample>) {
        self.pushed += 1;
        self.samples.push_back(sample);
        if self.samples.len() > KEPT {
            self.samples.pop_front();
        }
    }

    /// The last sample.
    pub fn now(&self) -> Option<RateSample> {
        *self.samples.back()?
    }

    pub fn pace_of(&self, member: MemberId) -> MemberPace {
        let Some(trace) = self.members.get(&member) else {
            return MemberPace::default();
        };
        let (Some(first), Some(last)) = (trace.counts.front(), trace.counts.back()) else {
            return MemberPace::default();
        };
        let elapsed = last.0.saturating_sub(first.0).max(1);
        MemberPace {
            rate: last.1.saturating_sub(first.1) as f64 * 1000.0 / elapsed as f64,
            // A live member renews its lease when a quarter of it is over.
            silent: trace.lease < trace.longest_lease / 2,
        }
    }

    /// How many seconds each column stands for, so that `width` columns cover at least three minutes.
    pub fn seconds_per_column(width: usize) -> usize {
        180_usize.div_ceil(width.max(1))
    }

    /// The values of `width` columns, the newest last. A column shows the highest value of its seconds.
    pub fn columns(&self, width: usize, value: impl Fn(&RateSample) -> f64) -> Vec<Option<f64>> {
        let seconds = Self::seconds_per_column(width);
        let chunk =
            |from: usize, to: usize| self.samples.range(from..to).flatten().map(&value).reduce(f64::max);
        // Only the last column grows and a full one never changes. Otherwise all columns would move every second.
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

/// How many messages ever became errors.
pub fn failed(snapshot: &Snapshot) -> u64 {
    snapshot.errors_kept + snapshot.errors_taken + snapshot.retried
}
