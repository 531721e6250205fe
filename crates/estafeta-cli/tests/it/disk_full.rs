//! The disk of Redis is full. Saving every second it refuses everything until there is room; saving always it ends, and
//! has to be started again. Either way nothing is lost.

use estafeta_testbed::{Fsync, RedisServer, SmallDisk, eventually};

use crate::support::recovery::{BUSY, await_complaint, await_misses, misses_of};
use crate::support::{SOON, TestRing};

/// A disk that a test can fill; none, and a word about why, where we have no right to make one.
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

fn ring_on(disk: &SmallDisk, fsync: Fsync) -> TestRing {
    TestRing::on(RedisServer::builder().append_only(fsync).data_in(disk.path()).start())
}

#[test]
fn a_redis_that_cannot_save_is_waited_for() {
    let Some(disk) = small_disk() else { return };
    let ring = ring_on(&disk, Fsync::EverySec);
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    let before = misses_of(&copies);
    disk.fill();
    await_complaint(&copies, "MISCONF");
    await_misses(&copies, &before);
    disk.free();
    for copy in &copies {
        copy.wait_for_line(SOON, |line| line == "Redis is back");
    }
    ring.assert_recovered(&copies);
}

#[test]
fn a_redis_that_ended_because_it_could_not_save_goes_on_where_it_stood() {
    let Some(disk) = small_disk() else { return };
    let ring = ring_on(&disk, Fsync::Always);
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    let before = misses_of(&copies);
    disk.fill();
    eventually(SOON, "the end of the server", || (!ring.redis.is_running()).then_some(()));
    await_misses(&copies, &before);
    disk.free();
    ring.redis.restart();
    ring.assert_recovered(&copies);
}
