//! The running totals of a copy: how much it generated and handled.
//!
//! Several lanes count at the same moment. Counting and saying are one step under a lock, so that a reader never sees a
//! total go back, and the last one it sees is the true one. Where a pace is kept, a total that comes too early is not
//! dropped but waits: the next one replaces it, or else its time comes.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Notify;

/// Between two sayings of the same total, where the pace is ten a second.
const APART: Duration = Duration::from_millis(100);

/// How often a total may be said.
#[derive(Clone, Copy, PartialEq)]
pub enum Pace {
    EachStep,
    TenASecond,
}

#[derive(Clone, Copy)]
pub enum Total {
    Generated,
    Processed,
}

pub struct Totals {
    apart: Duration,
    counts: Mutex<[Count; 2]>,
    /// Rings when a total begins to wait, so that idle copies never wake up.
    waits: Notify,
}

#[derive(Default)]
struct Count {
    total: u64,
    errors: u64,
    said: Option<Instant>,
    waits: bool,
}

impl Totals {
    pub fn new(pace: Pace) -> Self {
        let apart = if pace == Pace::TenASecond { APART } else { Duration::ZERO };
        Self { apart, counts: Mutex::default(), waits: Notify::new() }
    }

    /// Counts, and lets `say` say the new total if it is time; `say` answers whether it could.
    pub fn add(&self, which: Total, new: usize, failed: usize, say: impl FnOnce(&Value) -> bool) {
        let mut counts = self.counts();
        let count = &mut counts[which as usize];
        count.total += new as u64;
        count.errors += failed as u64;
        if !count.is_due(self.apart) || !count.say(which, say) {
            count.waits = true;
            self.waits.notify_one();
        }
    }

    /// Says what waits, when its time comes. Ends never.
    pub async fn say_late(&self, say: impl Fn(&Value) -> bool) {
        loop {
            self.waits.notified().await;
            tokio::time::sleep(APART).await;
            self.say_waiting(self.apart, &say);
        }
    }

    /// Says what waits, now.
    pub fn say_rest(&self, say: impl Fn(&Value)) {
        self.say_waiting(Duration::ZERO, |object| {
            say(object);
            true
        });
    }

    fn say_waiting(&self, apart: Duration, say: impl Fn(&Value) -> bool) {
        let mut counts = self.counts();
        for which in [Total::Generated, Total::Processed] {
            let count = &mut counts[which as usize];
            if count.waits && count.is_due(apart) {
                count.say(which, &say);
            }
        }
        if counts.iter().any(|count| count.waits) {
            self.waits.notify_one();
        }
    }

    fn counts(&self) -> MutexGuard<'_, [Count; 2]> {
        self.counts.lock().expect("no panic while held")
    }
}

impl Count {
    fn is_due(&self, apart: Duration) -> bool {
        self.said.is_none_or(|said| said.elapsed() >= apart)
    }

    fn say(&mut self, which: Total, say: impl FnOnce(&Value) -> bool) -> bool {
        let object = match which {
            Total::Generated => json!({"msg": "generated", "total": self.total}),
            Total::Processed => json!({"msg": "processed", "total": self.total, "errors": self.errors}),
        };
        let could = say(&object);
        if could {
            self.said = Some(Instant::now());
            self.waits = false;
        }
        could
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A listener that can be deaf.
    #[derive(Default)]
    struct Ear {
        deaf: RefCell<bool>,
        heard: RefCell<Vec<u64>>,
    }

    impl Ear {
        fn hear(&self, object: &Value) -> bool {
            if !*self.deaf.borrow() {
                self.heard.borrow_mut().push(object["total"].as_u64().unwrap());
            }
            !*self.deaf.borrow()
        }
    }

    #[test]
    fn each_step_is_said_at_once() {
        let (totals, ear) = (Totals::new(Pace::EachStep), Ear::default());
        for _ in 0..3 {
            totals.add(Total::Generated, 2, 0, |object| ear.hear(object));
        }
        assert_eq!(*ear.heard.borrow(), [2, 4, 6]);
    }

    #[test]
    fn a_total_that_comes_too_early_is_replaced_by_the_next_and_said_in_the_end() {
        let (totals, ear) = (Totals::new(Pace::TenASecond), Ear::default());
        for _ in 0..3 {
            totals.add(Total::Processed, 2, 1, |object| ear.hear(object));
        }
        let rest = RefCell::new(Vec::new());
        totals.say_rest(|object| rest.borrow_mut().push(object.clone()));
        assert_eq!(*rest.borrow(), [json!({"msg": "processed", "total": 6, "errors": 3})]);
        totals.say_rest(|object| panic!("{object} was said already"));
        assert_eq!(*ear.heard.borrow(), [2]);
    }

    #[tokio::test]
    async fn what_waits_is_said_by_itself_and_not_before_somebody_can_hear_it() {
        let (totals, ear) = (Totals::new(Pace::TenASecond), Ear::default());
        *ear.deaf.borrow_mut() = true;
        totals.add(Total::Generated, 7, 0, |object| ear.hear(object));
        let heard = async {
            tokio::time::sleep(3 * APART).await;
            assert!(ear.heard.borrow().is_empty());
            *ear.deaf.borrow_mut() = false;
            while ear.heard.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = totals.say_late(|object| ear.hear(object)) => {}
            () = heard => {}
        }
        assert_eq!(*ear.heard.borrow(), [7]);
    }
}
