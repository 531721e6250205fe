//! `estafeta schedule`: prints the entries of a ring's schedule, and when each comes next.

use estafeta_testbed::{Clock, RedisServer};
use serde_json::{Value, json};

use crate::support::ProgramRing;

/// 2027-03-27 12:00 UTC. The clocks of Berlin go forward in the following night.
const NOON: i64 = 1_806_148_800;

const NIGHTLY: &str =
    r#"{"cron":"30 2 * * *","zone":"Europe/Berlin","missed":"last","maxAgeMs":86400000,"overlap":"skip"}"#;
const HOURLY: &str = r#"{"everyMs":3600000,"missed":"skip","maxAgeMs":86400000,"overlap":"queue"}"#;
const TIDES: &str = r#"{"moon":"full","missed":"skip","maxAgeMs":0,"overlap":"queue"}"#;

/// A ring whose Redis lives on that day.
fn ring_with(clock: &Clock, entries: &[(&str, &str)]) -> ProgramRing {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    clock.set(NOON - i64::try_from(now).unwrap());
    let ring = ProgramRing::on(clock.of(RedisServer::builder()).start());
    ring.plant_errors(1..=1, |_| Vec::new());
    for (name, definition) in entries {
        ring.redis_cli(&["HSET", "{estafeta}:schedule", name, definition]);
    }
    ring
}

#[test]
fn each_entry_is_printed_with_its_next_runs_in_its_zone() {
    let clock = Clock::new();
    let ring = ring_with(&clock, &[("nightly", NIGHTLY), ("hourly", HOURLY)]);
    let tick = |name: &str, second: i64| {
        ring.redis_cli(&["HSET", "{estafeta}:ticks", name, &(second * 1000).to_string()]);
    };
    tick("nightly", NOON - 36_000 - 1800);
    tick("hourly", NOON - 7200 + 300);
    ring.redis_cli(&["HSET", "{estafeta}:open", "17", "nightly"]);
    let expected = "\
hourly
  times         every 1h
  missed ticks  skipped
  overlap       ticks are published even if messages of earlier ones have no outcome
  last tick     2027-03-27T10:05:00+00:00
  next runs     2027-03-27T12:05:00+00:00
                2027-03-27T13:05:00+00:00
nightly
  times         30 2 * * * in Europe/Berlin
  missed ticks  only the newest is published, if it is at most 1day old
  overlap       ticks are skipped now: a message of an earlier one has no outcome yet
  last tick     2027-03-27T02:30:00+01:00
  next runs     2027-03-28T03:00:00+02:00
                2027-03-29T02:30:00+02:00
";
    assert_eq!(ring.success(&["schedule", "--count", "2"]), expected);
    assert_eq!(ring.success(&["schedule"]).lines().count(), expected.lines().count() + 6, "five by default");
    assert!(!ring.success(&["schedule", "--count", "0"]).contains("next runs"));
    ring.redis_cli(&["DEL", "{estafeta}:open"]);
    let closed = ring.success(&["schedule"]);
    assert!(
        closed.contains("ticks are skipped while a message of an earlier one has no outcome"),
        "{closed}"
    );
    assert_eq!(ring.command(&["schedule", "--count", "1001"]).status.code(), Some(2));
}

#[test]
fn the_same_is_printed_as_json_one_object_per_entry() {
    let clock = Clock::new();
    let ring = ring_with(&clock, &[("nightly", NIGHTLY), ("hourly", HOURLY), ("tides", TIDES)]);
    ring.redis_cli(&["HSET", "{estafeta}:ticks", "nightly", "1000"]);
    let lines = ring.success(&["schedule", "--json", "--count", "1"]);
    let objects: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let time = |ms: i64, time: &str| json!({"timeMs": ms, "time": time});
    let nightly = json!({
        "name": "nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin", "everyMs": null, "missed": "last",
        "maxAgeMs": 86_400_000, "overlap": "skip", "open": false,
        "lastTick": time(1000, "1970-01-01T01:00:01+01:00"),
        "upcoming": [time(1_806_195_600_000, "2027-03-28T03:00:00+02:00")], "unknown": null,
    });
    let tides = json!({
        "name": "tides", "cron": null, "zone": null, "everyMs": null, "missed": null, "maxAgeMs": null,
        "overlap": null, "open": false, "lastTick": null, "upcoming": [], "unknown": TIDES,
    });
    assert_eq!(objects[1..], [nightly, tides]);
    let hourly = &objects[0];
    assert_eq!((&hourly["name"], &hourly["everyMs"]), (&json!("hourly"), &json!(3_600_000)));
    assert_eq!((&hourly["missed"], &hourly["overlap"]), (&json!("skip"), &json!("queue")));
}

#[test]
fn a_definition_of_a_newer_program_is_printed_as_it_is_and_safe_to_show() {
    let clock = Clock::new();
    let ring = ring_with(&clock, &[("tides\u{1b}[2J", TIDES)]);
    let expected = format!("tides\\u{{1b}}[2J\n  unknown       {TIDES}\n  last tick     none\n");
    assert_eq!(ring.success(&["schedule"]), expected);
}

#[test]
fn a_ring_without_a_schedule_is_reported_and_fails_except_as_json() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "x"]);
    let none = ring.command(&["schedule"]);
    assert_eq!((none.status.code(), none.stdout.as_slice()), (Some(1), &b""[..]));
    assert_eq!(String::from_utf8(none.stderr).unwrap(), "estafeta: ring estafeta has no schedule\n");
    assert_eq!(ring.success(&["schedule", "--json"]), "");
}
