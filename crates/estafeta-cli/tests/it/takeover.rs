//! Who generates: one copy at a time, and always one, whatever happens to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use estafeta_testbed::{Process, Signal, eventually};
use serde_json::Value;

use crate::support::{SOON, TestRing, ids_in, said};

/// The ids of the messages that these copies said they published, in order.
fn published(copies: &[&Process]) -> Vec<u64> {
    let mut ids: Vec<u64> = copies
        .iter()
        .flat_map(|copy| said(copy))
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
fn five_copies_have_one_generator_at_any_moment_of_ten_kills() {
    let ring = TestRing::new();
    // Every message fails, so that what was published, and in which epoch, can be read afterwards.
    let args = ["--interval", "10ms", "--error-rate", "1"];
    let mut copies = ring.copies(5, &args);
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
            let pid = ring.generator(&copies).pid();
            let dead = copies.iter().position(|copy| copy.pid() == pid).unwrap();
            copies.remove(dead).kill();
            copies.push(ring.copy(&args));
        }
        over.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    });
    assert!(samples > 20, "only {samples} samples");
    let status = ring.eventually(SOON, "one generator and four handlers", |status| roles(status) == (1, 4));
    assert!(status["takeovers"].as_u64().unwrap() >= 10, "{status}");

    // Two that published at the same time would show as an id that both gave, or as epochs that go back and forth over
    // the ids; a moment of the ring names one generator at most, whatever happens.
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
fn a_killed_generator_is_replaced_before_its_lease_is_over_twenty_times_and_ids_go_on() {
    let ring = TestRing::new();
    let args = ["--json", "--journal", "--seed", "1", "--lease", "15s"];
    let mut copies = ring.copies(3, &args);
    let mut dead = Vec::new();
    for _ in 0..20 {
        let generator = ring.generator(&copies);
        let newest = |copies: &[&Process]| published(copies).last().copied().unwrap_or(0);
        generator.wait_for_line(SOON, |line| line.contains("generatedMessage"));
        let pid = generator.pid();
        let before = newest(&copies.iter().collect::<Vec<_>>());
        let at = copies.iter().position(|copy| copy.pid() == pid).unwrap();
        let killed = copies.remove(at);
        killed.kill();
        dead.push(killed);
        eventually(Duration::from_secs(12), "a successor's message", || {
            (newest(&copies.iter().collect::<Vec<_>>()) > before).then_some(())
        });
        copies.push(ring.copy(&args));
    }
    let all: Vec<_> = copies.iter().chain(&dead).collect();
    for copy in &copies {
        copy.signal(Signal::SIGTERM);
    }
    copies.iter().for_each(|copy| assert!(copy.wait(SOON).success()));

    // A copy that was killed may not have told of its last message; Redis has it all the same, once.
    let told = published(&all);
    assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "told twice: {told:?}");
    let count = ring.status()["published"].as_u64().unwrap();
    let ready: Vec<Vec<u8>> = redis_list(&ring, "{estafeta}:ready");
    let mut ids = ring.journal();
    ids.extend(ready.iter().flat_map(|element| ids_in(element)));
    ids.sort_unstable();
    assert_eq!(ids, (1..=count).collect::<Vec<_>>(), "published ids have a gap or a double");
}

#[test]
fn the_beat_keeps_its_phase_over_take_overs() {
    let ring = TestRing::new();
    let mut copies = ring.copies(3, &["--error-rate", "1"]);
    for _ in 0..3 {
        let done = ring.status()["published"].as_u64().unwrap();
        ring.eventually(SOON, "two more messages", |status| {
            status["published"].as_u64().unwrap() >= done + 2
        });
        let pid = ring.generator(&copies).pid();
        let at = copies.iter().position(|copy| copy.pid() == pid).unwrap();
        copies.remove(at).kill();
        copies.push(ring.copy(&["--error-rate", "1"]));
    }
    let seen = ring.status()["published"].as_u64().unwrap();
    ring.eventually(SOON, "two more errors", |status| status["errors_kept"].as_u64().unwrap() >= seen + 2);
    let errors = ring.success(&["errors", "list", "--json"]);
    let published: Vec<u64> = errors
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["published_ms"].as_u64().unwrap())
        .collect();
    let phase = |ms: &u64| ms % 500;
    // Ticks come late when the machine is busy or when a take-over lies between, but never early and never off the
    // beat for good: after each take-over there are messages at the old phase again.
    let beat = published
        .iter()
        .map(phase)
        .min_by_key(|candidate| published.iter().map(|ms| (phase(ms) + 500 - candidate) % 500).sum::<u64>());
    let on_beat = published.iter().filter(|ms| (phase(ms) + 500 - beat.unwrap()) % 500 < 100).count();
    assert!(
        on_beat + 4 >= published.len(),
        "only {on_beat} of {} on the beat: {published:?}",
        published.len()
    );
}

#[test]
fn a_generator_frozen_for_three_leases_publishes_nothing_more_and_comes_back_as_handler() {
    let ring = TestRing::new();
    let args = ["--json", "--interval", "20ms", "--lease", "1s"];
    let copies = ring.copies(3, &args);
    let frozen = ring.generator(&copies);
    let old = ring.status()["generator"]["epoch"].clone();
    frozen.freeze();
    let start = Instant::now();
    let status = ring.eventually(SOON, "a successor", |status| {
        !status["generator"].is_null() && status["generator"]["epoch"] != old
    });
    let takeover = status["generator"]["epoch"].as_u64().unwrap();
    let pid = status["generator"]["pid"].as_u64().unwrap();
    let successor = copies.iter().find(|copy| u64::from(copy.pid()) == pid).unwrap();
    let told = successor.wait_for_line(SOON, |line| line.contains("tookOffice"));
    let silence = serde_json::from_str::<Value>(&told).unwrap()["silence_ms"].as_u64().unwrap();
    assert!((1000..start.elapsed().as_millis() as u64 + 1000).contains(&silence), "{told}");
    eventually(SOON, "three leases", || (start.elapsed() > Duration::from_secs(3)).then_some(()));
    frozen.thaw();
    frozen.wait_for_line(SOON, |line| line.contains("declaredDead"));
    let pid = u64::from(frozen.pid());
    ring.eventually(SOON, "the frozen copy among the handlers", |status| {
        let members = status["members"].as_array().unwrap();
        members.iter().any(|member| member["pid"] == pid && member["role"] == "handler")
    });
    // What it told of the old term was published before the successor's first message.
    let of = |copies: &[&Process], epoch: &dyn Fn(u64) -> bool| -> Vec<u64> {
        let objects = copies.iter().flat_map(|copy| said(copy));
        let told = objects.filter(|object| object["msg"] == "generatedMessage");
        told.filter(|object| epoch(object["epoch"].as_u64().unwrap()))
            .map(|object| object["id"].as_u64().unwrap())
            .collect()
    };
    let late = of(&[frozen], &|epoch| epoch < takeover).into_iter().max().unwrap_or(0);
    let all: Vec<_> = copies.iter().collect();
    let first = of(&all, &|epoch| epoch >= takeover).into_iter().min().unwrap();
    assert!(late < first, "published #{late} after the take-over at #{first}");
}

#[test]
fn the_last_one_of_eight_becomes_generator_when_all_others_are_killed_at_once() {
    let ring = TestRing::new();
    let copies = ring.copies(8, &["--interval", "50ms", "--journal"]);
    let generator = ring.generator(&copies).pid();
    let last = copies.iter().rfind(|copy| copy.pid() != generator).unwrap();
    let start = Instant::now();
    for copy in copies.iter().filter(|copy| copy.pid() != last.pid()) {
        copy.signal(Signal::SIGKILL);
    }
    let limit = Duration::from_secs(2) + Duration::from_secs(1);
    last.wait_for_line(limit, |line| line.starts_with("took over") || line.starts_with("became generator"));
    assert!(start.elapsed() < limit, "it took {:?}", start.elapsed());
    last.wait_for_line(SOON, |line| line.starts_with("generated"));
    for copy in copies.iter().filter(|copy| copy.pid() != last.pid()) {
        copy.wait(SOON);
    }
    ring.assert_survivors_recovered(&copies);
}

#[test]
fn a_copy_alone_generates_and_its_messages_wait_for_company() {
    let ring = TestRing::new();
    let alone = ring.copy(&["--interval", "20ms", "--error-rate", "0"]);
    alone.wait_for_line(SOON, |line| line.starts_with("generated #3"));
    assert!(ring.status()["waiting"].as_u64().unwrap() >= 3);
    let company = ring.copy(&["--interval", "20ms", "--error-rate", "0"]);
    company.wait_for_line(SOON, |line| line.starts_with("handled #3 "));
}

fn redis_list(ring: &TestRing, key: &str) -> Vec<Vec<u8>> {
    redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query(&mut ring.redis.connect()).unwrap()
}
