//! Which node generates: one at a time, and always one, whatever happens to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use estafeta_testbed::{Process, Signal, eventually};
use serde_json::Value;

use crate::support::{ProgramRing, SOON, ids_in, reports};

/// The ids of the messages that these nodes reported as published, in order.
fn published(nodes: &[&Process]) -> Vec<u64> {
    let mut ids: Vec<u64> = nodes
        .iter()
        .flat_map(|node| reports(node))
        .filter(|object| object["msg"] == "generatedMessage")
        .map(|object| object["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

fn roles(status: &Value) -> (usize, usize) {
    let count = |role: &str| {
        let members = status["members"].as_array().unwrap();
        members.iter().filter(|member| member["role"] == role).count()
    };
    (count("generator"), count("handler"))
}

#[test]
fn five_nodes_never_have_two_generators_during_ten_kills() {
    let ring = ProgramRing::new();
    // Every message fails, so the errors show afterwards what was published and in which epoch.
    let args = ["--interval", "10ms", "--error-rate", "1"];
    let mut nodes = ring.nodes(5, &args);
    ring.eventually(SOON, "one generator and four handlers", |status| roles(status) == (1, 4));

    let over = AtomicBool::new(false);
    let samples = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let (mut samples, mut last_epoch) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                let status = ring.status();
                assert!(roles(&status).0 <= 1, "{status}");
                let epoch = status["generator"]["epoch"].as_u64().unwrap_or(last_epoch);
                assert!(epoch >= last_epoch, "epochs went back: {status}");
                last_epoch = epoch;
                samples += 1;
            }
            samples
        });
        for _ in 0..10 {
            // Each generator publishes something before it dies.
            let pid = ring.generator(&nodes).pid();
            let before = ring.status()["published"].as_u64();
            ring.eventually(SOON, "a message", |status| status["published"].as_u64() > before);
            let dead = nodes.iter().position(|node| node.pid() == pid).unwrap();
            nodes.remove(dead).kill();
            nodes.push(ring.node(&args));
        }
        over.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    });
    assert!(samples > 20, "only {samples} samples");
    let status = ring.eventually(SOON, "one generator and four handlers", |status| roles(status) == (1, 4));
    assert!(status["takeovers"].as_u64().unwrap() >= 10, "{status}");
    let published = status["published"].as_u64();
    ring.eventually(SOON, "all of them failed", |status| status["errorsKept"].as_u64() >= published);

    // A snapshot of the ring names at most one generator in any case. Two nodes that published at the same time would
    // show in the messages: as an id that occurs twice, or as epochs that do not grow with the ids.
    let mut published: Vec<(u64, u64)> =
        ring.success(&["errors", "list", "--json"]).lines().map(id_and_epoch).collect();
    published.sort_unstable();
    let is_once = |pair: &[(u64, u64)]| pair[0].0 < pair[1].0;
    assert!(published.windows(2).all(is_once), "an id was given twice: {published:?}");
    let epochs: Vec<_> = published.iter().map(|(_, epoch)| epoch).collect();
    assert!(epochs.is_sorted(), "epochs go back and forth: {published:?}");
    let terms = epochs.chunk_by(|one, other| one == other).count();
    assert!(terms >= 10, "only {terms} terms published anything");
}

fn id_and_epoch(line: &str) -> (u64, u64) {
    let error: Value = serde_json::from_str(line).unwrap();
    (error["id"].as_u64().unwrap(), error["epoch"].as_u64().unwrap())
}

#[test]
fn twenty_killed_generators_are_replaced_before_their_leases_end_and_ids_have_no_gaps() {
    let ring = ProgramRing::new();
    let args = ["--json", "--journal", "--seed", "1", "--lease", "15s"];
    let mut nodes = ring.nodes(3, &args);
    let mut dead = Vec::new();
    for _ in 0..20 {
        let generator = ring.generator(&nodes);
        let newest = |nodes: &[&Process]| published(nodes).last().copied().unwrap_or(0);
        generator.wait_for_line(SOON, |line| line.contains("generatedMessage"));
        let pid = generator.pid();
        let before = newest(&nodes.iter().collect::<Vec<_>>());
        let at = nodes.iter().position(|node| node.pid() == pid).unwrap();
        let killed = nodes.remove(at);
        killed.kill();
        dead.push(killed);
        eventually(Duration::from_secs(12), "a successor's message", || {
            (newest(&nodes.iter().collect::<Vec<_>>()) > before).then_some(())
        });
        nodes.push(ring.node(&args));
    }
    let all: Vec<_> = nodes.iter().chain(&dead).collect();
    for node in &nodes {
        node.signal(Signal::SIGTERM);
    }
    nodes.iter().for_each(|node| assert!(node.wait(SOON).success()));

    // A killed node may not have reported its last message. Redis has that message all the same, once.
    let reported = published(&all);
    assert!(reported.windows(2).all(|pair| pair[0] < pair[1]), "reported twice: {reported:?}");
    let count = ring.status()["published"].as_u64().unwrap();
    let ready: Vec<Vec<u8>> = redis_list(&ring, "{estafeta}:ready");
    let mut ids = ring.journal();
    ids.extend(ready.iter().flat_map(|element| ids_in(element)));
    ids.sort_unstable();
    assert_eq!(ids, (1..=count).collect::<Vec<_>>(), "published ids have a gap or a double");
}

#[test]
fn ticks_keep_their_phase_across_take_overs() {
    let ring = ProgramRing::new();
    let mut nodes = ring.nodes(3, &[]);
    let phase = || {
        let due: u64 =
            redis::from_redis_value(ring.redis_cli(&["HGET", "{estafeta}:ledger", "due"])).unwrap();
        due % 500
    };
    ring.eventually(SOON, "a message", |status| status["published"].as_u64() >= Some(1));
    let first_phase = phase();
    for _ in 0..3 {
        let done = ring.status()["published"].as_u64().unwrap();
        ring.eventually(SOON, "two more messages", |status| {
            status["published"].as_u64().unwrap() >= done + 2
        });
        let pid = ring.generator(&nodes).pid();
        let at = nodes.iter().position(|node| node.pid() == pid).unwrap();
        nodes.remove(at).kill();
        nodes.push(ring.node(&[]));
        assert_eq!(phase(), first_phase);
    }
    let seen = ring.status()["published"].as_u64().unwrap();
    ring.eventually(SOON, "two more messages", |status| status["published"].as_u64().unwrap() >= seen + 2);
    assert_eq!(phase(), first_phase);
}

#[test]
fn a_generator_frozen_for_three_leases_publishes_nothing_more_and_comes_back_as_a_handler() {
    let ring = ProgramRing::new();
    let args = ["--json", "--interval", "20ms", "--lease", "1s"];
    let nodes = ring.nodes(3, &args);
    let frozen = ring.generator(&nodes);
    let old = ring.status()["generator"]["epoch"].clone();
    frozen.freeze();
    let start = Instant::now();
    let status = ring.eventually(SOON, "a successor", |status| {
        !status["generator"].is_null() && status["generator"]["epoch"] != old
    });
    let takeover = status["generator"]["epoch"].as_u64().unwrap();
    let pid = status["generator"]["pid"].as_u64().unwrap();
    let successor = nodes.iter().find(|node| u64::from(node.pid()) == pid).unwrap();
    let reported = successor.wait_for_line(SOON, |line| line.contains("tookOffice"));
    let silence = serde_json::from_str::<Value>(&reported).unwrap()["silenceMs"].as_u64().unwrap();
    assert!((1000..start.elapsed().as_millis() as u64 + 1000).contains(&silence), "{reported}");
    eventually(SOON, "three leases", || (start.elapsed() > Duration::from_secs(3)).then_some(()));
    frozen.thaw();
    frozen.wait_for_line(SOON, |line| line.contains("declaredDead"));
    let pid = u64::from(frozen.pid());
    ring.eventually(SOON, "the frozen node among the handlers", |status| {
        let members = status["members"].as_array().unwrap();
        members.iter().any(|member| member["pid"] == pid && member["role"] == "handler")
    });
    // Everything that it reported of the old term was published before the first message of the successor.
    let of = |nodes: &[&Process], epoch: &dyn Fn(u64) -> bool| -> Vec<u64> {
        let objects = nodes.iter().flat_map(|node| reports(node));
        let reported = objects.filter(|object| object["msg"] == "generatedMessage");
        reported
            .filter(|object| epoch(object["epoch"].as_u64().unwrap()))
            .map(|object| object["id"].as_u64().unwrap())
            .collect()
    };
    let late = of(&[frozen], &|epoch| epoch < takeover).into_iter().max().unwrap_or(0);
    let all: Vec<_> = nodes.iter().collect();
    let first = of(&all, &|epoch| epoch >= takeover).into_iter().min().unwrap();
    assert!(late < first, "published #{late} after the take-over at #{first}");
}

#[test]
fn the_last_of_eight_nodes_becomes_generator_when_all_others_are_killed_at_once() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(8, &["--interval", "50ms", "--journal"]);
    let generator = ring.generator(&nodes).pid();
    let last = nodes.iter().rfind(|node| node.pid() != generator).unwrap();
    let start = Instant::now();
    for node in nodes.iter().filter(|node| node.pid() != last.pid()) {
        node.signal(Signal::SIGKILL);
    }
    let limit = Duration::from_secs(2) + Duration::from_secs(1);
    last.wait_for_line(limit, |line| line.starts_with("took over") || line.starts_with("became generator"));
    assert!(start.elapsed() < limit, "it took {:?}", start.elapsed());
    last.wait_for_line(SOON, |line| line.starts_with("generated"));
    for node in nodes.iter().filter(|node| node.pid() != last.pid()) {
        node.wait(SOON);
    }
    ring.assert_survivors_recovered(&nodes);
}

#[test]
fn a_single_node_generates_and_its_messages_wait_for_a_second_one() {
    let ring = ProgramRing::new();
    let first = ring.node(&["--interval", "20ms", "--error-rate", "0"]);
    first.wait_for_line(SOON, |line| line.starts_with("generated #3"));
    assert!(ring.status()["waiting"].as_u64().unwrap() >= 3);
    let second = ring.node(&["--interval", "20ms", "--error-rate", "0"]);
    second.wait_for_line(SOON, |line| line.starts_with("handled #3 "));
}

fn redis_list(ring: &ProgramRing, key: &str) -> Vec<Vec<u8>> {
    redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query(&mut ring.redis.connect()).unwrap()
}
