//! Somebody else writes into the ring's keys while it works: every step that meets the foreign value fails whole, so that
//! the ring goes on unharmed once it is gone.

use estafeta_testbed::eventually;

use crate::support::recovery::{BUSY, await_back, misses};
use crate::support::{SOON, TestRing};

/// Puts a foreign value in the place of a key, in one step, and keeps what was there.
fn plant(ring: &TestRing, key: &str) {
    let script = "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], KEYS[2]) end \
                  redis.call('SET', KEYS[1], 'foreign')";
    // A set where a string is expected.
    let script = match key {
        "{estafeta}:schema" | "{estafeta}:epoch" => script.replace("'SET'", "'SADD'"),
        _ => script.to_owned(),
    };
    ring.redis_cli(&["EVAL", &script, "2", key, "aside"]);
}

fn put_back(ring: &TestRing, key: &str) {
    let script = "redis.call('DEL', KEYS[1]) \
                  if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end";
    ring.redis_cli(&["EVAL", script, "2", key, "aside"]);
}

/// A handler that holds something now.
fn busy_handler(ring: &TestRing) -> String {
    eventually(SOON, "something in flight", || {
        let keys = ring.redis_cli(&["KEYS", "{estafeta}:inflight:*"]);
        let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
        keys.first().map(|key| key.split(':').nth(2).unwrap().to_owned())
    })
}

#[test]
fn a_foreign_value_at_a_key_of_daily_work_stops_the_ring_only_meanwhile() {
    let ring = TestRing::new();
    // Handlers that take a moment: there is something in flight at any time.
    let copies = ring.copies(3, &[&BUSY[..], &["--work-per-char", "100us"]].concat());
    ring.flows();
    let names = [
        "members",
        "succession",
        "leader",
        "ready",
        "bell",
        "errors",
        "ledger",
        "journal",
        "member:<incarnation>",
        "inflight:<incarnation>:0",
    ];
    for name in names {
        let key = format!("{{estafeta}}:{name}").replace("<incarnation>", &busy_handler(&ring));
        let before: usize = copies.iter().map(misses).sum();
        plant(&ring, &key);
        eventually(SOON, &format!("a copy that stumbles over {key}"), || {
            (copies.iter().map(misses).sum::<usize>() > before).then_some(())
        });
        put_back(&ring, &key);
        await_back(&copies);
        ring.flows();
    }
    ring.assert_recovered(&copies);
}

#[test]
fn a_foreign_value_at_a_key_of_elections_delays_the_next_one() {
    let ring = TestRing::new();
    let mut copies = ring.copies(3, &BUSY);
    for name in ["epoch", "events"] {
        ring.flows();
        let key = format!("{{estafeta}}:{name}");
        plant(&ring, &key);
        let office = ring.redis_cli(&["HGET", "{estafeta}:leader", "epoch"]);
        let generator = ring.redis_cli(&["HGET", "{estafeta}:leader", "number"]);
        let number: u64 = redis::from_redis_value(generator).unwrap();
        let leads = format!("joined as member {number}");
        let at = copies.iter().position(|copy| copy.stdout_lines().contains(&leads)).unwrap();
        let dead = copies.remove(at);
        let before: usize = copies.iter().map(misses).sum();
        dead.kill();
        eventually(SOON, &format!("an heir that stumbles over {key}"), || {
            (copies.iter().map(misses).sum::<usize>() > before).then_some(())
        });
        let now = ring.redis_cli(&["HGET", "{estafeta}:leader", "epoch"]);
        assert_eq!(now, office, "an office that was taken in part, in spite of {key}");
        put_back(&ring, &key);
        await_back(&copies);
        copies.push(ring.copy(&BUSY));
    }
    ring.assert_recovered(&copies);
}

#[test]
fn a_ring_that_is_marked_as_newer_works_on_and_takes_nobody_in() {
    let ring = TestRing::new();
    // Long enough for a slow machine: a copy that is given up cannot join this ring again.
    let copies = ring.copies(4, &[&BUSY[..], &["--lease", "4s"]].concat());
    ring.flows();
    let generator = ring.generator(&copies).pid();
    let frozen = copies.iter().find(|copy| copy.pid() != generator).unwrap();
    let buried = ring.status()["buried"].as_u64().unwrap();
    frozen.freeze();
    ring.eventually(SOON, "the frozen one is buried", |status| status["buried"].as_u64() > Some(buried));
    ring.redis_cli(&["SET", "{estafeta}:schema", "3"]);

    let told = "layout version 3, expected 2";
    let late = ring.command(&["run"]);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    assert!(String::from_utf8(late.stderr).unwrap().contains(told));
    // One that would have to join again is a newcomer as well.
    frozen.thaw();
    let output = frozen.output(SOON);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(told), "{stderr}");

    let settled = |ring: &TestRing| -> u64 {
        redis::from_redis_value(ring.redis_cli(&["HGET", "{estafeta}:ledger", "done"])).unwrap()
    };
    let before = settled(&ring);
    eventually(SOON, "the others work on", || (settled(&ring) > before + 10).then_some(()));
    ring.redis_cli(&["SET", "{estafeta}:schema", "2"]);
    assert_eq!(copies.iter().filter(|copy| copy.is_running()).count(), 3);
    ring.assert_survivors_recovered(&copies);
}
