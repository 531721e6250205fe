//! Tests of what a turn lets go of: failures, packs, postponed messages and effects.

use super::*;
use crate::effects::{self, Effect};
use crate::steps::{BadEffects, Part};

#[test]
fn failures_are_settled_with_their_reasons() {
    let (test, mut taken) = TestDesk::busy(1, false);
    let disposition = Some(Disposition::Fail { reason: "no good".into(), died: false });
    let handled = Handled { disposition, ..test.done(taken.remove(0)) };
    assert!(matches!(test.desk.next(Some(handled), false, test.now), NextTask::Wait));
    let turn = test.turn(HANDLES);
    let failure = &turn.settlement.not_done[0];
    assert_eq!((failure.name.as_str(), failure.index), ("1", 0));
    assert_eq!(failure.disposition, Disposition::Fail { reason: "no good".into(), died: false });
    assert_eq!((turn.settlement.whole, turn.failures), (vec!["1".into()], vec![(0, "no good".into())]));
}

#[test]
fn a_pack_is_settled_whole_when_its_last_message_is_done() {
    let (mut test, mut taken) = TestDesk::busy(2, false);
    test.give(&[3], false);
    // Three messages of the pack are handled by one lane. The other lane is slow.
    let mut claimed = test.go_on(taken.remove(0));
    for _ in 0..2 {
        claimed = test.go_on(claimed);
    }
    test.desk.call();
    assert_eq!(test.turn(HANDLES).settlement.whole, ["1"], "the pack is not done yet");
    test.apply(&[], false);
    test.later(1).finish(claimed);
    let turn = test.turn(HANDLES);
    assert_eq!((turn.settlement.whole, turn.settlement.count), (vec!["3*3".into()], 3));
    assert_eq!(turn.handled.len(), 3);
    assert!(test.desk.lock().packs.is_empty());
}

#[test]
fn the_part_of_a_pack_that_is_done_is_settled_after_ten_milliseconds() {
    let mut test = TestDesk::idle(2);
    let mut taken = test.give(&[4], false);
    // One lane is slow with the first message. The other one handles the second and the third.
    let third = test.go_on(taken.remove(1));
    let fourth = test.later(5).go_on(third);
    let turn = test.later(5).turn(HANDLES);
    let [Part { name, settled, back }] = &turn.settlement.parts[..] else { panic!("one part") };
    assert_eq!((name.as_str(), &settled[..], &back[..]), ("1*4", &[1, 2][..], &[][..]));
    assert_eq!(turn.settlement.count, 2);
    test.apply(&[], false);
    // Redis keeps the rest as single messages.
    test.finish(fourth);
    assert_eq!(test.turn(HANDLES).settlement.whole, ["1.3"]);
    test.apply(&[], false);
    test.later(1).finish(taken.remove(0));
    let turn = test.turn(HANDLES);
    assert_eq!((turn.settlement.whole, turn.settlement.count), (vec!["1.0".into()], 1));
    assert!(test.desk.lock().packs.is_empty(), "a pack of which nothing is left is forgotten");
}

#[test]
fn what_no_lane_has_started_of_a_pack_goes_back() {
    let mut test = TestDesk::idle(2);
    let mut taken = test.give(&[4, 2], false);
    let _third = test.go_on(taken.remove(1));
    let turn = test.later(50).turn(HANDLES);
    let [Part { name, settled, back }] = &turn.settlement.parts[..] else { panic!("one part") };
    assert_eq!((name.as_str(), &settled[..], &back[..]), ("1*4", &[1][..], &[3][..]));
    assert_eq!((turn.settlement.returns, turn.settlement.count), (vec!["2*2".into()], 4));
}

#[test]
fn a_message_that_comes_again_is_settled_but_has_no_outcome_yet() {
    let (mut test, mut taken) = TestDesk::busy(3, false);
    let after = Duration::from_secs(1);
    let snooze = Disposition::Snooze { after, headers: b"1:a1:b".to_vec() };
    let retry = Disposition::Retry { after, reason: "no".into() };
    for disposition in [Some(snooze.clone()), None, Some(retry.clone())] {
        let handled = Handled { disposition, ..test.done(taken.remove(0)) };
        assert!(matches!(test.desk.next(Some(handled), false, test.now), NextTask::Wait));
    }
    let turn = test.later(10).turn(HANDLES);
    assert_eq!((turn.settlement.count, turn.settlement.whole.len()), (3, 3));
    let not_done: Vec<_> =
        turn.settlement.not_done.iter().map(|it| (it.name.as_str(), &it.disposition)).collect();
    assert_eq!(not_done, [("1", &snooze), ("3", &retry)]);
    assert_eq!(turn.handled.iter().map(|message| message.id).collect::<Vec<_>>(), [2000]);
    let again: Vec<_> =
        turn.postponed.iter().map(|it| (it.message.id, it.after, it.failure.as_deref())).collect();
    assert_eq!(again, [(1000, after, None), (3000, after, Some("no"))]);
    assert!(turn.failures.is_empty());
}

/// A value of 250,000 bytes for one message.
fn large_effect() -> Option<Box<Effects>> {
    let value = vec![b'x'; 250_000].into();
    Some(Effects(vec![Effect::Set { key: "k".into(), value, ttl: None }]).into())
}

#[test]
fn effects_of_more_than_a_megabyte_are_spread_over_several_turns() {
    let mut test = TestDesk::idle(1);
    let mut claimed = test.give(&[3, 1, 1, 6, 1], false).remove(0);
    let mut ids = vec![claimed.message().id];
    for _ in 1..12 {
        let handled = Handled { effects: large_effect(), ..test.done(claimed) };
        claimed = test.handle(Some(handled), false);
        ids.push(claimed.message().id);
    }
    // The last one has no effects, and does not wait for those of the others.
    test.finish(claimed);
    let (mut settled, mut with_effects, mut turns) = (Vec::new(), Vec::new(), 0);
    while let Decision::Turn(outgoing) = test.decide(HANDLES) {
        let Outgoing { settlement, handled, .. } = *outgoing;
        let cost: usize = settlement.effects.iter().map(|it| it.effects.cost()).sum();
        assert!(cost <= effects::MOST_BYTES_OF_TURN, "{cost}");
        assert_eq!((settlement.count, settlement.effects.len() <= 4), (handled.len(), true));
        assert_eq!(handled.iter().any(|message| message.id == 5000), turns == 0);
        settled.extend(handled.iter().map(|message| message.id));
        with_effects.extend(settlement.effects.iter().map(|it| it.id));
        assert_eq!(
            settlement.want == 0,
            with_effects.len() < 11,
            "it claims only when nothing is left behind"
        );
        turns += 1;
        test.apply(&[], false);
    }
    settled.sort_unstable();
    with_effects.sort_unstable();
    assert_eq!((turns, &settled, &with_effects[..]), (3, &ids, &ids[..11]));
}

#[test]
fn bad_effects_are_failures_of_their_messages() {
    let mut test = TestDesk::idle(1);
    let mut claimed = test.give(&[1, 1, 1], false).remove(0);
    for effects in [None, large_effect()] {
        let handled = Handled { effects, ..test.done(claimed) };
        claimed = test.handle(Some(handled), false);
    }
    let handled = Handled { effects: large_effect(), ..test.done(claimed) };
    assert!(matches!(test.desk.next(Some(handled), false, test.now), NextTask::Wait));
    let mut turn = test.turn(HANDLES);
    let positions: Vec<u64> = turn.settlement.effects.iter().map(|it| it.id).collect();
    assert_eq!(positions, [2000, 3000]);
    turn.note_bad_effects(vec![BadEffects { position: 1, reason: "no".into() }]);
    assert_eq!(turn.failures, [(2, "no".to_owned())]);
    assert_eq!(turn.handled[2].id, 3000);
}
