//! The monitor without a terminal, and calls that it refuses.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use estafeta_testbed::{DataDir, NO_ENV, Signal};

use crate::support::{ProgramRing, SOON, run, start};

/// The figure after this word.
fn figure(line: &str, name: &str) -> Option<f64> {
    let mut words = line.split(' ').skip_while(|word| *word != name);
    words.nth(1)?.parse().ok()
}

#[test]
fn one_plain_line_per_second_is_printed_until_the_time_is_over() {
    let ring = ProgramRing::new();
    let start = Instant::now();
    let output = ring.command(&["monitor", "-n", "2", "--interval", "20ms", "--for", "5s"]);
    assert!(start.elapsed() >= Duration::from_secs(5), "it ended after {:?}", start.elapsed());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    // A busy machine may leave some lines out.
    assert!((3..=6).contains(&lines.len()), "{lines:?}");
    assert!(
        lines.iter().all(|line| line.contains(" ring estafeta ") && !line.contains('\u{1b}')),
        "{lines:?}"
    );
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0);
}

#[test]
fn the_lines_have_the_figures_and_sigterm_ends_the_monitor_and_all_nodes() {
    let ring = ProgramRing::new();
    let monitor = ring.start(&["monitor", "-n", "3", "--interval", "20ms"]);
    let line = monitor.wait_for_line(SOON, |line| {
        let enough = |name, least| figure(line, name).is_some_and(|figure| figure >= least);
        enough("members", 3.0) && enough("published", 50.0) && enough("generated/s", 1.0)
    });
    assert!(line.ends_with("balance adds-up"), "{line}");
    assert!(figure(&line, "done").unwrap() + figure(&line, "errors-kept").unwrap() > 0.0, "{line}");
    monitor.signal(Signal::SIGTERM);
    assert_eq!(monitor.wait(SOON).code(), Some(0));
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0);
}

/// Work that takes so long that a monitor which does not wait for it would cut it off.
const SLOW: [&str; 4] = ["--work-per-char", "100ms", "--interval", "50ms"];

#[test]
fn a_closed_pipe_ends_the_monitor_and_all_nodes() {
    let ring = ProgramRing::new();
    let (monitor, mut pipe) = ring.start_unread(&[&["monitor", "-n", "2"], &SLOW[..]].concat());
    pipe.read_exact(&mut [0; 10]).unwrap();
    drop(pipe);
    assert_eq!(monitor.wait(SOON).code(), Some(0));
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0);
}

#[test]
fn a_full_pipe_does_not_keep_the_monitor_from_stopping() {
    let ring = ProgramRing::new();
    let (monitor, pipe) = ring.start_unread(&["monitor", "-n", "1"]);
    ring.eventually(SOON, "a member", |ring| ring["members"].as_array().unwrap().len() == 1);
    let mut other_end = File::options()
        .write(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(format!("/proc/self/fd/{}", pipe.as_raw_fd()))
        .unwrap();
    // The pipe is full, so the monitor cannot write its next line.
    while other_end.write(&[b' '; 1]).is_ok() {}
    ring.eventually(SOON, "messages", |ring| ring["published"].as_u64() > Some(4));
    monitor.signal(Signal::SIGTERM);
    // Nodes that do not end are killed after 25 seconds or more. This stop needs none of that time.
    assert_eq!(monitor.wait(Duration::from_secs(15)).code(), Some(0));
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0);
}

#[test]
fn the_monitor_ends_with_its_last_node() {
    let ring = ProgramRing::new();
    let output = ring.command(&["monitor", "-n", "2", "--interval", "0", "--limit", "100", "--until-done"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let status = ring.status();
    assert_eq!((&status["published"], &status["waiting"]), (&100.into(), &0.into()), "{status}");
}

#[test]
fn a_balance_that_does_not_add_up_fails_the_monitor() {
    let ring = ProgramRing::new();
    ring.redis_cli(&["HSET", "{estafeta}:ledger", "published", "3"]);
    let output = ring.command(&["monitor", "--attach", "--for", "2s"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("balance DOES-NOT-ADD-UP"), "{output:?}");
}

#[test]
fn each_node_gets_the_options_and_a_separate_record() {
    let ring = ProgramRing::new();
    let scratch = tempfile::tempdir().unwrap();
    let record = scratch.path().join("record");
    let options =
        ["--limit", "20", "--until-done", "--error-rate", "1", "--interval", "1ms", "--lease", "3s"];
    let record = ["--record", record.to_str().unwrap()];
    let output = ring.command(&[&["monitor", "-n", "2"], &options[..], &record].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(ring.status()["errorsKept"], 20);
    let mut names: Vec<_> =
        std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["record.1", "record.2"]);
}

#[test]
fn a_monitor_that_attaches_by_itself_names_the_options_that_it_ignores() {
    let ring = ProgramRing::new();
    let _node = ring.node(&["--interval", "50ms"]);
    let printed = |args: &[&str]| {
        let output = ring.command(&[&["monitor", "--for", "1s"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        stderr.lines().find(|line| line.contains("only watches")).unwrap_or_default().to_owned()
    };
    let line = "estafeta: ring estafeta is in use, so this monitor only watches";
    assert_eq!(printed(&[]), format!("{line} (see -n)"));
    let options = ["--lease", "3s", "--respawn", "--interval", "1s", "--journal", "--fresh"];
    let ignored = "--fresh, --respawn, --interval, --lease, --journal";
    assert_eq!(printed(&options), format!("{line} and ignores {ignored} (see -n)"));
    // The user asked for a monitor that only watches.
    assert_eq!(printed(&["--attach"]), "");
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 1);
}

#[test]
fn a_wrong_call_is_refused_and_starts_no_redis() {
    let cases: [(&[&str], &str); 6] = [
        (&["-n", "201"], "expected at most 200"),
        (&["--json"], "--json makes no sense here: a monitor draws"),
        (
            &["--attach", "--interval", "1s"],
            "--interval makes no sense here: monitor --attach starts no nodes",
        ),
        (&["--attach", "-n", "3"], "cannot be used with"),
        (&["--error-rate", "2"], "expected 0 to 1"),
        (&["--lease", "1ms"], "lease"),
    ];
    let data = DataDir::new();
    for (args, expected) in cases {
        let envs = [("ESTAFETA_DATA", data.path().to_str().unwrap())];
        let output = run(&[&["monitor"], args].concat(), &envs);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{args:?}: {stderr}");
        assert!(!data.path().join("redis").exists(), "{args:?} started a Redis");
    }
}

#[test]
fn an_unreachable_redis_is_reported_in_one_line() {
    let monitor = start(&["monitor", "--redis", "redis://127.0.0.1:1"], &NO_ENV);
    let output = monitor.output(SOON);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
