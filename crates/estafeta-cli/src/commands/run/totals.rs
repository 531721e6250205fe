//! The running totals of a node: how many messages it generated and handled.
//!
//! Several lanes count at the same time. Counting and reporting are one step under a lock. So a reader never sees a
//! total go back, and the last total it sees is the true one.
//!
//! If the pace is limited, a total that comes too early is not dropped. It is *pending* until the next total replaces
//! it or its time has come. A total that cannot be reported, because the reader is too slow, stays pending too.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use estafeta_lab::report::Report;
use tokio::sync::Notify;

/// The least time between two reports of the same total at a pace of ten per second.
const INTERVAL: Duration = Duration::from_millis(100);

/// How often a total may be reported.
#[derive(Clone, Copy, PartialEq)]
pub enum ReportPace {
    EachStep,
    TenPerSecond,
}

#[derive(Clone, Copy)]
pub enum Total {
    Generated,
    Processed,
}

pub struct RunningTotals {
    interval: Duration,
    counts: Mutex<[Count; 2]>,
    /// Notified when a total becomes pending, so that an idle node never wakes up.
    became_pending: Notify,
}

#[derive(Default)]
struct Count {
    total: u64,
    errors: u64,
    last_report: Option<Instant>,
    pending: bool,
}

impl RunningTotals {
    pub fn new(pace: ReportPace) -> Self {
        let interval = if pace == ReportPace::TenPerSecond { INTERVAL } else { Duration::ZERO };
        Self { interval, counts: Mutex::default(), became_pending: Notify::new() }
    }

    /// Counts, and reports the new total through `send` if it is due. `send` returns whether it could report the total.
    pub fn add(&self, which: Total, new: usize, failed: usize, send: impl FnOnce(&Report) -> bool) {
        let mut counts = self.counts();
        let count = &mut counts[which as usize];
        count.total += new as u64;
        count.errors += failed as u64;
        if !count.is_due(self.interval) || !count.report(which, send) {
            count.pending = true;
            self.became_pending.notify_one();
        }
    }

    /// Reports each pending total once it is due. Never returns.
    pub async fn report_late(&self, send: impl Fn(&Report) -> bool) {
        loop {
            self.became_pending.notified().await;
            tokio::time::sleep(INTERVAL).await;
            self.report_pending(self.interval, &send);
        }
    }

    /// Reports each pending total now.
    pub fn report_rest(&self, send: impl Fn(&Report)) {
        self.report_pending(Duration::ZERO, |report| {
            send(report);
            true
        });
    }

    fn report_pending(&self, interval: Duration, send: impl Fn(&Report) -> bool) {
        let mut counts = self.counts();
        for which in [Total::Generated, Total::Processed] {
            let count = &mut counts[which as usize];
            if count.pending && count.is_due(interval) {
                count.report(which, &send);
            }
        }
        if counts.iter().any(|count| count.pending) {
            self.became_pending.notify_one();
        }
    }

    fn counts(&self) -> MutexGuard<'_, [Count; 2]> {
        self.counts.lock().expect("no panic while held")
    }
}

impl Count {
    fn is_due(&self, interval: Duration) -> bool {
        self.last_report.is_none_or(|at| at.elapsed() >= interval)
    }

    fn report(&mut self, which: Total, send: impl FnOnce(&Report) -> bool) -> bool {
        let report = match which {
            Total::Generated => Report::Generated { total: self.total },
            Total::Processed => Report::Processed { total: self.total, errors: self.errors },
        };
        let was_sent = send(&report);
        if was_sent {
            self.last_report = Some(Instant::now());
            self.pending = false;
        }
        was_sent
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A reader of reports that may have no room for more.
    #[derive(Default)]
    struct SlowReader {
        full: RefCell<bool>,
        received: RefCell<Vec<u64>>,
    }

    fn total_of(report: &Report) -> u64 {
        match report {
            Report::Generated { total } | Report::Processed { total, .. } => *total,
            other => panic!("{other:?}"),
        }
    }

    impl SlowReader {
        fn receive(&self, report: &Report) -> bool {
            if !*self.full.borrow() {
                self.received.borrow_mut().push(total_of(report));
            }
            !*self.full.borrow()
        }
    }

    #[test]
    fn each_step_is_reported_at_once() {
        let (totals, reader) = (RunningTotals::new(ReportPace::EachStep), SlowReader::default());
        for _ in 0..3 {
            totals.add(Total::Generated, 2, 0, |report| reader.receive(report));
        }
        assert_eq!(*reader.received.borrow(), [2, 4, 6]);
    }

    #[test]
    fn a_total_that_comes_too_early_is_replaced_by_the_next_and_reported_at_the_end() {
        let (totals, reader) = (RunningTotals::new(ReportPace::TenPerSecond), SlowReader::default());
        for _ in 0..3 {
            totals.add(Total::Processed, 2, 1, |report| reader.receive(report));
        }
        let rest = RefCell::new(Vec::new());
        totals.report_rest(|report| rest.borrow_mut().push(report.clone()));
        assert_eq!(*rest.borrow(), [Report::Processed { total: 6, errors: 3 }]);
        totals.report_rest(|report| panic!("{report:?} was reported already"));
        assert_eq!(*reader.received.borrow(), [2]);
    }

    #[tokio::test]
    async fn a_pending_total_is_reported_without_a_new_step_once_the_reader_has_room() {
        let (totals, reader) = (RunningTotals::new(ReportPace::TenPerSecond), SlowReader::default());
        *reader.full.borrow_mut() = true;
        totals.add(Total::Generated, 7, 0, |report| reader.receive(report));
        let received = async {
            tokio::time::sleep(3 * INTERVAL).await;
            assert!(reader.received.borrow().is_empty());
            *reader.full.borrow_mut() = false;
            while reader.received.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = totals.report_late(|report| reader.receive(report)) => {}
            () = received => {}
        }
        assert_eq!(*reader.received.borrow(), [7]);
    }
}
