//! Tests of the commands behind the keys.

use super::*;
use crate::model::command::Movement;
use crate::model::errors_view::Page;
use crate::model::rows::{Condition, Key};

const START: AppRequest = AppRequest::Start { pause_ms: RESPAWN_MS };

fn condition(run: &RecordedRun, member: u64) -> Option<Condition> {
    let row = run.model.rows.iter().find(|row| row.key == Key::Member(MemberId(member)))?;
    Some(row.condition)
}

#[test]
fn k_kills_the_generator_only_if_this_monitor_started_it() {
    let mut ours = RecordedRun::begin().owning(&[1]).until(3);
    assert_eq!(ours.command(MonitorCommand::KillGenerator), [AppRequest::Kill(NodeKey(1))]);
    assert_eq!(ours.last_log_line(), "killed 1 (pid 30644)");
    let mut foreign = RecordedRun::begin().owning(&[2]).until(3);
    assert_eq!(foreign.command(MonitorCommand::KillGenerator), []);
    assert!(foreign.notice().contains("was not started here"), "{}", foreign.notice());
}

#[test]
fn the_selection_follows_the_generator_until_the_user_selects_a_row() {
    let mut run = RecordedRun::begin().owning(&[1, 2, 3]).until(3);
    assert_eq!(run.model.selected(), Some(0));
    let mut later = RecordedRun::begin().owning(&[2, 3]).until(16);
    assert_eq!(later.command(MonitorCommand::KillSelected), [AppRequest::Kill(NodeKey(3))]);
    run.command(MonitorCommand::Move(Movement::Down));
    assert_eq!(run.command(MonitorCommand::KillSelected), [AppRequest::Kill(NodeKey(2))]);
    run.command(MonitorCommand::Choose(2));
    assert_eq!(run.command(MonitorCommand::KillSelected), [AppRequest::Kill(NodeKey(3))]);
    run.command(MonitorCommand::Choose(99));
    run.command(MonitorCommand::Back);
    assert_eq!(run.model.selected(), Some(0));
}

#[test]
fn f_freezes_and_thaws_the_same_node_even_if_another_took_over() {
    let mut run = RecordedRun::begin().owning(&[2, 3]).until(10);
    assert_eq!(run.command(MonitorCommand::Freeze), [AppRequest::Freeze(NodeKey(2))]);
    let mut run = run.until(14);
    assert_eq!(condition(&run, 2), Some(Condition::Frozen));
    assert_eq!(run.command(MonitorCommand::Freeze), [AppRequest::Thaw(NodeKey(2))]);
    // The node joins again with the number 6, and the selection moves along. The row of its old number is dead.
    run.model.reported(run.now(), NodeKey(2), &Report::CreatedTaskId { task_id: MemberId(6) });
    let mut run = run.until(16);
    assert_eq!(condition(&run, 2), Some(Condition::Dead));
    assert_eq!(run.command(MonitorCommand::KillSelected), [AppRequest::Kill(NodeKey(2))]);
    assert_eq!(run.last_log_line(), "killed 6 (pid 30650)");
}

#[test]
fn a_dead_node_can_be_restarted_once_and_its_row_disappears_after_a_while() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(6);
    assert_eq!(run.command(MonitorCommand::Restart), []);
    run.end(1, 9);
    assert_eq!(run.last_log_line(), "1 (pid 30644) was killed");
    let mut run = run.until(9);
    assert_eq!(condition(&run, 1), Some(Condition::Dead));
    assert_eq!(run.command(MonitorCommand::Restart), [START]);
    assert_eq!(run.command(MonitorCommand::Restart), []);
    let run = run.until(10);
    assert_eq!(condition(&run, 1), None);

    let mut forgotten = RecordedRun::begin().owning(&[1]).until(6);
    forgotten.end(1, 9);
    let mut forgotten = forgotten.until(9);
    assert_eq!(condition(&forgotten, 1), Some(Condition::Dead));
    let mut late = forgotten.snapshots[9].clone();
    late.time_ms += 60_000;
    forgotten.receive(late);
    assert_eq!(condition(&forgotten, 1), None);
}

#[test]
fn a_clean_exit_is_no_failure_and_the_row_still_counts_as_own() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(6);
    run.end(1, 0);
    assert_eq!((run.model.failure, run.command(MonitorCommand::Restart)), (None, vec![]));
    let run = run.until(8);
    let row = run.model.rows.iter().find(|row| row.key == Key::Member(MemberId(1))).unwrap();
    assert!(row.mine && row.node.is_none(), "{row:?}");
}

#[test]
fn respawn_restarts_every_failed_node_after_pauses_that_double_up_to_thirty_seconds() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(2);
    run.model.info.respawn = true;
    run.end(1, 9);
    run.end(2, 0x100);
    assert!(run.last_log_line().contains("failed with exit code 1"));
    assert!(run.model.failure.is_some() && run.model.respawns());
    let now = run.now();
    assert_eq!(run.model.tick(now + 400), []);
    // Both start at the same time, because neither waits for the other.
    let again = AppRequest::Start { pause_ms: 2 * RESPAWN_MS };
    assert_eq!(run.model.tick(now + 500), [again.clone(), again]);
    assert_eq!(run.model.tick(now + 600), []);
    // Each restarted node dies at once, so its successor waits longer.
    let (mut pause_ms, mut now) = (2 * RESPAWN_MS, now + 500);
    for key in 3..20 {
        run.model.started(now, NodeKey(key), 4711, pause_ms);
        run.model.ended(now, NodeKey(key), ExitStatus::from_raw(9));
        run.model.refresh_rows(now + pause_ms);
        assert_eq!(run.model.tick(now + pause_ms - 1), []);
        let [AppRequest::Start { pause_ms: next }] = run.model.tick(now + pause_ms)[..] else {
            panic!("it was not started again after {pause_ms} ms");
        };
        assert!(next == 30_000 || next == 2 * pause_ms);
        (now, pause_ms) = (now + pause_ms, next);
    }
}

#[test]
fn a_node_that_was_asked_to_stop_is_not_respawned() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(2);
    run.model.info.respawn = true;
    run.command(MonitorCommand::Stop);
    run.end(2, 15);
    assert_eq!(run.model.tick(run.now() + 60_000), []);
}

#[test]
fn a_quitting_monitor_respawns_no_node_and_kills_all_after_a_second_quit() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(2);
    run.model.info.respawn = true;
    run.end(1, 9);
    assert_eq!(run.command(MonitorCommand::Quit), [AppRequest::Quit]);
    run.end(2, 9);
    assert_eq!(run.model.tick(run.now() + 60_000), []);
    assert_eq!(run.command(MonitorCommand::KillGenerator), []);
    assert_eq!(run.command(MonitorCommand::Quit), [AppRequest::QuitNow]);
}

#[test]
fn minus_stops_the_selected_node_or_else_the_youngest_handler() {
    let mut run = RecordedRun::begin().owning(&[1, 2, 3]).until(3);
    assert_eq!(
        run.command(MonitorCommand::Stop),
        [AppRequest::Thaw(NodeKey(3)), AppRequest::Stop(NodeKey(3))]
    );
    let mut run = run.until(4);
    assert_eq!(condition(&run, 3), Some(Condition::Dying));
    assert_eq!(
        run.command(MonitorCommand::Stop),
        [AppRequest::Thaw(NodeKey(2)), AppRequest::Stop(NodeKey(2))]
    );
    // Node 2 is stopping already.
    run.command(MonitorCommand::Choose(1));
    assert_eq!(run.command(MonitorCommand::Stop), []);
    assert!(run.notice().contains("already"), "{}", run.notice());
    run.command(MonitorCommand::Choose(0));
    assert_eq!(
        run.command(MonitorCommand::Stop),
        [AppRequest::Thaw(NodeKey(1)), AppRequest::Stop(NodeKey(1))]
    );
    assert_eq!(run.command(MonitorCommand::Add), [START]);
}

#[test]
fn a_monitor_that_only_watches_refuses_every_command_that_acts_on_nodes_or_errors() {
    let mut run = RecordedRun::begin().until(3);
    run.model.info.attach = true;
    run.command(MonitorCommand::Errors);
    let (now, text) = (run.now(), String::new());
    let page = Page { text, errors: vec![dead_letter(now, 1)], kept: 1, searched: 1 };
    run.model.errors_view().unwrap().show(page);
    for all in [false, true] {
        for command in [MonitorCommand::Drop { all }, MonitorCommand::Retry { all }] {
            assert_eq!(run.command(command), [], "{command:?}");
            assert_eq!(run.command(MonitorCommand::Confirm(true)), [], "{command:?}");
        }
    }
    run.command(MonitorCommand::Back);
    // The monitor started no node, so it has no own nodes.
    for command in [
        MonitorCommand::KillGenerator,
        MonitorCommand::KillSelected,
        MonitorCommand::Freeze,
        MonitorCommand::Add,
        MonitorCommand::Stop,
        MonitorCommand::Restart,
    ] {
        assert_eq!(run.command(command), [], "{command:?}");
        assert!(!run.notice().is_empty(), "{command:?}");
        run.model.notice = None;
    }
}

#[test]
fn a_pause_releases_the_mouse_and_ignores_all_commands_except_pause_suspend_and_quit() {
    let mut run = RecordedRun::begin().owning(&[1]).until(3);
    assert_eq!(run.command(MonitorCommand::Pause), [AppRequest::Mouse(false)]);
    for command in [
        MonitorCommand::KillGenerator,
        MonitorCommand::KillSelected,
        MonitorCommand::Freeze,
        MonitorCommand::Add,
        MonitorCommand::Stop,
        MonitorCommand::Restart,
        MonitorCommand::Errors,
        MonitorCommand::Help,
        MonitorCommand::Back,
        MonitorCommand::Move(Movement::Down),
        MonitorCommand::Choose(1),
        MonitorCommand::Search,
        MonitorCommand::Enter,
        MonitorCommand::Retry { all: true },
        MonitorCommand::Drop { all: true },
        MonitorCommand::Confirm(true),
    ] {
        assert_eq!(run.command(command), [], "{command:?}");
        assert!(!run.model.changes_screen(command), "{command:?}");
    }
    assert!(run.model.help.is_none() && run.model.errors_view().is_none() && run.model.pinned.is_none());
    assert_eq!(run.command(MonitorCommand::Suspend), [AppRequest::Suspend]);
    assert!(
        run.model.changes_screen(MonitorCommand::Pause) && run.model.changes_screen(MonitorCommand::Quit)
    );
    assert_eq!(run.command(MonitorCommand::Pause), [AppRequest::Mouse(true)]);
    assert_eq!(run.command(MonitorCommand::KillGenerator), [AppRequest::Kill(NodeKey(1))]);
    run.command(MonitorCommand::Pause);
    assert_eq!(run.command(MonitorCommand::Quit), [AppRequest::Quit]);
}

#[test]
fn the_selection_follows_the_generator_again_after_the_selected_row_disappears() {
    let mut run = RecordedRun::begin().owning(&[1, 2]).until(6);
    run.command(MonitorCommand::Choose(0));
    assert_eq!(run.model.pinned, Some(Key::Member(MemberId(1))));
    run.end(1, 0);
    let run = run.until(14);
    assert_eq!(condition(&run, 1), None);
    assert_eq!(run.model.pinned, None);
}

#[test]
fn errors_that_were_taken_already_are_logged_as_a_count_without_an_id() {
    let mut run = RecordedRun::begin().until(6);
    let mut snapshot = run.snapshots[6].clone();
    (snapshot.errors_taken, snapshot.errors_kept) = (snapshot.errors_kept + 2, 0);
    snapshot.time_ms += 5000;
    run.receive(snapshot);
    assert!(run.last_log_line().ends_with("errors"), "{}", run.last_log_line());
}

#[test]
fn the_last_report_of_a_killed_node_counts() {
    let mut run = RecordedRun::begin().owning(&[1]).until(6);
    let generated = run.model.rows[0].generated;
    run.model.reported(run.now(), NodeKey(1), &Report::Generated { total: generated + 7 });
    run.end(1, 9);
    assert_eq!(run.model.rows[0].generated, generated + 7);
}

#[test]
fn a_stream_of_errors_fills_only_one_line_of_the_log() {
    let mut run = RecordedRun::begin().until(6);
    let lines = |run: &RecordedRun| run.model.log.last(1000).count();
    let before = lines(&run);
    for step in 1..=20 {
        let mut snapshot = run.snapshots[6].clone();
        snapshot.time_ms += 500 * step;
        snapshot.errors_kept += 50 * step;
        run.receive(snapshot);
    }
    assert!(lines(&run) <= before + 1);
    assert!(run.last_log_line().contains("errors, the last one #360"), "{}", run.last_log_line());
}
