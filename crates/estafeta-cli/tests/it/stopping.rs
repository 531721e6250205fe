//! How a node stops: in stages on the first signal, without waiting on the second, and when its output is closed.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use estafeta_testbed::{Signal, eventually};

use crate::support::{ProgramRing, SOON};

#[test]
fn a_generator_that_is_asked_to_stop_is_replaced_at_once() {
    let ring = ProgramRing::new();
    // With so long a lease, a successor that waits for its end would be noticed.
    let nodes = ring.nodes(3, &["--interval", "20ms", "--lease", "10s"]);
    let generator = ring.generator(&nodes);
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
fn a_handler_finishes_its_message_before_it_leaves() {
    let ring = ProgramRing::new();
    let slow = ["--interval", "100ms", "--work-per-char", "50ms", "--error-rate", "0", "--journal"];
    let generator = ring.node(&slow);
    generator.wait_for_line(SOON, |line| line.starts_with("generated"));
    let handler = ring.node(&slow);
    ring.eventually(SOON, "a message in hand", |status| status["inFlight"] == 1);
    let done = ring.status()["done"].as_u64().unwrap();
    handler.signal(Signal::SIGINT);
    assert!(handler.wait(SOON).success());
    let status = ring.status();
    assert_eq!(status["done"].as_u64().unwrap(), done + 1, "{status}");
    assert_eq!((&status["inFlight"], &status["returned"]), (&0.into(), &0.into()), "{status}");
}

#[test]
fn a_second_signal_ends_the_node_without_waiting_and_its_message_goes_back() {
    let ring = ProgramRing::new();
    let slow = ["--interval", "100ms", "--work-per-char", "10s", "--error-rate", "0"];
    let generator = ring.node(&slow);
    generator.wait_for_line(SOON, |line| line.starts_with("generated"));
    let handler = ring.node(&slow);
    ring.eventually(SOON, "a message in hand", |status| status["inFlight"] == 1);
    handler.signal(Signal::SIGTERM);
    handler.wait_for_line(SOON, |line| line.starts_with("stopping"));
    // A second signal at the same moment as the first would count as the same request.
    let start = Instant::now();
    eventually(SOON, "a moment", || (start.elapsed() > Duration::from_millis(200)).then_some(()));
    assert!(handler.is_running());
    handler.signal(Signal::SIGTERM);
    let status = handler.wait(Duration::from_secs(5));
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    ring.eventually(SOON, "the message is back", |status| status["returned"] == 1 && status["inFlight"] == 0);
}

#[test]
fn two_signals_at_the_same_moment_count_as_one() {
    let ring = ProgramRing::new();
    for _ in 0..5 {
        let node = ring.node(&["--interval", "20ms"]);
        node.signal(Signal::SIGTERM);
        node.signal(Signal::SIGINT);
        let output = node.output(SOON);
        assert!(output.status.success(), "{output:?}");
        // The line may also name a message that the node had claimed at the same moment.
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.lines().last().unwrap().starts_with("left the ring"), "{stdout}");
    }
}

#[test]
fn a_node_that_cannot_write_to_stdout_stops_with_the_reason() {
    let ring = ProgramRing::new();
    let program = env!("CARGO_BIN_EXE_estafeta");
    for json in ["", "--json"] {
        let line =
            format!("'{program}' run --interval 20ms {json} --redis '{}' > /dev/full", ring.redis.url());
        let envs: [(&str, &str); 0] = [];
        let shell = estafeta_testbed::Process::spawn("/bin/sh".as_ref(), ["-c", &line], envs);
        let output = shell.output(SOON);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.lines().count() == 1 && stderr.contains("cannot write to stdout"), "{stderr}");
    }
}

#[test]
fn until_done_ends_all_nodes_once_every_message_has_its_outcome() {
    let ring = ProgramRing::new();
    let args = ["--interval", "0", "--limit", "1000", "--until-done"];
    for node in ring.nodes(3, &args) {
        assert!(node.wait(SOON).success());
    }
    let status = ring.status();
    assert_eq!(
        (&status["published"], &status["waiting"], &status["inFlight"]),
        (&1000.into(), &0.into(), &0.into())
    );
    assert_eq!(status["members"].as_array().unwrap().len(), 0);

    // The limit belongs to the ring, so nodes that start later find it reached.
    let late = ring.start(&["run", "--interval", "0", "--limit", "1000", "--until-done"]);
    assert!(late.wait(SOON).success());
    assert_eq!(ring.status()["published"], 1000);
}

#[test]
fn a_node_whose_output_is_closed_leaves_the_ring() {
    let ring = ProgramRing::new();
    let program = env!("CARGO_BIN_EXE_estafeta");
    let line = format!("'{program}' run --interval 20ms --redis '{}' | head -n 2", ring.redis.url());
    let envs: [(&str, &str); 0] = [];
    let shell = estafeta_testbed::Process::spawn("/bin/sh".as_ref(), ["-c", &line], envs);
    assert!(shell.wait(SOON).success());
    assert_eq!(shell.stdout_lines().len(), 2);
    ring.eventually(SOON, "the node has left", |status| status["members"].as_array().unwrap().is_empty());
    assert_eq!(ring.status()["buried"], 0);
}
