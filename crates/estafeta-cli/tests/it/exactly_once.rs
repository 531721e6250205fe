//! Every message gets exactly one outcome, whichever process dies.

use std::time::{Duration, Instant};

use estafeta_testbed::{Fsync, Process, RedisServer, eventually};

use crate::support::{ProgramRing, SOON, ids_in, reports};

/// Kills a random node and replaces it, again and again, until the ring has published and settled everything. Returns
/// the number of kills.
fn kill_until_done(
    ring: &ProgramRing,
    nodes: &mut Vec<Process>,
    args: &[&str],
    limit: u64,
    seed: u64,
) -> usize {
    let mut kills = 0;
    let mut random = seed;
    let done = |ring: &ProgramRing| {
        let status = ring.status();
        status["published"].as_u64() == Some(limit) && status["waiting"] == 0 && status["inFlight"] == 0
    };
    let start = Instant::now();
    while !done(ring) {
        assert!(start.elapsed() < Duration::from_secs(240), "not done: {}", ring.status());
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let victim = (random >> 33) as usize % nodes.len();
        nodes.remove(victim).kill();
        kills += 1;
        nodes.push(ring.node(args));
    }
    kills
}

#[test]
fn a_hundred_thousand_messages_under_kills_are_settled_once_each() {
    let ring = ProgramRing::new();
    // The queue is kept short, so that all messages take a while and many nodes can be killed.
    let args = [
        "--interval",
        "0",
        "--limit",
        "100000",
        "--journal",
        "--max-waiting",
        "2000",
        "--max-deaths",
        "1000",
    ];
    let mut nodes = ring.nodes(4, &args);
    let kills = kill_until_done(&ring, &mut nodes, &args, 100_000, 42);
    assert!(kills >= 3, "only {kills} kills");
    ring.assert_each_once(100_000);
    let status = ring.status();
    assert!(status["balanced"].as_bool().unwrap(), "{status}");
}

#[test]
fn messages_of_a_killed_handler_are_settled_by_another_one_within_a_second() {
    let ring = ProgramRing::new();
    // The handlers are slow: each holds one message when it is killed.
    let slow = ["--json", "--interval", "100ms", "--work-per-char", "1s", "--journal", "--error-rate", "0"];
    let generator = ring.node(&slow);
    generator.wait_for_line(SOON, |line| line.contains("switchedToGeneratorMode"));
    let victim = ring.node(&slow);
    let victim_pid = u64::from(victim.pid());
    let held = |status: &serde_json::Value| {
        let members = status["members"].as_array().unwrap();
        members.iter().any(|member| member["pid"] == victim_pid && member["inFlight"] == 1)
    };
    ring.eventually(SOON, "the victim to hold a message", held);
    let rescuer = ring.node(&["--json", "--error-rate", "0", "--journal"]);
    ring.eventually(SOON, "the rescuer to be idle", |status| status["waiting"] == 0);
    victim.kill();
    let start = Instant::now();
    let line = rescuer.wait_for_line(Duration::from_secs(10), |line| {
        line.contains("handledMessage") && line.contains("\"delivery\":2")
    });
    assert!(start.elapsed() < Duration::from_secs(1), "it took {:?}", start.elapsed());
    let id = serde_json::from_str::<serde_json::Value>(&line).unwrap()["id"].as_u64().unwrap();
    let handled: Vec<_> = reports(&rescuer).into_iter().filter(|object| object["id"] == id).collect();
    assert_eq!(handled.len(), 1, "{handled:?}");
    assert_eq!(ring.journal().iter().filter(|settled| **settled == id).count(), 1);
    assert_eq!(ring.status()["returned"], 1);
}

#[test]
fn nothing_is_lost_or_repeated_when_redis_is_killed_and_restarted() {
    let ring = ProgramRing::on(RedisServer::builder().append_only(Fsync::Always).start());
    let args = ["--interval", "0", "--limit", "30000", "--journal", "--max-waiting", "500", "--until-done"];
    let nodes = ring.nodes(4, &args);
    for round in 1..=3 {
        // This asks Redis directly. While a command starts, a fast ring may publish all messages.
        eventually(SOON, "some messages", || {
            let published = ring.redis_cli(&["HGET", "{estafeta}:ledger", "published"]);
            (redis::from_redis_value::<Option<u64>>(published).unwrap() >= Some(round * 5000)).then_some(())
        });
        ring.redis.kill();
        // At least one node must have noticed before Redis is back.
        eventually(SOON, "a node that misses Redis", || {
            nodes
                .iter()
                .any(|node| {
                    let lines = node.stdout_lines();
                    let lost = lines.iter().filter(|line| line.starts_with("lost Redis at ")).count();
                    lost as u64 >= round
                })
                .then_some(())
        });
        ring.redis.restart();
    }
    for node in &nodes {
        assert!(node.wait(Duration::from_secs(120)).success(), "{:?}", node.stderr_lines());
    }
    ring.assert_each_once(30_000);
    for node in &nodes {
        let lines = node.stdout_lines();
        let count = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
        assert!(count("lost Redis at ") <= 3, "it says so once each time: {lines:?}");
        assert_eq!(count("lost Redis at "), count("Redis is back"), "{lines:?}");
    }
}

#[test]
fn a_frozen_handler_is_replaced_and_its_late_result_is_dropped() {
    let ring = ProgramRing::new();
    let args = [
        "--json",
        "--interval",
        "50ms",
        "--limit",
        "40",
        "--journal",
        "--work-per-char",
        "5ms",
        "--lease",
        "2s",
    ];
    let generator = ring.node(&args);
    generator.wait_for_line(SOON, |line| line.contains("switchedToGeneratorMode"));
    let frozen = ring.node(&args);
    ring.freeze_with_a_message(&frozen);
    // No other node handles yet.
    let held = ids_in_flight(&ring);
    assert!(!held.is_empty());
    let former = reports(&frozen)[0]["taskId"].as_u64().unwrap();
    let other = ring.node(&args);
    ring.eventually(SOON, "the frozen one to be buried", |status| status["buried"].as_u64() >= Some(1));
    frozen.thaw();
    frozen.wait_for_line(SOON, |line| line.contains("declaredDead"));
    ring.eventually(SOON, "all messages settled", |status| {
        status["published"] == 40 && status["waiting"] == 0 && status["inFlight"] == 0
    });
    ring.assert_each_once(40);
    // The node may have joined again and handled them again, as another member.
    let late: Vec<_> =
        ring.outcomes().into_iter().filter(|(id, by)| held.contains(id) && *by == former).collect();
    assert!(late.is_empty(), "late results of the frozen one counted: {late:?}");
    assert!(ring.status()["returned"].as_u64() >= Some(held.len() as u64), "{}", ring.status());
    assert!(other.is_running());
}

/// The ids of all messages in flight. A member's hash has one field for each element that it holds, named after its
/// claim.
fn ids_in_flight(ring: &ProgramRing) -> Vec<u64> {
    let mut connection = ring.redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:member:*").query(&mut connection).unwrap();
    let fields = keys.iter().flat_map(|key| -> Vec<(String, Vec<u8>)> {
        redis::cmd("HGETALL").arg(key).query(&mut connection).unwrap()
    });
    let held = fields.filter(|(name, _)| name.starts_with(|first: char| first.is_ascii_digit()));
    held.flat_map(|(_, element)| ids_in(&element)).collect()
}
