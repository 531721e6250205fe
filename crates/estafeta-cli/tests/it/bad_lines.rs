//! The network between a copy and Redis is slow, passes a few bytes at a time, is cut, goes silent, or loses the answer
//! to something that was done.

use std::time::Duration;

use estafeta_proxy::Weather;
use estafeta_testbed::{Process, eventually};

use crate::support::line::Line;
use crate::support::recovery::{BUSY, LABORIOUS, await_back, await_misses, misses_of};
use crate::support::{SOON, TestRing};

/// Like [`BUSY`], with a lease that nobody outlives only because the line or the machine is slow.
const UNHURRIED: [&str; 5] = ["--interval", "5ms", "--journal", "--lease", "10s"];

struct LinedRing {
    ring: TestRing,
    copies: Vec<Process>,
    lines: Vec<Line>,
}

impl LinedRing {
    fn new(args: &[&str]) -> Self {
        let ring = TestRing::new();
        let lines: Vec<_> = (0..3).map(|_| Line::to(&ring.redis)).collect();
        let copies = lines.iter().map(|line| line.copy(args)).collect();
        ring.flows();
        Self { ring, copies, lines }
    }

    fn set_all(&self, weather: Weather) {
        self.lines.iter().for_each(|line| line.proxy.set(weather));
    }

    /// The place of the generator among the copies, or of one that handles.
    fn place(&self, generates: bool) -> usize {
        let generator = self.ring.generator(&self.copies).pid();
        self.copies.iter().position(|copy| (copy.pid() == generator) == generates).unwrap()
    }

    /// Disturbs the generator's line until it is replaced, then a handler's until it is buried; both come back.
    fn disturb_until_given_up(&self, weather: Weather) {
        for generates in [true, false] {
            let at = self.place(generates);
            let (epoch, before) = (self.ring.epoch(), self.ring.status());
            self.lines[at].proxy.set(weather);
            self.ring.eventually(SOON, "the copy is given up", |status| {
                let replaced = status["generator"]["epoch"].as_u64() > Some(epoch);
                status["buried"].as_u64() > before["buried"].as_u64() && (replaced || !generates)
            });
            self.ring.flows();
            self.lines[at].proxy.set(Weather::Clear);
            self.copies[at].wait_for_line(SOON, |line| line.starts_with("the ring gave this copy up"));
        }
        self.ring.assert_recovered(&self.copies);
    }
}

#[test]
fn slow_lines_make_a_slow_ring_and_no_other_harm() {
    let lined = LinedRing::new(&UNHURRIED);
    lined.set_all(Weather::Lag(Duration::from_millis(100)));
    lined.ring.flows();
    lined.lines[0].proxy.set(Weather::Clear);
    lined.ring.flows();
    lined.ring.assert_nobody_given_up();
    lined.set_all(Weather::Clear);
    lined.ring.assert_recovered(&lined.copies);
}

#[test]
fn a_few_bytes_at_a_time_are_enough() {
    // A step takes half a second and more this way.
    let lined = LinedRing::new(&UNHURRIED);
    lined.set_all(Weather::Trickle);
    lined.ring.flows();
    lined.ring.assert_nobody_given_up();
    lined.set_all(Weather::Clear);
    lined.ring.assert_recovered(&lined.copies);
}

#[test]
fn a_copy_whose_line_is_cut_is_replaced_and_comes_back() {
    LinedRing::new(&LABORIOUS).disturb_until_given_up(Weather::Closed);
}

#[test]
fn a_copy_whose_line_is_half_open_is_replaced_and_comes_back() {
    LinedRing::new(&LABORIOUS).disturb_until_given_up(Weather::Silent);
}

/// No error ever tells it, and Redis still counts the dead connection as its presence. Only its own time-out can save it.
#[test]
fn a_copy_whose_connection_dies_without_a_sign_is_back_before_its_lease_ends() {
    let lined = LinedRing::new(&["--interval", "5ms", "--journal", "--lease", "6s"]);
    for generates in [true, false] {
        let at = lined.place(generates);
        let before = misses_of(&lined.copies[at..=at]);
        lined.lines[at].proxy.set(Weather::Silent);
        // Long enough for the proxy to catch what is open, and too short for a new connection.
        std::thread::sleep(Duration::from_millis(500));
        lined.lines[at].proxy.set(Weather::Clear);
        await_misses(&lined.copies[at..=at], &before);
        await_back(&lined.copies);
    }
    lined.ring.flows();
    lined.ring.assert_nobody_given_up();
}

#[test]
fn all_lines_may_be_cut_at_once_again_and_again() {
    let lined = LinedRing::new(&BUSY);
    for _ in 0..3 {
        let before = misses_of(&lined.copies);
        lined.set_all(Weather::Closed);
        await_misses(&lined.copies, &before);
        lined.set_all(Weather::Clear);
        await_back(&lined.copies);
        lined.ring.flows();
    }
    lined.ring.assert_recovered(&lined.copies);
}

#[test]
fn an_answer_that_is_lost_after_the_step_was_done_changes_nothing() {
    let lined = LinedRing::new(&BUSY);
    for round in 1..=15 {
        for line in &lined.lines {
            line.proxy.lose_a_reply();
        }
        eventually(SOON, "the answers are lost", || {
            lined.lines.iter().all(|line| line.proxy.replies_lost() >= round).then_some(())
        });
    }
    lined.ring.assert_recovered(&lined.copies);
}
