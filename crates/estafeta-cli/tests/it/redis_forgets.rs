//! Redis comes back with less than it had acknowledged. What it forgot is gone, and every other message gets exactly
//! one outcome.

use std::fs::OpenOptions;

use estafeta_testbed::{Fsync, RedisServer, eventually};

use crate::support::recovery::{BUSY, await_back, await_misses, misses_of};
use crate::support::{ProgramRing, SOON};

fn await_publishes(ring: &ProgramRing, count: u64) {
    let before = ring.status()["published"].as_u64().unwrap();
    ring.eventually(SOON, "some messages", |status| status["published"].as_u64() >= Some(before + count));
}

#[test]
fn a_ring_recovers_each_time_a_redis_that_saves_every_second_is_killed() {
    let ring = ProgramRing::on(RedisServer::builder().append_only(Fsync::EverySec).start());
    let nodes = ring.nodes(3, &BUSY);
    let mut epoch = ring.epoch();
    for _ in 0..3 {
        await_publishes(&ring, 20);
        let before = misses_of(&nodes);
        ring.redis.kill();
        await_misses(&nodes, &before);
        ring.redis.restart();
        await_back(&nodes);
        ring.await_progress();
        assert!(ring.epoch() >= epoch);
        epoch = ring.epoch();
    }
    ring.assert_recovered(&nodes);
}

#[test]
fn a_ring_recovers_each_time_a_redis_without_persistence_is_killed() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &BUSY);
    for _ in 0..3 {
        await_publishes(&ring, 20);
        let (epoch, before) = (ring.epoch(), misses_of(&nodes));
        ring.redis.kill();
        await_misses(&nodes, &before);
        ring.redis.restart();
        await_back(&nodes);
        ring.await_progress();
        assert!(ring.epoch() > epoch, "epochs grow although the stored one is gone");
    }
    ring.assert_recovered(&nodes);
}

/// The position of the last `MULTI` before the last `lost` publishes in the file.
fn transaction_before(file: &[u8], lost: usize) -> usize {
    let positions = |word: &[u8]| -> Vec<usize> {
        let found = file.windows(word.len()).enumerate().filter(|(_, bytes)| *bytes == word);
        found.map(|(at, _)| at).collect()
    };
    let publishes = positions(b"\r\npublished\r\n");
    let first_lost = publishes[publishes.len() - lost];
    positions(b"\r\nMULTI\r\n").into_iter().rfind(|at| *at < first_lost).unwrap()
}

#[test]
fn a_ring_recovers_if_redis_has_saved_a_step_only_in_part() {
    for lost in [1, 2, 20] {
        let ring = ProgramRing::on(RedisServer::builder().append_only(Fsync::Always).start());
        let nodes = ring.nodes(3, &BUSY);
        await_publishes(&ring, 60);
        let (epoch, before) = (ring.epoch(), misses_of(&nodes));
        ring.redis.kill();
        await_misses(&nodes, &before);
        let path = ring.redis.append_only_file();
        let written = std::fs::read(&path).unwrap();
        // Cuts in the middle of the step: its first writes are in the file, its last ones are not.
        let multi = transaction_before(&written, lost);
        let exec = written[multi..].windows(8).position(|bytes| bytes == b"\r\nEXEC\r\n").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len((multi + exec / 2) as u64).unwrap();
        ring.redis.restart();

        // The last publish may not have been acknowledged yet, and then no node misses it. The one before was
        // acknowledged.
        if lost > 1 {
            ring.await_event("rolled-back");
            ring.eventually(SOON, "a new term", |status| status["generator"]["epoch"].as_u64() > Some(epoch));
        }
        ring.assert_recovered(&nodes);
    }
}

#[test]
fn a_ring_recovers_when_a_replica_that_lagged_is_promoted() {
    let master = RedisServer::builder().tcp().start();
    let ring = ProgramRing::at(master.tcp_url(), RedisServer::builder().tcp().start());
    let port = master.port().to_string();
    ring.redis_cli(&["REPLICAOF", "127.0.0.1", &port]);
    let nodes = ring.nodes(3, &BUSY);
    await_publishes(&ring, 20);
    let replicated = |ring: &ProgramRing| {
        let published: Option<u64> = redis::cmd("HGET")
            .arg("{estafeta}:ledger")
            .arg("published")
            .query(&mut ring.redis.connect())
            .unwrap();
        published.unwrap_or(0)
    };
    eventually(SOON, "the replica follows", || (replicated(&ring) >= 20).then_some(()));
    // It stays a replica, of a master that it cannot reach.
    ring.redis_cli(&["REPLICAOF", "127.0.0.1", "1"]);
    await_publishes(&ring, 20);
    let (epoch, acknowledged) = (ring.epoch(), ring.status()["published"].as_u64().unwrap());
    assert!(replicated(&ring) < acknowledged);

    let before = misses_of(&nodes);
    master.kill();
    await_misses(&nodes, &before);
    ring.redis_cli(&["REPLICAOF", "NO", "ONE"]);
    ring.redis_cli(&["CONFIG", "SET", "port", &port]);
    ring.await_event("rolled-back");
    ring.eventually(SOON, "a new term", |status| status["generator"]["epoch"].as_u64() > Some(epoch));
    let status = ring.status();
    assert!(status["published"].as_u64() >= Some(acknowledged), "known ids come again: {status}");
    assert!(status["lost"].as_u64() > Some(0), "{status}");
    ring.assert_recovered(&nodes);
}
