//! `errors list|count|retry|drop`: inspect errors without taking them, retry them, or drop them.

use serde_json::{Value, json};

use crate::get_errors::ids;
use crate::reset::dump;
use crate::support::{ProgramRing, SOON};

fn ring_with(count: u64) -> ProgramRing {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=count, |id| format!("body {id}").into_bytes());
    ring
}

fn object(text: &str) -> Value {
    serde_json::from_str(text).expect(text)
}

/// The parts of the balance that concern errors and the queue.
fn counts(ring: &ProgramRing) -> Value {
    let status = ring.status();
    let names = ["waiting", "errorsKept", "errorsTaken", "retried", "dropped"];
    names
        .map(|name| (name.to_owned(), status[name].clone()))
        .into_iter()
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn list_prints_all_errors_and_takes_none() {
    let ring = ring_with(450);
    let expected: Vec<u64> = (1..=450).collect();
    assert_eq!(ids(&ring.success(&["errors", "list"])), expected);
    let objects: Vec<Value> = ring.success(&["errors", "list", "--json"]).lines().map(object).collect();
    assert_eq!(objects.iter().map(|error| error["id"].as_u64().unwrap()).collect::<Vec<_>>(), expected);
    assert_eq!((&objects[0]["body"], &objects[0]["reason"]), (&"body 1".into(), &"planted".into()));
    assert_eq!(counts(&ring)["errorsKept"], 450);
    assert_eq!(ids(&ring.success(&["getErrors"])), expected);
}

#[test]
fn count_prints_the_number_of_errors() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=12, |_| Vec::new());
    assert_eq!(ring.success(&["errors", "count"]), "12\n");
    assert_eq!(object(&ring.success(&["errors", "count", "--json"])), json!({"count": 12}));
    ring.success(&["getErrors"]);
    assert_eq!(ring.success(&["errors", "count"]), "0\n");
}

#[test]
fn a_retried_error_waits_again_for_its_next_delivery() {
    let ring = ring_with(5);
    // An error on its fourth delivery. Deliveries and snoozes go on, failures and deaths start again.
    ring.redis_cli(&["LSET", "{estafeta}:errors", "2", "!2000 3 7 planted 3 7 1000 3 2 1 5 6 1:a1:bbody 3"]);
    assert_eq!(ring.success(&["errors", "retry", "3", "5"]), "2 errors retried\n");
    assert_eq!(
        counts(&ring),
        json!({"waiting": 2, "errorsKept": 3, "errorsTaken": 0, "retried": 2, "dropped": 0})
    );
    let waiting: Vec<String> =
        redis::from_redis_value(ring.redis_cli(&["LRANGE", "{estafeta}:ready", "0", "-1"])).unwrap();
    assert_eq!(waiting, ["3 7 1000 4 0 0 5 6 1:a1:bbody 3", "5 7 1000 1 0 0 0 0 body 5"]);
    assert_eq!(ids(&ring.success(&["errors", "list"])), [1, 2, 4]);

    assert_eq!(object(&ring.success(&["errors", "retry", "--all", "--json"])), json!({"retried": 3}));
    assert_eq!(counts(&ring)["waiting"], 5);
    assert_eq!(ring.success(&["errors", "retry", "--all"]), "0 errors retried\n");
}

#[test]
fn a_retried_message_is_handled_again() {
    let ring = ProgramRing::new();
    let settings = ["--interval", "10ms", "--limit", "10", "--json"];
    let failing = ring.nodes(2, &[&settings[..], &["--error-rate", "1", "--until-done"]].concat());
    failing.iter().for_each(|node| assert!(node.wait(SOON).success()));
    assert_eq!(counts(&ring)["errorsKept"], 10);

    ring.success(&["errors", "retry", "--all"]);
    let healthy = ring.nodes(2, &[&settings[..], &["--error-rate", "0"]].concat());
    ring.eventually(SOON, "all are done", |status| status["done"] == 10);
    assert_eq!(ring.status()["errorsKept"], 0);
    let handled: Vec<Value> = healthy.iter().flat_map(crate::support::reports).collect();
    let mut again: Vec<(u64, u64)> = handled
        .iter()
        .filter(|report| report["msg"] == "handledMessage")
        .map(|report| (report["id"].as_u64().unwrap(), report["delivery"].as_u64().unwrap()))
        .collect();
    again.sort_unstable();
    assert_eq!(again, (1..=10).map(|id| (id, 2)).collect::<Vec<_>>());
}

#[test]
fn a_dropped_error_is_gone_and_counts_as_taken() {
    let ring = ring_with(500);
    assert_eq!(ring.success(&["errors", "drop", "2", "450"]), "2 errors dropped\n");
    assert_eq!(
        counts(&ring),
        json!({"waiting": 0, "errorsKept": 498, "errorsTaken": 2, "retried": 0, "dropped": 2})
    );
    let unasked = ring.command(&["errors", "drop", "--all"]);
    assert!(unasked.status.code() == Some(1) && String::from_utf8_lossy(&unasked.stderr).contains("--yes"));
    let left = ids(&ring.success(&["errors", "list"]));
    assert!(left.len() == 498 && !left.contains(&2) && !left.contains(&450));
    assert_eq!(
        object(&ring.success(&["errors", "drop", "--all", "--yes", "--json"])),
        json!({"dropped": 498})
    );
    assert_eq!(counts(&ring)["errorsTaken"], 500);
    assert_eq!(ring.success(&["errors", "list"]), "");
}

#[test]
fn an_unknown_id_fails_the_command_but_the_other_ids_are_processed() {
    for verb in ["retry", "drop"] {
        let ring = ring_with(3);
        let output = ring.command(&["errors", verb, "2", "99"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("1 error "), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("no error in Redis has the id #99"),
            "{output:?}"
        );
        assert_eq!(ids(&ring.success(&["errors", "list"])), [1, 3]);
        let twice = ring.command(&["errors", verb, "1", "1"]);
        assert_eq!(twice.status.code(), Some(0), "an id named twice is there: {twice:?}");
        assert_eq!(counts(&ring)["errorsKept"], 1);
    }
}

#[test]
fn without_a_valid_selection_nothing_is_changed() {
    let ring = ring_with(3);
    let before = dump(&ring);
    for verb in ["retry", "drop"] {
        for args in [&["errors", verb][..], &["errors", verb, "1", "--all"], &["errors", verb, "one"]] {
            let output = ring.command(args);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
            assert_eq!(dump(&ring), before, "{args:?}");
        }
    }
}

#[test]
fn list_by_reason_prints_one_line_per_reason_and_takes_no_error() {
    let ring = ProgramRing::new();
    assert_eq!(ring.command(&["errors", "list", "--by-reason"]).status.code(), Some(1), "there is no ring");
    ring.plant_failures(1..=100_000, "order 1017 has no item", |_| b"x".to_vec());
    ring.plant_failures(100_001..=100_002, "order 20008 has no item", |_| Vec::new());
    ring.plant_failures(100_003..=100_005, "exit status 137", |_| Vec::new());
    let text = ring.success(&["errors", "list", "--by-reason"]);
    let moment = "1970-01-01T00:00:02.000Z";
    let expected = format!(
        "   errors  first                     last                         example  reason\n  \
         100,002  {moment}  {moment}     #100002  order # has no item\n        \
         3  {moment}  {moment}     #100005  exit status 137\n"
    );
    assert_eq!(text, expected);
    let objects: Vec<Value> =
        ring.success(&["errors", "list", "--by-reason", "--json"]).lines().map(object).collect();
    let group = |reason: &str, count: u64, id: u64| json!({"reason": reason, "count": count, "firstMs": 2000, "lastMs": 2000, "exampleId": id});
    assert_eq!(
        objects,
        [group("order # has no item", 100_002, 100_002), group("exit status 137", 3, 100_005)]
    );
    assert_eq!(counts(&ring)["errorsKept"], 100_005);
    ring.success(&["errors", "drop", "--all", "--yes"]);
    assert_eq!(ring.success(&["errors", "list", "--by-reason"]), "");
}
