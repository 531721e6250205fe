//! `pause` and `resume`: what they stop, what they print, and what they refuse.

use serde_json::{Value, json};

use crate::bad_input::refuses_in_one_line;
use crate::support::{ProgramRing, SOON};

impl ProgramRing {
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.success(args)).unwrap()
    }
}

#[test]
fn a_paused_ring_stands_still_until_it_is_resumed() {
    let ring = ProgramRing::new();
    let _nodes = ring.nodes(3, &["--interval", "5ms", "--work-per-char", "0"]);
    ring.eventually(SOON, "it works", |status| status["done"].as_u64() > Some(10));
    assert_eq!(ring.success(&["pause", "--handling"]), "ring estafeta: handling paused until resumed\n");
    let paused = ring.eventually(SOON, "nothing is in flight", |status| status["inFlight"] == 0);
    let later = ring.eventually(SOON, "messages wait", |status| status["waiting"].as_u64() > Some(20));
    assert_eq!(later["done"], paused["done"]);
    assert_eq!((&later["handlingPause"], &later["producingPause"]), (&json!({"leftMs": null}), &Value::Null));
    let text = ring.success(&["status"]);
    assert!(text.lines().any(|line| line == "handling paused until resumed"), "{text}");
    assert!(text.contains("handling paused until it is resumed"), "the event: {text}");
    let both = ring.success(&["pause", "--for", "10m"]);
    assert!(both.starts_with("ring estafeta: producing and handling paused for "), "{both}");
    assert!(both.ends_with("m59s more\n") || both.ends_with("10m00s more\n"), "{both}");
    assert_eq!(
        ring.json(&["resume", "--json"]),
        json!({"ring": "estafeta", "producingPause": null, "handlingPause": null})
    );
    assert_eq!(ring.success(&["resume"]), "ring estafeta: nothing is paused\n");
    let waited = later["published"].as_u64().unwrap();
    ring.eventually(SOON, "it goes on", |status| status["done"].as_u64() > Some(waited));
}

#[test]
fn publish_is_refused_while_producing_is_paused_except_for_duplicates() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "--key", "k", "a"]);
    let paused = ring.json(&["pause", "--producing", "--for", "1h", "--json"]);
    let left = paused["producingPause"]["leftMs"].as_u64().unwrap();
    assert!((3_500_000..=3_600_000).contains(&left) && paused["handlingPause"] == Value::Null, "{paused}");
    let refused = ring.command(&["publish", "b"]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(75), "{stderr}");
    assert!(stderr.starts_with("estafeta: producing is paused in ring estafeta for 3"), "{stderr}");
    assert_eq!(ring.success(&["publish", "--key", "k", "a"]), "{\"id\":1,\"duplicate\":true}\n");
    // Handling was never paused.
    ring.success(&["resume", "--handling"]);
    assert_ne!(ring.status()["producingPause"], Value::Null);
    ring.success(&["resume", "--producing"]);
    assert_eq!(ring.success(&["publish", "b"]), "{\"id\":2,\"duplicate\":false}\n");
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "a"]);
    let url = ring.redis.url();
    for (time, expected) in [
        ("0", "--for: expected 1ms to 10 years, got '0ns'"),
        ("-5m", "expected a duration such as 500ms, 2s or 0, got '-5m'"),
        ("11years", "--for: expected 1ms to 10 years, got '"),
        ("soon", "expected a duration such as 500ms, 2s or 0, got 'soon'"),
        ("99999999999999999999s", "expected a duration such as 500ms, 2s or 0, got '99999999999999999999s'"),
    ] {
        refuses_in_one_line(&ring, &["pause", "--for", time], &[("REDIS_URL", &url)], 2, &[expected]);
    }
    assert_eq!(ring.status()["handlingPause"], Value::Null);
}
