//! Redis is down, wiped, without its scripts, or refuses to serve. Nodes wait, report it once, and work again by
//! themselves.

use std::time::{Duration, Instant};

use estafeta_testbed::{Fsync, RedisServer, Signal};

use crate::support::recovery::BUSY;
use crate::support::{ProgramRing, SOON};

#[test]
fn a_ring_that_was_wiped_starts_again_by_itself() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    for round in 0..3 {
        ring.redis_cli(&["FLUSHALL"]);
        let is_complete = |status: &serde_json::Value| {
            status["members"].as_array().unwrap().len() == 3 && !status["generator"].is_null()
        };
        ring.eventually(SOON, &format!("all three are back after wipe {round}"), is_complete);
        ring.await_event("wiped");
        ring.await_progress();
        let status = ring.status();
        let is_wipe = |event: &&serde_json::Value| event["kind"] == "wiped";
        assert_eq!(status["events"].as_array().unwrap().iter().filter(is_wipe).count(), 1, "{status}");
    }
    assert!(nodes.iter().all(estafeta_testbed::Process::is_running));
    ring.assert_recovered(&nodes);
}

#[test]
fn scripts_that_redis_forgot_are_loaded_again() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &BUSY);
    for _ in 0..5 {
        ring.redis_cli(&["SCRIPT", "FLUSH"]);
        ring.await_progress();
    }
    ring.assert_recovered(&nodes);
}

/// All clients lose their connections at once, including those of the failure detectors. A failure detector that has
/// just reconnected believes in no death for a quarter of a lease. In that time every node reconnects, even on a slow
/// machine.
#[test]
fn nodes_that_redis_disconnects_come_back_without_being_declared_dead() {
    let ring = ProgramRing::new();
    let mut nodes = ring.nodes(4, &[&BUSY[..], &["--lease", "10s"]].concat());
    let mut connection = ring.redis.connect();
    for _ in 0..6 {
        let mut kill = redis::pipe();
        kill.atomic();
        for kind in ["normal", "pubsub"] {
            kill.cmd("CLIENT").arg(&["KILL", "TYPE", kind]);
        }
        let killed: Vec<usize> = kill.query(&mut connection).unwrap();
        assert!(killed.iter().sum::<usize>() >= nodes.len(), "{killed:?}");
        ring.await_progress();
    }
    let status = ring.status();
    assert_eq!(status["members"].as_array().unwrap().len(), 4, "{status}");
    ring.assert_no_node_given_up();
    ring.assert_only_the_dead_are_buried(&mut nodes);
    ring.assert_recovered(&nodes);
}

#[test]
fn a_redis_without_persistence_comes_back_empty_and_messages_flow_again() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &["--interval", "20ms"]);
    ring.await_progress();
    ring.redis_cli(&["SET", "kept", "1"]);
    ring.redis.kill();
    for node in &nodes {
        node.wait_for_line(SOON, |line| line.starts_with("lost Redis at "));
    }
    ring.redis.restart();
    ring.eventually(SOON, "a message is handled", |status| {
        status["done"].as_u64().unwrap() + status["errorsKept"].as_u64().unwrap() > 0
    });
    assert_eq!(ring.redis_cli(&["EXISTS", "kept"]), redis::Value::Int(0));
    for node in &nodes {
        node.wait_for_line(SOON, |line| line.starts_with("Redis is back"));
    }
}

#[test]
fn nodes_wait_for_a_frozen_redis() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &[&BUSY[..], &["--lease", "500ms"]].concat());
    ring.await_progress();
    ring.redis.freeze();
    for node in &nodes {
        node.wait_for_line(SOON, |line| line.starts_with("lost Redis at "));
    }
    ring.redis.thaw();
    ring.assert_recovered(&nodes);
}

#[test]
fn a_redis_out_of_memory_stops_the_generator_but_not_the_handlers() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    ring.redis_cli(&["CONFIG", "SET", "maxmemory", "1"]);
    nodes
        .iter()
        .find(|node| node.stdout_lines().iter().any(|line| line.starts_with("became generator")))
        .unwrap()
        .wait_for_line(SOON, |line| line.starts_with("lost Redis at ") && line.contains("OOM"));
    ring.eventually(SOON, "the queue is drained", |status| status["waiting"] == 0 && status["inFlight"] == 0);
    ring.redis_cli(&["CONFIG", "SET", "maxmemory", "0"]);
    ring.await_progress();
    let status = ring.status();
    assert_eq!(status["members"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(status["buried"], 0, "{status}");
    let generator = ring.generator(&nodes).stdout_lines();
    let reported = generator.iter().filter(|line| line.starts_with("lost Redis at ")).count();
    assert_eq!(reported, 1, "it says so once: {generator:?}");
    ring.assert_recovered(&nodes);
}

/// When Redis is back, all leases are over. A quarter of a lease is the time in which every node must reconnect.
#[test]
fn no_node_is_buried_after_redis_was_down_for_longer_than_a_lease() {
    let lease = Duration::from_secs(6);
    let ring = ProgramRing::on(RedisServer::builder().append_only(Fsync::Always).start());
    let mut nodes = ring.nodes(4, &["--interval", "20ms", "--journal", "--lease", "6s"]);
    ring.await_progress();
    ring.redis.kill();
    for node in &nodes {
        node.wait_for_line(SOON, |line| line.starts_with("lost Redis at "));
    }
    let start = Instant::now();
    // The last beats were before these reports.
    estafeta_testbed::eventually(SOON, "a lease", || (start.elapsed() > lease).then_some(()));
    ring.redis.restart();
    ring.await_progress();
    ring.assert_no_node_given_up();
    ring.assert_only_the_dead_are_buried(&mut nodes);
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 3);
    ring.assert_recovered(&nodes);
}

#[test]
fn if_redis_speaks_only_the_old_protocol_only_the_lease_decides_about_a_death() {
    let settings = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(settings.path(), "rename-command HELLO no-hello\n").unwrap();
    let include = settings.path().to_str().unwrap();
    let ring = ProgramRing::on(RedisServer::builder().arg("--include", include).start());
    let lease = Duration::from_secs(2);
    let nodes = ring.nodes(3, &["--interval", "20ms", "--lease", "2s"]);
    ring.await_progress();
    let channels: Vec<String> =
        redis::cmd("PUBSUB").arg("CHANNELS").query(&mut ring.redis.connect()).unwrap();
    assert!(channels.is_empty(), "{channels:?}");
    assert_eq!(ring.status()["buried"], 0);
    let generator = ring.generator(&nodes);
    generator.kill();
    ring.eventually(SOON, "a successor", |status| status["takeovers"] == 1);
    // With presence, the generator would be replaced much sooner after its last sign of life.
    assert!(ring.last_silence() >= lease, "{:?}", ring.last_silence());
    ring.await_progress();
}

#[test]
fn access_rights_that_are_withdrawn_stop_the_ring_only_until_they_are_granted_again() {
    let ring = ProgramRing::on(RedisServer::start());
    let nodes = ring.nodes(2, &BUSY);
    ring.await_progress();
    ring.redis_cli(&["ACL", "SETUSER", "default", "-evalsha"]);
    nodes[0].wait_for_line(SOON, |line| line.starts_with("lost Redis at ") && line.contains("NOPERM"));
    ring.redis_cli(&["ACL", "SETUSER", "default", "+evalsha"]);
    ring.assert_recovered(&nodes);
}

#[test]
fn a_node_stops_in_time_while_redis_is_down() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(2, &["--interval", "20ms", "--lease", "500ms"]);
    ring.await_progress();
    ring.redis.kill();
    for node in &nodes {
        node.wait_for_line(SOON, |line| line.starts_with("lost Redis at "));
        node.signal(Signal::SIGTERM);
    }
    for node in &nodes {
        assert!(node.wait(Duration::from_secs(10)).success());
    }
}
