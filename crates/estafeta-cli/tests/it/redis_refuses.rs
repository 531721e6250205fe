//! A Redis that is there and does not serve: it loads, is somebody's replica, is busy, is paused, has no room on its disk
//! or none for another client. Copies wait, and go on when it serves again.

use std::thread;

use estafeta_testbed::{Fsync, RedisServer, eventually};

use crate::support::recovery::{BUSY, await_complaint, await_misses, misses_of};
use crate::support::{SOON, TestRing};

#[test]
fn a_redis_that_is_loading_is_waited_for() {
    // Each entry of the file takes a while, as those of a large data set would all together.
    let slow = RedisServer::builder().append_only(Fsync::Always).arg("--key-load-delay", "200");
    let ring = TestRing::on(slow.start());
    let mut entries = redis::pipe();
    for _ in 0..10_000 {
        entries.cmd("INCR").arg("filler").ignore();
    }
    entries.exec(&mut ring.redis.connect()).unwrap();
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    let before = misses_of(&copies);
    ring.redis.kill();
    await_misses(&copies, &before);
    let is_loading = || {
        let client = redis::Client::open(ring.redis.url()).unwrap();
        let ping = client.get_connection().and_then(|mut redis| redis::cmd("PING").exec(&mut redis));
        ping.is_err_and(|error| error.code() == Some("LOADING")).then_some(())
    };
    thread::scope(|scope| {
        scope.spawn(|| ring.redis.restart());
        eventually(SOON, "Redis is loading", is_loading);
    });
    ring.assert_recovered(&copies);
}

#[test]
fn a_redis_that_became_a_replica_is_waited_for() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    let before = misses_of(&copies);
    ring.redis_cli(&["REPLICAOF", "127.0.0.1", "1"]);
    await_complaint(&copies, "READONLY");
    await_misses(&copies, &before);
    ring.redis_cli(&["REPLICAOF", "NO", "ONE"]);
    ring.assert_recovered(&copies);
}

#[test]
fn a_redis_that_is_busy_with_a_script_is_waited_for() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    ring.redis_cli(&["CONFIG", "SET", "busy-reply-threshold", "10"]);
    let mut connection = ring.redis.connect();
    let before = misses_of(&copies);
    // Not scoped: it ends with the script or, if the test fails, with the server.
    let endless =
        thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection));
    await_complaint(&copies, "BUSY");
    await_misses(&copies, &before);
    ring.redis_cli(&["SCRIPT", "KILL"]);
    assert!(endless.join().unwrap().is_err());
    ring.assert_recovered(&copies);
}

#[test]
fn a_redis_that_pauses_its_clients_is_waited_for() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &[&BUSY[..], &["--lease", "500ms"]].concat());
    ring.flows();
    let before = misses_of(&copies);
    // Longer than a lease, and than a copy waits for an answer.
    ring.redis_cli(&["CLIENT", "PAUSE", "1200", "ALL"]);
    await_misses(&copies, &before);
    for copy in &copies {
        copy.wait_for_line(SOON, |line| line == "Redis is back");
    }
    ring.assert_recovered(&copies);
}

#[test]
fn a_redis_that_has_no_room_for_its_clients_is_waited_for() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    let room =
        redis::from_redis_value::<Vec<String>>(ring.redis_cli(&["CONFIG", "GET", "maxclients"])).unwrap();
    let mut door = ring.redis.connect();
    let set = |room: &str, door: &mut redis::Connection| {
        redis::cmd("CONFIG").arg(&["SET", "maxclients", room]).exec(door).unwrap();
    };
    let before = misses_of(&copies);
    // The test's own connection takes the only place.
    set("1", &mut door);
    for kind in ["normal", "pubsub"] {
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", kind, "SKIPME", "yes"]).exec(&mut door).unwrap();
    }
    await_misses(&copies, &before);
    let late = ring.command(&["run"]);
    let told = String::from_utf8(late.stderr).unwrap();
    // Redis says why and hangs up at once; who speaks first may hear only the latter.
    assert!(late.status.code() == Some(3) && told.contains("Redis at"), "{told}");
    set(&room[1], &mut door);
    ring.assert_recovered(&copies);
}
