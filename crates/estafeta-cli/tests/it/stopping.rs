//! Stopping: in stages on the first signal, without waiting on the second, and when nobody reads the output any more.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use estafeta_testbed::{Signal, eventually};

use crate::support::{SOON, TestRing};

#[test]
fn a_generator_that_is_told_to_stop_is_replaced_at_once() {
    let ring = TestRing::new();
    // So long a lease that a successor which waits for its end is noticed.
    let copies = ring.copies(3, &["--interval", "20ms", "--lease", "10s"]);
    let generator = ring.generator(&copies);
    generator.signal(Signal::SIGTERM);
    let start = Instant::now();
    assert!(generator.wait(SOON).success());
    ring.eventually(SOON, "a successor", |status| {
        !status["generator"].is_null() && status["generator"]["pid"] != u64::from(generator.pid())
    });
    assert!(start.elapsed() < Duration::from_secs(2), "it took {:?}", start.elapsed());
    let silence = ring.last_silence();
    assert!(silence < Duration::from_secs(2), "the office was vacant for {silence:?}");
    let status = ring.status();
    assert_eq!(status["buried"], 0, "a clean stop leaves nobody to bury: {status}");
    let lines = generator.stdout_lines();
    assert_eq!(lines.last().unwrap(), "left the ring");
}

#[test]
fn a_handler_finishes_what_it_has_in_hand_before_it_leaves() {
    let ring = TestRing::new();
    let slow = ["--interval", "100ms", "--work-per-char", "50ms", "--error-rate", "0", "--journal"];
    let generator = ring.copy(&slow);
    generator.wait_for_line(SOON, |line| line.starts_with("generated"));
    let handler = ring.copy(&slow);
    ring.eventually(SOON, "a message in hand", |status| status["in_flight"] == 1);
    let done = ring.status()["done"].as_u64().unwrap();
    handler.signal(Signal::SIGINT);
    assert!(handler.wait(SOON).success());
    let status = ring.status();
    assert_eq!(status["done"].as_u64().unwrap(), done + 1, "{status}");
    assert_eq!((&status["in_flight"], &status["returned"]), (&0.into(), &0.into()), "{status}");
}

#[test]
fn a_second_signal_does_not_wait_for_the_work_and_the_ring_takes_back_what_was_held() {
    let ring = TestRing::new();
    let slow = ["--interval", "100ms", "--work-per-char", "10s", "--error-rate", "0"];
    let generator = ring.copy(&slow);
    generator.wait_for_line(SOON, |line| line.starts_with("generated"));
    let handler = ring.copy(&slow);
    ring.eventually(SOON, "a message in hand", |status| status["in_flight"] == 1);
    handler.signal(Signal::SIGTERM);
    handler.wait_for_line(SOON, |line| line.starts_with("stopping"));
    // One that came at the same moment as the first would be the same request.
    let start = Instant::now();
    eventually(SOON, "a moment", || (start.elapsed() > Duration::from_millis(200)).then_some(()));
    assert!(handler.is_running());
    handler.signal(Signal::SIGTERM);
    let status = handler.wait(Duration::from_secs(5));
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    ring.eventually(SOON, "the message is back", |status| {
        status["returned"] == 1 && status["in_flight"] == 0
    });
}

#[test]
fn two_signals_at_the_same_moment_are_one() {
    let ring = TestRing::new();
    for _ in 0..5 {
        let copy = ring.copy(&["--interval", "20ms"]);
        copy.signal(Signal::SIGTERM);
        copy.signal(Signal::SIGINT);
        let output = copy.output(SOON);
        assert!(output.status.success(), "{output:?}");
        // With or without a message that it had claimed at the same moment.
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.lines().last().unwrap().starts_with("left the ring"), "{told}");
    }
}

#[test]
fn a_copy_that_cannot_write_stops_and_says_why() {
    let ring = TestRing::new();
    let program = env!("CARGO_BIN_EXE_estafeta");
    for json in ["", "--json"] {
        let line =
            format!("'{program}' run --interval 20ms {json} --redis '{}' > /dev/full", ring.redis.url());
        let envs: [(&str, &str); 0] = [];
        let shell = estafeta_testbed::Process::spawn("/bin/sh".as_ref(), ["-c", &line], envs);
        let output = shell.output(SOON);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.lines().count() == 1 && told.contains("cannot write to stdout"), "{told}");
    }
}

#[test]
fn until_done_ends_all_copies_once_every_message_has_its_outcome() {
    let ring = TestRing::new();
    let args = ["--interval", "0", "--limit", "1000", "--until-done"];
    for copy in ring.copies(3, &args) {
        assert!(copy.wait(SOON).success());
    }
    let status = ring.status();
    assert_eq!(
        (&status["published"], &status["waiting"], &status["in_flight"]),
        (&1000.into(), &0.into(), &0.into())
    );
    assert_eq!(status["members"].as_array().unwrap().len(), 0);

    // The limit is the ring's: copies that start later find it reached.
    let late = ring.start(&["run", "--interval", "0", "--limit", "1000", "--until-done"]);
    assert!(late.wait(SOON).success());
    assert_eq!(ring.status()["published"], 1000);
}

#[test]
fn a_copy_whose_output_nobody_reads_any_more_leaves_the_ring() {
    let ring = TestRing::new();
    let program = env!("CARGO_BIN_EXE_estafeta");
    let line = format!("'{program}' run --interval 20ms --redis '{}' | head -n 2", ring.redis.url());
    let envs: [(&str, &str); 0] = [];
    let shell = estafeta_testbed::Process::spawn("/bin/sh".as_ref(), ["-c", &line], envs);
    assert!(shell.wait(SOON).success());
    assert_eq!(shell.stdout_lines().len(), 2);
    ring.eventually(SOON, "the copy has left", |status| status["members"].as_array().unwrap().is_empty());
    assert_eq!(ring.status()["buried"], 0);
}
