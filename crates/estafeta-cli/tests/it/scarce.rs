//! A machine is short of a resource: file descriptors, room for the log, or room for two hundred nodes.

use std::path::Path;

use estafeta_testbed::{NO_ENV, Process};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::recovery::{BUSY, await_complaint, await_misses, misses_of};
use crate::support::{ProgramRing, SOON};

/// Starts the program from a shell that has run `first`, with its streams redirected by `streams`.
fn shell(ring: &ProgramRing, first: &str, args: &str, streams: &str) -> Process {
    let (program, url) = (env!("CARGO_BIN_EXE_estafeta"), ring.redis.url());
    let line = format!("{first}; exec '{program}' {args} --redis '{url}' {streams}");
    Process::spawn(Path::new("/bin/sh"), ["-c", &line], NO_ENV)
}

#[test]
fn a_node_that_may_open_too_few_files_reports_it() {
    let ring = ProgramRing::new();
    let works_with = |files: u32| {
        let args = "run --limit 1 --interval 1ms";
        let node = shell(&ring, &format!("ulimit -n {files}"), args, "");
        let stderr = || node.stderr_lines().join("\n");
        let joined = estafeta_testbed::eventually(SOON, "it joins or ends", || {
            let joined = node.stdout_lines().iter().any(|line| line.starts_with("joined as"));
            (joined || !node.is_running()).then_some(joined)
        });
        if !joined {
            assert!(!node.wait(SOON).success());
            assert!(stderr().contains("Too many open files"), "with {files} files it said: {}", stderr());
        }
        joined
    };
    // The range begins where the program can be loaded and ends where it works. In between it never hangs, and it
    // always reports the reason.
    let enough = (4..64).find(|files| works_with(*files)).unwrap();
    assert!(enough > 8, "{enough} files are enough?");
    ring.finish();
}

#[test]
fn a_node_that_cannot_open_a_new_connection_waits_until_it_can() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &BUSY);
    ring.await_progress();
    let allow = |files: Option<u64>| {
        for node in &nodes {
            let pid = Pid::from_raw(node.pid().try_into().unwrap());
            let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
            let current = files.or(maximum);
            prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
        }
    };
    let before = misses_of(&nodes);
    allow(Some(3));
    for kind in ["normal", "pubsub"] {
        ring.redis_cli(&["CLIENT", "KILL", "TYPE", kind]);
    }
    await_misses(&nodes, &before);
    allow(None);
    ring.assert_recovered(&nodes);
}

#[test]
fn a_log_that_cannot_be_written_does_not_disturb_the_node() {
    for format in ["text", "json"] {
        let ring = ProgramRing::new();
        let args = format!("run -vv --log-format {format} --interval 5ms --journal");
        let full = shell(&ring, "true", &args, "2> /dev/full");
        full.wait_for_line(SOON, |line| line.starts_with("joined as member"));
        let nodes = [full, ring.node(&BUSY)];
        ring.await_progress();
        // A warning that cannot be logged must not end the node either.
        ring.redis.freeze();
        await_complaint(&nodes, "");
        ring.redis.thaw();
        ring.assert_recovered(&nodes);
    }
}

#[test]
fn two_hundred_nodes_form_one_ring() {
    let ring = ProgramRing::new();
    let mut nodes = ring.nodes(200, &["--interval", "20ms", "--journal"]);
    for _ in 0..2 {
        let generator = ring.generator(&nodes).pid();
        let epoch = ring.epoch();
        let at = nodes.iter().position(|node| node.pid() == generator).unwrap();
        nodes.remove(at).kill();
        ring.eventually(SOON, "a successor", |status| status["generator"]["epoch"].as_u64() > Some(epoch));
    }
    ring.assert_recovered(&nodes);
}
