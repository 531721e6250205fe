//! What the keys do.

use super::*;
use crate::monitor::act::Step;
use crate::monitor::errors_view::Page;
use crate::monitor::rows::{Condition, Key};
use crate::monitor::state::Errand;

const START: Deed = Deed::Start { pause_ms: RESPAWN_MS };

fn condition(story: &Story, member: u64) -> Option<Condition> {
    let row = story.state.rows.iter().find(|row| row.key == Key::Member(MemberId(member)))?;
    Some(row.condition)
}

#[test]
fn k_kills_the_generator_if_it_is_ours() {
    let mut ours = Story::begin().owning(&[1]).until(3);
    assert_eq!(ours.command(Command::KillGenerator), [Deed::Kill(Slot(1))]);
    assert_eq!(ours.last_event(), "killed 1 (pid 30644)");
    let mut foreign = Story::begin().owning(&[2]).until(3);
    assert_eq!(foreign.command(Command::KillGenerator), []);
    assert!(foreign.notice().contains("was not started here"), "{}", foreign.notice());
}

#[test]
fn the_selection_follows_the_generator_until_a_row_is_chosen() {
    let mut story = Story::begin().owning(&[1, 2, 3]).until(3);
    assert_eq!(story.state.selected(), Some(0));
    let mut later = Story::begin().owning(&[2, 3]).until(16);
    assert_eq!(later.command(Command::KillSelected), [Deed::Kill(Slot(3))]);
    story.command(Command::Move(Step::Down));
    assert_eq!(story.command(Command::KillSelected), [Deed::Kill(Slot(2))]);
    story.command(Command::Choose(2));
    assert_eq!(story.command(Command::KillSelected), [Deed::Kill(Slot(3))]);
    story.command(Command::Choose(99));
    story.command(Command::Back);
    assert_eq!(story.state.selected(), Some(0));
}

#[test]
fn f_freezes_and_thaws_the_same_copy_also_after_another_took_over() {
    let mut story = Story::begin().owning(&[2, 3]).until(10);
    assert_eq!(story.command(Command::Freeze), [Deed::Freeze(Slot(2))]);
    let mut story = story.until(14);
    assert_eq!(condition(&story, 2), Some(Condition::Frozen));
    assert_eq!(story.command(Command::Freeze), [Deed::Thaw(Slot(2))]);
    // It learns that it is dead and comes back: the row goes with it, and the former one is only shown for a while.
    story.state.heard(story.now(), Slot(2), &Said::CreatedTaskId { task_id: 6 });
    let mut story = story.until(16);
    assert_eq!(condition(&story, 2), Some(Condition::Dead));
    assert_eq!(story.command(Command::KillSelected), [Deed::Kill(Slot(2))]);
    assert_eq!(story.last_event(), "killed 6 (pid 30650)");
}

#[test]
fn a_dead_copy_can_be_started_again_for_a_while() {
    let mut story = Story::begin().owning(&[1, 2]).until(6);
    assert_eq!(story.command(Command::Restart), []);
    story.end(1, 9);
    assert_eq!(story.last_event(), "1 (pid 30644) was killed");
    let mut story = story.until(9);
    assert_eq!(condition(&story, 1), Some(Condition::Dead));
    assert_eq!(story.command(Command::Restart), [START]);
    assert_eq!(story.command(Command::Restart), []);
    let story = story.until(10);
    assert_eq!(condition(&story, 1), None);

    let mut forgotten = Story::begin().owning(&[1]).until(6);
    forgotten.end(1, 9);
    let mut forgotten = forgotten.until(9);
    assert_eq!(condition(&forgotten, 1), Some(Condition::Dead));
    let mut late = forgotten.snapshots[9].clone();
    late.time_ms += 60_000;
    forgotten.see(late);
    assert_eq!(condition(&forgotten, 1), None);
}

#[test]
fn a_copy_that_ended_well_is_not_mourned_and_stays_ours() {
    let mut story = Story::begin().owning(&[1, 2]).until(6);
    story.end(1, 0);
    assert_eq!((story.state.failure, story.command(Command::Restart)), (None, vec![]));
    let story = story.until(8);
    let row = story.state.rows.iter().find(|row| row.key == Key::Member(MemberId(1))).unwrap();
    assert!(row.mine && row.slot.is_none(), "{row:?}");
}

#[test]
fn respawn_starts_each_copy_again_and_one_that_does_not_last_after_longer_pauses() {
    let mut story = Story::begin().owning(&[1, 2]).until(2);
    story.state.setting.respawn = true;
    story.end(1, 9);
    story.end(2, 0x100);
    assert!(story.last_event().contains("failed with exit code 1"));
    assert!(story.state.failure.is_some() && story.state.respawns());
    let now = story.now();
    assert_eq!(story.state.tick(now + 400), []);
    // Both at the same time: neither waits for the other.
    let again = Deed::Start { pause_ms: 2 * RESPAWN_MS };
    assert_eq!(story.state.tick(now + 500), [again.clone(), again]);
    assert_eq!(story.state.tick(now + 600), []);
    // The next life of one of them: it dies at once, and later on again.
    let (mut pause_ms, mut now) = (2 * RESPAWN_MS, now + 500);
    for life in 3..20 {
        story.state.started(now, Slot(life), 4711, pause_ms);
        story.state.ended(now, Slot(life), ExitStatus::from_raw(9));
        story.state.refresh_rows(now + pause_ms);
        assert_eq!(story.state.tick(now + pause_ms - 1), []);
        let [Deed::Start { pause_ms: next }] = story.state.tick(now + pause_ms)[..] else {
            panic!("it was not started again after {pause_ms} ms");
        };
        assert!(next == 30_000 || next == 2 * pause_ms);
        (now, pause_ms) = (now + pause_ms, next);
    }
}

#[test]
fn a_copy_that_was_told_to_stop_is_not_started_again() {
    let mut story = Story::begin().owning(&[1, 2]).until(2);
    story.state.setting.respawn = true;
    story.command(Command::Stop);
    story.end(2, 15);
    assert_eq!(story.state.tick(story.now() + 60_000), []);
}

#[test]
fn nobody_is_started_again_while_the_monitor_quits() {
    let mut story = Story::begin().owning(&[1, 2]).until(2);
    story.state.setting.respawn = true;
    story.end(1, 9);
    assert_eq!(story.command(Command::Quit), [Deed::Quit]);
    story.end(2, 9);
    assert_eq!(story.state.tick(story.now() + 60_000), []);
    assert_eq!(story.command(Command::KillGenerator), []);
    assert_eq!(story.command(Command::Quit), [Deed::QuitNow]);
}

#[test]
fn minus_stops_the_youngest_handler_or_the_chosen_copy() {
    let mut story = Story::begin().owning(&[1, 2, 3]).until(3);
    assert_eq!(story.command(Command::Stop), [Deed::Thaw(Slot(3)), Deed::Stop(Slot(3))]);
    let mut story = story.until(4);
    assert_eq!(condition(&story, 3), Some(Condition::Dying));
    assert_eq!(story.command(Command::Stop), [Deed::Thaw(Slot(2)), Deed::Stop(Slot(2))]);
    // One that was chosen and is gone leaves the choice to us.
    story.command(Command::Choose(1));
    assert_eq!(story.command(Command::Stop), []);
    assert!(story.notice().contains("already"), "{}", story.notice());
    story.command(Command::Choose(0));
    assert_eq!(story.command(Command::Stop), [Deed::Thaw(Slot(1)), Deed::Stop(Slot(1))]);
    assert_eq!(story.command(Command::Add), [START]);
}

#[test]
fn whoever_only_watches_can_do_no_harm() {
    let mut story = Story::begin().until(3);
    story.state.setting.attach = true;
    story.command(Command::Errors);
    let (now, text) = (story.now(), String::new());
    let page = Page { text, errors: vec![failed(now, 1)], kept: 1, searched: 1 };
    story.state.errors_view().unwrap().show(page);
    for all in [false, true] {
        for command in [Command::Drop { all }, Command::Retry { all }] {
            assert_eq!(story.command(command), [], "{command:?}");
            assert_eq!(story.command(Command::Confirm(true)), [], "{command:?}");
        }
    }
    story.command(Command::Back);
    // It started nothing, so nothing is its own.
    for command in [
        Command::KillGenerator,
        Command::KillSelected,
        Command::Freeze,
        Command::Add,
        Command::Stop,
        Command::Restart,
    ] {
        assert_eq!(story.command(command), [], "{command:?}");
        assert!(!story.notice().is_empty(), "{command:?}");
        story.state.notice = None;
    }
}

#[test]
fn a_pause_lets_go_of_the_mouse_and_of_every_key_but_those_that_end_or_stop_it() {
    let mut story = Story::begin().owning(&[1]).until(3);
    assert_eq!(story.command(Command::Pause), [Deed::Mouse(false)]);
    for command in [
        Command::KillGenerator,
        Command::KillSelected,
        Command::Freeze,
        Command::Add,
        Command::Stop,
        Command::Restart,
        Command::Errors,
        Command::Help,
        Command::Back,
        Command::Move(Step::Down),
        Command::Choose(1),
        Command::Search,
        Command::Enter,
        Command::Retry { all: true },
        Command::Drop { all: true },
        Command::Confirm(true),
    ] {
        assert_eq!(story.command(command), [], "{command:?}");
        assert!(!story.state.shows(command), "{command:?}");
    }
    assert!(!story.state.help && story.state.errors_view().is_none() && story.state.pinned.is_none());
    assert_eq!(story.command(Command::Suspend), [Deed::Suspend]);
    assert!(story.state.shows(Command::Pause) && story.state.shows(Command::Quit));
    assert_eq!(story.command(Command::Pause), [Deed::Mouse(true)]);
    assert_eq!(story.command(Command::KillGenerator), [Deed::Kill(Slot(1))]);
    story.command(Command::Pause);
    assert_eq!(story.command(Command::Quit), [Deed::Quit]);
}

#[test]
fn errors_are_searched_retried_and_dropped_and_all_of_them_only_after_a_question() {
    let mut story = Story::begin().until(3);
    assert_eq!(story.command(Command::Errors), [Deed::Errors(Errand::List(String::new()))]);
    let now = story.now();
    let page = |text: &str| {
        let errors = (1..=3).rev().map(|number| failed(now, number)).collect();
        Page { text: text.to_owned(), errors, kept: 3, searched: 3 }
    };
    story.state.errors_view().unwrap().show(page(""));
    story.command(Command::Move(Step::Down));
    assert_eq!(story.command(Command::Retry { all: false }), [Deed::Errors(Errand::Retry(vec![24]))]);
    assert_eq!(story.command(Command::Drop { all: true }), []);
    assert_eq!(story.command(Command::Confirm(false)), []);
    story.command(Command::Drop { all: true });
    assert_eq!(story.command(Command::Confirm(true)), [Deed::Errors(Errand::Drop(vec![36, 24, 12]))]);
    story.command(Command::Drop { all: false });
    assert_eq!(story.command(Command::Confirm(true)), [Deed::Errors(Errand::Drop(vec![24]))]);

    story.command(Command::Search);
    story.command(Command::Type('z'));
    assert_eq!(story.command(Command::Type('e')), [Deed::Errors(Errand::List("ze".into()))]);
    assert_eq!(story.command(Command::Erase), [Deed::Errors(Errand::List("z".into()))]);
    story.command(Command::Enter);
    // What is shown is not yet what was searched for, so nothing is done to it.
    story.command(Command::Drop { all: true });
    assert_eq!(story.command(Command::Confirm(true)), []);
    story.state.errors_view().unwrap().show(page("z"));
    story.command(Command::Retry { all: true });
    assert_eq!(story.command(Command::Confirm(true)), [Deed::Errors(Errand::Retry(vec![36, 24, 12]))]);
    assert_eq!(story.command(Command::Back), [Deed::Errors(Errand::List(String::new()))]);
    assert!(story.state.errors_view().is_some());
    story.command(Command::Back);
    assert!(story.state.errors_view().is_none());
}

#[test]
fn the_selected_error_stays_selected_when_new_ones_come() {
    let mut story = Story::begin().until(3);
    story.command(Command::Errors);
    let now = story.now();
    let page = |newest| {
        let errors = (1..=newest).rev().map(|number| failed(now, number)).collect();
        Page { text: String::new(), errors, kept: newest, searched: newest }
    };
    let view = story.state.errors_view().unwrap();
    view.show(page(3));
    view.command(Command::Move(Step::Last), false);
    assert_eq!(view.selected().unwrap().id, 12);
    view.show(page(20));
    assert_eq!(view.selected().unwrap().id, 12);
}

#[test]
fn a_selection_whose_row_is_gone_follows_the_generator_again() {
    let mut story = Story::begin().owning(&[1, 2]).until(6);
    story.command(Command::Choose(0));
    assert_eq!(story.state.pinned, Some(Key::Member(MemberId(1))));
    story.end(1, 0);
    let story = story.until(14);
    assert_eq!(condition(&story, 1), None);
    assert_eq!(story.state.pinned, None);
}

#[test]
fn errors_that_were_taken_already_are_counted_without_a_last_one() {
    let mut story = Story::begin().until(6);
    let mut snapshot = story.snapshots[6].clone();
    (snapshot.errors_taken, snapshot.errors_kept) = (snapshot.errors_kept + 2, 0);
    snapshot.time_ms += 5000;
    story.see(snapshot);
    assert!(story.last_event().ends_with("errors"), "{}", story.last_event());
}

#[test]
fn what_a_killed_copy_said_last_counts() {
    let mut story = Story::begin().owning(&[1]).until(6);
    let generated = story.state.rows[0].generated;
    story.state.heard(story.now(), Slot(1), &Said::Generated { total: generated + 7 });
    story.end(1, 9);
    assert_eq!(story.state.rows[0].generated, generated + 7);
}

#[test]
fn errors_that_keep_coming_fill_one_line() {
    let mut story = Story::begin().until(6);
    let lines = |story: &Story| story.state.log.last(1000).count();
    let before = lines(&story);
    for step in 1..=20 {
        let mut snapshot = story.snapshots[6].clone();
        snapshot.time_ms += 500 * step;
        snapshot.errors_kept += 50 * step;
        story.see(snapshot);
    }
    assert!(lines(&story) <= before + 1);
    assert!(story.last_event().contains("errors, the last one #360"), "{}", story.last_event());
}
