//! Whatever others wrote into the ring, names of hosts, bodies, reasons and events, none of it steers a terminal.

use estafeta_testbed::{Process, Signal};

use crate::support::{SOON, TestRing};

const HOSTILE: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{2066}\r<script>";

#[track_caller]
fn assert_harmless(told: &str) {
    let steers = |c: char| {
        (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!told.replace("\r\n", "\n").contains(steers), "{told:?}");
    assert!(told.contains("<script>"), "it is shown, as text: {told:?}");
}

/// A ring in which a member, an event, an error and a waiting message carry hostile text.
fn hostile_ring() -> TestRing {
    let ring = TestRing::new();
    ring.plant_errors(1..=1, |_| HOSTILE.into());
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut ring.redis.connect()).unwrap();
    let later = ((seconds + 3600) * 1000).to_string();
    ring.redis_cli(&["ZADD", "{estafeta}:members", &later, "00000000000000aa"]);
    let facts = ["number", "7", "kind", "member", "lanes", "1", "presence", "0", "lease", "3600000"];
    let place = ["host", HOSTILE, "pid", "1", "started", "0"];
    ring.redis_cli(&[&["HSET", "{estafeta}:member:00000000000000aa"], &facts[..], &place].concat());
    for kind in ["joined", HOSTILE] {
        ring.redis_cli(&["XADD", "{estafeta}:events", "*", "kind", kind, "member", "7", "host", HOSTILE]);
    }
    ring.redis_cli(&["RPUSH", "{estafeta}:ready", &format!("2 7 1 1000 {HOSTILE}")]);
    ring.redis_cli(&["HINCRBY", "{estafeta}:ledger", "published", "1"]);
    ring
}

#[test]
fn commands_show_foreign_text_as_text() {
    let ring = hostile_ring();
    let calls: [&[&str]; 6] = [
        &["status"],
        &["status", "--json"],
        &["errors", "list"],
        &["errors", "list", "--json"],
        &["getErrors"],
        &["getErrors", "--json"],
    ];
    for call in calls {
        ring.redis_cli(&["DEL", "{estafeta}:errors"]);
        ring.redis_cli(&["HDEL", "{estafeta}:ledger", "failed", "taken"]);
        ring.redis_cli(&["HSET", "{estafeta}:ledger", "published", "1"]);
        ring.plant_errors(1..=1, |_| HOSTILE.into());
        ring.plant_failures(3..=3, HOSTILE, |_| b"body".to_vec());
        let told = ring.success(call);
        assert_harmless(&told);
        // Once as a body and once as a reason, or by what the members and events say.
        assert!(told.matches("<script>").count() >= 2, "{told:?}");
    }
}

#[test]
fn a_copy_shows_the_messages_it_handles_as_text() {
    let ring = hostile_ring();
    let copies = ring.copies(2, &["--error-rate", "0", "--interval", "1h"]);
    // It is first in line; the generator's own first message may be handled by then as well.
    ring.eventually(SOON, "the message is handled", |status| status["done"].as_u64() >= Some(1));
    let told = |copy: &Process| {
        copy.signal(Signal::SIGTERM);
        String::from_utf8(copy.output(SOON).stdout).unwrap()
    };
    assert_harmless(&copies.iter().map(told).collect::<String>());
}
