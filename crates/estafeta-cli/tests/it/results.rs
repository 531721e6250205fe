//! `results`: prints what handlers returned for their messages.

use serde_json::{Value, json};

use crate::support::ProgramRing;

fn ring_with_results() -> ProgramRing {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=1, |_| Vec::new());
    for (id, value) in [("10", "plain"), ("9", "привет\n\u{1b}[2J"), ("2", "")] {
        ring.redis_cli(&["SET", &format!("{{estafeta}}:result:{id}"), &format!("7 1000 {value}")]);
    }
    let mut set = redis::cmd("SET");
    set.arg("{estafeta}:result:11").arg(&b"7 1000 \xff\0"[..]).exec(&mut ring.redis.connect()).unwrap();
    // Neither is the result of a message.
    ring.redis_cli(&["SET", "{estafeta}:result:012", "7 1000 x"]);
    ring.redis_cli(&["SET", "{estafeta}:result:", "7 1000 x"]);
    ring
}

#[test]
fn all_results_are_printed_by_id() {
    let ring = ring_with_results();
    let done = "done 1970-01-01T00:00:01.000Z";
    let expected = format!(
        "#2 {done}: \"\"\n#9 {done}: \"привет\\n\\u{{1b}}[2J\"\n#10 {done}: \"plain\"\n#11 {done}: \"\\xff\\u{{0}}\"\n"
    );
    assert_eq!(ring.success(&["results"]), expected);
    let objects = ring.success(&["results", "--json"]);
    let objects: Vec<Value> = objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rest = json!({"epoch": 7, "doneMs": 1000, "done": "1970-01-01T00:00:01.000Z"});
    let object = |id: u64, name: &str, value: &str| {
        let mut object = rest.clone();
        object["id"] = id.into();
        object[name] = value.into();
        object
    };
    let values = [
        object(2, "value", ""),
        object(9, "value", "привет\n\u{1b}[2J"),
        object(10, "value", "plain"),
        object(11, "valueBase64", "/wA="),
    ];
    assert_eq!(objects, values);
}

#[test]
fn named_results_are_printed_in_the_given_order_and_a_missing_one_fails() {
    let ring = ring_with_results();
    let ids = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&ring.success(&["results", "10", "2"])), ["#10", "#2"]);
    let output = ring.command(&["results", "7", "10", "8"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(ids(&String::from_utf8(output.stdout).unwrap()), ["#10"]);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "estafeta: Redis keeps no result of #7, #8\n");
}

#[test]
fn a_foreign_value_in_place_of_a_result_is_named() {
    let ring = ring_with_results();
    ring.redis_cli(&["RPUSH", "{estafeta}:result:3", "x"]);
    let output = ring.command(&["results", "3"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("key {estafeta}:result:3 is a list, expected a string"), "{stderr}");
    ring.redis_cli(&["SET", "{estafeta}:result:4", "what is this"]);
    let stderr = String::from_utf8(ring.command(&["results", "4"]).stderr).unwrap();
    assert!(stderr.contains("{estafeta}:result:4 holds no result of a message"), "{stderr}");
}
