//! What the screens look like.

use estafeta::MemberId;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::monitor::act::Step;
use crate::monitor::errors_view::Page;

/// The three sizes of window that matter: a usual one, a large one, and one in the corner.
fn assert_screens(story: &Story, name: &str) {
    for (width, height) in [(80, 24), (120, 40), (20, 5)] {
        insta::assert_snapshot!(format!("{name}-{width}x{height}"), story.screen(width, height, COLOURED));
    }
}

#[test]
fn a_ring_at_work_with_copies_of_ours_and_of_others() {
    assert_screens(&Story::begin().owning(&[1, 2, 3]).until(6), "at-work");
}

#[test]
fn a_killed_generator_is_dead_and_another_one_in_office() {
    let mut story = Story::begin().owning(&[1, 2, 3]).until(6);
    story.command(Command::KillGenerator);
    story.end(1, 9);
    assert_screens(&story.until(8), "dead");
}

#[test]
fn a_frozen_copy_is_shown_as_frozen_before_and_after_it_is_buried() {
    let mut story = Story::begin().owning(&[2, 3]).until(10);
    story.command(Command::Freeze);
    assert_screens(&story.until(13), "frozen");
    // The fifth is not ours: it is known by its silence alone.
    assert_screens(&Story::begin().until(18), "frozen-foreign");
}

#[test]
fn a_balance_that_does_not_add_up_cries_out() {
    let mut story = Story::begin().owning(&[2]).until(9);
    let mut wrong = story.snapshots[9].clone();
    (wrong.done, wrong.balanced) = (wrong.done - 3, false);
    story.see(wrong);
    assert_screens(&story, "unbalanced");

    let screen = story.screen(80, 24, COLOURED);
    let cell = &screen.buffer()[(0, 2)];
    assert_eq!((cell.symbol(), cell.fg), ("B", Color::Red));
    assert!(cell.modifier.contains(Modifier::REVERSED));
}

#[test]
fn two_hundred_members_scroll() {
    let mut story = Story::begin().owning(&[2]).until(8);
    let mut crowd = story.snapshots[8].clone();
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
    story.see(crowd);
    assert_screens(&story, "crowd");
    story.command(Command::Move(Step::Last));
    insta::assert_snapshot!("crowd-end-80x24", story.screen(80, 24, COLOURED));
}

#[test]
fn the_other_views() {
    let mut story = Story::begin().owning(&[1, 2]).until(6);
    story.command(Command::Help);
    insta::assert_snapshot!("help-80x24", story.screen(80, 24, COLOURED));
    story.command(Command::Back);

    story.command(Command::Errors);
    let now = story.now();
    let errors = (1..=30).rev().map(|number| failed(now, number)).collect();
    story.state.errors_view().unwrap().show(Page { text: String::new(), errors, kept: 1234, searched: 30 });
    story.command(Command::Move(Step::Down));
    insta::assert_snapshot!("errors-80x24", story.screen(80, 24, COLOURED));
    story.command(Command::Drop { all: true });
    insta::assert_snapshot!("errors-question-80x24", story.screen(80, 24, COLOURED));
}

#[test]
fn a_redis_that_does_not_answer_is_told_and_the_last_figures_stay() {
    let mut story = Story::begin().owning(&[1, 2]).until(6);
    story.state.lost(story.now(), "connection refused");
    insta::assert_snapshot!("lost-80x24", story.screen(80, 24, COLOURED));
}

#[test]
fn a_generator_that_is_not_alive_is_told_in_the_headline() {
    let mut story = Story::begin().owning(&[1, 2, 3]).until(6);
    story.command(Command::Freeze);
    let shown = story.screen(80, 24, COLOURED).to_string();
    assert!(shown.contains("generator ◆ 1 IS FROZEN on"), "{shown}");
    // Nobody is left who could take over.
    let mut alone = story.snapshots[6].clone();
    alone.members.truncate(1);
    story.see(alone);
    let shown = story.screen(80, 24, COLOURED).to_string();
    assert!(shown.contains("IS FROZEN AND NOBODY ELSE IS ALIVE"), "{shown}");
}

#[test]
fn without_colours_and_letters_beyond_ascii_everything_is_still_said() {
    let plain = Ink { colour: false, ascii: true };
    let mut story = Story::begin().owning(&[1, 2, 3]).until(6);
    story.command(Command::KillGenerator);
    story.end(1, 9);
    let story = story.until(8);
    let screen = story.screen(80, 24, plain);
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
fn no_window_is_too_small() {
    let mut story = Story::begin().owning(&[1, 2, 3]).until(8);
    for view in [Command::Back, Command::Help, Command::Errors, Command::Enter] {
        story.command(view);
        if let Some(errors) = story.state.errors_view() {
            errors.show(page((1..=30).map(|number| failed(1_794_796_080_000, number)).collect()));
        }
        for (width, height) in (0..60).step_by(3).flat_map(|width| (0..30).map(move |height| (width, height)))
        {
            story.screen(width, height, COLOURED);
        }
        if view == Command::Help {
            story.command(Command::Back);
        }
    }
}

#[test]
fn foreign_text_steers_nothing() {
    let mut story = Story::begin().until(5);
    let mut hostile = story.snapshots[5].clone();
    let text = "\u{1b}[2J\u{202e}evil\u{9b}31m\r\n\u{2066}";
    for member in &mut hostile.members {
        member.host = text.to_owned();
    }
    hostile.generator.as_mut().unwrap().host = text.to_owned();
    hostile.events[0].id = "9999999999999-0".to_owned();
    hostile.events[0].kind = text.to_owned();
    hostile.events[0].fields = vec![(text.to_owned(), text.to_owned())];
    let element = format!("1 2 1 1000 2000 3 {} {text} {text}", text.len()).into_bytes();
    let error = DeadLetter::parse(element);
    let time = hostile.time_ms;
    let look =
        Look { events: vec![hostile.events[0].clone()], snapshot: hostile, errors: vec![error.clone()] };
    story.state.look(time, look);
    story.state.lost(time, text);
    let assert_harmless = |story: &Story| {
        for (width, height) in [(80, 24), (120, 40), (200, 60)] {
            let shown = story.screen(width, height, COLOURED).to_string();
            assert!(shown.contains("evil"), "{shown}");
            let steers = |c: &char| (c.is_control() && *c != '\n') || "\u{202e}\u{2066}".contains(*c);
            assert_eq!(shown.chars().find(steers), None, "{shown}");
        }
    };
    assert_harmless(&story);
    story.command(Command::Errors);
    story.state.errors_view().unwrap().show(page(vec![error]));
    assert_harmless(&story);
}
