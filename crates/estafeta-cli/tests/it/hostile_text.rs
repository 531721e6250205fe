//! Host names, bodies, reasons and events come from other programs. None of them may control the terminal.

use estafeta_testbed::{Process, Signal};

use crate::support::{ProgramRing, SOON};

const HOSTILE: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{2066}\r<script>";

#[track_caller]
fn assert_harmless(shown: &str) {
    let controls = |c: char| {
        (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!shown.replace("\r\n", "\n").contains(controls), "{shown:?}");
    assert!(shown.contains("<script>"), "it is shown, as text: {shown:?}");
}

/// A ring in which a member, an event, an error and a waiting message contain hostile text.
fn hostile_ring() -> ProgramRing {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=1, |_| HOSTILE.into());
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut ring.redis.connect()).unwrap();
    let later = ((seconds + 3600) * 1000).to_string();
    ring.redis_cli(&["ZADD", "{estafeta}:members", &later, "00000000000000aa"]);
    let facts = ["number", "7", "kind", "node", "lanes", "1", "presence", "0", "lease", "3600000"];
    let place = ["host", HOSTILE, "pid", "1", "started", "0"];
    ring.redis_cli(&[&["HSET", "{estafeta}:member:00000000000000aa"], &facts[..], &place].concat());
    for kind in ["joined", HOSTILE] {
        ring.redis_cli(&["XADD", "{estafeta}:events", "*", "kind", kind, "member", "7", "host", HOSTILE]);
    }
    ring.redis_cli(&["RPUSH", "{estafeta}:ready", &format!("2 7 1000 0 0 0 0 0 {HOSTILE}")]);
    ring.redis_cli(&["HINCRBY", "{estafeta}:ledger", "published", "1"]);
    ring
}

#[test]
fn commands_show_hostile_text_without_its_control_characters() {
    let ring = hostile_ring();
    ring.redis_cli(&["SET", "{estafeta}:application", HOSTILE]);
    let calls: [&[&str]; 10] = [
        &["status"],
        &["status", "--json"],
        &["errors", "list"],
        &["errors", "list", "--json"],
        &["errors", "list", "--by-reason"],
        &["errors", "list", "--by-reason", "--json"],
        &["results"],
        &["results", "--json"],
        &["getErrors"],
        &["getErrors", "--json"],
    ];
    for id in ["1", "2"] {
        ring.redis_cli(&["SET", &format!("{{estafeta}}:result:{id}"), &format!("7 1000 {HOSTILE}")]);
    }
    for call in calls {
        ring.redis_cli(&["DEL", "{estafeta}:errors"]);
        ring.redis_cli(&["HDEL", "{estafeta}:ledger", "failed", "taken"]);
        ring.redis_cli(&["HSET", "{estafeta}:ledger", "published", "1"]);
        ring.plant_errors(1..=1, |_| HOSTILE.into());
        ring.plant_failures(3..=3, HOSTILE, |_| b"body".to_vec());
        let stdout = ring.success(call);
        assert_harmless(&stdout);
        // Errors show it as a body and as a reason. The status shows it in members and events.
        let least = if call.contains(&"--by-reason") { 1 } else { 2 };
        assert!(stdout.matches("<script>").count() >= least, "{stdout:?}");
        if call[0] == "status" {
            let application = stdout.split("application").nth(1).unwrap();
            assert!(application[..60].contains("<script>"), "{stdout:?}");
        }
    }
}

#[test]
fn a_node_shows_hostile_messages_without_their_control_characters() {
    let ring = hostile_ring();
    let nodes = ring.nodes(2, &["--error-rate", "0", "--interval", "1h"]);
    // The hostile message is first in the queue. The first message of the generator may be handled by then as well.
    ring.eventually(SOON, "the message is handled", |status| status["done"].as_u64() >= Some(1));
    let stdout_of = |node: &Process| {
        node.signal(Signal::SIGTERM);
        String::from_utf8(node.output(SOON).stdout).unwrap()
    };
    assert_harmless(&nodes.iter().map(stdout_of).collect::<String>());
}
