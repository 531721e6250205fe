//! The clock of Redis jumps, by an hour, while the ring works: leases and ticks seem to be over or far away, and nothing
//! is lost, repeated or stopped by it.

use estafeta_testbed::{Clock, RedisServer};

use crate::support::recovery::{BUSY, LABORIOUS};
use crate::support::{SOON, TestRing};

const HOUR: i64 = 3600;

fn ring_with(clock: &Clock) -> TestRing {
    TestRing::on(clock.of(RedisServer::builder()).start())
}

#[test]
fn a_clock_that_jumps_an_hour_ahead_and_back_stops_nobody() {
    let clock = Clock::new();
    let ring = ring_with(&clock);
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    let mut epoch = ring.epoch();
    for ahead in [HOUR, 0, -HOUR, 0] {
        clock.set(ahead);
        ring.flows();
        assert!(ring.epoch() >= epoch, "epochs went back");
        epoch = ring.epoch();
    }
    ring.assert_recovered(&copies);
}

#[test]
fn a_generator_killed_after_a_jump_is_replaced_under_a_higher_epoch() {
    let clock = Clock::new();
    let ring = ring_with(&clock);
    let mut copies = ring.copies(3, &BUSY);
    for ahead in [HOUR, 0] {
        let epoch = ring.epoch();
        clock.set(ahead);
        let generator = ring.generator(&copies).pid();
        let at = copies.iter().position(|copy| copy.pid() == generator).unwrap();
        copies.remove(at).kill();
        copies.push(ring.copy(&BUSY));
        ring.flows();
        assert!(ring.epoch() > epoch, "epochs went back");
    }
    ring.assert_recovered(&copies);
}

/// Its lease ends an hour from now, by the new time, and it will not say so itself.
#[test]
fn a_copy_that_froze_before_the_clock_went_back_is_given_up_all_the_same() {
    let clock = Clock::new();
    let ring = ring_with(&clock);
    clock.set(HOUR);
    let copies = ring.copies(4, &LABORIOUS);
    ring.flows();
    let epoch = ring.epoch();
    let generator = ring.generator(&copies);
    let handler = copies.iter().find(|copy| copy.pid() != generator.pid()).unwrap();
    ring.freeze_in_hand(handler);
    generator.freeze();
    clock.set(0);
    ring.eventually(SOON, "a successor, and both buried", |status| {
        status["generator"]["epoch"].as_u64() > Some(epoch) && status["buried"].as_u64() >= Some(2)
    });
    ring.flows();
    for frozen in [generator, handler] {
        frozen.thaw();
    }
    ring.assert_recovered(&copies);
}
