//! Text from outside cannot control the terminal, on any screen and in the plain output.
//!
//! Each field from outside contains its name and then hostile text. The tests check that no hostile character is drawn,
//! and that each field is drawn with its hostile characters spelled out. The second check matters, because ratatui
//! silently omits some of these characters.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use estafeta::{DeadLetter, EventKind};

use super::*;
use crate::model::errors_view::{ErrorsAnswer, Page};
use crate::plain;

/// An ANSI sequence with each introducer, line breaks, control characters, bidirectional marks, invisible characters.
const HOSTILE: &str = "\u{1b}[2J\u{9b}31m\r\n\t\0\u{7}\u{7f}\u{202e}\u{2066}\u{200f}\u{200b}\u{2028}\u{feff}";
/// How every hostile text must begin on the screen. Without escaping, only `[2J` would be left of it.
const SPELLED_OUT: &str = "\\u{1b}[2J";

fn hostile(field: &str) -> String {
    format!("{field}{HOSTILE}")
}

/// The same for fields that may contain any bytes.
fn hostile_bytes(field: &str) -> Vec<u8> {
    [hostile(field).as_bytes(), b"\xff\xc3"].concat()
}

fn hostile_error() -> DeadLetter {
    let reason = hostile("reason");
    let header = format!("!2000 3 {} {reason} 1 2 1000 0 0 0 0 0 ", reason.len());
    DeadLetter::parse(&"demo".parse().unwrap(), [header.into_bytes(), hostile_bytes("body")].concat())
}

/// A ring in which every field from outside is hostile. Node 2 is an own node.
fn hostile_run() -> RecordedRun {
    let mut run = RecordedRun::begin().owning(&[2]).until(5);
    run.model.info = MonitorInfo {
        ring: hostile("ring"),
        redis: hostile("redis"),
        host: hostile("here"),
        attach: false,
        respawn: false,
        log_file: Some(OsString::from_vec(hostile_bytes("log")).into()),
        page: None,
        started_ms: run.model.info.started_ms,
    };
    let mut snapshot = run.snapshots[5].clone();
    for member in &mut snapshot.members {
        member.host = hostile("host");
    }
    snapshot.generator.as_mut().unwrap().host = hostile("office");
    snapshot.application = Some(hostile("application"));
    let mut events = snapshot.events[..2].to_vec();
    events[0].kind =
        EventKind::Joined { member: MemberId(7), reader: false, host: hostile("joined"), pid: 1 };
    let details = [(hostile("detail"), hostile("value"))].into();
    events[1].kind = EventKind::Other { name: hostile("event"), details };
    let (now, errors) = (snapshot.time_ms, vec![hostile_error()]);
    run.model.updated(now, RingUpdate { snapshot, events, errors });
    run.model.started(now, NodeKey(9), 4711, RESPAWN_MS);
    run.model.reported(now, NodeKey(2), &Report::RedisLost { reason: hostile("report") });
    run
}

/// Asserts that the text is harmless, and remembers it for [`assert_shown`].
#[track_caller]
fn check(seen: &mut String, text: &str) {
    let is_hostile =
        |c: char| c.is_control() || HOSTILE.chars().any(|other| other == c && !c.is_ascii_graphic());
    assert!(!text.contains(is_hostile), "{text:?}");
    assert!(!text.replace(SPELLED_OUT, "").contains("[2J"), "a character was lost: {text:?}");
    seen.push_str(text);
    seen.push('\n');
}

/// Checks the screen in windows of all layouts.
#[track_caller]
fn check_screens(seen: &mut String, run: &RecordedRun) {
    for (width, height) in [(20, 5), (39, 20), (60, 24), (80, 24), (120, 40), (600, 60)] {
        let screen = run.screen(width, height, COLOURED);
        check(seen, &screen.buffer().content().iter().map(|cell| cell.symbol()).collect::<String>());
    }
}

#[track_caller]
fn assert_shown(seen: &str, fields: &[&str]) {
    for field in fields {
        assert!(seen.contains(&format!("{field}\\u{{1b}}")), "{field} was not shown: {seen}");
    }
}

#[test]
fn no_field_from_outside_can_control_the_terminal_on_the_ring_view_and_the_help() {
    let mut seen = String::new();
    let mut run = hostile_run();
    check_screens(&mut seen, &run);
    assert_shown(&seen, &["ring", "redis", "here", "host", "office", "joined", "report", "reason", "body"]);
    assert_shown(&seen, &["application"]);
    // The name of an unknown event is shown as it is. Its details are quoted, which escapes them once more.
    assert_shown(&seen, &["event"]);
    assert!(seen.contains("\"detail\\\\u{1b}") && seen.contains("\"value\\\\u{1b}"), "{seen}");
    assert!(seen.contains("\\xff\\xc3\""), "the end of the body: {seen}");

    run.model.not_started(run.now(), &hostile("start"));
    check_screens(&mut seen, &run);
    run.model.lost(run.now(), &hostile("lost"));
    check_screens(&mut seen, &run);
    run.command(MonitorCommand::Pause);
    check_screens(&mut seen, &run);
    run.command(MonitorCommand::Pause);
    run.command(MonitorCommand::Help);
    check_screens(&mut seen, &run);
    run.command(MonitorCommand::Back);
    run.command(MonitorCommand::Quit);
    check_screens(&mut seen, &run);
    assert_shown(&seen, &["cannot start a node: start", "REDIS DOES NOT ANSWER: lost", "log"]);
    assert_shown(&seen, &["Redis does not answer: lost"]);
}

#[test]
fn no_field_from_outside_can_control_the_terminal_in_the_errors_view() {
    let mut seen = String::new();
    let mut run = hostile_run();
    run.command(MonitorCommand::Errors);
    check_screens(&mut seen, &run);
    let page = |text: String| Page { text, errors: vec![hostile_error()], kept: 1, searched: 1 };
    run.model.errors_view().unwrap().show(page(String::new()));
    check_screens(&mut seen, &run);
    assert_shown(&seen, &["reason", "body"]);
    run.command(MonitorCommand::Enter);
    check_screens(&mut seen, &run);
    run.command(MonitorCommand::Drop { all: false });
    check_screens(&mut seen, &run);
    run.command(MonitorCommand::Confirm(false));
    run.model.errors_view().unwrap().answer = Some(ErrorsAnswer::Failed { reason: hostile("answer") });
    check_screens(&mut seen, &run);
    run.command(MonitorCommand::Search);
    for letter in hostile("typed").chars() {
        run.command(MonitorCommand::Type(letter));
    }
    check_screens(&mut seen, &run);
    run.command(MonitorCommand::Enter);
    run.model.errors_view().unwrap().show(page(hostile("typed")));
    check_screens(&mut seen, &run);
    assert_shown(&seen, &["answer", "search: typed", "searching for \"typed", "1 with \"typed"]);
}

#[test]
fn no_field_from_outside_can_control_the_terminal_in_the_plain_output() {
    let mut seen = String::new();
    let mut run = hostile_run();
    let now = run.now();
    check(&mut seen, &plain::line(&run.model, now));
    check(&mut seen, &plain::summary(&run.model, now));
    run.model.lost(now, &hostile("lost"));
    check(&mut seen, &plain::line(&run.model, now));
    check(&mut seen, &plain::summary(&run.model, now));
    run.model.lost = None;
    run.model.snapshot = None;
    check(&mut seen, &plain::line(&run.model, now));
    check(&mut seen, &plain::summary(&run.model, now));
    assert_eq!(seen.matches("ring\\u{1b}").count(), 6, "{seen}");
    assert_shown(&seen, &["lost", "application"]);
}
