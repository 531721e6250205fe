//! Chooses how many messages a lane requests at once.
//!
//! A batch holds as many messages as a lane can handle in about ten milliseconds. A crash then repeats at most that
//! much work. Slow work is spread evenly over all lanes. Trivial work travels in batches so large that the round trip
//! does not matter. The size of the bodies counts too. It is an estimate from earlier batches, and the scripts return
//! fewer messages where the estimate is wrong. A lane's memory therefore does not depend on what is in the queue.

use std::time::Duration;

const TARGET: Duration = Duration::from_millis(10);
/// The maximum number of messages and bytes in one step.
pub(crate) const MOST: usize = 1000;
pub(crate) const MOST_BYTES: usize = 1024 * 1024;
/// Weight of the newest batch in the running averages.
const NEWEST: f64 = 0.3;

pub(crate) struct BatchSize {
    seconds_each: f64,
    bytes_each: f64,
    /// The maximum number of messages to request.
    most: usize,
    /// The largest of the recent batches. The next batch is at most twice as large, because the estimate may be wrong.
    largest: usize,
}

impl BatchSize {
    pub fn new(most: usize) -> Self {
        Self { seconds_each: 0.0, bytes_each: 0.0, most, largest: 0 }
    }

    pub fn next(&self) -> usize {
        let by_time = TARGET.as_secs_f64() / self.seconds_each.max(1e-9);
        let by_size = MOST_BYTES as f64 / self.bytes_each.max(1.0);
        let fits = by_time.min(by_size).min(self.most as f64) as usize;
        fits.min(self.largest * 2).max(1)
    }

    pub fn record(&mut self, count: usize, bytes: usize, took: Duration) {
        if count == 0 {
            return;
        }
        let blend = |old: f64, new: f64| if old == 0.0 { new } else { old + NEWEST * (new - old) };
        self.seconds_each = blend(self.seconds_each, took.as_secs_f64() / count as f64);
        self.bytes_each = blend(self.bytes_each, bytes as f64 / count as f64);
        // One small batch proves little: perhaps the next pack did not fit. Many small batches show that there is less
        // work.
        self.largest = count.max(self.largest * 3 / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(batches: usize, bytes: usize, each: Duration) -> usize {
        let mut batch_size = BatchSize::new(MOST);
        for _ in 0..batches {
            let count = batch_size.next();
            batch_size.record(count, count * bytes, each * count as u32);
        }
        batch_size.next()
    }

    #[test]
    fn starts_with_one_and_at_most_doubles() {
        assert_eq!(BatchSize::new(MOST).next(), 1);
        assert_eq!(after(3, 64, Duration::ZERO), 8);
    }

    #[test]
    fn trivial_work_comes_in_thousands_and_slow_work_one_by_one() {
        assert_eq!(after(20, 64, Duration::from_nanos(50)), 1000);
        assert_eq!(after(20, 64, Duration::from_millis(50)), 1);
        assert_eq!(after(20, 64, Duration::from_millis(1)), 10);
    }

    #[test]
    fn few_messages_are_no_evidence_for_many() {
        let mut batch_size = BatchSize::new(MOST);
        for _ in 0..20 {
            batch_size.record(1, 64, Duration::from_nanos(50));
        }
        assert_eq!(batch_size.next(), 2);
    }

    #[test]
    fn one_small_batch_makes_nobody_modest_but_many_do() {
        let mut batch_size = BatchSize::new(100);
        batch_size.record(96, 96 * 64, Duration::from_nanos(50));
        batch_size.record(4, 4 * 64, Duration::from_nanos(50));
        assert_eq!(batch_size.next(), 100);
        for _ in 0..20 {
            batch_size.record(1, 64, Duration::from_nanos(50));
        }
        assert_eq!(batch_size.next(), 2);
    }

    #[test]
    fn one_slow_batch_counts_for_a_third_of_what_is_expected() {
        let mut batch_size = BatchSize::new(MOST);
        for each in [1, 1, 1, 1, 1, 2] {
            batch_size.record(10, 640, Duration::from_millis(10 * each));
        }
        assert_eq!(batch_size.next(), 7, "10 ms at 1.3 ms each");
    }

    #[test]
    fn never_asks_for_more_than_it_may() {
        let mut batch_size = BatchSize::new(100);
        for _ in 0..20 {
            batch_size.record(batch_size.next(), 64, Duration::from_nanos(50));
        }
        assert_eq!(batch_size.next(), 100);
    }

    #[test]
    fn large_bodies_make_small_batches() {
        assert_eq!(after(20, 1024 * 1024, Duration::ZERO), 1);
        assert_eq!(after(20, 100 * 1024, Duration::ZERO), 10);
    }

    #[test]
    fn work_that_turns_slow_is_noticed_in_one_batch() {
        let mut batch_size = BatchSize::new(MOST);
        for _ in 0..20 {
            batch_size.record(batch_size.next(), 64, Duration::from_micros(1));
        }
        batch_size.record(1000, 64_000, Duration::from_secs(100));
        assert_eq!(batch_size.next(), 1);
    }
}
