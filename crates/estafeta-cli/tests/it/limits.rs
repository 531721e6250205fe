//! `limit`: what it changes, what it prints, and what it refuses.

use serde_json::{Value, json};

use crate::bad_input::refuses_in_one_line;
use crate::support::{ProgramRing, SOON};

#[test]
fn a_limited_ring_holds_no_more_and_goes_on_after_the_limit() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "a"]);
    assert_eq!(ring.success(&["limit"]), "ring estafeta: no limits\n");
    assert_eq!(ring.success(&["limit", "--in-flight", "2"]), "ring estafeta: limited to 2 in flight\n");
    let both = ring.success(&["limit", "--rate", "500/s"]);
    assert_eq!(both, "ring estafeta: limited to 2 in flight and 500/s\n");
    let status = ring.status();
    assert_eq!(status["inFlightLimit"], json!(2));
    assert_eq!(status["rateLimit"], json!({"messages": 500, "perMs": 1000}));
    let text = ring.success(&["status"]);
    assert!(text.lines().any(|line| line == "limited to 2 in flight and 500/s"), "{text}");
    let removed = ring.success(&["limit", "--in-flight", "none", "--rate", "none", "--json"]);
    let removed: Value = serde_json::from_str(&removed).unwrap();
    assert_eq!(removed, json!({"ring": "estafeta", "inFlightLimit": null, "rateLimit": null}));
    assert!(ring.success(&["status"]).contains("limits removed"), "the event");

    let _nodes = ring.nodes(3, &["--interval", "1ms", "--work-per-char", "0", "--concurrency", "4"]);
    ring.success(&["limit", "--in-flight", "1"]);
    let limited =
        ring.eventually(SOON, "at most one is held", |status| status["inFlight"].as_u64() <= Some(1));
    let before = limited["done"].as_u64().unwrap();
    ring.eventually(SOON, "it still works", |status| {
        assert!(status["inFlight"].as_u64() <= Some(1), "{status}");
        status["done"].as_u64() > Some(before + 20)
    });
}

#[test]
fn a_limit_that_makes_no_sense_is_refused() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "a"]);
    let url = ring.redis.url();
    for limit in ["0", "-1", "many", "1000000001", "1.5", ""] {
        let expected = format!("expected 1 to 1000000000 messages or none, got '{limit}'");
        refuses_in_one_line(&ring, &["limit", "--in-flight", limit], &[("REDIS_URL", &url)], 2, &[&expected]);
    }
    for rate in ["0/s", "5", "5/d", "-5/s", "1000001/s"] {
        let expected = format!("or none, got '{rate}'");
        refuses_in_one_line(&ring, &["limit", "--rate", rate], &[("REDIS_URL", &url)], 2, &[&expected]);
    }
    assert_eq!(ring.status()["inFlightLimit"], Value::Null);
}
