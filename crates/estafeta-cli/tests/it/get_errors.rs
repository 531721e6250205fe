//! What `getErrors` prints, and that it prints each error once.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::get_errors_cut_short::{BlockedReader, COUNT, ring_with_errors};
use crate::support::{ProgramRing, SOON};

/// The ids in an output for people, in its order.
pub fn ids(output: &str) -> Vec<u64> {
    let id = |line: &str| line.strip_prefix('#')?.split(' ').next()?.parse().ok();
    output.lines().map(|line| id(line).unwrap_or_else(|| panic!("no error in {line:?}"))).collect()
}

fn objects(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn assert_all_once(ids: &[u64], count: u64) {
    let different: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(different.len(), ids.len(), "some were printed twice");
    assert!(different.into_iter().eq(1..=count), "expected 1 to {count}, got {} of them", ids.len());
}

#[test]
fn each_error_is_printed_once_and_removed() {
    for command in ["getErrors", "get-errors", "--getErrors"] {
        let ring = ProgramRing::new();
        ring.plant_errors(1..=2500, |id| format!("body {id}").into_bytes());
        assert_eq!(ring.status()["errorsKept"], 2500);
        let output = ring.success(&[command]);
        let expected: Vec<u64> = (1..=2500).collect();
        assert_eq!(ids(&output), expected, "{command}: oldest first, each once");
        let first = output.lines().next().unwrap();
        assert!(first.starts_with("#1 failed 1970-01-01T00:00:02"), "{first}");
        assert!(first.ends_with("at member 3 on delivery 1: planted: \"body 1\""), "{first}");
        let status = ring.status();
        assert_eq!((&status["errorsKept"], &status["errorsTaken"]), (&0.into(), &2500.into()));
        assert_eq!(ring.success(&[command]), "");
    }
}

#[test]
fn json_prints_one_object_per_line() {
    for command in [["getErrors", "--json"], ["--getErrors", "--json"]] {
        let ring = ProgramRing::new();
        ring.plant_errors(1..=1, |_| "привет\n".into());
        ring.plant_errors(2..=2, |_| vec![0xff, 0]);
        let printed = objects(&ring.success(&command));
        let [text, bytes] = &printed[..] else { panic!("expected two objects, got {printed:?}") };
        assert_eq!((&text["id"], &text["body"]), (&1.into(), &"привет\n".into()));
        assert_eq!((&text["reason"], &text["delivery"]), (&"planted".into(), &1.into()));
        assert_eq!((&text["member"], &text["epoch"]), (&3.into(), &7.into()));
        assert_eq!((&text["publishedMs"], &text["failedMs"]), (&1000.into(), &2000.into()));
        assert_eq!(text["failed"], "1970-01-01T00:00:02.000Z");
        assert_eq!((&bytes["bodyBase64"], bytes.get("body")), (&"/wA=".into(), None));
    }
}

#[test]
fn the_content_of_an_error_cannot_control_the_terminal_or_break_the_line() {
    let ring = ProgramRing::new();
    let bodies: [&[u8]; 4] =
        [b"two\nlines\r\n", b"\x1b[2J\x1b]0;title\x07", "a\u{9b}31m\u{202e}b".as_bytes(), b"\xff\xfe\0"];
    ring.plant_errors(1..=4, |id| bodies[id as usize - 1].to_vec());
    ring.plant_failures(5..=5, "\x1b[5mfor\na\u{2066}reason", |_| b"body".to_vec());
    let foreign = b"\x1b[31mnot one of ours\n";
    let mut push = redis::cmd("RPUSH");
    push.arg("{estafeta}:errors").arg(foreign).exec(&mut ring.redis.connect()).unwrap();
    ring.redis_cli(&["HINCRBY", "{estafeta}:ledger", "published", "1"]);

    let output = ring.success(&["getErrors"]);
    assert_eq!(ids(&output), [1, 2, 3, 4, 5, 0]);
    let controls_terminal = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{202e}' | '\u{2066}'));
    assert!(!output.contains(controls_terminal), "{output:?}");
    for shown in [
        "\\u{1b}[5mfor\\na\\u{2066}reason",
        "two\\nlines\\r\\n",
        "\\u{1b}[2J",
        "\\u{9b}31m\\u{202e}b",
        "\\xff\\xfe\\u{0}",
    ] {
        assert!(output.contains(shown), "{shown} is not in {output}");
    }
    assert!(output.contains("not an error of estafeta: \"\\u{1b}[31mnot one of ours\\n\""), "{output}");
    assert_eq!(ring.status()["errorsTaken"], 6);
}

#[test]
fn two_readers_at_once_print_each_error_once() {
    const COUNT: u64 = 20_000;
    let ring = ProgramRing::new();
    ring.plant_errors(1..=COUNT, |id| format!("body {id}").into_bytes());
    let readers = [ring.start(&["getErrors"]), ring.start(&["getErrors"])];
    let mut printed = Vec::new();
    for reader in readers {
        let output = reader.output(SOON);
        assert!(output.status.success(), "{output:?}");
        printed.extend(ids(&String::from_utf8(output.stdout).unwrap()));
    }
    assert_all_once(&printed, COUNT);
}

#[test]
fn a_blocked_reader_keeps_its_share_and_another_one_prints_the_rest() {
    let ring = ring_with_errors();
    let blocked = BlockedReader::start(&ring);
    let mut printed = ids(&ring.success(&["getErrors"]));

    let status = ring.status();
    let members = status["members"].as_array().unwrap();
    let holder = members.iter().find(|member| member["role"] == "reader").unwrap();
    assert!(holder["inFlight"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(holder["inFlight"], status["errorsKept"], "errors in hand still count as kept");

    printed.extend(blocked.printed());
    assert_all_once(&printed, COUNT);
    ring.eventually(SOON, "all are taken", |status| status["errorsTaken"] == COUNT);
}

/// 200,000 errors of 300 bytes would need 60 MB if all were in memory at once.
#[cfg(target_os = "linux")]
#[test]
fn any_number_of_errors_is_printed_in_bounded_memory() {
    const COUNT: u64 = 200_000;
    let ring = ProgramRing::new();
    ring.plant_errors(1..=COUNT, |_| vec![b'x'; 300]);
    let (reader, pipe) = ring.start_unread(&["getErrors"]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(pipe));
    let mut peak_kb = 0;
    for id in 1..=COUNT {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with(&format!("#{id} ")), "expected #{id}, got {line}");
        if id % 1000 == 0 {
            // Near the end the process may have exited already.
            let status =
                std::fs::read_to_string(format!("/proc/{}/status", reader.pid())).unwrap_or_default();
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse().ok());
            peak_kb = peak_kb.max(peak.unwrap_or(0));
        }
    }
    assert!(lines.next().is_none());
    assert!(reader.wait(SOON).success());
    assert!((1..64 * 1024).contains(&peak_kb), "{peak_kb} kB");
    assert_eq!(ring.status()["errorsTaken"], COUNT);
}

#[test]
fn about_five_in_a_hundred_messages_fail() {
    const COUNT: u64 = 100_000;
    let ring = ProgramRing::new();
    let limit = COUNT.to_string();
    let nodes = ring.nodes(3, &["--interval", "0", "--limit", &limit, "--until-done"]);
    for node in &nodes {
        assert!(node.wait(Duration::from_secs(180)).success());
    }
    let errors = objects(&ring.success(&["getErrors", "--json"]));
    assert!((4500..=5500).contains(&errors.len()), "{} of {COUNT} failed", errors.len());
    let ids: BTreeSet<u64> = errors.iter().map(|error| error["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), errors.len());
    assert!(errors.iter().all(|error| error["reason"] == "the message contains an error"));
    let status = ring.status();
    assert_eq!(status["published"], COUNT);
    assert_eq!(status["errorsTaken"], errors.len());
    assert_eq!(status["done"].as_u64().unwrap() + errors.len() as u64, COUNT);
}

#[test]
fn a_ring_that_does_not_exist_has_no_errors_and_is_not_created() {
    let ring = ProgramRing::new();
    let output = ring.command(&["getErrors", "--ring", "mistyped"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("estafeta: there is no ring mistyped at "), "{stderr}");
    let keys: Vec<String> = redis::from_redis_value(ring.redis_cli(&["KEYS", "*"])).unwrap();
    assert_eq!(keys, [""; 0]);
}
