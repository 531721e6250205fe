//! `getErrors` that ends early loses no error, whatever ended it.
//!
//! A reader lets go of errors only after they were read from its output. If it is killed, the errors that it held are
//! still kept, and the next reader prints them again. If it stops on a signal, it hands back what it did not print.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use estafeta_testbed::{Process, Signal, eventually};
use serde_json::Value;

use crate::get_errors::ids;
use crate::support::{ProgramRing, SOON};

pub const COUNT: u64 = 5000;

/// A ring with more errors than one chunk has. A reader takes the next chunk only after the last one was read from its
/// output. So a reader whose output is not read blocks half-way.
pub fn ring_with_errors() -> ProgramRing {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=COUNT, |_| vec![b'x'; 300]);
    ring
}

/// A reader that is blocked while it holds errors.
pub struct BlockedReader {
    pub process: Process,
    pipe: BufReader<File>,
    /// What the test has read of its output so far.
    text: String,
}

impl BlockedReader {
    /// Starts a reader and reads only a few lines of its output.
    pub fn start(ring: &ProgramRing) -> Self {
        let (process, pipe) = ring.start_unread(&["getErrors"]);
        let mut pipe = BufReader::new(pipe);
        let mut text = String::new();
        for _ in 0..3 {
            pipe.read_line(&mut text).unwrap();
        }
        let mut last = (0, 0);
        eventually(SOON, "the reader stands still with errors in hand", || {
            let status = ring.status();
            let members = status["members"].as_array()?;
            let reader = members.iter().find(|member| member["role"] == "reader")?;
            let now = (status["errorsTaken"].as_u64()?, reader["inFlight"].as_u64()?);
            (std::mem::replace(&mut last, now) == now && now.1 > 0).then_some(())
        });
        Self { process, pipe, text }
    }

    /// The errors in its output, read to the end.
    pub fn printed(mut self) -> Vec<u64> {
        self.pipe.read_to_string(&mut self.text).unwrap();
        ids_of_complete_lines(&self.text)
    }

    /// The errors in its output as far as the test has received it. Closes the pipe.
    fn close(mut self) -> (Process, Vec<u64>) {
        self.text.push_str(std::str::from_utf8(self.pipe.buffer()).unwrap());
        (self.process, ids_of_complete_lines(&self.text))
    }
}

fn ids_of_complete_lines(text: &str) -> Vec<u64> {
    ids(&text[..text.rfind('\n').map_or(0, |end| end + 1)])
}

/// Asserts that both readers together have printed every error, and that the second one has repeated at most `held`.
#[track_caller]
fn assert_nothing_lost(first: &[u64], second: &[u64], held: u64) {
    assert_none_lost_of(COUNT, first, second, held);
}

#[track_caller]
fn assert_none_lost_of(count: u64, first: &[u64], second: &[u64], held: u64) {
    let (one, other): (BTreeSet<u64>, BTreeSet<u64>) =
        (first.iter().copied().collect(), second.iter().copied().collect());
    assert_eq!((one.len(), other.len()), (first.len(), second.len()), "one of them printed an error twice");
    let lost: Vec<u64> = (1..=count).filter(|id| !one.contains(id) && !other.contains(id)).collect();
    assert!(lost.is_empty(), "{} were lost: {lost:?}", lost.len());
    let repeated = one.intersection(&other).count() as u64;
    assert!(repeated <= held, "{repeated} were repeated, though only {held} were in hand");
}

fn assert_all_taken(ring: &ProgramRing) {
    let status = ring.status();
    assert_eq!((&status["errorsKept"], &status["errorsTaken"]), (&0.into(), &COUNT.into()), "{status}");
}

#[test]
fn a_reader_killed_half_way_loses_no_error_and_the_next_one_repeats_only_what_it_held() {
    let ring = ring_with_errors();
    let reader = BlockedReader::start(&ring);
    let counts = |status: &Value| ["errorsKept", "errorsTaken"].map(|name| status[name].as_u64().unwrap());
    assert_eq!(counts(&ring.status()).iter().sum::<u64>(), COUNT);

    reader.process.kill();
    let status = ring.status();
    assert_eq!(counts(&status).iter().sum::<u64>(), COUNT, "what a dead reader held is still kept");
    let held = status["members"][0]["inFlight"].as_u64().unwrap();
    assert!(held > 0, "{status}");
    let printed = reader.printed();
    let next = ids(&ring.success(&["getErrors"]));
    assert_nothing_lost(&printed, &next, held);
    assert_all_taken(&ring);
}

#[test]
fn a_reader_stopped_by_a_signal_hands_back_what_it_did_not_print() {
    let ring = ring_with_errors();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (reader, mut pipe) = ring.start_unread(&["getErrors"]);
        let mut byte = [0];
        pipe.read_exact(&mut byte).unwrap();
        await_signal_handlers(&reader);
        reader.signal(signal);
        let mut text = String::from_utf8(byte.to_vec()).unwrap();
        pipe.read_to_string(&mut text).unwrap();
        // The reader may have finished its work already.
        assert!([Some(0), Some(128 + signal as i32)].contains(&reader.wait(SOON).code()));
        let printed = ids_of_complete_lines(&text);
        let status = ring.status();
        assert_eq!(status["members"].as_array().unwrap().len(), 0, "it left the ring: {status}");
        assert_eq!(status["buried"], 0, "nobody else had to take back what it held: {status}");
        let kept = status["errorsKept"].as_u64().unwrap();
        assert_nothing_lost(&printed, &ids(&ring.success(&["getErrors"])), kept);
        assert_all_taken(&ring);
        ring.redis_cli(&["FLUSHALL"]);
        ring.plant_errors(1..=COUNT, |_| vec![b'x'; 300]);
    }
}

#[test]
fn a_reader_whose_output_is_not_read_stops_on_a_signal() {
    let ring = ring_with_errors();
    let reader = BlockedReader::start(&ring);
    reader.process.signal(Signal::SIGTERM);
    assert_eq!(reader.process.wait(SOON).code(), Some(143));
    let status = ring.status();
    assert_eq!(status["members"].as_array().unwrap().len(), 0, "it left the ring");
    let printed = reader.printed();
    let kept = status["errorsKept"].as_u64().unwrap();
    assert_nothing_lost(&printed, &ids(&ring.success(&["getErrors"])), kept);
    assert_all_taken(&ring);
}

/// The reader has one second for that, so it may fail on a machine that stalls. In that case the next reader prints the
/// same errors again.
#[test]
fn a_reader_stopped_by_a_signal_lets_go_of_what_was_read() {
    let lets_go = || {
        let ring = ProgramRing::new();
        ring.plant_errors(1..=3, |_| b"body".to_vec());
        let (reader, mut pipe) = ring.start_unread(&["getErrors"]);
        let mut byte = [0];
        pipe.read_exact(&mut byte).unwrap();
        await_signal_handlers(&reader);
        reader.signal(Signal::SIGTERM);
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        reader.wait(SOON);
        let (printed, status) = (text.lines().count() as u64, ring.status());
        assert!(printed > 0 && status["errorsTaken"].as_u64() <= Some(printed), "{text} {status}");
        status["errorsTaken"] == printed
    };
    assert!((0..5).any(|_| lets_go()), "it kept what was read, five times");
}

/// Waits until this process catches SIGTERM and SIGINT, which would end it otherwise.
fn await_signal_handlers(process: &Process) {
    eventually(SOON, "it hears signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        let catches = |signal: Signal| caught & 1 << (signal as i32 - 1) != 0;
        (catches(Signal::SIGTERM) && catches(Signal::SIGINT)).then_some(())
    });
}

/// No chunk of these errors fits into a pipe, so the reader is stopped in the middle of a line.
#[test]
fn a_reader_stopped_in_the_middle_of_an_error_keeps_what_was_not_printed_in_full() {
    const COUNT: u64 = 12;
    for read in [0, 1, 5] {
        let ring = ProgramRing::new();
        ring.plant_errors(1..=COUNT, |_| vec![b'x'; 300_000]);
        let (reader, pipe) = ring.start_unread(&["getErrors"]);
        let mut pipe = BufReader::new(pipe);
        let mut text = String::new();
        for _ in 0..read {
            pipe.read_line(&mut text).unwrap();
        }
        // The beginning of the next error. Its end does not come before the test reads on.
        assert!(pipe.fill_buf().unwrap().starts_with(b"#"));
        await_signal_handlers(&reader);
        reader.signal(Signal::SIGTERM);
        assert_eq!(reader.wait(SOON).code(), Some(143));
        let status = ring.status();
        assert_eq!(status["members"].as_array().unwrap().len(), 0, "it left the ring: {status}");
        assert_eq!(status["buried"], 0, "nobody else had to take back what it held: {status}");
        let kept = status["errorsKept"].as_u64().unwrap();
        pipe.read_to_string(&mut text).unwrap();
        let printed = ids_of_complete_lines(&text);
        assert_eq!(printed, (1..=read).collect::<Vec<_>>());
        assert!(kept >= COUNT - read, "{kept} are kept of {COUNT}, and {read} were printed");
        assert_none_lost_of(COUNT, &printed, &ids(&ring.success(&["getErrors"])), kept);
        assert_eq!(ring.status()["errorsTaken"], COUNT);
    }
}

/// Data that is still in a pipe when its reader closes it has reached no one.
#[test]
fn a_closed_pipe_ends_the_reader_with_success_and_unread_errors_are_not_lost() {
    let ring = ring_with_errors();
    let (reader, printed) = BlockedReader::start(&ring).close();
    let output = reader.output(SOON);
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    let next = ids(&ring.success(&["getErrors"]));
    assert_nothing_lost(&printed, &next, COUNT);
    assert_all_taken(&ring);
}

#[test]
fn a_pipe_into_head_takes_one_error_and_leaves_all_others() {
    let ring = ring_with_errors();
    let script = r#"{ "$0" getErrors; echo "code $?" >&2; } | head -n 1"#;
    let words = ["-c", script, env!("CARGO_BIN_EXE_estafeta")];
    let output = Process::spawn(Path::new("/bin/sh"), words, [("REDIS_URL", ring.redis.url())]).output(SOON);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "code 0\n");
    let printed = ids(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(printed, [1]);
    assert_nothing_lost(&printed, &ids(&ring.success(&["getErrors"])), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_closed_stdout_is_refused_and_no_error_is_lost() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=3, |_| b"body".to_vec());
    let program = env!("CARGO_BIN_EXE_estafeta");
    let line = format!("'{program}' getErrors --redis '{}' >&-", ring.redis.url());
    let envs: [(&str, &str); 0] = [];
    let shell = estafeta_testbed::Process::spawn("/bin/sh".as_ref(), ["-c", &line], envs);
    let output = shell.output(SOON);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("stdout is closed"), "{stderr}");
    assert_eq!(ring.success(&["errors", "count"]), "3\n");
    let discarded = line.replace(">&-", "> /dev/null");
    let shell = estafeta_testbed::Process::spawn("/bin/sh".as_ref(), ["-c", &discarded], envs);
    assert!(shell.wait(SOON).success());
    assert_eq!(ring.success(&["errors", "count"]), "0\n");
}

#[test]
fn a_full_disk_is_reported_and_no_error_is_lost() {
    let ring = ring_with_errors();
    let words = ["-c", r#"exec "$0" getErrors > /dev/full"#, env!("CARGO_BIN_EXE_estafeta")];
    let output = Process::spawn(Path::new("/bin/sh"), words, [("REDIS_URL", ring.redis.url())]).output(SOON);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("they stay in Redis") && stderr.contains("No space left"), "{stderr}");
    assert_eq!(ring.status()["errorsKept"], COUNT);
    assert_nothing_lost(&[], &ids(&ring.success(&["getErrors"])), 0);
}
