//! A machine that is short of something: file descriptors, room for the log, room for two hundred copies.

use std::path::Path;

use estafeta_testbed::{NO_ENV, Process};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::recovery::{BUSY, await_complaint, await_misses, misses_of};
use crate::support::{SOON, TestRing};

/// Starts the program from a shell that has done `first`, with its streams as `streams` says.
fn shell(ring: &TestRing, first: &str, args: &str, streams: &str) -> Process {
    let (program, url) = (env!("CARGO_BIN_EXE_estafeta"), ring.redis.url());
    let line = format!("{first}; exec '{program}' {args} --redis '{url}' {streams}");
    Process::spawn(Path::new("/bin/sh"), ["-c", &line], NO_ENV)
}

#[test]
fn a_copy_that_may_open_too_few_files_says_so() {
    let ring = TestRing::new();
    let works_with = |files: u32| {
        let args = "run --limit 1 --interval 1ms";
        let copy = shell(&ring, &format!("ulimit -n {files}"), args, "");
        let stderr = || copy.stderr_lines().join("\n");
        let joined = estafeta_testbed::eventually(SOON, "it joins or ends", || {
            let joined = copy.stdout_lines().iter().any(|line| line.starts_with("joined as"));
            (joined || !copy.is_running()).then_some(joined)
        });
        if !joined {
            assert!(!copy.wait(SOON).success());
            assert!(stderr().contains("Too many open files"), "with {files} files it said: {}", stderr());
        }
        joined
    };
    // From where the program itself can be loaded to where it works, it never hangs and never keeps silent.
    let enough = (4..64).find(|files| works_with(*files)).unwrap();
    assert!(enough > 8, "{enough} files are enough?");
    ring.finish();
}

#[test]
fn a_copy_that_cannot_open_a_new_connection_waits_until_it_can() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &BUSY);
    ring.flows();
    let allow = |files: Option<u64>| {
        for copy in &copies {
            let pid = Pid::from_raw(copy.pid().try_into().unwrap());
            let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
            let current = files.or(maximum);
            prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
        }
    };
    let before = misses_of(&copies);
    allow(Some(3));
    for kind in ["normal", "pubsub"] {
        ring.redis_cli(&["CLIENT", "KILL", "TYPE", kind]);
    }
    await_misses(&copies, &before);
    allow(None);
    ring.assert_recovered(&copies);
}

#[test]
fn a_log_that_cannot_be_written_disturbs_nobody() {
    for format in ["text", "json"] {
        let ring = TestRing::new();
        let args = format!("run -vv --log-format {format} --interval 5ms --journal");
        let full = shell(&ring, "true", &args, "2> /dev/full");
        full.wait_for_line(SOON, |line| line.starts_with("joined as member"));
        let copies = [full, ring.copy(&BUSY)];
        ring.flows();
        // What is worth a warning is not worth an end either.
        ring.redis.freeze();
        await_complaint(&copies, "");
        ring.redis.thaw();
        ring.assert_recovered(&copies);
    }
}

#[test]
fn two_hundred_copies_are_one_ring() {
    let ring = TestRing::new();
    let mut copies = ring.copies(200, &["--interval", "20ms", "--journal"]);
    for _ in 0..2 {
        let generator = ring.generator(&copies).pid();
        let epoch = ring.epoch();
        let at = copies.iter().position(|copy| copy.pid() == generator).unwrap();
        copies.remove(at).kill();
        ring.eventually(SOON, "a successor", |status| status["generator"]["epoch"].as_u64() > Some(epoch));
    }
    ring.assert_recovered(&copies);
}
