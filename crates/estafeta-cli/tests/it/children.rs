//! Copies as children of a program that starts many of them: `--brief` says no more than it can read, `--control` lets
//! it stop them, and stops them when it is gone.

use std::io::Write as _;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use estafeta_testbed::{DataDir, Process, eventually};
use serde_json::{Value, json};

use crate::support::{SOON, TestRing, run, said};

const BRIEF: [&str; 4] = ["--json", "--brief", "--error-rate", "0.5"];

fn totals(copy: &Process, kind: &str) -> Vec<u64> {
    let objects = said(copy).into_iter().filter(|object| object["msg"] == kind);
    objects.map(|object| object["total"].as_u64().unwrap()).collect()
}

#[test]
fn a_brief_copy_says_no_single_messages_and_its_totals_at_most_ten_times_a_second() {
    let ring = TestRing::new();
    let start = Instant::now();
    let args = ["--interval", "1ms", "--limit", "1500", "--until-done", "--concurrency", "4"];
    let copies = ring.copies(3, &[&BRIEF[..], &args].concat());
    for copy in &copies {
        assert!(copy.wait(SOON).success());
    }
    // The first at once, one for each tenth of a second, the last at the end.
    let most = start.elapsed().as_millis() / 100 + 2;
    let mut ends = [0, 0];
    for copy in &copies {
        for (kind, end) in ["generated", "processed"].iter().zip(&mut ends) {
            let totals = totals(copy, kind);
            assert!((totals.len() as u128) <= most, "{kind} more than {most} times: {totals:?}");
            assert!(totals.is_sorted(), "{kind}: {totals:?}");
            *end += totals.last().unwrap_or(&0);
        }
        let objects = said(copy);
        let single = |object: &&Value| object["msg"].as_str().unwrap().ends_with("Message");
        assert_eq!(objects.iter().find(single), None);
    }
    assert_eq!(ends, [1500, 1500], "the last totals are the true ones");
}

#[test]
fn a_brief_copy_says_all_else_and_the_last_totals_before_it_leaves() {
    let ring = TestRing::new();
    let one = ring.copy(&[&BRIEF[..], &["--interval", "1ms", "--limit", "5"]].concat());
    // Five come within the tenth of a second that follows the first, and then nothing more that could bring them out.
    one.wait_for_line(SOON, |line| line.contains(r#""generated","total":5}"#));
    let other = ring.copy(&[&BRIEF[..], &["--limit", "5", "--until-done"]].concat());
    assert!(other.wait(SOON).success());
    let kinds = |copy: &Process| -> Vec<String> {
        let objects = said(copy);
        objects.iter().map(|object| object["msg"].as_str().unwrap().to_owned()).collect()
    };
    let told = kinds(&one);
    for kind in ["createdTaskId", "switchedToGeneratorMode", "tookOffice", "limitReached"] {
        assert!(told.iter().any(|told| told == kind), "{kind} is not among {told:?}");
    }
    let told = kinds(&other);
    assert_eq!(told.last().unwrap(), "left", "{told:?}");
    assert_eq!(*totals(&other, "processed").last().unwrap(), 5);
}

#[test]
fn brief_is_refused_without_json_before_anything_is_started() {
    let data = DataDir::new();
    let home = ("ESTAFETA_DATA", data.path().to_str().unwrap());
    let file = data.path().join("settings.toml");
    std::fs::write(&file, "brief = true\n").unwrap();
    let refused = |args: &[&str], envs: &[(&str, &str)]| {
        let output = run(&[&["run"], args].concat(), &[&[home], envs].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert_eq!(told, "estafeta: brief: expected --json with it\n");
    };
    refused(&["--brief"], &[]);
    refused(&[], &[("ESTAFETA_BRIEF", "1")]);
    refused(&["--config", file.to_str().unwrap()], &[]);
    assert!(!data.path().join("redis").exists());
}

/// A copy with a message in hand that takes a while, and the pipe by which it is controlled.
fn busy_handler(ring: &TestRing) -> (Process, (Process, ChildStdin)) {
    let slow = ["--json", "--interval", "100ms", "--work-per-char", "50ms", "--error-rate", "0"];
    let generator = ring.copy(&slow);
    generator.wait_for_line(SOON, |line| line.contains("generatedMessage"));
    let place = tempfile::tempdir().unwrap();
    let record = place.path().join("record");
    let recorded = ["run", "--control", "--record", record.to_str().unwrap()];
    let handler = ring.start_fed(&[&recorded, &slow[..]].concat());
    // Not only claimed: what was not begun goes back.
    eventually(SOON, "a message in hand", || {
        std::fs::read_to_string(&record).ok()?.contains(" began ").then_some(())
    });
    (generator, handler)
}

#[track_caller]
fn assert_left_gently(ring: &TestRing, copy: &Process) {
    assert!(copy.wait(SOON).success(), "{:?}", copy.stderr_lines());
    let objects = said(copy);
    assert!(objects.contains(&json!({"msg": "stopping"})), "{objects:?}");
    assert_eq!(*objects.last().unwrap(), json!({"msg": "left", "returned": 0}));
    let status = ring.status();
    assert_eq!((&status["in_flight"], &status["returned"]), (&0.into(), &0.into()), "{status}");
}

#[test]
fn a_controlled_copy_stops_gently_when_told_to() {
    for order in ["{\"msg\":\"stop\"}\n", "{\"msg\":\"stop\"}\r\n"] {
        let ring = TestRing::new();
        let (_generator, (handler, mut control)) = busy_handler(&ring);
        control.write_all(order.as_bytes()).unwrap();
        assert_left_gently(&ring, &handler);
        assert!(handler.stderr_lines().is_empty(), "{:?}", handler.stderr_lines());
    }
}

#[test]
fn a_controlled_copy_stops_gently_when_whoever_started_it_is_gone() {
    let ring = TestRing::new();
    let (_generator, (handler, control)) = busy_handler(&ring);
    drop(control);
    assert_left_gently(&ring, &handler);
}

#[test]
fn a_controlled_copy_tells_what_it_does_not_understand_and_works_on() {
    let ring = TestRing::new();
    let (copy, mut control) = ring.start_fed(&["run", "--control", "--json", "--interval", "20ms"]);
    let long = format!("{{\"msg\":\"stop\",\"why\":\"{}\"}}\n", "x".repeat(64 * 1024));
    for nonsense in ["{\"msg\":\"dance\"}\n", "\x1b[2Jstop\n", &long] {
        control.write_all(nonsense.as_bytes()).unwrap();
    }
    copy.wait_for_stderr_line(SOON, |line| line.contains("WARN") && line.contains(r#"{"msg":"dance"}"#));
    copy.wait_for_stderr_line(SOON, |line| line.contains(r"\u{1b}[2Jstop"));
    copy.wait_for_stderr_line(SOON, |line| line.contains("expected at most 65536 bytes"));
    let before = ring.status()["published"].as_u64();
    ring.eventually(SOON, "it works on", |status| status["published"].as_u64() > before);
    control.write_all(b"{\"msg\":\"stop\"}\n").unwrap();
    assert!(copy.wait(SOON).success());
}

#[test]
fn without_control_the_end_of_stdin_means_nothing() {
    let ring = TestRing::new();
    let (copy, mut control) = ring.start_fed(&["run", "--json", "--interval", "20ms"]);
    control.write_all(b"{\"msg\":\"stop\"}\n").unwrap();
    drop(control);
    eventually(SOON, "it works on", || (totals(&copy, "generated").last() >= Some(&20)).then_some(()));
    assert!(copy.is_running());
}

#[test]
fn a_read_that_blocks_does_not_hold_up_the_end() {
    let ring = TestRing::new();
    let (copy, _control) = ring.start_fed(&["run", "--control", "--json"]);
    copy.wait_for_line(SOON, |line| line.contains("createdTaskId"));
    copy.signal(estafeta_testbed::Signal::SIGTERM);
    assert!(copy.wait(Duration::from_secs(5)).success());
}
