//! Redis runs but does not serve: it is loading, is a replica, runs a long script, has paused its clients, or accepts
//! no more clients. Nodes wait, and go on when it serves again.

use std::thread;

use estafeta_testbed::{Fsync, RedisServer, eventually};

use crate::support::recovery::{BUSY, await_complaint, await_misses, misses_of};
use crate::support::{ProgramRing, SOON};

#[test]
fn nodes_wait_for_a_redis_that_is_loading() {
    // Each entry of the file takes a while. So loading takes as long as for a large data set.
    let slow = RedisServer::builder().append_only(Fsync::Always).arg("--key-load-delay", "200");
    let ring = ProgramRing::on(slow.start());
    let mut entries = redis::pipe();
    for _ in 0..10_000 {
        entries.cmd("INCR").arg("filler").ignore();
    }
    entries.exec(&mut ring.redis.connect()).unwrap();
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    let before = misses_of(&nodes);
    ring.redis.kill();
    await_misses(&nodes, &before);
    let is_loading = || {
        let client = redis::Client::open(ring.redis.url()).unwrap();
        let ping = client.get_connection().and_then(|mut redis| redis::cmd("PING").exec(&mut redis));
        ping.is_err_and(|error| error.code() == Some("LOADING")).then_some(())
    };
    thread::scope(|scope| {
        scope.spawn(|| ring.redis.restart());
        eventually(SOON, "Redis is loading", is_loading);
    });
    ring.assert_recovered(&nodes);
}

#[test]
fn nodes_wait_for_a_redis_that_became_a_replica() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    let before = misses_of(&nodes);
    ring.redis_cli(&["REPLICAOF", "127.0.0.1", "1"]);
    await_complaint(&nodes, "READONLY");
    await_misses(&nodes, &before);
    ring.redis_cli(&["REPLICAOF", "NO", "ONE"]);
    ring.assert_recovered(&nodes);
}

#[test]
fn nodes_wait_for_a_redis_that_is_busy_with_a_script() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    ring.redis_cli(&["CONFIG", "SET", "busy-reply-threshold", "10"]);
    let mut connection = ring.redis.connect();
    let before = misses_of(&nodes);
    // Not scoped: the thread ends with the script or, if the test fails, with the server.
    let endless =
        thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection));
    await_complaint(&nodes, "BUSY");
    await_misses(&nodes, &before);
    ring.redis_cli(&["SCRIPT", "KILL"]);
    assert!(endless.join().unwrap().is_err());
    ring.assert_recovered(&nodes);
}

#[test]
fn nodes_wait_for_a_redis_that_pauses_its_clients() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &[&BUSY[..], &["--lease", "500ms"]].concat());
    ring.await_progress();
    let before = misses_of(&nodes);
    // Longer than a lease, and longer than a node waits for an answer.
    ring.redis_cli(&["CLIENT", "PAUSE", "1200", "ALL"]);
    await_misses(&nodes, &before);
    for node in &nodes {
        node.wait_for_line(SOON, |line| line == "Redis is back");
    }
    ring.assert_recovered(&nodes);
}

#[test]
fn nodes_wait_for_a_redis_that_accepts_no_more_clients() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    let max_clients =
        redis::from_redis_value::<Vec<String>>(ring.redis_cli(&["CONFIG", "GET", "maxclients"])).unwrap();
    let mut admin = ring.redis.connect();
    let set = |max_clients: &str, admin: &mut redis::Connection| {
        redis::cmd("CONFIG").arg(&["SET", "maxclients", max_clients]).exec(admin).unwrap();
    };
    let before = misses_of(&nodes);
    // The connection of the test takes the only place.
    set("1", &mut admin);
    for kind in ["normal", "pubsub"] {
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", kind, "SKIPME", "yes"]).exec(&mut admin).unwrap();
    }
    await_misses(&nodes, &before);
    let late = ring.command(&["run"]);
    let stderr = String::from_utf8(late.stderr).unwrap();
    // Redis sends the reason and closes the connection at once. A client that sends first may see only the latter.
    assert!(late.status.code() == Some(3) && stderr.contains("Redis at"), "{stderr}");
    set(&max_clients[1], &mut admin);
    ring.assert_recovered(&nodes);
}

/// A server that cannot save refuses every write, and even PING.
#[test]
fn commands_that_only_read_work_while_redis_refuses_writes() {
    let ring = ProgramRing::on(RedisServer::builder().arg("--dbfilename", "file-is-a-directory").start());
    let nodes = ring.nodes(2, &["--interval", "1ms", "--limit", "20", "--error-rate", "1", "--until-done"]);
    nodes.iter().for_each(|node| assert!(node.wait(SOON).success()));
    let directory: Vec<String> = redis::from_redis_value(ring.redis_cli(&["CONFIG", "GET", "dir"])).unwrap();
    std::fs::create_dir_all(format!("{}/file-is-a-directory/x", directory[1])).unwrap();
    ring.redis_cli(&["CONFIG", "SET", "save", "3600 1"]);
    ring.redis_cli(&["BGSAVE"]);
    eventually(SOON, "Redis refuses writes", || {
        let ping = redis::cmd("PING").exec(&mut ring.redis.connect());
        ping.is_err_and(|error| error.code() == Some("MISCONF")).then_some(())
    });

    assert!(ring.success(&["rings"]).contains("estafeta-demo"));
    assert_eq!(ring.status()["errorsKept"], 20);
    assert_eq!(ring.success(&["errors", "count"]), "20\n");
    assert_eq!(ring.success(&["errors", "list"]).lines().count(), 20);
    assert!(ring.success(&["monitor", "--attach", "--for", "1s"]).contains("errors-kept 20"));
    for args in [&["run"][..], &["getErrors"], &["errors", "retry", "--all"], &["reset", "--yes"]] {
        let output = ring.command(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(3) && stderr.contains("refuses: MISCONF"), "{args:?}: {stderr}");
    }
}
