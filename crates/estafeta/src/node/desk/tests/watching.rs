//! Tests of handlers that take too long.

use super::*;

#[test]
fn a_handler_is_slow_after_most_of_its_time_limit_and_stuck_a_little_after_its_end() {
    let (mut test, taken) = TestDesk::busy(2, false);
    let watch = |test: &TestDesk| {
        let Watched { slow, stuck, next } = test.desk.watch(test.now);
        (slow.len(), stuck.len(), next.map(|next| (next - test.now).as_millis()))
    };
    assert_eq!(watch(&test), (0, 0, Some(8_000)));
    test.later(7_999);
    assert_eq!(watch(&test), (0, 0, Some(1)));
    test.later(1);
    assert_eq!(watch(&test), (2, 0, Some(3_000)), "both are slow, and will be stuck");
    assert_eq!(watch(&test), (0, 0, Some(3_000)), "and that is reported once");
    test.later(2_999);
    assert_eq!(watch(&test), (0, 0, Some(1)));
    test.later(1);
    assert_eq!(watch(&test), (0, 2, None));
    let turn = test.turn(HANDLES);
    let again: Vec<_> =
        turn.postponed.iter().map(|it| (it.message.id, it.failure.as_deref().unwrap())).collect();
    let reason = "the handler took longer than its time limit of 10s";
    assert_eq!(again, [(1000, reason), (2000, reason)], "they are tried again");
    assert_eq!((turn.settlement.count, turn.settlement.want, turn.settlement.stuck), (2, 0, Some(2)));
    test.apply(&[], true);
    assert_eq!(test.due_in(HANDLES), None, "no lane is free, although messages wait");

    // The lanes come back. What they bring is ignored.
    for (claimed, stuck) in taken.into_iter().zip([1, 0]) {
        test.finish(claimed);
        let turn = test.turn(HANDLES);
        assert_eq!((turn.settlement.count, turn.settlement.stuck), (0, Some(stuck)));
        assert_eq!(turn.settlement.want, 2 - stuck);
        test.apply(&[], true);
    }
    assert!(test.desk.lock().results.is_empty());
}

#[test]
fn a_message_that_is_done_in_time_is_not_watched_any_more() {
    let (mut test, mut taken) = TestDesk::busy(3, false);
    test.later(8_000);
    let first = taken.remove(0);
    assert_eq!(test.desk.watch(test.now).slow.len(), 3);
    test.finish(first);
    assert_eq!(test.desk.lock().slow, 2);
    test.turn(HANDLES);
    let mut next = test.give(&[1], false);
    let Watched { slow, next: at, .. } = test.desk.watch(test.now);
    assert_eq!((slow.len(), at), (0, Some(test.now + Duration::from_secs(3))), "the others are watched");
    for claimed in taken.into_iter().chain([next.remove(0)]) {
        test.finish(claimed);
    }
    test.later(60_000);
    let Watched { slow, stuck, next } = test.desk.watch(test.now);
    assert_eq!((slow.len(), stuck.len(), next), (0, 0, None));
}

#[test]
fn a_lane_that_is_stuck_does_not_hold_up_the_end_of_a_node() {
    let (mut test, mut taken) = TestDesk::busy(1, false);
    test.later(11_000);
    assert_eq!(test.desk.watch(test.now).stuck.len(), 1);
    assert_eq!(test.turn(STOPS).settlement.count, 1);
    test.apply(&[], false);
    assert!(matches!(test.decide(STOPS), Decision::Finished));
    test.desk.finish(Some(test.done(taken.remove(0))), false);
    assert!(test.desk.lock().results.is_empty());
}
