//! Nodes as child processes of a program that starts many of them. With `--brief` a node prints no more than the
//! program can read. With `--control` the program can stop it, and the node stops if the program is gone.

use std::io::Write as _;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use estafeta_testbed::{DataDir, Process, eventually};
use serde_json::{Value, json};

use crate::support::{ProgramRing, SOON, reports, run};

const BRIEF: [&str; 4] = ["--json", "--brief", "--error-rate", "0.5"];

fn totals(node: &Process, kind: &str) -> Vec<u64> {
    let objects = reports(node).into_iter().filter(|object| object["msg"] == kind);
    objects.map(|object| object["total"].as_u64().unwrap()).collect()
}

#[test]
fn a_brief_node_reports_no_single_messages_and_its_totals_at_most_ten_times_per_second() {
    let ring = ProgramRing::new();
    let start = Instant::now();
    let args = ["--interval", "1ms", "--limit", "1500", "--until-done", "--concurrency", "4"];
    let nodes = ring.nodes(3, &[&BRIEF[..], &args].concat());
    for node in &nodes {
        assert!(node.wait(SOON).success());
    }
    // The first at once, then one per tenth of a second, and the last at the end.
    let most = start.elapsed().as_millis() / 100 + 2;
    let mut ends = [0, 0];
    for node in &nodes {
        for (kind, end) in ["generated", "processed"].iter().zip(&mut ends) {
            let totals = totals(node, kind);
            assert!((totals.len() as u128) <= most, "{kind} more than {most} times: {totals:?}");
            assert!(totals.is_sorted(), "{kind}: {totals:?}");
            *end += totals.last().unwrap_or(&0);
        }
        let objects = reports(node);
        let single = |object: &&Value| object["msg"].as_str().unwrap().ends_with("Message");
        assert_eq!(objects.iter().find(single), None);
    }
    assert_eq!(ends, [1500, 1500], "the last totals are the true ones");
}

#[test]
fn a_brief_node_reports_everything_else_and_its_last_totals_before_it_leaves() {
    let ring = ProgramRing::new();
    let one = ring.node(&[&BRIEF[..], &["--interval", "1ms", "--limit", "5"]].concat());
    // All five come within the tenth of a second after the first. No later message triggers their report.
    one.wait_for_line(SOON, |line| line.contains(r#""generated","total":5}"#));
    let other = ring.node(&[&BRIEF[..], &["--limit", "5", "--until-done"]].concat());
    assert!(other.wait(SOON).success());
    let kinds = |node: &Process| -> Vec<String> {
        let objects = reports(node);
        objects.iter().map(|object| object["msg"].as_str().unwrap().to_owned()).collect()
    };
    let printed = kinds(&one);
    for kind in ["createdTaskId", "switchedToGeneratorMode", "tookOffice", "limitReached"] {
        assert!(printed.iter().any(|printed| printed == kind), "{kind} is not among {printed:?}");
    }
    let printed = kinds(&other);
    assert_eq!(printed.last().unwrap(), "left", "{printed:?}");
    assert_eq!(*totals(&other, "processed").last().unwrap(), 5);
}

#[test]
fn brief_is_refused_without_json_before_anything_is_started() {
    let data = DataDir::new();
    let home = ("ESTAFETA_DATA", data.path().to_str().unwrap());
    let file = data.path().join("settings.toml");
    std::fs::write(&file, "brief = true\n").unwrap();
    let refused = |args: &[&str], envs: &[(&str, &str)], place: &str| {
        let output = run(&[&["run"], args].concat(), &[&[home], envs].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!(stderr, format!("estafeta: {place}: expected --json with it, got none\n"));
    };
    refused(&["--brief"], &[], "--brief");
    refused(&[], &[("ESTAFETA_BRIEF", "1")], "variable ESTAFETA_BRIEF");
    let file = file.to_str().unwrap();
    refused(&["--config", file], &[], &format!("{file}: brief"));
    assert!(!data.path().join("redis").exists());
}

/// A generator, a handler whose message takes a while, and the pipe that controls the handler.
fn busy_handler(ring: &ProgramRing) -> (Process, (Process, ChildStdin)) {
    let slow = ["--json", "--interval", "100ms", "--work-per-char", "50ms", "--error-rate", "0"];
    let generator = ring.node(&slow);
    generator.wait_for_line(SOON, |line| line.contains("generatedMessage"));
    let scratch = tempfile::tempdir().unwrap();
    let record = scratch.path().join("record");
    let recorded = ["run", "--control", "--record", record.to_str().unwrap()];
    let handler = ring.start_fed(&[&recorded, &slow[..]].concat());
    // The message must have been begun. Messages that were only claimed go back.
    eventually(SOON, "a message in hand", || {
        std::fs::read_to_string(&record).ok()?.contains(" began ").then_some(())
    });
    (generator, handler)
}

#[track_caller]
fn assert_left_gracefully(ring: &ProgramRing, node: &Process) {
    assert!(node.wait(SOON).success(), "{:?}", node.stderr_lines());
    let objects = reports(node);
    assert!(objects.contains(&json!({"msg": "stopping"})), "{objects:?}");
    assert_eq!(*objects.last().unwrap(), json!({"msg": "left", "returned": 0}));
    let status = ring.status();
    assert_eq!((&status["inFlight"], &status["returned"]), (&0.into(), &0.into()), "{status}");
}

#[test]
fn a_controlled_node_stops_gracefully_on_command() {
    for command in ["{\"msg\":\"stop\"}\n", "{\"msg\":\"stop\"}\r\n"] {
        let ring = ProgramRing::new();
        let (_generator, (handler, mut control)) = busy_handler(&ring);
        control.write_all(command.as_bytes()).unwrap();
        assert_left_gracefully(&ring, &handler);
        assert!(handler.stderr_lines().is_empty(), "{:?}", handler.stderr_lines());
    }
}

#[test]
fn a_controlled_node_stops_gracefully_when_its_control_pipe_closes() {
    let ring = ProgramRing::new();
    let (_generator, (handler, control)) = busy_handler(&ring);
    drop(control);
    assert_left_gracefully(&ring, &handler);
}

#[test]
fn a_controlled_node_logs_what_it_does_not_understand_and_works_on() {
    let ring = ProgramRing::new();
    let (node, mut control) = ring.start_fed(&["run", "--control", "--json", "--interval", "20ms"]);
    let long = format!("{{\"msg\":\"stop\",\"why\":\"{}\"}}\n", "x".repeat(64 * 1024));
    for nonsense in ["{\"msg\":\"dance\"}\n", "\x1b[2Jstop\n", &long] {
        control.write_all(nonsense.as_bytes()).unwrap();
    }
    node.wait_for_stderr_line(SOON, |line| line.contains("WARN") && line.contains(r#"{"msg":"dance"}"#));
    node.wait_for_stderr_line(SOON, |line| line.contains(r"\u{1b}[2Jstop"));
    node.wait_for_stderr_line(SOON, |line| line.contains("expected at most 65536 bytes"));
    node.wait_for_line(SOON, |line| line.contains("createdTaskId"));
    let before = ring.status()["published"].as_u64();
    ring.eventually(SOON, "it works on", |status| status["published"].as_u64() > before);
    control.write_all(b"{\"msg\":\"stop\"}\n").unwrap();
    assert!(node.wait(SOON).success());
}

#[test]
fn without_control_a_node_ignores_stdin_and_its_end() {
    let ring = ProgramRing::new();
    let (node, mut control) = ring.start_fed(&["run", "--json", "--interval", "20ms"]);
    control.write_all(b"{\"msg\":\"stop\"}\n").unwrap();
    drop(control);
    eventually(SOON, "it works on", || (totals(&node, "generated").last() >= Some(&20)).then_some(()));
    assert!(node.is_running());
}

#[test]
fn a_control_pipe_that_stays_open_does_not_delay_a_stop_by_signal() {
    let ring = ProgramRing::new();
    let (node, _control) = ring.start_fed(&["run", "--control", "--json"]);
    node.wait_for_line(SOON, |line| line.contains("createdTaskId"));
    node.signal(estafeta_testbed::Signal::SIGTERM);
    assert!(node.wait(Duration::from_secs(5)).success());
}
