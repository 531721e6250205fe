//! `chaos`: it attacks for real, acquits a ring that is right, and convicts one that somebody tampered with.

use std::time::Duration;

use estafeta_testbed::{DataDir, Process, RedisServer, Signal, eventually};
use serde_json::Value;

use super::reset::dump;
use super::support::{SOON, TestRing, ids_in, processes_of, run, start};

/// A short chaos takes its time, and then as long again to come to rest on a loaded machine.
const LONG: Duration = Duration::from_secs(120);

/// Starts chaos with everything it writes below `place`.
fn chaos(place: &DataDir, redis: Option<&str>, args: &[&str]) -> Process {
    let directory = place.path().to_str().unwrap();
    let mut args = [&["chaos"], args].concat();
    args.extend(redis.into_iter().flat_map(|url| ["--redis", url]));
    // One that the environment names is not meant.
    start(&args, &[("TMPDIR", directory), ("REDIS_URL", "redis://127.0.0.1:1")])
}

fn is_empty(place: &DataDir) -> bool {
    std::fs::read_dir(place.path()).unwrap().next().is_none()
}

fn verdict(output: &estafeta_testbed::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_ring_under_all_faults_is_acquitted_and_a_page_shows_what_happened() {
    let (place, pages) = (DataDir::new(), DataDir::new());
    let report = pages.path().join("report.html");
    let args =
        ["--copies", "4", "--for", "5s", "--seed", "3", "--json", "--report", report.to_str().unwrap()];
    let output = chaos(&place, None, &args).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let verdict = verdict(&output);
    assert_eq!(verdict["verdict"], "good");
    assert!(verdict["messages"].as_u64().unwrap() > 500, "{verdict}");
    assert!(
        verdict["errors"].as_u64().unwrap() > 0 && verdict["snapshots"].as_u64().unwrap() > 10,
        "{verdict}"
    );
    let faults = verdict["faults"].as_array().unwrap();
    let struck = faults.iter().filter(|fault| fault["struck"].as_u64() > Some(0)).count();
    assert_eq!(struck, 11, "{faults:?}");

    let page = std::fs::read_to_string(&report).unwrap();
    for part in ["<svg", "copy 4", "Content-Security-Policy", "default-src 'none'", "GOOD", "redis-kill"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("<script"),
        "self-contained"
    );
    assert_eq!(processes_of(&place), Vec::<u32>::new());
    assert!(is_empty(&place), "nothing is left behind");
}

#[test]
fn on_a_given_redis_only_its_own_copies_are_hit_and_only_its_own_keys_go() {
    let (place, redis) = (DataDir::new(), RedisServer::builder().tcp().password("p@ss:word").start());
    redis::cmd("SET").arg("{other}:ready").arg("mine").exec(&mut redis.connect()).unwrap();
    let url = redis.tcp_url();
    // With a lease that it does not outlive because the machine is busy.
    let others = ["run", "--ring", "bystander", "--interval", "20ms", "--lease", "20s"];
    let bystander = start(&others, &[("REDIS_URL", &url)]);
    bystander.wait_for_line(SOON, |line| line.starts_with("generated"));
    let args = ["--copies", "3", "--for", "3s", "--seed", "5", "--ring", "arena"];
    let output = chaos(&place, Some(&url), &args).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("GOOD: each of") && told.contains("copies on redis://127.0.0.1:"), "{told}");
    for kind in ["redis-kill", "redis-stall", "script-flush", "client-kill", "flood"] {
        assert!(!told.contains(kind), "{kind}: {told}");
    }
    let lines = bystander.stdout_lines();
    let is_trouble = |line: &String| {
        line.starts_with("Redis does not serve us") || line.starts_with("the ring gave this copy up")
    };
    assert!(bystander.is_running() && !lines.iter().any(is_trouble), "{lines:?}");
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    keys.retain(|key| !key.starts_with("{bystander}:"));
    assert_eq!(keys, ["{other}:ready"]);
    let value: String = redis::cmd("GET").arg("{other}:ready").query(&mut redis.connect()).unwrap();
    assert_eq!(value, "mine");
    let all = [told.as_bytes(), &output.stderr].concat();
    assert!(!String::from_utf8_lossy(&all).contains("p@ss"), "a password is never shown");
}

#[test]
fn a_ring_with_members_or_data_is_not_touched() {
    let (place, ring) = (DataDir::new(), TestRing::new());
    let url = ring.redis.url();
    let later = u64::MAX.to_string();
    let plants: [&[&str]; 4] = [
        &["RPUSH", "{estafeta}:journal", "of another type"],
        &["RPUSH", "{estafeta}:errors", "1 7 1 1000 2000 3 7 planted body"],
        &["ZADD", "{estafeta}:members", "1", "00000000000000aa"],
        &["ZADD", "{estafeta}:members", &later, "00000000000000aa"],
    ];
    for plant in plants {
        ring.redis_cli(&["FLUSHALL"]);
        ring.redis_cli(plant);
        let before = dump(&ring);
        let output = chaos(&place, Some(&url), &["--for", "1s"]).output(SOON);
        assert_eq!(output.status.code(), Some(1), "{plant:?}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("has members or data: chaos needs a ring of its own"), "{plant:?}: {told}");
        assert_eq!(dump(&ring), before, "{plant:?}");
    }
}

#[test]
fn a_stranger_that_joins_ends_it() {
    let (place, ring) = (DataDir::new(), TestRing::new());
    let chaos = chaos(&place, Some(&ring.redis.url()), &["--for", "60s", "--copies", "2"]);
    chaos.wait_for_stderr_line(SOON, |line| line.contains("attacking"));
    let _stranger = ring.copy(&[]);
    let output = chaos.output(SOON);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("a stranger joined the ring"), "{told}");
    assert_eq!(processes_of(&place), Vec::<u32>::new());
}

/// Lets chaos begin, does something to its ring that no fault may do, and returns the verdict.
fn convicted(tamper: impl Fn(&TestRing)) -> (Value, DataDir) {
    let (place, ring) = (DataDir::new(), TestRing::new());
    let args = ["--for", "3s", "--copies", "3", "--faults", "lost-reply", "--seed", "77", "--json"];
    let chaos = chaos(&place, Some(&ring.redis.url()), &args);
    chaos.wait_for_stderr_line(SOON, |line| line.contains("attacking"));
    tamper(&ring);
    let output = chaos.output(LONG);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let verdict = verdict(&output);
    assert_eq!((&verdict["verdict"], &verdict["seed"]), (&"broken".into(), &77.into()), "{verdict}");
    (verdict, place)
}

/// A waiting message; chaos' copies are quick, so it takes a few looks to meet one.
fn waiting(ring: &TestRing, command: &[&str]) -> Vec<u8> {
    eventually(SOON, "a message that waits", || match ring.redis_cli(command) {
        redis::Value::BulkString(element) => Some(element),
        _ => None,
    })
}

#[test]
fn a_message_that_vanished_is_found_and_its_story_told() {
    let lost = std::cell::Cell::new(0);
    let (verdict, _place) =
        convicted(|ring| lost.set(ids_in(&waiting(ring, &["LPOP", "{estafeta}:ready"]))[0]));
    let breaches = verdict["breaches"].to_string();
    assert!(breaches.contains(&format!("#{} has no outcome", lost.get())), "{breaches}");
    assert!(breaches.contains("did not add up, first: "), "{breaches}");
    let story = verdict["stories"][0].to_string();
    assert!(story.contains("has published it in epoch"), "{story}");
}

#[test]
fn a_redis_that_forgets_everything_is_told_first() {
    let (verdict, _place) = convicted(|ring| {
        ring.eventually(SOON, "many messages", |status| status["published"].as_u64() > Some(2000));
        ring.redis_cli(&["FLUSHALL"]);
    });
    let first = verdict["breaches"][0]["what"].as_str().unwrap().to_owned();
    assert!(first.starts_with("Redis forgot what it had"), "{first}");
}

#[test]
fn a_message_that_was_doubled_is_found() {
    let doubled = std::cell::Cell::new(0);
    let (verdict, _place) = convicted(|ring| {
        let element = waiting(ring, &["LINDEX", "{estafeta}:ready", "0"]);
        doubled.set(ids_in(&element)[0]);
        let text = String::from_utf8(element).unwrap();
        ring.redis_cli(&["RPUSH", "{estafeta}:ready", &text]);
    });
    let breaches = verdict["breaches"].to_string();
    assert!(breaches.contains(&format!("#{} has two outcomes", doubled.get())), "{breaches}");
}

#[test]
fn however_it_ends_its_children_end_with_it() {
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let place = DataDir::new();
        let chaos = chaos(&place, None, &["--for", "60s", "--copies", "3"]);
        chaos.wait_for_stderr_line(SOON, |line| line.contains("attacking"));
        // Some of them are killed and started again all the time.
        eventually(SOON, "three copies and Redis", || (processes_of(&place).len() >= 4).then_some(()));
        chaos.signal(signal);
        let status = chaos.wait(SOON);
        eventually(SOON, "all processes to be gone", || processes_of(&place).is_empty().then_some(()));
        if signal == Signal::SIGINT {
            assert_eq!(status.code(), Some(130));
            let told = chaos.output(SOON).stderr;
            assert!(String::from_utf8_lossy(&told).contains("there is no verdict"));
            assert!(is_empty(&place), "nothing is left behind");
        }
    }
}

#[test]
fn wrong_calls_say_what_was_expected() {
    let redis = ["--redis", "redis://127.0.0.1:1"];
    let cases: [(&[&str], &str); 7] = [
        (&["--for", "25h"], "--for: expected 1s to 24h"),
        (&["--copies", "1"], "--copies: expected 2 to 200, got 1"),
        (&["--for", "10ms"], "--for: expected 1s to 24h"),
        (&["--faults", "kil"], "expected all, or some of kill, freeze"),
        (
            &["--faults", "kill,redis-kill", redis[0], redis[1]],
            "--faults redis-kill: expected no --redis with it",
        ),
        (&["--report", "/nowhere/at/all.html"], "cannot write the report"),
        (&["--interval", "1s"], "unexpected argument"),
    ];
    for (args, expected) in cases {
        let output = run(&[&["chaos"], args].concat(), &[]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && told.contains(expected), "{args:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let tls = run(&["chaos", "--redis", "rediss://127.0.0.1:1"], &[]);
    assert!(String::from_utf8_lossy(&tls.stderr).contains("cannot do that over TLS"), "{tls:?}");
}
