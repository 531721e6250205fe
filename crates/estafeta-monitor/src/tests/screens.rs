//! Tests of the screens.

use estafeta::{Activity, Event, EventKind, MemberId, Pause, Rate};
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::{Color, Modifier};

use super::*;
use crate::model::command::Movement;
use crate::model::errors_view::Page;
use crate::tui::keys;

/// Compares the screens of three windows with their snapshots: a usual, a large and a tiny one.
fn assert_screens(run: &RecordedRun, name: &str) {
    for (width, height) in [(80, 24), (120, 40), (20, 5)] {
        insta::assert_snapshot!(format!("{name}-{width}x{height}"), run.screen(width, height, COLOURED));
    }
}

#[test]
fn a_ring_at_work_shows_own_and_foreign_nodes() {
    assert_screens(&RecordedRun::begin().owning(&[1, 2, 3]).until(6), "at-work");
}

#[test]
fn a_killed_generator_is_shown_as_dead_and_another_node_as_generator() {
    let mut run = RecordedRun::begin().owning(&[1, 2, 3]).until(6);
    run.command(MonitorCommand::KillGenerator);
    run.end(1, 9);
    assert_screens(&run.until(8), "dead");
}

#[test]
fn a_frozen_node_is_shown_as_frozen_before_and_after_it_is_buried() {
    let mut run = RecordedRun::begin().owning(&[2, 3]).until(10);
    run.command(MonitorCommand::Freeze);
    assert_screens(&run.until(13), "frozen");
    // Node 5 is foreign, so only its silence shows that it is frozen.
    assert_screens(&RecordedRun::begin().until(18), "frozen-foreign");
}

#[test]
fn a_balance_that_does_not_add_up_is_shown_in_red_and_reversed() {
    let mut run = RecordedRun::begin().owning(&[2]).until(9);
    let mut wrong = run.snapshots[9].clone();
    (wrong.done, wrong.balanced) = (wrong.done - 3, false);
    run.receive(wrong);
    assert_screens(&run, "unbalanced");

    let screen = run.screen(80, 24, COLOURED);
    let cell = &screen.buffer()[(0, 2)];
    assert_eq!((cell.symbol(), cell.fg), ("B", Color::Red));
    assert!(cell.modifier.contains(Modifier::REVERSED));
}

fn pause(left_ms: Option<u64>) -> Pause {
    serde_json::from_value(serde_json::json!({ "leftMs": left_ms })).unwrap()
}

#[test]
fn a_pause_is_shown_with_the_time_that_is_left_if_there_is_room() {
    let mut run = RecordedRun::begin().owning(&[1, 2, 3]).until(6);
    let mut paused = run.snapshots[6].clone();
    paused.handling_pause = Some(pause(Some(250_000)));
    let kind = EventKind::Paused { what: Activity::Handling, for_ms: Some(300_000), by: None };
    let mut event = Event::sample(paused.time_ms, kind);
    event.id = format!("{}-9", paused.time_ms);
    paused.events.push(event);
    run.receive(paused.clone());
    assert_screens(&run, "paused");
    paused.producing_pause = Some(pause(None));
    run.receive(paused);
    insta::assert_snapshot!("paused-both-80x24", run.screen(80, 24, COLOURED));
    run.command(MonitorCommand::Pause);
    insta::assert_snapshot!("paused-both-60x24", run.screen(60, 24, COLOURED));
}

#[test]
fn limits_are_shown_in_the_first_line() {
    let mut run = RecordedRun::begin().owning(&[1, 2, 3]).until(6);
    let mut limited = run.snapshots[6].clone();
    (limited.in_flight_limit, limited.rate_limit) = (Some(1000), Some(Rate::per_second(50)));
    run.receive(limited);
    assert_screens(&run, "limited");
}

#[test]
fn a_table_of_two_hundred_members_scrolls() {
    let mut run = RecordedRun::begin().owning(&[2]).until(8);
    let mut crowd = run.snapshots[8].clone();
    let pattern = crowd.members[1].clone();
    for number in 0..196 {
        let mut member = pattern.clone();
        member.id = MemberId(10 + number);
        member.rank = Some(3 + number);
        member.host = format!("worker-{:03}.example.org", number % 40);
        member.pid += number;
        member.processed = number.pow(3);
        crowd.members.push(member);
    }
    run.receive(crowd);
    assert_screens(&run, "crowd");
    run.command(MonitorCommand::Move(Movement::Last));
    insta::assert_snapshot!("crowd-end-80x24", run.screen(80, 24, COLOURED));
}

#[test]
fn the_help_and_the_errors_view_match_their_snapshots() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(6);
    run.command(MonitorCommand::Help);
    insta::assert_snapshot!("help-80x24", run.screen(80, 24, COLOURED));
    run.command(MonitorCommand::Back);

    run.command(MonitorCommand::Errors);
    let now = run.now();
    let errors = (1..=30).rev().map(|number| dead_letter(now, number)).collect();
    run.model.errors_view().unwrap().show(Page { text: String::new(), errors, kept: 1234, searched: 30 });
    run.command(MonitorCommand::Move(Movement::Down));
    insta::assert_snapshot!("errors-80x24", run.screen(80, 24, COLOURED));
    run.command(MonitorCommand::Drop { all: true });
    insta::assert_snapshot!("errors-question-80x24", run.screen(80, 24, COLOURED));
}

#[test]
fn the_screen_of_a_lost_redis_shows_the_reason_and_keeps_the_last_figures() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(6);
    run.model.lost(run.now(), "connection refused");
    insta::assert_snapshot!("lost-80x24", run.screen(80, 24, COLOURED));
}

#[test]
fn the_header_shows_a_frozen_generator_and_whether_any_other_node_is_alive() {
    let mut run = RecordedRun::begin().owning(&[1, 2, 3]).until(6);
    run.command(MonitorCommand::Freeze);
    let shown = run.screen(80, 24, COLOURED).to_string();
    assert!(shown.contains("generator ◆ 1 IS FROZEN on"), "{shown}");
    // No other node is left that could take over.
    let mut alone = run.snapshots[6].clone();
    alone.members.truncate(1);
    run.receive(alone);
    let shown = run.screen(80, 24, COLOURED).to_string();
    assert!(shown.contains("IS FROZEN AND NO OTHER NODE IS ALIVE"), "{shown}");
}

#[test]
fn the_plain_theme_draws_only_ascii_and_no_colours() {
    let plain = Theme { colour: false, ascii: true };
    let mut run = RecordedRun::begin().owning(&[1, 2, 3]).until(6);
    run.command(MonitorCommand::KillGenerator);
    run.end(1, 9);
    let run = run.until(8);
    let screen = run.screen(80, 24, plain);
    insta::assert_snapshot!("plain-80x24", screen);
    for cell in screen.buffer().content() {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        assert!(cell.symbol().is_ascii(), "{cell:?}");
    }
}

fn page(errors: Vec<DeadLetter>) -> Page {
    let count = errors.len() as u64;
    Page { text: String::new(), errors, kept: count, searched: count }
}

#[test]
fn no_window_is_too_small_to_draw() {
    let mut run = RecordedRun::begin().owning(&[1, 2, 3]).until(8);
    for view in [MonitorCommand::Back, MonitorCommand::Help, MonitorCommand::Errors, MonitorCommand::Enter] {
        run.command(view);
        if let Some(errors) = run.model.errors_view() {
            errors.show(page((1..=30).map(|number| dead_letter(1_794_796_080_000, number)).collect()));
        }
        for (width, height) in (0..60).step_by(3).flat_map(|width| (0..30).map(move |height| (width, height)))
        {
            run.screen(width, height, COLOURED);
        }
        if view == MonitorCommand::Help {
            run.command(MonitorCommand::Back);
        }
    }
}

#[test]
fn a_monitor_that_only_watches_lists_only_keys_that_work() {
    let mut run = RecordedRun::begin().owning(&[1]).until(6);
    for only_watching in [false, true] {
        run.model.info.attach = only_watching;
        run.command(MonitorCommand::Help);
        let help = run.screen(80, 24, COLOURED).to_string();
        run.command(MonitorCommand::Back);
        run.command(MonitorCommand::Errors);
        let errors = run.screen(80, 24, COLOURED).to_string();
        run.command(MonitorCommand::Back);
        for shown in [&help, &errors] {
            assert!(shown.contains("search") && shown.contains("quit"), "{shown}");
            assert_eq!(shown.contains("retry"), !only_watching, "{shown}");
            assert_eq!(shown.contains("drop"), !only_watching, "{shown}");
        }
        assert_eq!(errors.contains("R D"), !only_watching, "{errors}");
    }
}

#[test]
fn the_figures_of_a_lost_redis_are_dim_and_have_an_age() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(6);
    run.model.lost(run.now() + 1000, "connection refused");
    let later = run.now() + 12_000;
    for (width, height) in [(80, 24), (120, 40)] {
        let screen = run.screen_at(later, width, height, COLOURED);
        let shown = screen.to_string();
        assert!(shown.contains("last seen 12s ago: 136 = "), "{shown}");
        // Everything between the reason and the events is old.
        let lines: Vec<&str> = shown.lines().collect();
        let end = lines.iter().position(|line| line.contains(" events ")).unwrap();
        let is_figure = |c: &str| c.chars().all(|c| c.is_ascii_digit());
        for row in 2..u16::try_from(end).unwrap() {
            for column in 0..width {
                let cell = &screen.buffer()[(column, row)];
                let is_dim = cell.modifier.contains(Modifier::DIM) && !cell.modifier.contains(Modifier::BOLD);
                assert!(!is_figure(cell.symbol()) || is_dim, "({column}, {row}) {cell:?}: {shown}");
            }
        }
    }
    let tiny = run.screen_at(later, 20, 5, COLOURED).to_string();
    assert!(tiny.contains("REDIS LOST, 12s ago"), "{tiny}");
}

#[test]
fn a_narrow_header_drops_what_does_not_fit() {
    let run = RecordedRun::begin().owning(&[1, 2]).until(6);
    let header = |width| {
        let screen = run.screen(width, 20, COLOURED).to_string();
        let lines = screen.lines().take(3).map(|line| line.trim_matches('"').trim_end().to_owned());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(
        header(60),
        [
            "estafeta  ring estafeta  redis redis://10.0.0.5:6379/0",
            "generator ◆ 1 on web-1 for 6s, take-overs 0, 5 members",
            "adds up: 136 = 0 wait + 0 held + 129 done + 7 err + 0 taken",
        ]
    );
    assert_eq!(
        header(40),
        [
            "estafeta  ring estafeta",
            "generator ◆ 1, take-overs 0, 5 members",
            "adds up: 136 published, 129 done"
        ]
    );
}

#[test]
fn the_help_scrolls_in_a_small_window() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(6);
    let press = |run: &mut RecordedRun, code| {
        let command = keys::command(&run.model, KeyEvent::from(code)).unwrap();
        run.command(command);
        run.draw(60, 20)
    };
    let top = press(&mut run, KeyCode::Char('?'));
    assert!(top.contains(" keys ") && !top.contains("monitor.log") && top.contains("scroll"), "{top}");
    let next = press(&mut run, KeyCode::Down);
    assert!(!next.contains(" keys ") && next.contains("kill the generator"), "{next}");
    assert_eq!(press(&mut run, KeyCode::Up), top);
    let end = press(&mut run, KeyCode::End);
    assert!(end.contains("monitor.log") && end.contains("any other key closes"), "{end}");
    for key in [KeyCode::PageDown, KeyCode::Down, KeyCode::Down] {
        assert_eq!(press(&mut run, key), end, "the help ends there");
    }
    assert_ne!(press(&mut run, KeyCode::Up), end, "keys beyond the end do not count");
    let mut shown = press(&mut run, KeyCode::Home);
    assert_eq!(shown, top);
    for _ in 0..3 {
        shown += &press(&mut run, KeyCode::PageDown);
    }
    for text in
        ["freeze the selected node", "suspend the monitor", "renews its lease", "left the ring in good order"]
    {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(press(&mut run, KeyCode::Char('x')).contains(" events "), "any other key closes the help");
    assert_eq!(press(&mut run, KeyCode::Char('?')), top, "it opens at its beginning");
}

#[test]
fn a_help_that_fits_needs_no_scrolling() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(6);
    run.command(MonitorCommand::Help);
    let whole = run.screen(80, 24, COLOURED).to_string();
    assert!(!whole.contains("scroll;"), "{whole}");
    run.command(MonitorCommand::Move(Movement::PageDown));
    assert_eq!(run.screen(80, 24, COLOURED).to_string(), whole);
}

#[test]
fn the_first_line_shows_the_application_and_the_layout_if_there_is_room() {
    let mut run = RecordedRun::begin().until(5);
    let mut snapshot = run.snapshots[5].clone();
    (snapshot.application, snapshot.layout) = (Some("orders".into()), Some(4));
    run.receive(snapshot);
    let first_line = |width| -> String {
        let screen = run.screen(width, 24, COLOURED);
        (0..width).map(|x| screen.buffer()[(x, 0)].symbol()).collect()
    };
    assert!(first_line(120).starts_with("estafeta  ring estafeta  application orders  layout 4  up "));
    let narrow = first_line(80);
    assert!(narrow.starts_with("estafeta  ring estafeta  up ") && narrow.contains("redis://"), "{narrow}");
}
