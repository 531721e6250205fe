//! Tests of the desk: when a turn is due, and what it asks for.

mod letting_go;
mod watching;

use super::*;
use crate::redis::Endpoint;

const LIMIT: Duration = Duration::from_secs(10);
const HANDLES: Duty = Duty { handles: true, stops: false };
const GENERATES: Duty = Duty { handles: false, stops: false };
const STOPS: Duty = Duty { handles: false, stops: true };

/// A desk, its lanes, and a clock that only the test moves.
struct TestDesk {
    desk: Desk,
    now: Instant,
    claimed: u64,
}

impl TestDesk {
    /// A desk whose lanes are all free, after its first turn found nothing.
    fn idle(lanes: usize) -> Self {
        let mut test = Self::new(lanes, None);
        test.start(lanes);
        test
    }

    fn new(lanes: usize, poll: Option<Duration>) -> Self {
        let mut config = Config::new(Endpoint::tcp("localhost", 6379), RingName::sample());
        (config.concurrency, config.time_limit) = (lanes, LIMIT);
        let desk = Desk::new(&config, poll, Arc::default());
        Self { desk, now: Instant::now(), claimed: 0 }
    }

    fn start(&mut self, lanes: usize) {
        for _ in 0..lanes {
            assert!(matches!(self.desk.next(None, false, self.now), NextTask::Wait));
        }
        assert_eq!(self.turn(HANDLES).settlement.want, lanes);
        self.apply(&[], false);
        assert!(matches!(self.decide(HANDLES), Decision::Wait(None)));
    }

    /// A desk whose lanes are busy with the single messages 1, 2, 3 ... More messages wait in Redis or not.
    fn busy(lanes: usize, waits: bool) -> (Self, Vec<Claimed>) {
        let mut test = Self::idle(lanes);
        let taken = test.give(&vec![1; lanes], waits);
        (test, taken)
    }

    fn later(&mut self, ms: u64) -> &mut Self {
        self.now += Duration::from_millis(ms);
        self
    }

    fn decide(&self, duty: Duty) -> Decision {
        self.desk.decide(self.now, duty)
    }

    /// The turn that is due now.
    fn turn(&self, duty: Duty) -> Outgoing {
        match self.decide(duty) {
            Decision::Turn(outgoing) => *outgoing,
            Decision::Wait(until) => panic!("it waits for {:?}", until.map(|until| until - self.now)),
            Decision::Finished => panic!("it is finished"),
        }
    }

    /// How many milliseconds from now a turn is due, if nothing else happens.
    fn due_in(&self, duty: Duty) -> Option<u64> {
        match self.decide(duty) {
            Decision::Wait(until) => until.map(|until| (until - self.now).as_millis() as u64),
            Decision::Turn(_) => panic!("a turn is due now"),
            Decision::Finished => panic!("it is finished"),
        }
    }

    /// A turn brought elements of these sizes.
    fn apply(&mut self, sizes: &[usize], waits: bool) {
        let mut claims = Vec::new();
        for size in sizes {
            self.claimed += 1;
            let (claim, first) = (self.claimed, self.claimed * 1000);
            claims.push(match size {
                1 => (claim.to_string(), format!("{first} 1 7 0 0 0 0 0 x").into_bytes()),
                _ => {
                    let element = format!("*{first} 1 7 {size} {}", "1:x".repeat(*size));
                    (format!("{claim}*{size}"), element.into_bytes())
                }
            });
        }
        let cursor = self.desk.lock().cursor;
        self.desk.apply(cursor, self.claimed, waits, claims, self.now);
    }

    /// A turn brought elements of these sizes, and idle lanes take one message each.
    fn give(&mut self, sizes: &[usize], waits: bool) -> Vec<Claimed> {
        self.apply(sizes, waits);
        let mut taken = Vec::new();
        while self.desk.lock().idle > 0 && !self.desk.lock().pool.is_empty() {
            taken.push(self.handle(None, true));
        }
        taken
    }

    fn handle(&self, handled: Option<Handled>, was_idle: bool) -> Claimed {
        match self.desk.next(handled, was_idle, self.now) {
            NextTask::Handle(claimed) => claimed,
            NextTask::Wait => panic!("nothing to do"),
            NextTask::Closed => panic!("closed"),
        }
    }

    fn done(&self, claimed: Claimed) -> Handled {
        Handled { claimed, disposition: None, effects: None, took: Duration::from_millis(1), at: self.now }
    }

    /// A lane has handled its message and finds no other one.
    fn finish(&self, claimed: Claimed) {
        let handled = self.done(claimed);
        assert!(matches!(self.desk.next(Some(handled), false, self.now), NextTask::Wait));
    }

    /// A lane has handled its message and takes the next one.
    fn go_on(&self, claimed: Claimed) -> Claimed {
        self.handle(Some(self.done(claimed)), false)
    }
}

#[test]
fn a_free_lane_asks_unless_the_ring_knows_that_it_is_free() {
    let (mut test, mut taken) = TestDesk::busy(2, false);
    test.finish(taken.remove(0));
    let turn = test.turn(HANDLES);
    assert_eq!((turn.settlement.want, turn.settlement.listens), (2, true), "a lane is free");
    test.apply(&[], false);
    assert_eq!(test.due_in(HANDLES), None, "it stands in line");
    // The other lane becomes free as well. The node stands in line already.
    test.later(1).finish(taken.remove(0));
    assert_eq!(test.turn(HANDLES).settlement.count, 1, "everything is done");
    test.apply(&[], false);
    assert_eq!(test.due_in(HANDLES), None);
}

#[test]
fn a_call_of_the_ring_makes_a_turn() {
    let test = TestDesk::idle(3);
    test.desk.call();
    assert_eq!(test.turn(HANDLES).settlement.want, 3);
}

#[test]
fn a_lane_that_becomes_free_after_a_turn_that_asked_for_nothing_asks() {
    let (mut test, mut taken) = TestDesk::busy(1, false);
    test.desk.call();
    assert_eq!(test.turn(HANDLES).settlement.want, 0, "its lane is busy");
    test.apply(&[], false);
    test.later(1).finish(taken.remove(0));
    assert_eq!(test.turn(HANDLES).settlement.want, 2, "Redis has taken it out of the line");
}

#[test]
fn a_node_that_cannot_be_called_looks_at_its_own_pace() {
    let mut test = TestDesk::new(1, Some(Duration::from_millis(30)));
    assert!(matches!(test.desk.next(None, false, test.now), NextTask::Wait));
    assert!(!test.turn(HANDLES).settlement.listens);
    test.apply(&[], false);
    assert_eq!(test.due_in(HANDLES), Some(30));
    assert_eq!(test.later(30).turn(HANDLES).settlement.want, 1);
}

#[test]
fn a_turn_that_claims_nothing_although_messages_wait_is_followed_by_a_rest() {
    let mut test = TestDesk::idle(1);
    test.apply(&[], true);
    assert_eq!(test.due_in(HANDLES), Some(10));
    assert_eq!(test.later(10).turn(HANDLES).settlement.want, 1);
}

#[test]
fn results_wait_for_company_but_no_longer_than_ten_milliseconds() {
    let (mut test, mut taken) = TestDesk::busy(3, false);
    let fourth = test.give(&[1, 1], false);
    assert!(fourth.is_empty(), "both lie in the pool");
    // One lane has a slow message. The others go on with the pool.
    let second = test.later(1).go_on(taken.remove(1));
    test.later(4).go_on(taken.remove(1));
    assert_eq!(test.due_in(HANDLES), Some(6), "ten milliseconds after the first result");
    let turn = test.later(6).turn(HANDLES);
    assert_eq!(turn.settlement.whole, ["2", "3"]);
    assert_eq!((turn.settlement.count, turn.handled.len()), (2, 2));
    test.apply(&[], false);
    // What is done when nothing else runs is settled at once.
    test.later(1).finish(second);
    assert_eq!(test.turn(HANDLES).settlement.whole, ["4"]);
}

#[test]
fn a_pool_that_no_lane_touches_goes_back_and_is_not_claimed_again_until_a_lane_is_free() {
    let (mut test, mut taken) = TestDesk::busy(2, true);
    test.give(&[1, 1, 4], true);
    assert_eq!(test.due_in(HANDLES), Some(50));
    let turn = test.later(50).turn(HANDLES);
    assert_eq!(turn.settlement.returns, ["3", "4", "5*4"]);
    assert_eq!((turn.settlement.count, turn.settlement.want, turn.settlement.reserve), (6, 0, 0));
    test.apply(&[], true);
    for _ in 0..10 {
        assert_eq!(test.later(50).due_in(HANDLES), None, "both lanes are busy with slow messages");
    }
    test.finish(taken.remove(0));
    assert_eq!(test.turn(HANDLES).settlement.want, 2, "for one lane, twice as much as before");
}

#[test]
fn a_pool_that_moves_stays() {
    let (mut test, mut taken) = TestDesk::busy(1, false);
    test.give(&[1, 1, 1], false);
    for _ in 0..3 {
        let next = test.later(39).go_on(taken.remove(0));
        assert!(test.later(10).turn(HANDLES).settlement.returns.is_empty());
        test.apply(&[], false);
        taken.push(next);
    }
}

#[test]
fn a_pause_sends_back_what_no_lane_has_started_and_settles_the_rest_as_usual() {
    let (mut test, mut taken) = TestDesk::busy(2, true);
    test.desk.call();
    test.turn(HANDLES);
    test.apply(&[1, 4], false);
    test.desk.set_paused(true);
    let turn = test.turn(HANDLES);
    assert_eq!((turn.settlement.returns, turn.settlement.count), (vec!["3".into(), "4*4".into()], 5));
    assert_eq!((turn.settlement.want, turn.settlement.reserve), (0, 0), "both lanes are busy");
    test.apply(&[], false);
    test.desk.set_paused(true);
    assert_eq!(test.due_in(HANDLES), None);
    // A lane that has finished stands in line with its node, once.
    assert!(matches!(test.desk.next(Some(test.done(taken.remove(0))), false, test.now), NextTask::Wait));
    let turn = test.turn(HANDLES);
    assert_eq!((turn.settlement.whole.len(), turn.settlement.want), (1, 2));
    test.apply(&[], false);
    assert_eq!(test.due_in(HANDLES), None);
}

#[test]
fn a_reserve_is_claimed_again_when_half_of_it_is_gone() {
    let (mut test, mut taken) = TestDesk::busy(2, true);
    // Messages take five milliseconds each, so two lanes handle four in ten.
    let slow = |test: &TestDesk, claimed| Handled { took: Duration::from_millis(5), ..test.done(claimed) };
    for claimed in taken.drain(..) {
        assert!(matches!(test.desk.next(Some(slow(&test, claimed)), false, test.now), NextTask::Wait));
    }
    let turn = test.turn(HANDLES);
    assert_eq!((turn.settlement.want, turn.settlement.each, turn.settlement.reserve), (4, 2, 0));
    let mut taken = test.give(&[1; 6], true);
    assert_eq!((taken.len(), test.desk.lock().pool.len()), (2, 4));
    assert_eq!(test.due_in(HANDLES), Some(50));
    let next = test.handle(Some(slow(&test, taken.remove(0))), false);
    assert_eq!(test.due_in(HANDLES), Some(10));
    test.handle(Some(slow(&test, next)), false);
    let turn = test.turn(HANDLES);
    assert_eq!((turn.settlement.want, turn.settlement.reserve), (0, 2));
}

#[test]
fn a_node_that_stops_handling_settles_at_once_and_asks_for_nothing() {
    let (mut test, mut taken) = TestDesk::busy(2, true);
    test.later(1).finish(taken.remove(0));
    let turn = test.turn(GENERATES);
    assert_eq!((turn.settlement.whole, turn.settlement.want), (vec!["1".into()], 0));
    test.apply(&[], true);
    assert_eq!(test.due_in(GENERATES), None);
    test.later(1).finish(taken.remove(0));
    assert_eq!(test.turn(GENERATES).settlement.whole, ["2"]);
    test.apply(&[], true);
    assert_eq!(test.due_in(GENERATES), None);
    assert_eq!(test.turn(HANDLES).settlement.want, 2, "it handles again");
}

#[test]
fn a_node_that_stops_is_finished_when_every_result_is_recorded() {
    let (mut test, mut taken) = TestDesk::busy(2, true);
    test.give(&[1], true);
    assert_eq!(test.turn(STOPS).settlement.count, 0, "it leaves the line");
    test.apply(&[], true);
    let handled = test.done(taken.remove(0));
    test.desk.finish(Some(handled), false);
    assert_eq!(test.turn(STOPS).settlement.whole, ["1"]);
    test.apply(&[], true);
    assert_eq!(test.due_in(STOPS), None, "a lane is still busy");
    let handled = test.done(taken.remove(0));
    test.desk.finish(Some(handled), false);
    let turn = test.turn(STOPS);
    assert_eq!((turn.settlement.whole, turn.settlement.returns.len()), (vec!["2".into()], 0));
    test.apply(&[], true);
    assert!(matches!(test.decide(STOPS), Decision::Finished), "`leave` hands the pool back");
    assert!(
        matches!(test.desk.next(None, false, test.now), NextTask::Closed),
        "no lane starts a message any more"
    );
}

#[test]
fn a_closed_desk_ignores_results_and_sends_every_lane_away() {
    let (test, mut taken) = TestDesk::busy(2, false);
    test.desk.close();
    for _ in 0..2 {
        let handled = test.done(taken.remove(0));
        assert!(matches!(test.desk.next(Some(handled), false, test.now), NextTask::Closed));
    }
    assert!(test.desk.lock().results.is_empty());
}

#[test]
fn a_claim_that_is_shown_after_a_lost_reply_keeps_its_number() {
    let mut test = TestDesk::idle(1);
    let element = |id: u64| format!("{id} 1 7 0 0 0 0 0 x").into_bytes();
    test.desk.apply(0, 7, false, vec![("6".into(), element(60)), ("7".into(), element(70))], test.now);
    let first = test.handle(None, true);
    test.later(1);
    let second = test.go_on(first);
    test.finish(second);
    let turn = test.turn(HANDLES);
    assert_eq!((turn.settlement.whole, turn.settlement.seen), (vec!["6".into(), "7".into()], 7));
}

fn due_in_ms(test: &TestDesk, ms: u64) -> Option<Instant> {
    Some(test.now + Duration::from_millis(ms))
}

#[test]
fn a_turn_is_due_when_a_delayed_message_is() {
    let mut test = TestDesk::idle(2);
    test.desk.set_due(due_in_ms(&test, 30));
    assert_eq!(test.due_in(HANDLES), Some(30));
    // The ring has announced an earlier time. A later one is old news, because the turn was after it.
    test.desk.call_at(test.now + Duration::from_millis(20));
    test.desk.call_at(test.now + Duration::from_millis(40));
    assert_eq!(test.due_in(HANDLES), Some(20));
    assert_eq!(test.later(20).turn(HANDLES).settlement.want, 2);
    test.apply(&[], false);
    assert_eq!(test.due_in(HANDLES), None, "another node waits for the next one");
}

#[test]
fn a_generator_and_a_node_that_stops_wait_for_no_delayed_message() {
    for duty in [GENERATES, STOPS] {
        let mut test = TestDesk::idle(1);
        test.turn(duty);
        test.apply(&[], false);
        test.desk.set_due(due_in_ms(&test, 30));
        assert!(!matches!(test.decide(duty), Decision::Wait(Some(_)) | Decision::Turn(_)));
    }
}

/// A node holds only one suspect, and Redis does not read a hand to find out.
#[test]
fn a_turn_says_whether_the_node_still_holds_a_suspect() {
    for goes_back in [false, true] {
        let mut test = TestDesk::idle(1);
        test.desk.call();
        assert!(!test.turn(HANDLES).settlement.has_suspect);
        let elements = ["1 9 9 1 0 1 0 0 once", "2 9 9 2 0 2 0 0 twice"];
        let claims = (1..)
            .zip(elements)
            .map(|(claim, element): (u64, _)| (claim.to_string(), element.into()))
            .collect();
        test.desk.apply(0, 2, true, claims, test.now);
        let once = test.handle(None, true);
        assert_eq!((once.message().deaths, once.is_suspect()), (1, false));
        test.desk.call();
        assert!(test.turn(HANDLES).settlement.has_suspect, "it lies in the pool");
        if goes_back {
            let back = test.later(50).turn(HANDLES).settlement;
            assert_eq!((back.returns, back.has_suspect), (vec!["2".to_owned()], false));
        } else {
            let twice = test.go_on(once);
            test.desk.call();
            assert!(test.turn(HANDLES).settlement.has_suspect, "a lane is busy with it");
            test.finish(twice);
            assert!(!test.later(10).turn(HANDLES).settlement.has_suspect, "it is settled in this turn");
        }
    }
}

#[test]
fn the_latest_generated_message_among_the_claims_is_reported_and_none_from_outside() {
    let test = TestDesk::idle(3);
    let claim = |elements: &[&str]| {
        let claims: Vec<_> =
            (1..).zip(elements).map(|(n, e)| (format!("{n}"), e.as_bytes().to_vec())).collect();
        test.desk.apply(0, claims.len() as u64, false, claims, test.now)
    };
    assert_eq!(claim(&[]), None);
    assert_eq!(claim(&["70 9 9 0 0 0 0 0 x"]), None, "its epoch is its time");
    let latest =
        claim(&["40 5 8 0 0 0 0 0 x", "*50 5 8 2 1:x1:x", "41 5 8 0 0 0 0 0 x", "60 9 9 0 0 0 0 0 x"]);
    assert_eq!(latest, Some((Epoch(5), 51)));
    assert_eq!(claim(&["no message"]), None);
}
