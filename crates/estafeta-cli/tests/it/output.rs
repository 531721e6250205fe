//! What a node prints on stdout: lines for people, and the JSON protocol for monitors, word for word.

use std::time::Duration;

use serde_json::json;

use crate::support::{ProgramRing, SOON, reports};

#[test]
fn json_output_is_the_protocol_word_for_word_with_crlf_after_each_object() {
    let ring = ProgramRing::new();
    let one = ring.node(&["--json", "--interval", "20ms", "--limit", "5", "--error-rate", "0"]);
    one.wait_for_line(SOON, |line| line.contains("limitReached"));
    let other = ring.start(&["run", "--json", "--limit", "5", "--error-rate", "1", "--until-done"]);
    let output = other.output(SOON);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("}\r\n"), "{text:?}");
    assert_eq!(text.matches('\n').count(), text.matches("}\r\n").count(), "{text:?}");

    let lines: Vec<_> = text.split_terminator("\r\n").collect();
    assert_eq!(lines[0], r#"{"msg":"createdTaskId","taskId":2}"#);
    let processed: Vec<_> = lines.iter().filter(|line| line.contains(r#""processed""#)).collect();
    assert_eq!(**processed.last().unwrap(), r#"{"msg":"processed","total":5,"errors":5}"#);
    let handled: Vec<_> =
        reports(&other).into_iter().filter(|object| object["msg"] == "handledMessage").collect();
    assert_eq!(handled.len(), 5);
    assert_eq!((&handled[0]["id"], &handled[0]["delivery"]), (&json!(1), &json!(1)));
    assert_eq!(handled[0]["error"], "the message contains an error");

    let all = reports(&one);
    let has = |object: serde_json::Value| assert!(all.contains(&object), "{object} is not among {all:?}");
    has(json!({"msg": "createdTaskId", "taskId": 1}));
    has(json!({"msg": "switchedToGeneratorMode"}));
    has(json!({"msg": "generated", "total": 5}));
}

#[test]
fn text_output_has_one_line_per_event_and_no_colours_in_a_pipe() {
    let ring = ProgramRing::new();
    let args = ["--interval", "50ms", "--seed", "7", "--error-rate", "0.5"];
    let one = ring.node(&args);
    one.wait_for_line(SOON, |line| line.starts_with("became generator (epoch "));
    one.wait_for_line(SOON, |line| line.starts_with("generated #1 \""));
    let other = ring.node(&args);
    other.wait_for_line(SOON, |line| line.starts_with("handled #"));
    other.wait_for_line(SOON, |line| {
        line.starts_with("error #") && line.contains("the message contains an error")
    });
    one.kill();
    let line = other.wait_for_line(SOON, |line| line.starts_with("took over from 1 in 0."));
    assert!(line.contains(" s (epoch "), "{line}");
    other.wait_for_line(SOON, |line| line.starts_with("member 1 is dead: 0 messages returned"));
    assert!(other.stdout_lines().iter().all(|line| !line.contains('\u{1b}')));
    assert!(other.stderr_lines().is_empty(), "{:?}", other.stderr_lines());
}

#[test]
fn high_rates_are_summed_up_once_per_second() {
    let ring = ProgramRing::new();
    let args = ["--interval", "0", "--limit", "20000", "--until-done"];
    let nodes = ring.nodes(2, &args);
    for node in &nodes {
        assert!(node.wait(SOON).success());
        let lines = node.stdout_lines();
        assert!(lines.iter().any(|line| line.starts_with("... ")), "{lines:?}");
        assert!(lines.len() < 100, "{} lines", lines.len());
    }
}

#[test]
fn the_same_seed_gives_the_same_errors_for_any_number_of_nodes() {
    let failed_ids = |nodes: usize| {
        let ring = ProgramRing::new();
        let args = ["--interval", "0", "--limit", "2000", "--until-done", "--seed", "11"];
        for node in ring.nodes(nodes, &args) {
            assert!(node.wait(SOON).success());
        }
        let errors = ring.success(&["getErrors", "--json"]);
        let mut ids: Vec<_> = errors
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap())
            .collect();
        ids.sort_unstable();
        ids
    };
    let ids = failed_ids(2);
    assert!((50..150).contains(&ids.len()), "{}", ids.len());
    assert_eq!(ids, failed_ids(4));
}

#[test]
fn an_output_that_is_not_read_delays_neither_the_ring_nor_a_stop() {
    let ring = ProgramRing::new();
    let args = ["run", "--json", "--interval", "0", "--max-waiting", "1000"];
    let (unread, pipe) = ring.start_unread(&args);
    ring.eventually(SOON, "a generator", |status| !status["generator"].is_null());
    let _handler = ring.node(&["--interval", "0", "--max-waiting", "1000"]);
    ring.eventually(SOON, "far more than a pipe and a queue hold", |status| {
        status["done"].as_u64() > Some(60_000)
    });
    assert_eq!(ring.status()["generator"]["pid"], u64::from(unread.pid()));
    unread.signal(estafeta_testbed::Signal::SIGTERM);
    // Work that does not end is abandoned after 25 seconds. This stop needs none of that time.
    assert!(unread.wait(Duration::from_secs(15)).success());
    drop(pipe);
}
