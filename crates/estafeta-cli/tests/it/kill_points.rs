//! A copy is killed right before and right after each of its first calls to Redis: before, the call never reaches Redis;
//! after, Redis has carried it out and the copy never hears of it.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use estafeta_proxy::Direction;
use estafeta_testbed::Process;

use crate::support::line::Line;
use crate::support::{SOON, TestRing};

/// Calls of joining, of the first look around, and of enough work to have met every step.
const CALLS: usize = 60;
/// Rings among which the kills are dealt, for each has to wait until it has noticed a death.
const RINGS: usize = 6;

/// Arguments of the victims. Messages may lose as many handlers as they like; half a lease is what a copy waits for an
/// answer when it starts, and on a loaded machine it must not give up before it is killed.
const VICTIM: [&str; 8] =
    ["run", "--interval", "1ms", "--journal", "--max-attempts", "1000000", "--lease", "6s"];

/// Runs a copy and kills it at its `nth` piece of data that goes in this direction, which is not passed on any more.
fn kill_at(ring: &TestRing, direction: Direction, nth: usize) {
    let victim: Arc<OnceLock<Process>> = Arc::default();
    let (seen, process) = (AtomicUsize::new(0), Arc::clone(&victim));
    let line = Line::tapped(&ring.redis, move |goes, _| {
        if goes == direction && seen.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            process.wait().kill();
        }
    });
    let copy = line.start(&VICTIM);
    let copy = victim.get_or_init(|| copy);
    assert_eq!(copy.wait(SOON).signal(), Some(9), "killed at {direction:?} {nth}");
}

fn sweep(direction: Direction, with: impl Fn(&TestRing) -> Vec<Process> + Sync) {
    thread::scope(|scope| {
        for first in 1..=RINGS {
            let with = &with;
            scope.spawn(move || {
                let ring = TestRing::new();
                let others = with(&ring);
                for nth in (first..=CALLS).step_by(RINGS) {
                    kill_at(&ring, direction, nth);
                }
                if others.is_empty() {
                    ring.finish();
                } else {
                    ring.assert_recovered(&others);
                }
            });
        }
    });
}

/// Nobody else is there, so each victim generates until it is killed.
fn nobody(_: &TestRing) -> Vec<Process> {
    Vec::new()
}

/// Somebody generates already, so each victim handles until it is killed.
fn generator(ring: &TestRing) -> Vec<Process> {
    let generator = ring.copy(&["--interval", "2ms", "--journal"]);
    generator.wait_for_line(SOON, |line| line.starts_with("generated"));
    vec![generator]
}

#[test]
fn a_generator_killed_right_before_any_call_leaves_nothing_behind() {
    sweep(Direction::Up, nobody);
}

#[test]
fn a_generator_killed_right_after_any_call_leaves_nothing_behind() {
    sweep(Direction::Down, nobody);
}

#[test]
fn a_handler_killed_right_before_any_call_leaves_nothing_behind() {
    sweep(Direction::Up, generator);
}

#[test]
fn a_handler_killed_right_after_any_call_leaves_nothing_behind() {
    sweep(Direction::Down, generator);
}
