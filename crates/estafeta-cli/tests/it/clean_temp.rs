//! `cleanTemp`: what the dead held goes back without a living copy.

use estafeta_testbed::Process;
use serde_json::{Value, json};

use crate::support::{SOON, TestRing};

/// A ring whose handlers are at work for minutes, each with a message in hand.
fn busy_ring(handlers: u64) -> (TestRing, Vec<Process>) {
    busy_ring_with(handlers, &[])
}

fn busy_ring_with(handlers: u64, args: &[&str]) -> (TestRing, Vec<Process>) {
    let ring = TestRing::new();
    let args = [&["--interval", "10ms", "--work-per-char", "1m"], args].concat();
    let copies = ring.copies(handlers as usize + 1, &args);
    ring.eventually(SOON, "every handler holds a message", |status| status["in_flight"] == handlers);
    (ring, copies)
}

fn members(status: &Value) -> usize {
    status["members"].as_array().unwrap().len()
}

/// Kills all of them before one can bury another.
fn kill(copies: &[Process]) {
    copies.iter().for_each(Process::freeze);
    for copy in copies {
        copy.kill();
    }
}

#[test]
fn what_the_dead_held_goes_back_and_is_counted() {
    for (command, counts_in_json) in [
        (&["cleanTemp"][..], false),
        (&["--cleanTemp"], false),
        (&["clean-temp"], false),
        (&["cleanTemp", "--json"], true),
    ] {
        let (ring, copies) = busy_ring(2);
        kill(&copies);
        let before = ring.status();
        let held = before["in_flight"].as_u64().unwrap();
        assert!(held >= 2 && members(&before) == 3, "{before}");

        let told = ring.success(command);
        if counts_in_json {
            let object: Value = serde_json::from_str(&told).unwrap();
            assert_eq!(object, json!({"returned": held, "gave_up": 0, "buried": 3}));
        } else {
            assert_eq!(told, format!("{held} messages of 3 dead members returned to the queue\n"));
        }
        let after = ring.status();
        assert_eq!((&after["in_flight"], members(&after)), (&0.into(), 0), "{after}");
        assert_eq!(after["waiting"].as_u64().unwrap(), before["waiting"].as_u64().unwrap() + held);
        assert_eq!((&after["returned"], &after["buried"]), (&held.into(), &3.into()));

        let told = ring.success(command);
        let nothing = if counts_in_json { "\"returned\":0" } else { "0 messages of 0 dead members" };
        assert!(told.contains(nothing), "{told}");
    }
}

#[test]
fn what_went_back_is_first_in_line_and_is_its_second_attempt() {
    let (ring, copies) = busy_ring(2);
    kill(&copies);
    ring.success(&["cleanTemp"]);
    let head: Vec<String> =
        redis::from_redis_value(ring.redis_cli(&["LRANGE", "{estafeta}:ready", "0", "1"])).unwrap();
    let headers: Vec<Vec<&str>> = head.iter().map(|element| element.splitn(4, ' ').collect()).collect();
    let mut tries: Vec<(&str, &str)> = headers.iter().map(|header| (header[0], header[2])).collect();
    tries.sort_unstable();
    assert_eq!(tries, [("1", "2"), ("2", "2")], "{head:?}");
}

#[test]
fn the_living_are_not_touched() {
    let (ring, copies) = busy_ring(3);
    let before = ring.status();
    assert!(ring.success(&["cleanTemp"]).starts_with("0 messages of 0 dead members"));
    let after = ring.status();
    assert_eq!((members(&after), &after["in_flight"]), (4, &3.into()), "{after}");
    assert_eq!(after["generator"]["epoch"], before["generator"]["epoch"]);
    assert_eq!(after["buried"], 0);
    assert!(copies.iter().all(Process::is_running));
}

#[test]
fn a_message_that_used_up_its_attempts_is_told_apart() {
    let (ring, copies) = busy_ring_with(1, &["--max-attempts", "1"]);
    kill(&copies);
    let told = ring.success(&["cleanTemp"]);
    let expected = "0 messages of 2 dead members returned to the queue\n\
                    1 message used up all attempts: now among the errors\n";
    assert_eq!(told, expected);
    let status = ring.status();
    assert_eq!((&status["errors_kept"], &status["returned"]), (&1.into(), &0.into()), "{status}");
}
