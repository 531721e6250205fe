//! Redis away, wiped, emptied of scripts, or unwilling: copies wait, say so once, and work again by themselves.

use std::time::{Duration, Instant};

use estafeta_testbed::{Fsync, RedisServer, Signal};

use crate::support::recovery::BUSY;
use crate::support::{SOON, TestRing};

#[test]
fn a_ring_that_was_wiped_starts_again_by_itself() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    for round in 0..3 {
        ring.redis_cli(&["FLUSHALL"]);
        let whole = |status: &serde_json::Value| {
            status["members"].as_array().unwrap().len() == 3 && !status["generator"].is_null()
        };
        ring.eventually(SOON, &format!("all three are back after wipe {round}"), whole);
        ring.flows();
    }
    assert!(copies.iter().all(estafeta_testbed::Process::is_running));
    ring.assert_recovered(&copies);
}

#[test]
fn scripts_that_redis_forgot_are_loaded_again() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &BUSY);
    for _ in 0..5 {
        ring.redis_cli(&["SCRIPT", "FLUSH"]);
        ring.flows();
    }
    ring.assert_recovered(&copies);
}

/// All clients lose their connections at once, the judges included. A judge that has just reconnected believes in no death
/// for a quarter of a lease. In that time even a slow machine brings every copy back.
#[test]
fn clients_that_redis_disconnects_come_back_without_being_declared_dead() {
    let ring = TestRing::new();
    let mut copies = ring.copies(4, &[&BUSY[..], &["--lease", "10s"]].concat());
    let mut connection = ring.redis.connect();
    for _ in 0..6 {
        let mut kill = redis::pipe();
        kill.atomic();
        for kind in ["normal", "pubsub"] {
            kill.cmd("CLIENT").arg(&["KILL", "TYPE", kind]);
        }
        let killed: Vec<usize> = kill.query(&mut connection).unwrap();
        assert!(killed.iter().sum::<usize>() >= copies.len(), "{killed:?}");
        ring.flows();
    }
    let status = ring.status();
    assert_eq!(status["members"].as_array().unwrap().len(), 4, "{status}");
    ring.assert_nobody_given_up();
    ring.assert_only_the_dead_are_buried(&mut copies);
    ring.assert_recovered(&copies);
}

#[test]
fn a_redis_without_persistence_comes_back_empty_and_messages_flow_again() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &["--interval", "20ms"]);
    ring.flows();
    ring.redis_cli(&["SET", "kept", "1"]);
    ring.redis.kill();
    for copy in &copies {
        copy.wait_for_line(SOON, |line| line.starts_with("Redis does not serve us"));
    }
    ring.redis.restart();
    ring.eventually(SOON, "a message is handled", |status| {
        status["done"].as_u64().unwrap() + status["errors_kept"].as_u64().unwrap() > 0
    });
    assert_eq!(ring.redis_cli(&["EXISTS", "kept"]), redis::Value::Int(0));
    for copy in &copies {
        copy.wait_for_line(SOON, |line| line.starts_with("Redis is back"));
    }
}

#[test]
fn a_frozen_redis_is_waited_for() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &[&BUSY[..], &["--lease", "500ms"]].concat());
    ring.flows();
    ring.redis.freeze();
    for copy in &copies {
        copy.wait_for_line(SOON, |line| line.starts_with("Redis does not serve us"));
    }
    ring.redis.thaw();
    ring.assert_recovered(&copies);
}

#[test]
fn a_full_redis_stops_the_generator_but_neither_handlers_nor_the_ring() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    ring.redis_cli(&["CONFIG", "SET", "maxmemory", "1"]);
    copies
        .iter()
        .find(|copy| copy.stdout_lines().iter().any(|line| line.starts_with("became generator")))
        .unwrap()
        .wait_for_line(SOON, |line| line.starts_with("Redis does not serve us") && line.contains("OOM"));
    ring.eventually(SOON, "the queue is drained", |status| {
        status["waiting"] == 0 && status["in_flight"] == 0
    });
    ring.redis_cli(&["CONFIG", "SET", "maxmemory", "0"]);
    ring.flows();
    let status = ring.status();
    assert_eq!(status["members"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(status["buried"], 0, "{status}");
    let generator = ring.generator(&copies).stdout_lines();
    let told = generator.iter().filter(|line| line.starts_with("Redis does not serve us")).count();
    assert_eq!(told, 1, "it says so once: {generator:?}");
    ring.assert_recovered(&copies);
}

/// When it is back all leases are over; a quarter of a lease is the time for everybody to come back as well.
#[test]
fn a_redis_that_was_away_for_longer_than_a_lease_finds_all_members_alive() {
    let lease = Duration::from_secs(6);
    let ring = TestRing::on(RedisServer::builder().append_only(Fsync::Always).start());
    let mut copies = ring.copies(4, &["--interval", "20ms", "--journal", "--lease", "6s"]);
    ring.flows();
    ring.redis.kill();
    for copy in &copies {
        copy.wait_for_line(SOON, |line| line.starts_with("Redis does not serve us"));
    }
    let start = Instant::now();
    // The last beat was before that.
    estafeta_testbed::eventually(SOON, "a lease", || (start.elapsed() > lease).then_some(()));
    ring.redis.restart();
    ring.flows();
    ring.assert_nobody_given_up();
    ring.assert_only_the_dead_are_buried(&mut copies);
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 3);
    ring.assert_recovered(&copies);
}

#[test]
fn where_redis_speaks_only_the_old_protocol_leases_alone_decide() {
    let settings = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(settings.path(), "rename-command HELLO no-hello\n").unwrap();
    let include = settings.path().to_str().unwrap();
    let ring = TestRing::on(RedisServer::builder().arg("--include", include).start());
    let lease = Duration::from_secs(2);
    let copies = ring.copies(3, &["--interval", "20ms", "--lease", "2s"]);
    ring.flows();
    let channels: Vec<String> =
        redis::cmd("PUBSUB").arg("CHANNELS").query(&mut ring.redis.connect()).unwrap();
    assert!(channels.is_empty(), "{channels:?}");
    assert_eq!(ring.status()["buried"], 0);
    let generator = ring.generator(&copies);
    generator.kill();
    ring.eventually(SOON, "a successor", |status| status["takeovers"] == 1);
    // One that is known to be gone would be replaced much sooner after its last sign of life.
    assert!(ring.last_silence() >= lease, "{:?}", ring.last_silence());
    ring.flows();
}

#[test]
fn rights_that_are_withdrawn_and_given_back_stop_the_ring_only_meanwhile() {
    let ring = TestRing::on(RedisServer::start());
    let copies = ring.copies(2, &BUSY);
    ring.flows();
    ring.redis_cli(&["ACL", "SETUSER", "default", "-evalsha"]);
    copies[0]
        .wait_for_line(SOON, |line| line.starts_with("Redis does not serve us") && line.contains("NOPERM"));
    ring.redis_cli(&["ACL", "SETUSER", "default", "+evalsha"]);
    ring.assert_recovered(&copies);
}

#[test]
fn a_copy_stops_in_time_while_redis_is_away() {
    let ring = TestRing::new();
    let copies = ring.copies(2, &["--interval", "20ms", "--lease", "500ms"]);
    ring.flows();
    ring.redis.kill();
    for copy in &copies {
        copy.wait_for_line(SOON, |line| line.starts_with("Redis does not serve us"));
        copy.signal(Signal::SIGTERM);
    }
    for copy in &copies {
        assert!(copy.wait(Duration::from_secs(10)).success());
    }
}
