//! The monitor where there is no terminal, and calls that it refuses.

use std::io::Read as _;

use estafeta_testbed::{NO_ENV, Signal};

use crate::support::{SOON, TestRing, run, start};

/// The figure after this word.
fn figure(line: &str, name: &str) -> Option<f64> {
    let mut words = line.split(' ').skip_while(|word| *word != name);
    words.nth(1)?.parse().ok()
}

#[test]
fn one_plain_line_a_second_until_the_time_is_over() {
    let ring = TestRing::new();
    let output = ring.command(&["monitor", "-n", "3", "--interval", "20ms", "--for", "4s"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert!((2..=6).contains(&lines.len()), "{lines:?}");
    let last = lines.last().unwrap();
    assert!(last.ends_with("balance adds-up"), "{last}");
    assert_eq!(figure(last, "members"), Some(3.0), "{last}");
    assert!(figure(last, "published").unwrap() > 20.0, "{last}");
    assert!(figure(last, "generated/s").unwrap() > 5.0, "{last}");
    assert!(!lines.concat().contains('\u{1b}'));
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0);
}

#[test]
fn sigterm_ends_it_and_all_copies() {
    let ring = TestRing::new();
    let monitor = ring.start(&["monitor", "-n", "2", "--interval", "20ms"]);
    monitor.wait_for_line(SOON, |line| figure(line, "members") == Some(2.0));
    monitor.signal(Signal::SIGTERM);
    assert_eq!(monitor.wait(SOON).code(), Some(0));
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0);
}

#[test]
fn it_ends_when_nobody_reads_its_lines() {
    let ring = TestRing::new();
    let (monitor, mut pipe) = ring.start_unread(&["monitor", "-n", "2"]);
    pipe.read_exact(&mut [0; 10]).unwrap();
    drop(pipe);
    assert_eq!(monitor.wait(SOON).code(), Some(0));
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0);
}

#[test]
fn it_ends_with_its_last_copy() {
    let ring = TestRing::new();
    let output = ring.command(&["monitor", "-n", "2", "--interval", "0", "--limit", "100", "--until-done"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let status = ring.status();
    assert_eq!((&status["published"], &status["waiting"]), (&100.into(), &0.into()), "{status}");
}

#[test]
fn a_balance_that_does_not_add_up_fails_it() {
    let ring = TestRing::new();
    ring.redis_cli(&["HSET", "{estafeta}:ledger", "published", "3"]);
    let output = ring.command(&["monitor", "--attach", "--for", "2s"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("balance DOES-NOT-ADD-UP"), "{output:?}");
}

#[test]
fn each_copy_gets_the_options_and_a_record_of_its_own() {
    let ring = TestRing::new();
    let place = tempfile::tempdir().unwrap();
    let record = place.path().join("record");
    let options =
        ["--limit", "20", "--until-done", "--error-rate", "1", "--interval", "1ms", "--lease", "3s"];
    let record = ["--record", record.to_str().unwrap()];
    let output = ring.command(&[&["monitor", "-n", "2"], &options[..], &record].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(ring.status()["errors_kept"], 20);
    let mut names: Vec<_> =
        std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["record.1", "record.2"]);
}

#[test]
fn wrong_calls_start_nothing() {
    let cases: [(&[&str], &str); 6] = [
        (&["-n", "201"], "expected at most 200"),
        (&["--json"], "--json: expected monitor without it"),
        (&["--attach", "--interval", "1s"], "--interval: expected monitor --attach without it"),
        (&["--attach", "-n", "3"], "cannot be used with"),
        (&["--error-rate", "2"], "expected 0 to 1"),
        (&["--lease", "1ms"], "lease"),
    ];
    for (args, told) in cases {
        let output = run(&[&["monitor"], args].concat(), &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(told) && stderr.lines().count() == 1, "{args:?}: {stderr}");
    }
}

#[test]
fn a_redis_that_is_not_there_is_told_in_one_line() {
    let monitor = start(&["monitor", "--redis", "redis://127.0.0.1:1"], &NO_ENV);
    let output = monitor.output(SOON);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
