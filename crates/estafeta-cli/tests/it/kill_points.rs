//! A node is killed right before and right after each of its first calls to Redis.
//!
//! A proxy counts what passes and kills the node at the chosen piece of data, which it does not pass on. A kill on the
//! way up is before the call: the call never reaches Redis. A kill on the way down is after the call: Redis has
//! executed it, and the node never receives the reply. In both cases the ring must recover, and every message must get
//! exactly one outcome.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use estafeta_lab::proxy::Direction;
use estafeta_testbed::Process;

use crate::support::line::Line;
use crate::support::{SOON, TestRing};

/// Enough calls for the join, the first sweep, and so much work that every step occurs.
const CALLS: usize = 60;
/// The kills are spread over this many rings, because each ring needs time to notice a death.
const RINGS: usize = 6;

/// Arguments of the victims. A message may lose any number of handlers. At its start a node waits half a lease for an
/// answer. On a loaded machine it must not give up before it is killed.
const VICTIM: [&str; 8] =
    ["run", "--interval", "1ms", "--journal", "--max-deaths", "1000000", "--lease", "6s"];

/// Runs a node and kills it at the `nth` piece of data in this direction. That piece is not passed on.
fn kill_at(ring: &TestRing, direction: Direction, nth: usize) {
    let victim: Arc<OnceLock<Process>> = Arc::default();
    let (seen, process) = (AtomicUsize::new(0), Arc::clone(&victim));
    let line = Line::tapped(&ring.redis, move |way, _| {
        if way == direction && seen.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            process.wait().kill();
        }
    });
    let node = line.start(&VICTIM);
    let node = victim.get_or_init(|| node);
    assert_eq!(node.wait(SOON).signal(), Some(9), "killed at {direction:?} {nth}");
}

fn kill_at_each_call(direction: Direction, with: impl Fn(&TestRing) -> Vec<Process> + Sync) {
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

/// No other node is in the ring, so each victim generates until it is killed.
fn no_other_node(_: &TestRing) -> Vec<Process> {
    Vec::new()
}

/// Another node generates already, so each victim handles until it is killed.
fn one_generator(ring: &TestRing) -> Vec<Process> {
    let generator = ring.node(&["--interval", "2ms", "--journal"]);
    generator.wait_for_line(SOON, |line| line.starts_with("generated"));
    vec![generator]
}

#[test]
fn a_generator_killed_right_before_any_call_leaves_nothing_behind() {
    kill_at_each_call(Direction::Up, no_other_node);
}

#[test]
fn a_generator_killed_right_after_any_call_leaves_nothing_behind() {
    kill_at_each_call(Direction::Down, no_other_node);
}

#[test]
fn a_handler_killed_right_before_any_call_leaves_nothing_behind() {
    kill_at_each_call(Direction::Up, one_generator);
}

#[test]
fn a_handler_killed_right_after_any_call_leaves_nothing_behind() {
    kill_at_each_call(Direction::Down, one_generator);
}
