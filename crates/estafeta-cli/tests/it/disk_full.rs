//! The disk of Redis is full. With `appendfsync everysec`, Redis refuses all writes until there is room. With `always`
//! it ends and has to be restarted. No message is lost in either case.

use estafeta_testbed::{Fsync, RedisServer, SmallDisk, eventually};

use crate::support::recovery::{BUSY, await_complaint, await_misses, misses_of};
use crate::support::{ProgramRing, SOON};

/// A disk that a test can fill. Without the right to mount one, prints that the test is skipped and returns `None`.
fn small_disk() -> Option<SmallDisk> {
    let disk = SmallDisk::new(4 << 20);
    if disk.is_none() {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: only root may mount a small disk");
        }
    }
    disk
}

fn ring_on(disk: &SmallDisk, fsync: Fsync) -> ProgramRing {
    ProgramRing::on(RedisServer::builder().append_only(fsync).data_in(disk.path()).start())
}

#[test]
fn nodes_wait_for_a_redis_that_cannot_save() {
    let Some(disk) = small_disk() else { return };
    let ring = ring_on(&disk, Fsync::EverySec);
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    let before = misses_of(&nodes);
    disk.fill();
    await_complaint(&nodes, "MISCONF");
    await_misses(&nodes, &before);
    disk.free();
    for node in &nodes {
        node.wait_for_line(SOON, |line| line == "Redis is back");
    }
    ring.assert_recovered(&nodes);
}

#[test]
fn a_ring_recovers_after_redis_ended_because_it_could_not_save() {
    let Some(disk) = small_disk() else { return };
    let ring = ring_on(&disk, Fsync::Always);
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    let before = misses_of(&nodes);
    disk.fill();
    eventually(SOON, "the end of the server", || (!ring.redis.is_running()).then_some(()));
    await_misses(&nodes, &before);
    disk.free();
    ring.redis.restart();
    ring.assert_recovered(&nodes);
}
