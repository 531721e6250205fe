//! Nodes that are frozen for a while: almost for their lease, and far longer.

use std::thread;
use std::time::Duration;

use crate::support::ProgramRing;
use crate::support::recovery::SLOW_HANDLERS;

/// The lease in [`SLOW_HANDLERS`].
const LEASE: Duration = Duration::from_millis(500);

/// Freezes the generator, then a handler, each for `time`. The other nodes work on meanwhile.
fn assert_recovers_from_freezes_of(time: Duration) {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(4, &SLOW_HANDLERS);
    ring.await_progress();
    for generates in [true, false] {
        let generator = ring.generator(&nodes).pid();
        let frozen = nodes.iter().find(|node| (node.pid() == generator) == generates).unwrap();
        let epoch = ring.epoch();
        match generates {
            true => frozen.freeze(),
            false => ring.freeze_with_a_message(frozen),
        }
        // The fault lasts exactly this long.
        thread::sleep(time);
        if time > 2 * LEASE {
            ring.await_progress();
            let status = ring.status();
            assert!(!generates || ring.epoch() > epoch, "the generator is not replaced: {status}");
            assert!(generates || status["returned"].as_u64() > Some(0), "nothing came back: {status}");
        }
        frozen.thaw();
        ring.await_progress();
    }
    ring.assert_recovered(&nodes);
}

#[test]
fn a_freeze_that_is_shorter_than_the_lease_loses_nothing() {
    assert_recovers_from_freezes_of(LEASE * 9 / 10);
}

#[test]
fn a_freeze_of_three_leases_loses_nothing() {
    assert_recovers_from_freezes_of(LEASE * 3);
}
