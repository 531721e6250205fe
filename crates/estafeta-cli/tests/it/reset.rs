//! `reset` deletes the ring and nothing else.

use std::collections::BTreeMap;

use estafeta_testbed::eventually;

use crate::support::{ProgramRing, SOON};

type Dump = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything in Redis, in the form in which Redis would save it.
pub fn dump(ring: &ProgramRing) -> Dump {
    let mut connection = ring.redis.connect();
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let value = |key: Vec<u8>| {
        let value: Option<Vec<u8>> = redis::cmd("DUMP").arg(&key).query(&mut connection).unwrap();
        value.map(|value| (key, value))
    };
    keys.into_iter().filter_map(value).collect()
}

fn ring_that_worked(name: &str) -> ProgramRing {
    let ring = ProgramRing::new();
    work(&ring, name);
    ring
}

fn work(ring: &ProgramRing, name: &str) {
    let nodes = ring.nodes(
        2,
        &[
            "--ring",
            name,
            "--interval",
            "0",
            "--limit",
            "30",
            "--error-rate",
            "0.5",
            "--until-done",
            "--journal",
        ],
    );
    nodes.iter().for_each(|node| assert!(node.wait(SOON).success()));
}

#[test]
fn only_the_keys_of_the_ring_are_deleted() {
    let ring = ProgramRing::new();
    ring.redis_cli(&["SET", "other", "1"]);
    ring.redis_cli(&["SET", "{estafeta}:mine", "1"]);
    ring.redis_cli(&["HSET", "{estafeta}:member:bob", "name", "Bob"]);
    ring.redis_cli(&["RPUSH", "estafeta:ready", "1"]);
    work(&ring, "other-ring");
    let foreign = dump(&ring);
    work(&ring, "estafeta");
    let keys = dump(&ring).len() - foreign.len();
    assert!(keys >= 6, "the ring left only {keys} keys");

    let stdout = ring.success(&["reset", "--yes"]);
    assert_eq!(stdout, format!("ring estafeta is gone: {keys} keys deleted\n"));
    assert_eq!(dump(&ring), foreign);
    assert_eq!(ring.success(&["reset", "--yes", "--force"]), "", "there is nothing left to delete");
    assert_eq!(dump(&ring), foreign);

    ring.success(&["reset", "--yes", "--ring", "other-ring"]);
    assert_eq!(dump(&ring).len(), 4);
}

#[test]
fn reset_without_yes_deletes_nothing() {
    let ring = ring_that_worked("estafeta");
    let before = dump(&ring);
    for args in [&["reset"][..], &["reset", "--force"]] {
        let output = ring.command(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.lines().count() == 1 && stderr.contains("--yes"), "{stderr}");
    }
    assert_eq!(dump(&ring), before);
}

#[test]
fn a_ring_with_living_members_is_left_alone() {
    let ring = ProgramRing::new();
    let _nodes = ring.nodes(2, &["--interval", "1h"]);
    let before = ring.eventually(SOON, "a ring at rest", |status| {
        let rests = status["waiting"] == 0 && status["inFlight"] == 0;
        !status["generator"].is_null() && status["published"] == 1 && rests
    });
    // Only leases and the history change in a ring at rest, once both nodes have made a turn and a beat has handed over
    // how long the message waited.
    eventually(SOON, "two nodes at rest", || {
        let all = dump(&ring);
        let has = |value: &[u8], word: &[u8]| value.windows(word.len()).any(|part| part == word);
        let members = || all.iter().filter(|(key, _)| key.starts_with(b"{estafeta}:member:"));
        let rest = members().all(|(_, member)| has(member, b"held"))
            && members().any(|(_, member)| has(member, b"noted"));
        rest.then_some(())
    });
    let all_but_leases = || {
        let mut all = dump(&ring);
        let changes = [&b"{estafeta}:members"[..], b"{estafeta}:latencies"];
        all.retain(|key, _| !changes.contains(&&key[..]) && !key.starts_with(b"{estafeta}:history:"));
        all
    };
    let whole = all_but_leases();
    let output = ring.command(&["reset", "--yes"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("2 living members") && stderr.contains("--force"), "{stderr}");
    assert_eq!(all_but_leases(), whole);
    let after = ring.status();
    assert_eq!(after["generator"]["epoch"], before["generator"]["epoch"]);
    assert_eq!(after["members"].as_array().unwrap().len(), 2, "{after}");
}

#[test]
fn a_ring_with_only_dead_members_can_be_deleted() {
    let ring = ProgramRing::new();
    for node in ring.nodes(2, &["--interval", "1h"]) {
        node.kill();
    }
    ring.success(&["reset", "--yes"]);
    assert!(dump(&ring).is_empty());
}

#[test]
fn nodes_that_survive_a_forced_reset_join_again_and_go_on() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &["--interval", "10ms"]);
    ring.eventually(SOON, "some work is done", |status| status["done"].as_u64() > Some(20));
    ring.success(&["reset", "--yes", "--force"]);
    for node in &nodes {
        node.wait_for_line(SOON, |line| line.starts_with("the ring gave this node up"));
    }
    let status = ring.eventually(SOON, "new messages are handled by all who were there", |status| {
        status["done"].as_u64() > Some(5) && status["members"].as_array().unwrap().len() == 3
    });
    assert!(!status["generator"].is_null(), "{status}");
}

/// If Redis has many other keys, the keys of the ring are found in several steps. The nodes must not write between
/// them.
#[test]
fn the_balance_holds_when_a_busy_ring_among_many_keys_is_reset() {
    let ring = ProgramRing::new();
    let mut foreign = redis::cmd("MSET");
    for number in 0..50_000 {
        foreign.arg(format!("foreign:{number}")).arg("x");
    }
    foreign.exec(&mut ring.redis.connect()).unwrap();
    let nodes = ring.nodes(3, &["--interval", "0"]);
    for _ in 0..5 {
        ring.eventually(SOON, "all work at full speed", |status| {
            status["done"].as_u64() > Some(1000) && status["members"].as_array().unwrap().len() == 3
        });
        ring.success(&["reset", "--yes", "--force"]);
    }
    ring.eventually(SOON, "all work again", |status| status["done"].as_u64() > Some(1000));
    assert!(nodes.iter().all(|node| node.is_running()));
}

#[test]
fn a_forced_reset_deletes_foreign_values_at_the_keys_of_the_ring() {
    let (member, list) = ("member:00000000000000aa", "inflight:00000000000000aa");
    let names = ["schema", "members", "ready", "errors", "ledger", "events", member, list];
    for name in names {
        let ring = ring_that_worked("estafeta");
        ring.redis_cli(&["ZADD", "{estafeta}:members", "1", "00000000000000aa"]);
        // Only a reader has a list.
        let kind = if name == list { "reader" } else { "node" };
        let facts = [
            "number", "7", "kind", kind, "lanes", "1", "lease", "2000", "host", "h", "pid", "1", "started",
            "1",
        ];
        ring.redis_cli(&[&["HSET", "{estafeta}:member:00000000000000aa"], &facts[..]].concat());
        let key = format!("{{estafeta}}:{name}");
        ring.redis_cli(&["DEL", &key]);
        ring.redis_cli(&["SADD", &key, "foreign"]);
        let before = dump(&ring);
        let refused = ring.command(&["reset", "--yes"]);
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(1) && stderr.contains("use --force"), "{key}: {stderr}");
        assert!(stderr.contains(&format!("key {key} is a set, expected a ")), "{stderr}");
        assert_eq!(dump(&ring), before, "{key}");
        let unasked = ring.command(&["reset", "--force"]);
        assert!(String::from_utf8(unasked.stderr).unwrap().contains("--yes"), "{key}");
        ring.success(&["reset", "--yes", "--force"]);
        assert!(dump(&ring).is_empty(), "{key}");
    }
}

#[test]
fn keys_that_only_older_builds_had_are_deleted_too() {
    let ring = ring_that_worked("estafeta");
    for list in ["bell", "wakeup", "inflight:00000000000000aa:0"] {
        ring.redis_cli(&["RPUSH", &format!("{{estafeta}}:{list}"), "1"]);
    }
    ring.redis_cli(&["HSET", "{estafeta}:leader", "epoch", "1"]);
    ring.success(&["reset", "--yes"]);
    assert!(dump(&ring).is_empty());
}

#[test]
fn results_are_deleted_and_the_keys_of_effects_only_on_request() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=1, |_| Vec::new());
    ring.redis_cli(&["SET", "{estafeta}:result:1", "7 1000 x"]);
    ring.redis_cli(&["SET", "{estafeta}:u:sold", "12"]);
    ring.redis_cli(&["XADD", "{estafeta}:u:log", "*", "a", "b"]);
    let left = ring.command(&["reset", "--yes"]);
    assert!(left.status.success(), "{left:?}");
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "ring estafeta is gone: 3 keys deleted\n");
    let hint = "estafeta: 2 keys of effects stay in Redis: `estafeta reset --user-keys` deletes them\n";
    assert_eq!(String::from_utf8(left.stderr).unwrap(), hint);
    assert_eq!(dump(&ring).len(), 2);
    assert_eq!(ring.success(&["reset", "--yes", "--user-keys"]), "ring estafeta is gone: 2 keys deleted\n");
    assert!(dump(&ring).is_empty());
    assert!(!ring.command(&["reset", "--yes", "--user-keys"]).status.success(), "nothing is left");
}
