//! Another program writes into the keys of the ring while it works.
//!
//! A step that meets a foreign value fails as a whole: it has changed nothing. The node reports that Redis does not
//! serve it, and tries again. So the ring goes on unharmed as soon as the foreign value is gone.

use estafeta_testbed::eventually;

use crate::support::recovery::{BUSY, await_back, misses};
use crate::support::{ProgramRing, SOON};

/// Replaces the value of a key by a foreign one, in one step, and keeps the old value in another key.
fn plant(ring: &ProgramRing, key: &str) {
    let script = "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], KEYS[2]) end \
                  redis.call('SET', KEYS[1], 'foreign')";
    // These two keys are strings, so their foreign value is a set.
    let script = match key {
        "{estafeta}:schema" | "{estafeta}:epoch" => script.replace("'SET'", "'SADD'"),
        _ => script.to_owned(),
    };
    ring.redis_cli(&["EVAL", &script, "2", key, "aside"]);
}

fn put_back(ring: &ProgramRing, key: &str) {
    let script = "redis.call('DEL', KEYS[1]) \
                  if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end";
    ring.redis_cli(&["EVAL", script, "2", key, "aside"]);
}

/// The incarnation of a handler that holds messages now.
fn busy_handler(ring: &ProgramRing) -> String {
    eventually(SOON, "something in flight", || {
        let keys = ring.redis_cli(&["KEYS", "{estafeta}:member:*"]);
        let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
        let holds = |key: &&String| {
            let held = ring.redis_cli(&["HGET", key, "held"]);
            redis::from_redis_value::<Option<u64>>(held).unwrap() > Some(0)
        };
        keys.iter().find(holds).map(|key| key.split(':').nth(2).unwrap().to_owned())
    })
}

#[test]
fn a_foreign_value_at_a_key_of_normal_work_stops_the_ring_only_while_it_is_there() {
    let ring = ProgramRing::new();
    // The handlers take a moment, so there are messages in flight at any time.
    let nodes = ring.nodes(3, &[&BUSY[..], &["--work-per-char", "100us"]].concat());
    ring.await_progress();
    let names = ["members", "succession", "ready", "errors", "ledger", "journal", "member:<incarnation>"];
    for name in names {
        let key = format!("{{estafeta}}:{name}").replace("<incarnation>", &busy_handler(&ring));
        let before: usize = nodes.iter().map(misses).sum();
        plant(&ring, &key);
        eventually(SOON, &format!("a node that stumbles over {key}"), || {
            (nodes.iter().map(misses).sum::<usize>() > before).then_some(())
        });
        put_back(&ring, &key);
        await_back(&nodes);
        ring.await_progress();
    }
    ring.assert_recovered(&nodes);
}

#[test]
fn a_foreign_value_at_a_key_of_elections_delays_the_next_election() {
    let ring = ProgramRing::new();
    let mut nodes = ring.nodes(3, &BUSY);
    for name in ["epoch", "events"] {
        ring.await_progress();
        let key = format!("{{estafeta}}:{name}");
        plant(&ring, &key);
        let office = ring.redis_cli(&["HGET", "{estafeta}:ledger", "epoch"]);
        let generator = ring.redis_cli(&["HGET", "{estafeta}:ledger", "number"]);
        let number: u64 = redis::from_redis_value(generator).unwrap();
        let leads = format!("joined as member {number}");
        let at = nodes.iter().position(|node| node.stdout_lines().contains(&leads)).unwrap();
        let dead = nodes.remove(at);
        let before: usize = nodes.iter().map(misses).sum();
        dead.kill();
        eventually(SOON, &format!("an heir that stumbles over {key}"), || {
            (nodes.iter().map(misses).sum::<usize>() > before).then_some(())
        });
        let now = ring.redis_cli(&["HGET", "{estafeta}:ledger", "epoch"]);
        assert_eq!(now, office, "an office that was taken in part, in spite of {key}");
        put_back(&ring, &key);
        await_back(&nodes);
        nodes.push(ring.node(&BUSY));
    }
    ring.assert_recovered(&nodes);
}

#[test]
fn a_ring_that_is_marked_as_newer_works_on_and_admits_no_node() {
    let ring = ProgramRing::new();
    // Long enough for a slow machine: a node that is declared dead cannot join this ring again.
    let nodes = ring.nodes(4, &[&BUSY[..], &["--lease", "4s"]].concat());
    ring.await_progress();
    let generator = ring.generator(&nodes).pid();
    let frozen = nodes.iter().find(|node| node.pid() != generator).unwrap();
    let buried = ring.status()["buried"].as_u64().unwrap();
    frozen.freeze();
    ring.eventually(SOON, "the frozen one is buried", |status| status["buried"].as_u64() > Some(buried));
    ring.redis_cli(&["SET", "{estafeta}:schema", "5"]);

    let message = "has layout 5, this program knows layout 4: use the newer release";
    let late = ring.command(&["run"]);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    assert!(String::from_utf8(late.stderr).unwrap().contains(message));
    // A node that has to join again is refused as well.
    frozen.thaw();
    let output = frozen.output(SOON);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(message), "{stderr}");

    let settled = |ring: &ProgramRing| -> u64 {
        redis::from_redis_value(ring.redis_cli(&["HGET", "{estafeta}:ledger", "done"])).unwrap()
    };
    let before = settled(&ring);
    eventually(SOON, "the others work on", || (settled(&ring) > before + 10).then_some(()));
    ring.redis_cli(&["SET", "{estafeta}:schema", "4"]);
    assert_eq!(nodes.iter().filter(|node| node.is_running()).count(), 3);
    ring.assert_survivors_recovered(&nodes);
}
