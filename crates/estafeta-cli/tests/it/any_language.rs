//! The examples in other languages: each with its real interpreter, under the real program.

use std::fs::File;
use std::io::Write as _;

use estafeta_testbed::{Signal, eventually};
use serde_json::{Value, json};

use crate::support::{ProgramRing, SOON, TextFile};

/// Whether this machine has an interpreter. If not, says so, even if the test harness captures the output of tests.
fn has_interpreter(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here = std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    if !is_here {
        let line =
            format!("skipped: this machine has no {name}, and scripts/install-deps {name} installs it\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    is_here
}

/// The command that runs an example.
fn command(interpreter: &str, example: &str) -> String {
    format!("{interpreter} '{}/../../examples/any-language/{example}'", env!("CARGO_MANIFEST_DIR"))
}

fn publish(ring: &ProgramRing, bodies: &[&str]) {
    for body in bodies {
        ring.success(&["publish", body]);
    }
}

/// The results of all messages, by id.
fn results(ring: &ProgramRing) -> Vec<(u64, String)> {
    let text = ring.success(&["results", "--json"]);
    let objects = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let result = |object: Value| {
        (object["id"].as_u64().unwrap(), object["value"].as_str().expect("a text").to_owned())
    };
    objects.map(result).collect()
}

/// The ids and reasons of all dead letters.
fn dead_letters(ring: &ProgramRing) -> Vec<(u64, String)> {
    let text = ring.success(&["errors", "list", "--json"]);
    let objects = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let letter =
        |object: Value| (object["id"].as_u64().unwrap(), object["reason"].as_str().unwrap().to_owned());
    objects.map(letter).collect()
}

fn pairs(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(id, text)| (*id, (*text).to_owned())).collect()
}

/// The processes that have this word on their command line.
fn processes_with(word: &str) -> usize {
    let names =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let has_word = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|found| found == word.as_bytes())
    };
    names.filter_map(|name| name.parse().ok()).filter(has_word).count()
}

#[test]
fn the_worker_in_python_answers_with_all_four_outcomes() {
    if !has_interpreter("python3") {
        return;
    }
    let ring = ProgramRing::new();
    let node = ring.node(&["--handle-lines", &command("python3", "worker.py")]);
    publish(&ring, &[r#"{"to":"ann"}"#, "no mail"]);
    publish(&ring, &[r#"{"to":"busy@example.com"}"#, r#"{"to":"flaky@example.com"}"#]);
    let status = ring.eventually(SOON, "each message has its outcome", |status| {
        status["done"] == 3 && status["errorsKept"] == 1
    });
    assert_eq!((&status["snoozes"], &status["retries"]), (&json!(2), &json!(1)), "{status}");
    let sent = [(1, "sent to ann"), (3, "sent to busy@example.com"), (4, "sent to flaky@example.com")];
    assert_eq!(results(&ring), pairs(&sent));
    let letters = dead_letters(&ring);
    assert!(letters.len() == 1 && letters[0].0 == 2, "{letters:?}");
    assert!(letters[0].1.starts_with("not a mail: JSONDecodeError"), "{letters:?}");
    node.wait_for_stderr_line(SOON, |line| line.ends_with(": a mail to ann"));
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
}

#[test]
fn the_worker_in_javascript_answers_in_any_order() {
    if !has_interpreter("node") {
        return;
    }
    let ring = ProgramRing::new();
    let _node = ring.node(&["--handle-lines", &command("node", "worker.js"), "--in-hand", "10"]);
    // The first message takes longer than this test.
    publish(&ring, &[r#"{"url":"slow","ms":3600000}"#, r#"{"url":"b"}"#, r#"{"url":"c","ms":1}"#]);
    publish(&ring, &[r#"{"status":503}"#, r#"{"status":429}"#, "{"]);
    ring.eventually(SOON, "all others have answers", |status| {
        status["done"] == 2
            && status["errorsKept"] == 1
            && status["snoozes"] == 1
            && status["retries"].as_u64() >= Some(1)
            && status["inFlight"].as_u64() >= Some(1)
    });
    assert_eq!(results(&ring), pairs(&[(2, r#"{"url":"b"}"#), (3, r#"{"url":"c"}"#)]));
    assert_eq!(
        ring.redis_cli(&["GET", "{estafeta}:u:pages"]),
        redis::Value::BulkString(b"2".to_vec()),
        "each page is counted once"
    );
    let letters = dead_letters(&ring);
    assert!(letters.len() == 1 && letters[0].0 == 6, "{letters:?}");
    assert!(letters[0].1.starts_with("not JSON: "), "{letters:?}");
}

#[test]
fn the_command_in_perl_answers_by_its_exit_code() {
    if !has_interpreter("perl") {
        return;
    }
    let ring = ProgramRing::new();
    let node = ring.node(&["--handle", &command("perl", "thumbnail.pl"), "--results", "1h"]);
    publish(&ring, &["P2 4 4 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7", "P5", "P2 2 2 1 1 0 0 1", "P2 2 2 5 1"]);
    let status = ring.eventually(SOON, "each message has its outcome", |status| {
        status["done"] == 2 && status["errorsKept"] == 2
    });
    assert_eq!(status["retries"], 1, "{status}");
    assert_eq!(results(&ring), pairs(&[(1, "P2 2 2 9\n1 3\n9 2\n"), (3, "P2 1 1 1\n1\n")]));
    let reasons = [
        (2, "exit code 65: expected a picture that begins with P2"),
        (4, "exit code 65: expected 4 pixels, got 1"),
    ];
    assert_eq!(dead_letters(&ring), pairs(&reasons));
    node.wait_for_stderr_line(SOON, |line| line.starts_with("no room for estafeta/"));
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
}

#[test]
fn the_script_that_runs_once_per_tick_publishes_its_lines_and_its_checkpoint() {
    let ring = ProgramRing::new();
    let generate = command("sh", "nightly.sh");
    let args = ["--generate", &generate, "--every", "100ms", "--handle", "cat", "--results", "1h"];
    let node = ring.node(&args);
    ring.eventually(SOON, "three ticks are handled", |status| status["done"].as_u64() >= Some(9));
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
    // A second node continues with the checkpoint of the first one.
    let done = ring.status()["done"].as_u64().unwrap();
    let node = ring.node(&args);
    ring.eventually(SOON, "three more", |status| status["done"].as_u64() >= Some(done + 9));
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());

    let published = ring.status()["published"].as_u64().unwrap();
    assert_eq!(ring.success(&["checkpoint", "show"]).trim_end(), (published / 3).to_string());
    let mut ticks = Vec::new();
    for (at, (id, text)) in (0_u64..).zip(results(&ring)) {
        let body: Value = serde_json::from_str(text.trim_end()).expect(&text);
        let shop = ["berlin", "hamburg", "paris"][(at % 3) as usize];
        assert_eq!((id, &body["shop"], &body["run"]), (at + 1, &json!(shop), &json!(at / 3 + 1)), "{text}");
        ticks.push(body["tick"].as_u64().unwrap());
    }
    assert!(ticks.len() as u64 >= done + 9 && ticks.is_sorted(), "{ticks:?}");
    assert!(ticks.chunks(3).all(|tick| tick.iter().all(|time| *time == tick[0])), "{ticks:?}");
}

/// The feed of a killed node must not outlive it, and its successor must continue at the right line.
#[test]
fn each_line_of_a_growing_file_is_published_once_although_nodes_are_killed() {
    const LINES: u64 = 40;
    if !has_interpreter("python3") {
        return;
    }
    let ring = ProgramRing::new();
    let file = TextFile::new("");
    let feed = format!("{} '{}'", command("python3", "tail_feed.py"), file.path());
    // The result of each message is its line. Unlike what a handler does elsewhere, Redis stores it once.
    let args = ["--feed", &feed, "--handle", "cat", "--results", "1h", "--journal"];
    let mut nodes = ring.nodes(2, &args);
    let (mut writer, mut count) = (File::options().append(true).open(file.path()).unwrap(), 0);
    let mut append = || {
        for _ in 0..LINES {
            count += 1;
            // In two pieces, so that the feed also sees lines that are not complete.
            write!(writer, "line ").unwrap();
            writeln!(writer, "{count}").unwrap();
        }
        count
    };
    for _ in 0..3 {
        let before = append() - LINES;
        ring.eventually(SOON, "a feed publishes", |status| status["done"].as_u64() > Some(before));
        append();
        ring.generator(&nodes).kill();
        append();
        nodes.push(ring.node(&args));
    }
    let count = append();
    ring.eventually(SOON, "each line is handled", |status| status["done"] == count);
    let expected: Vec<_> = (1..=count).map(|line| (line, format!("line {line}"))).collect();
    assert_eq!(results(&ring), expected);
    ring.assert_each_once(count);
    let status = ring.status();
    assert!(status["published"] == count && status["takeovers"].as_u64() >= Some(3), "{status}");
    let size = std::fs::metadata(file.path()).unwrap().len();
    assert_eq!(ring.success(&["checkpoint", "show"]).trim_end(), size.to_string());
    eventually(SOON, "only the feed in office runs", || (processes_with(file.path()) == 1).then_some(()));
    drop(nodes);
    eventually(SOON, "no feed is left", || (processes_with(file.path()) == 0).then_some(()));
}
