use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;

use super::*;
use crate::again::with_environment;

const SOON: Duration = Duration::from_secs(10);

fn shell(script: &str) -> Process {
    Process::spawn(Path::new("/bin/sh"), ["-c", script], NO_ENV)
}

#[test]
fn lines_arrive_while_the_process_runs() {
    let process = shell("echo one; echo talk >&2; echo two; exec sleep 60");
    assert_eq!(process.wait_for_line(SOON, |line| line.starts_with("tw")), "two");
    assert_eq!(process.wait_for_line(SOON, |line| line == "one"), "one");
    assert_eq!(process.wait_for_stderr_line(SOON, |_| true), "talk");
    assert_eq!(process.stdout_lines(), ["one", "two"]);
    assert_eq!(process.stderr_lines(), ["talk"]);
    let timed = process.timed_stdout_lines();
    assert!(timed[0].at <= timed[1].at);
    assert!(process.is_running());
}

#[test]
fn output_keeps_every_byte() {
    let output = shell(r"printf 'a\377\n\nlast'; printf '\200' >&2; exit 3").output(SOON);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"a\xff\n\nlast");
    assert_eq!(output.stderr, b"\x80");
}

#[test]
fn a_last_line_without_a_newline_is_still_a_line() {
    let process = shell("printf 'one\ntwo'");
    assert_eq!(process.wait_for_line(SOON, |line| line == "two"), "two");
}

#[test]
fn output_larger_than_a_pipe_does_not_block_the_process() {
    let output = shell("head -c 1000000 /dev/zero").output(SOON);
    assert_eq!(output.stdout.len(), 1_000_000);
}

#[test]
#[should_panic(expected = "what it did say")]
fn a_line_that_does_not_come_panics_with_all_output() {
    let process = shell("echo what it did say; exec sleep 60");
    process.wait_for_line(SOON, |line| line == "what it did say");
    process.wait_for_line(Duration::from_millis(20), |line| line == "something else");
}

#[test]
fn waiting_for_a_line_ends_when_the_output_ends() {
    let start = Instant::now();
    let waiting = || shell("echo only this").wait_for_line(2 * SOON, |line| line == "something else");
    let panic = std::panic::catch_unwind(waiting).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("no such line"));
    assert!(start.elapsed() < 2 * SOON, "it waited for {:?}", start.elapsed());
}

#[test]
#[should_panic(expected = "still runs after")]
fn waiting_for_the_end_panics_after_the_timeout() {
    shell("exec sleep 60").wait(Duration::from_millis(20));
}

#[test]
fn the_exit_status_shows_how_a_signal_ended_the_process() {
    let process = shell("exec sleep 60");
    assert_eq!(process.kill().signal(), Some(9));
    assert!(!process.is_running());
    process.signal(Signal::SIGTERM);

    let process = shell("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done");
    process.wait_for_line(SOON, |line| line == "up");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(SOON).code(), Some(7));
}

#[test]
fn a_process_with_a_pipe_reads_what_the_test_writes_until_the_pipe_is_dropped() {
    let (process, mut input) = Process::spawn_fed(Path::new("/bin/cat"), ["-"], NO_ENV);
    input.write_all(b"one\n").unwrap();
    process.wait_for_line(SOON, |line| line == "one");
    assert!(process.is_running());
    drop(input);
    assert!(process.wait(SOON).success());
}

#[test]
fn a_frozen_process_writes_nothing_until_thawed() {
    let process = shell("while :; do echo tick; sleep 0.001; done");
    process.wait_for_line(SOON, |line| line == "tick");
    process.freeze();
    // Output from before the freeze may still be on its way through the pipe.
    std::thread::sleep(Duration::from_millis(50));
    let before = process.stdout_lines().len();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(process.stdout_lines().len(), before);
    assert!(process.is_running());
    process.thaw();
    crate::eventually(SOON, "it goes on", || (process.stdout_lines().len() > before).then_some(()));
}

#[test]
fn a_process_sees_a_private_directory_and_no_user_settings() {
    let users = [("REDIS_URL", "redis://theirs"), ("XDG_DATA_HOME", "/theirs"), ("ESTAFETA_RING", "theirs")];
    if !with_environment("process::tests::a_process_sees_a_private_directory_and_no_user_settings", &users) {
        return;
    }
    let report =
        "echo \"$ESTAFETA_DATA $HOME ${REDIS_URL-none} ${XDG_DATA_HOME-none} ${ESTAFETA_RING-none}\"";
    let line = shell(report).wait_for_line(SOON, |_| true);
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[0], words[1]);
    assert!(Path::new(words[0]).starts_with(std::env::temp_dir()));
    assert_eq!(words[2..], ["none"; 3]);

    let shared = DataDir::new();
    let process = Process::spawn(Path::new("/bin/sh"), ["-c", report], [("ESTAFETA_DATA", shared.path())]);
    let line = process.wait_for_line(SOON, |_| true);
    assert!(line.starts_with(shared.path().to_str().unwrap()));
}
