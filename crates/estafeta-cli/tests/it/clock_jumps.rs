//! The clock of Redis jumps by an hour while the ring works. Leases and ticks then seem to be over or far away. The
//! ring must not lose or repeat a message, and it must not stop.

use estafeta_testbed::{Clock, RedisServer};

use crate::support::recovery::{BUSY, SLOW_HANDLERS};
use crate::support::{ProgramRing, SOON};

const HOUR: i64 = 3600;

fn ring_with(clock: &Clock) -> ProgramRing {
    ProgramRing::on(clock.of(RedisServer::builder()).start())
}

#[test]
fn a_ring_works_on_when_the_clock_jumps_an_hour_ahead_and_back() {
    let clock = Clock::new();
    let ring = ring_with(&clock);
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    let mut epoch = ring.epoch();
    for ahead in [HOUR, 0, -HOUR, 0] {
        clock.set(ahead);
        ring.await_progress();
        assert!(ring.epoch() >= epoch, "epochs went back");
        epoch = ring.epoch();
    }
    ring.assert_recovered(&nodes);
}

#[test]
fn a_generator_killed_after_a_jump_is_replaced_under_a_higher_epoch() {
    let clock = Clock::new();
    let ring = ring_with(&clock);
    let mut nodes = ring.nodes(3, &BUSY);
    for ahead in [HOUR, 0] {
        let epoch = ring.epoch();
        clock.set(ahead);
        let generator = ring.generator(&nodes).pid();
        let at = nodes.iter().position(|node| node.pid() == generator).unwrap();
        nodes.remove(at).kill();
        nodes.push(ring.node(&BUSY));
        // Handlers still make progress with what waits. The new term may begin a little later.
        ring.eventually(SOON, "another term", |_| ring.epoch() != epoch);
        ring.await_progress();
        assert!(ring.epoch() > epoch, "epochs went back");
    }
    ring.assert_recovered(&nodes);
}

/// By the new time, the lease of a frozen node ends an hour from now. Other nodes have to notice that it is gone.
#[test]
fn nodes_that_froze_before_the_clock_went_back_are_replaced_and_buried() {
    let clock = Clock::new();
    let ring = ring_with(&clock);
    clock.set(HOUR);
    let nodes = ring.nodes(4, &SLOW_HANDLERS);
    ring.await_progress();
    let epoch = ring.epoch();
    let generator = ring.generator(&nodes);
    let handler = nodes.iter().find(|node| node.pid() != generator.pid()).unwrap();
    ring.freeze_with_a_message(handler);
    generator.freeze();
    clock.set(0);
    ring.eventually(SOON, "a successor, and both buried", |status| {
        status["generator"]["epoch"].as_u64() > Some(epoch) && status["buried"].as_u64() >= Some(2)
    });
    ring.await_progress();
    for frozen in [generator, handler] {
        frozen.thaw();
    }
    ring.assert_recovered(&nodes);
}
