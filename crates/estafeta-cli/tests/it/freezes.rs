//! Copies that stand still for a while, just short of their lease and far beyond it.

use std::thread;
use std::time::Duration;

use crate::support::TestRing;
use crate::support::recovery::LABORIOUS;

/// That of [`LABORIOUS`].
const LEASE: Duration = Duration::from_millis(500);

/// Freezes the generator, then a handler, each for `time`; the others work on meanwhile.
fn freezes_for(time: Duration) {
    let ring = TestRing::new();
    let copies = ring.copies(4, &LABORIOUS);
    ring.flows();
    for generates in [true, false] {
        let generator = ring.generator(&copies).pid();
        let frozen = copies.iter().find(|copy| (copy.pid() == generator) == generates).unwrap();
        let epoch = ring.epoch();
        match generates {
            true => frozen.freeze(),
            false => ring.freeze_in_hand(frozen),
        }
        // The time itself is the fault here.
        thread::sleep(time);
        if time > 2 * LEASE {
            ring.flows();
            let status = ring.status();
            assert!(!generates || ring.epoch() > epoch, "the generator is not replaced: {status}");
            assert!(generates || status["returned"].as_u64() > Some(0), "nothing came back: {status}");
        }
        frozen.thaw();
        ring.flows();
    }
    ring.assert_recovered(&copies);
}

#[test]
fn a_freeze_that_is_shorter_than_the_lease_loses_nothing() {
    freezes_for(LEASE * 9 / 10);
}

#[test]
fn a_freeze_of_three_leases_loses_nothing() {
    freezes_for(LEASE * 3);
}
