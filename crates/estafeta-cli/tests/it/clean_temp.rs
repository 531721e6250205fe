//! `cleanTemp` returns the messages of dead members to the queue, even if no node is alive.

use estafeta_testbed::Process;
use serde_json::{Value, json};

use crate::support::{ProgramRing, SOON};

/// A ring whose handlers work for minutes, each on one message.
fn busy_ring(handlers: u64) -> (ProgramRing, Vec<Process>) {
    busy_ring_with(handlers, &[])
}

fn busy_ring_with(handlers: u64, args: &[&str]) -> (ProgramRing, Vec<Process>) {
    let ring = ProgramRing::new();
    let args = [&["--interval", "10ms", "--work-per-char", "1m"], args].concat();
    let nodes = ring.nodes(handlers as usize + 1, &args);
    ring.eventually(SOON, "every handler holds a message", |status| status["inFlight"] == handlers);
    (ring, nodes)
}

fn members(status: &Value) -> usize {
    status["members"].as_array().unwrap().len()
}

/// Kills all nodes before one of them can bury another.
fn kill(nodes: &[Process]) {
    nodes.iter().for_each(Process::freeze);
    for node in nodes {
        node.kill();
    }
}

#[test]
fn messages_of_dead_members_go_back_and_are_counted() {
    for (command, counts_in_json) in [
        (&["cleanTemp"][..], false),
        (&["--cleanTemp"], false),
        (&["clean-temp"], false),
        (&["cleanTemp", "--json"], true),
    ] {
        let (ring, nodes) = busy_ring(2);
        kill(&nodes);
        let before = ring.status();
        let held = before["inFlight"].as_u64().unwrap();
        assert!(held >= 2 && members(&before) == 3, "{before}");

        let stdout = ring.success(command);
        if counts_in_json {
            let object: Value = serde_json::from_str(&stdout).unwrap();
            assert_eq!(object, json!({"returned": held, "gaveUp": 0, "buried": 3}));
        } else {
            assert_eq!(stdout, format!("{held} messages of 3 dead members returned to the queue\n"));
        }
        let after = ring.status();
        assert_eq!((&after["inFlight"], members(&after)), (&0.into(), 0), "{after}");
        assert_eq!(after["waiting"].as_u64().unwrap(), before["waiting"].as_u64().unwrap() + held);
        assert_eq!((&after["returned"], &after["buried"]), (&held.into(), &3.into()));

        let stdout = ring.success(command);
        let nothing = if counts_in_json { "\"returned\":0" } else { "0 messages of 0 dead members" };
        assert!(stdout.contains(nothing), "{stdout}");
    }
}

#[test]
fn returned_messages_are_first_in_the_queue_on_their_second_delivery() {
    let (ring, nodes) = busy_ring(2);
    kill(&nodes);
    ring.success(&["cleanTemp"]);
    let head: Vec<String> =
        redis::from_redis_value(ring.redis_cli(&["LRANGE", "{estafeta}:ready", "0", "1"])).unwrap();
    let numbers = |element: &String| -> Vec<u64> {
        element.split(' ').map_while(|number| number.parse().ok()).collect()
    };
    let mut found: Vec<Vec<u64>> = head.iter().map(numbers).collect();
    // Deliveries, failures, deaths, snoozes and the length of the headers.
    found.iter_mut().for_each(|numbers| drop(numbers.drain(1..3)));
    found.sort_unstable();
    assert_eq!(found, [[1, 1, 0, 1, 0, 0], [2, 1, 0, 1, 0, 0]], "{head:?}");
}

#[test]
fn living_members_are_not_touched() {
    let (ring, nodes) = busy_ring(3);
    let before = ring.status();
    assert!(ring.success(&["cleanTemp"]).starts_with("0 messages of 0 dead members"));
    let after = ring.status();
    assert_eq!((members(&after), &after["inFlight"]), (4, &3.into()), "{after}");
    assert_eq!(after["generator"]["epoch"], before["generator"]["epoch"]);
    assert_eq!(after["buried"], 0);
    assert!(nodes.iter().all(Process::is_running));
}

#[test]
fn a_message_that_too_many_nodes_died_with_is_counted_separately() {
    let (ring, nodes) = busy_ring_with(1, &["--max-deaths", "1"]);
    kill(&nodes);
    let stdout = ring.success(&["cleanTemp"]);
    let expected = "0 messages of 2 dead members returned to the queue\n\
                    1 message had too many deaths: now among the errors\n";
    assert_eq!(stdout, expected);
    let status = ring.status();
    assert_eq!((&status["errorsKept"], &status["returned"]), (&1.into(), &0.into()), "{status}");
}
