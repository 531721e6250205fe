//! Chooses how many messages a node requests at once.
//!
//! A batch holds as many messages as the free lanes can handle in about ten milliseconds. A crash then repeats at most
//! that much work. Slow work is spread evenly over all lanes. Trivial work travels in batches so large that the round trip
//! does not matter. The size of the bodies counts too. It is an estimate from earlier batches, and the scripts return
//! fewer messages where the estimate is wrong. A node's memory therefore does not depend on what is in the queue.

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

    /// How many messages to request for one worker.
    pub fn next(&self) -> usize {
        self.for_lanes(1)
    }

    /// How many messages to request for this number of free lanes.
    pub fn for_lanes(&self, free: usize) -> usize {
        let fits = (self.in_time() * free as f64).min(self.limit());
        (fits as usize).max(free)
    }

    /// How many of them one lane gets.
    pub fn each(&self) -> usize {
        (self.in_time().min(self.limit()) as usize).max(1)
    }

    /// How many messages this number of lanes handles in the target time, as far as that is known. That is at most two
    /// batches: one to work on, and one that is on its way.
    pub fn reserve(&self, lanes: usize) -> usize {
        (self.in_time() * lanes as f64).min(2.0 * self.limit()) as usize
    }

    /// The maximum number of messages to request at once.
    pub fn most(&self) -> usize {
        self.limit() as usize
    }

    /// How many messages one lane handles in the target time.
    fn in_time(&self) -> f64 {
        TARGET.as_secs_f64() / self.seconds_each.max(1e-9)
    }

    fn limit(&self) -> f64 {
        let by_size = MOST_BYTES as f64 / self.bytes_each.max(1.0);
        by_size.min(self.most.min(self.largest * 2) as f64)
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

    /// A batch size after many batches of messages that take this long.
    fn settled(each: Duration, most: usize) -> BatchSize {
        let mut batch_size = BatchSize::new(most);
        for _ in 0..20 {
            let count = batch_size.next();
            batch_size.record(count, count * 64, each * count as u32);
        }
        batch_size
    }

    #[test]
    fn every_free_lane_gets_its_share_within_one_limit_for_all() {
        let batch_size = settled(Duration::from_millis(1), MOST);
        assert_eq!((batch_size.each(), batch_size.for_lanes(1)), (10, 10));
        assert_eq!(batch_size.for_lanes(2), 20);
        assert_eq!(batch_size.for_lanes(0), 0, "no lane is free");
        assert_eq!(batch_size.for_lanes(1000), 1000, "at least one for each lane");
        assert_eq!(settled(Duration::from_nanos(50), 100).for_lanes(4), 100);
        assert_eq!(BatchSize::new(MOST).for_lanes(64), 64, "nothing is known yet");
    }

    #[test]
    fn a_reserve_is_what_all_lanes_handle_in_ten_milliseconds() {
        assert_eq!(settled(Duration::from_millis(5), MOST).reserve(4), 8, "two for each lane");
        assert_eq!(settled(Duration::from_millis(50), MOST).reserve(4), 0);
        assert_eq!(settled(Duration::from_nanos(50), 100).reserve(4), 200, "at most two batches");
        assert_eq!(BatchSize::new(MOST).reserve(64), 0, "nothing is known yet");
    }
}
