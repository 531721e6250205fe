//! `getErrors` that does not get to its end loses nothing, whatever ended it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use estafeta_testbed::{Process, Signal, eventually};
use serde_json::Value;

use crate::get_errors::ids;
use crate::support::{SOON, TestRing};

pub const COUNT: u64 = 5000;

/// More errors than one chunk has. A reader goes on to the next chunk when the one before was read, so one whose output
/// is not read stands still half-way.
pub fn ring_with_errors() -> TestRing {
    let ring = TestRing::new();
    ring.plant_errors(1..=COUNT, |_| vec![b'x'; 300]);
    ring
}

/// A reader that stands still with errors in hand.
pub struct Stuck {
    pub process: Process,
    pipe: BufReader<File>,
    /// What was read of its output so far.
    text: String,
}

impl Stuck {
    /// Reads a few lines of its output and no more.
    pub fn start(ring: &TestRing) -> Self {
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
            let now = (status["errors_taken"].as_u64()?, reader["in_flight"].as_u64()?);
            (std::mem::replace(&mut last, now) == now && now.1 > 0).then_some(())
        });
        Self { process, pipe, text }
    }

    /// What it has printed when the rest of its output is read to the end.
    pub fn printed(mut self) -> Vec<u64> {
        self.pipe.read_to_string(&mut self.text).unwrap();
        complete_lines(&self.text)
    }

    /// What it has printed when nobody reads any further.
    fn close(mut self) -> (Process, Vec<u64>) {
        self.text.push_str(std::str::from_utf8(self.pipe.buffer()).unwrap());
        (self.process, complete_lines(&self.text))
    }
}

fn complete_lines(text: &str) -> Vec<u64> {
    ids(&text[..text.rfind('\n').map_or(0, |end| end + 1)])
}

/// Together the two have printed everything, and the second one has repeated no more than `held`.
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

fn assert_all_taken(ring: &TestRing) {
    let status = ring.status();
    assert_eq!((&status["errors_kept"], &status["errors_taken"]), (&0.into(), &COUNT.into()), "{status}");
}

#[test]
fn killed_half_way_it_loses_none_and_the_next_one_repeats_only_what_it_had_in_hand() {
    let ring = ring_with_errors();
    let reader = Stuck::start(&ring);
    let counts = |status: &Value| ["errors_kept", "errors_taken"].map(|name| status[name].as_u64().unwrap());
    assert_eq!(counts(&ring.status()).iter().sum::<u64>(), COUNT);

    reader.process.kill();
    let status = ring.status();
    assert_eq!(counts(&status).iter().sum::<u64>(), COUNT, "what a dead reader held is still kept");
    let held = status["members"][0]["in_flight"].as_u64().unwrap();
    assert!(held > 0, "{status}");
    let printed = reader.printed();
    let next = ids(&ring.success(&["getErrors"]));
    assert_nothing_lost(&printed, &next, held);
    assert_all_taken(&ring);
}

#[test]
fn told_to_stop_it_hands_back_what_it_did_not_print() {
    let ring = ring_with_errors();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (reader, mut pipe) = ring.start_unread(&["getErrors"]);
        let mut byte = [0];
        pipe.read_exact(&mut byte).unwrap();
        await_ears(&reader);
        reader.signal(signal);
        let mut text = String::from_utf8(byte.to_vec()).unwrap();
        pipe.read_to_string(&mut text).unwrap();
        // It may also have been through with its work already.
        assert!([Some(0), Some(128 + signal as i32)].contains(&reader.wait(SOON).code()));
        let printed = complete_lines(&text);
        let status = ring.status();
        assert_eq!(status["members"].as_array().unwrap().len(), 0, "it left the ring: {status}");
        assert_eq!(status["buried"], 0, "nobody else had to take back what it held: {status}");
        let kept = status["errors_kept"].as_u64().unwrap();
        assert_nothing_lost(&printed, &ids(&ring.success(&["getErrors"])), kept);
        assert_all_taken(&ring);
        ring.redis_cli(&["FLUSHALL"]);
        ring.plant_errors(1..=COUNT, |_| vec![b'x'; 300]);
    }
}

#[test]
fn told_to_stop_while_nobody_reads_its_output_it_stops() {
    let ring = ring_with_errors();
    let reader = Stuck::start(&ring);
    reader.process.signal(Signal::SIGTERM);
    assert_eq!(reader.process.wait(SOON).code(), Some(143));
    let status = ring.status();
    assert_eq!(status["members"].as_array().unwrap().len(), 0, "it left the ring");
    let printed = reader.printed();
    let kept = status["errors_kept"].as_u64().unwrap();
    assert_nothing_lost(&printed, &ids(&ring.success(&["getErrors"])), kept);
    assert_all_taken(&ring);
}

/// It has a second for that, so on a machine that stands still it may fail to; what it printed is then printed again.
#[test]
fn told_to_stop_while_it_waits_for_its_reader_it_lets_go_of_what_was_read() {
    let lets_go = || {
        let ring = TestRing::new();
        ring.plant_errors(1..=3, |_| b"body".to_vec());
        let (reader, mut pipe) = ring.start_unread(&["getErrors"]);
        let mut byte = [0];
        pipe.read_exact(&mut byte).unwrap();
        await_ears(&reader);
        reader.signal(Signal::SIGTERM);
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        reader.wait(SOON);
        let (printed, status) = (text.lines().count() as u64, ring.status());
        assert!(printed > 0 && status["errors_taken"].as_u64() <= Some(printed), "{text} {status}");
        status["errors_taken"] == printed
    };
    assert!((0..5).any(|_| lets_go()), "it kept what was read, five times");
}

/// Waits until this process would hear a signal that asks it to stop, instead of being ended by it.
fn await_ears(process: &Process) {
    eventually(SOON, "it hears signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        let hears = |signal: Signal| caught & 1 << (signal as i32 - 1) != 0;
        (hears(Signal::SIGTERM) && hears(Signal::SIGINT)).then_some(())
    });
}

/// No chunk of these fits into a pipe, so it is stopped in the middle of a line.
#[test]
fn told_to_stop_in_the_middle_of_an_error_it_stops_and_keeps_what_was_not_printed_in_full() {
    const COUNT: u64 = 12;
    for read in [0, 1, 5] {
        let ring = TestRing::new();
        ring.plant_errors(1..=COUNT, |_| vec![b'x'; 300_000]);
        let (reader, pipe) = ring.start_unread(&["getErrors"]);
        let mut pipe = BufReader::new(pipe);
        let mut text = String::new();
        for _ in 0..read {
            pipe.read_line(&mut text).unwrap();
        }
        // The beginning of the next one; its end does not come through before somebody reads on.
        assert!(pipe.fill_buf().unwrap().starts_with(b"#"));
        await_ears(&reader);
        reader.signal(Signal::SIGTERM);
        assert_eq!(reader.wait(SOON).code(), Some(143));
        let status = ring.status();
        assert_eq!(status["members"].as_array().unwrap().len(), 0, "it left the ring: {status}");
        assert_eq!(status["buried"], 0, "nobody else had to take back what it held: {status}");
        let kept = status["errors_kept"].as_u64().unwrap();
        pipe.read_to_string(&mut text).unwrap();
        let printed = complete_lines(&text);
        assert_eq!(printed, (1..=read).collect::<Vec<_>>());
        assert!(kept >= COUNT - read, "{kept} are kept of {COUNT}, and {read} were printed");
        assert_none_lost_of(COUNT, &printed, &ids(&ring.success(&["getErrors"])), kept);
        assert_eq!(ring.status()["errors_taken"], COUNT);
    }
}

/// What still lies in a pipe when its reader goes has reached nobody.
#[test]
fn a_closed_pipe_ends_it_well_and_what_nobody_took_out_of_it_is_not_lost() {
    let ring = ring_with_errors();
    let (reader, printed) = Stuck::start(&ring).close();
    let output = reader.output(SOON);
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    let next = ids(&ring.success(&["getErrors"]));
    assert_nothing_lost(&printed, &next, COUNT);
    assert_all_taken(&ring);
}

#[test]
fn one_line_through_head_leaves_all_the_others() {
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
fn a_closed_stdout_is_refused_and_loses_none() {
    let ring = TestRing::new();
    ring.plant_errors(1..=3, |_| b"body".to_vec());
    let program = env!("CARGO_BIN_EXE_estafeta");
    let line = format!("'{program}' getErrors --redis '{}' >&-", ring.redis.url());
    let envs: [(&str, &str); 0] = [];
    let shell = estafeta_testbed::Process::spawn("/bin/sh".as_ref(), ["-c", &line], envs);
    let output = shell.output(SOON);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("stdout is closed"), "{told}");
    assert_eq!(ring.success(&["errors", "count"]), "3\n");
    let thrown_away = line.replace(">&-", "> /dev/null");
    let shell = estafeta_testbed::Process::spawn("/bin/sh".as_ref(), ["-c", &thrown_away], envs);
    assert!(shell.wait(SOON).success());
    assert_eq!(ring.success(&["errors", "count"]), "0\n");
}

#[test]
fn a_full_disk_is_told_and_loses_none() {
    let ring = ring_with_errors();
    let words = ["-c", r#"exec "$0" getErrors > /dev/full"#, env!("CARGO_BIN_EXE_estafeta")];
    let output = Process::spawn(Path::new("/bin/sh"), words, [("REDIS_URL", ring.redis.url())]).output(SOON);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("they stay in Redis") && told.contains("No space left"), "{told}");
    assert_eq!(ring.status()["errors_kept"], COUNT);
    assert_nothing_lost(&[], &ids(&ring.success(&["getErrors"])), 0);
}
