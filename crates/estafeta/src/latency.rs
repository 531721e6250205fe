//! How long messages waited and how long their handlers took, as counts with fixed bounds.
//!
//! Counts with the same bounds can be added, whichever node made them and whichever time they cover. So nodes hand over
//! what they counted, Redis adds it up, and quantiles are computed only where they are shown. The bounds are part of the
//! [layout](crate::Ring::layout) of a ring: nodes of two versions must count alike.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The upper bounds of all counts but the last one: 1, 2.5, 5 from 100 µs to 10 s, then 30 s, 1, 5, 10, 30 min and 1 h.
pub const LATENCY_BOUNDS: [Duration; 22] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(600),
    Duration::from_secs(1_800),
    Duration::from_secs(3_600),
];

/// The number of counts: one for each bound, and one for everything beyond the last bound.
const COUNTS: usize = LATENCY_BOUNDS.len() + 1;

/// How many times were within each bound and beyond the one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latencies {
    counts: [u64; COUNTS],
}

impl Latencies {
    /// Counts one time. A time that is equal to a bound is within it.
    pub fn record(&mut self, time: Duration) {
        self.counts[LATENCY_BOUNDS.partition_point(|bound| *bound < time)] += 1;
    }

    /// Adds the counts of others.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }

    /// One count for each of [`LATENCY_BOUNDS`], and one for times beyond the last bound.
    pub fn counts(&self) -> &[u64; COUNTS] {
        &self.counts
    }

    /// How many times were counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |total, count| total.saturating_add(*count))
    }

    /// Estimates a quantile, such as 0.95, by linear interpolation between the bounds around it. Returns the last bound
    /// for a quantile beyond it, and None if nothing was counted.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let total = self.total();
        let rank = quantile.clamp(0.0, 1.0) * total as f64;
        let mut below = 0.0;
        for (at, count) in self.counts.iter().enumerate() {
            let within = *count as f64;
            if *count > 0 && below + within >= rank {
                let Some(upper) = LATENCY_BOUNDS.get(at) else { break };
                let lower = if at == 0 { Duration::ZERO } else { LATENCY_BOUNDS[at - 1] };
                return Some(lower + (*upper - lower).mul_f64(((rank - below) / within).clamp(0.0, 1.0)));
            }
            below += within;
        }
        (total > 0).then_some(LATENCY_BOUNDS[LATENCY_BOUNDS.len() - 1])
    }

    /// The form in which steps and samples hold counts: the index of the first count that is not 0, and all counts up to
    /// the last such one, as in `3:5,0,17`. `-` if all are 0.
    pub(crate) fn text(&self) -> String {
        let is_counted = |count: &u64| *count > 0;
        let (Some(first), Some(last)) =
            (self.counts.iter().position(is_counted), self.counts.iter().rposition(is_counted))
        else {
            return "-".to_owned();
        };
        let counts: Vec<_> = self.counts[first..=last].iter().map(u64::to_string).collect();
        format!("{first}:{}", counts.join(","))
    }

    /// Reads the form of [`text`](Self::text).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut latencies = Self::default();
        if text == "-" {
            return Some(latencies);
        }
        let (first, counts) = text.split_once(':')?;
        let mut places = latencies.counts.get_mut(first.parse::<usize>().ok()?..)?.iter_mut();
        for count in counts.split(',') {
            *places.next()? = count.parse().ok()?;
        }
        Some(latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        times.into_iter().for_each(|micros| latencies.record(Duration::from_micros(micros)));
        latencies
    }

    /// Redis holds counts by these bounds, and Prometheus knows them by name. A change needs a new layout.
    #[test]
    fn the_bounds_are_frozen() {
        let seconds: Vec<f64> = LATENCY_BOUNDS.iter().map(Duration::as_secs_f64).collect();
        let mut expected = Vec::new();
        for power in -4..1 {
            expected.extend([1.0, 2.5, 5.0].map(|step| step * 10_f64.powi(power)));
        }
        expected.extend([10.0, 30.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0]);
        assert_eq!(seconds.len(), expected.len());
        for (found, expected) in seconds.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
        }
    }

    #[test]
    fn a_time_counts_within_the_first_bound_that_is_not_below_it() {
        for (at, bound) in LATENCY_BOUNDS.iter().enumerate() {
            let mut latencies = Latencies::default();
            latencies.record(*bound);
            assert_eq!(latencies.counts()[at], 1, "{bound:?} itself");
            latencies.record(*bound + Duration::from_nanos(1));
            assert_eq!(latencies.counts()[at + 1], 1, "more than {bound:?}");
        }
        assert_eq!(of([0]).counts()[0], 1);
    }

    #[test]
    fn quantiles_lie_between_the_bounds_around_them() {
        assert_eq!(Latencies::default().quantile(0.5), None);
        let even = of((0..100).map(|_| 700));
        assert_eq!(even.quantile(0.0), Some(Duration::from_micros(500)));
        assert_eq!(even.quantile(0.5), Some(Duration::from_micros(750)));
        assert_eq!(even.quantile(1.0), Some(Duration::from_millis(1)));
        let mut slow = of([1, 1, 1]);
        slow.record(Duration::from_secs(7_200));
        assert_eq!(slow.quantile(0.75), Some(Duration::from_micros(100)));
        assert_eq!(slow.quantile(0.99), Some(Duration::from_secs(3_600)), "the last bound");
    }

    #[test]
    fn counts_add_up_and_survive_their_text() {
        let mut sum = of([90, 400, 400]);
        sum.merge(&of([400, 3_000_000]));
        assert_eq!(sum.total(), 5);
        assert_eq!(sum.text(), "0:1,0,3,0,0,0,0,0,0,0,0,0,0,0,1");
        assert_eq!(Latencies::default().text(), "-");
        assert_eq!(of([8_000_000_000]).text(), "22:1");
        for latencies in [sum, Latencies::default(), of([8_000_000_000])] {
            assert_eq!(Latencies::parse(&latencies.text()), Some(latencies));
        }
        for damaged in ["", "3", ":1", "3:", "3:x", "23:1", "22:1,1", "-1:5", "3:-5", "x:1"] {
            assert_eq!(Latencies::parse(damaged), None, "{damaged:?}");
        }
    }
}
