//! Tests of pauses: what stops, what goes on, who learns of the end, and what a damaged field does.

use super::*;
use crate::inspect::Pause;

const HOUR: Duration = Duration::from_secs(3600);
const LEDGER: &str = "{estafeta}:ledger";

impl TestBench {
    /// Makes the pauses over, as if their time had passed.
    fn pass_pause(&self) {
        self.ask::<()>(&["HSET", LEDGER, "brakes", "1 1 0 0 0 0 0 0"]);
    }

    fn brakes(&self) -> Option<String> {
        self.ask(&["HGET", LEDGER, "brakes"])
    }

    /// The fields of the last events, oldest first.
    pub(super) fn events(&self, count: usize) -> Vec<Vec<String>> {
        let count = count.to_string();
        let mut last: Vec<(String, Vec<String>)> =
            self.ask(&["XREVRANGE", "{estafeta}:events", "+", "-", "COUNT", &count]);
        last.reverse();
        last.into_iter().map(|(_, fields)| fields).collect()
    }

    /// A turn of a member that wants one message and listens.
    fn asks(&self, actor: Actor) -> Settlement {
        Settlement { want: 1, each: 1, listens: true, ..self.settlement(actor, 0, &[]) }
    }
}

fn nearly_an_hour(time: Duration) -> bool {
    (HOUR - Duration::from_secs(60)..=HOUR).contains(&time)
}

#[tokio::test]
async fn a_turn_in_a_pause_settles_and_claims_nothing() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    assert_eq!(bench.claim(handler, 1).await.len(), 1);
    bench.store.pause(Activity::Handling, None).await.unwrap();
    let asks = Settlement {
        want: 2,
        each: 2,
        reserve: 10,
        listens: true,
        ..bench.settlement(handler, 1, &[(0, "no")])
    };
    let applied = bench.make(handler, &asks).await.unwrap();
    assert_eq!((applied.cursor, applied.claims, applied.waits, applied.paused), (1, vec![], false, true));
    assert_eq!(applied.due, None, "nobody knows when it ends");
    assert_eq!((bench.ledger("failed"), bench.line()), (1, bench.names(&[handler])));
    bench.publish(generator, &term, 1, &["d"]).await;
    assert_eq!(bench.snapshot().await.waiting, 3, "producing goes on");
    bench.store.resume(Activity::Handling).await.unwrap();
    assert_eq!(bench.claim(handler, 3).await.len(), 3);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn claims_whose_reply_was_lost_are_shown_in_a_pause_and_can_be_returned() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    let asks = Settlement { want: 2, each: 2, ..bench.settlement(handler, 0, &[]) };
    let lost = bench.turn(handler, &asks).await.unwrap();
    bench.store.pause(Activity::Both, None).await.unwrap();
    let shown = bench.make(handler, &asks).await.unwrap();
    assert_eq!((&shown.claims, shown.paused), (&lost.claims, true));
    let count = shown.messages().len();
    assert!(count > 0);
    let back = bench.hand(handler).settlement(|_| Fate::Returns);
    for _ in 0..3 {
        assert_eq!(bench.turn(handler, &back).await.unwrap().cursor, count as u64);
    }
    let snapshot = bench.snapshot().await;
    assert_eq!((snapshot.waiting, snapshot.in_flight, snapshot.members[1].processed), (3, 0, 0));
    assert!(snapshot.balanced);
}

#[tokio::test]
async fn nobody_is_called_in_a_pause_and_a_resume_calls_the_first_in_line() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[one, two]);
    bench.stand_in_line(one).await;
    bench.store.pause(Activity::Handling, None).await.unwrap();
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    bench.store.submit(&submission(1, &[draft("c", None)])).await.unwrap();
    assert!(bench.make(two, &bench.asks(two)).await.unwrap().paused);
    bench.store.wake().await.unwrap();
    assert!(!bench.store.suspects(LEASE).await.unwrap().needs_wakeup);
    assert_eq!((calls.all(), bench.line()), (vec![], bench.names(&[one, two])));
    bench.store.resume(Activity::Handling).await.unwrap();
    assert_eq!((calls.all(), bench.line()), (vec![one.incarnation], bench.names(&[two])));
    // It passes the call on.
    assert_eq!(bench.make(one, &bench.asks(one)).await.unwrap().messages().len(), 1);
    assert_eq!((calls.all(), bench.line()), (vec![two.incarnation], vec![]));
}

#[tokio::test]
async fn the_first_in_line_knows_when_a_pause_ends_and_learns_of_it_if_it_ends_earlier() {
    let bench = TestBench::new().await;
    let (.., [one, two]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[one, two]);
    let announces_an_hour = |announced: Vec<(Incarnation, u64)>| {
        let [(who, ms)] = announced[..] else { panic!("{announced:?}") };
        assert!(who == one.incarnation && nearly_an_hour(Duration::from_millis(ms)), "{ms}");
    };
    bench.stand_in_line(one).await;
    bench.store.pause(Activity::Handling, Some(HOUR)).await.unwrap();
    announces_an_hour(calls.announced());
    bench.store.pause(Activity::Handling, Some(2 * HOUR)).await.unwrap();
    assert_eq!(calls.announced(), [], "its turn comes before that");
    let due = bench.make(one, &bench.asks(one)).await.unwrap().due.unwrap();
    assert!(nearly_an_hour(due - HOUR), "{due:?}");
    assert_eq!(bench.make(two, &bench.asks(two)).await.unwrap().due, None, "it is the second");
    bench.store.pause(Activity::Handling, None).await.unwrap();
    assert_eq!(calls.announced(), []);
    bench.store.pause(Activity::Handling, Some(HOUR)).await.unwrap();
    announces_an_hour(calls.announced());
    assert_eq!((calls.all(), bench.line()), (vec![], bench.names(&[one, two])));
}

#[tokio::test]
async fn a_pause_that_is_over_counts_as_none_and_the_next_turn_ends_it() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[one, two]);
    for actor in [one, two] {
        bench.stand_in_line(actor).await;
    }
    bench.store.pause(Activity::Handling, Some(HOUR)).await.unwrap();
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    bench.pass_pause();
    assert!(bench.store.suspects(LEASE).await.unwrap().needs_wakeup, "the first in line may be frozen");
    assert_eq!(bench.snapshot().await.handling_pause, None);
    let applied = bench.make(one, &bench.asks(one)).await.unwrap();
    assert_eq!((applied.messages().len(), applied.paused), (1, false));
    assert_eq!((calls.all(), bench.brakes()), (vec![two.incarnation], None));
}

#[tokio::test]
async fn whoever_publishes_after_a_pause_calls_the_line_even_if_messages_waited() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[one, two]);
    for submits in [false, true] {
        bench.store.pause(Activity::Handling, Some(HOUR)).await.unwrap();
        bench.stand_in_line(one).await;
        bench.publish(generator, &term, u64::from(submits) * 2, &["a"]).await;
        bench.pass_pause();
        if submits {
            bench.store.submit(&submission(1, &[draft("c", None)])).await.unwrap();
        } else {
            bench.publish(generator, &term, 1, &["b"]).await;
        }
        assert_eq!((calls.all(), bench.brakes()), (vec![one.incarnation], None));
    }
}

#[tokio::test]
async fn delayed_messages_stay_where_they_are_and_a_resume_calls_for_them() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, idle]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.claim(handler, 1).await;
    let mut calls = bench.listen(&[handler, idle]);
    bench.stand_in_line(idle).await;
    bench.store.pause(Activity::Handling, None).await.unwrap();
    let postpones = bench.hand(handler).settlement(|_| Fate::Retries(1));
    assert!(bench.make(handler, &postpones).await.unwrap().paused);
    until("it is due", async || bench.ask::<(u64, u64)>(&["TIME"]).0 * 1000 > bench.ledger("soonest")).await;
    let applied = bench.make(handler, &bench.asks(handler)).await.unwrap();
    assert_eq!((applied.claims, applied.due, bench.snapshot().await.later), (vec![], None, 1));
    assert_eq!((calls.all(), calls.announced()), (vec![], vec![]));
    bench.store.resume(Activity::Handling).await.unwrap();
    assert_eq!(calls.all(), [idle.incarnation]);
    assert_eq!(bench.make(idle, &bench.asks(idle)).await.unwrap().messages()[0].id, 1);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_paused_publish_writes_nothing_and_its_messages_are_published_afterwards() {
    let bench = TestBench::new().await;
    let (generator, term, _) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.store.pause(Activity::Producing, Some(HOUR)).await.unwrap();
    let before = bench.everything();
    let Publish::Paused { now_ms, end_ms } = bench.publish(generator, &term, 1, &["b"]).await else {
        panic!("it is paused")
    };
    assert!(nearly_an_hour(Duration::from_millis(end_ms - now_ms)));
    // The first publish arrives again, and another term is over.
    assert!(matches!(bench.publish_from(generator, &term, 0, 1, &["a"]).await, Publish::Published { .. }));
    assert_eq!(bench.everything(), before);
    bench.pass_pause();
    let published = bench.publish(generator, &term, 1, &["b"]).await;
    assert!(matches!(published, Publish::Published { first_id: 2, .. }), "{published:?}");
    assert_eq!(bench.brakes(), None);
    bench.store.pause(Activity::Producing, None).await.unwrap();
    let paused = bench.publish(generator, &term, 2, &["c"]).await;
    assert!(matches!(paused, Publish::Paused { end_ms: NEVER, .. }), "{paused:?}");
    bench.store.resume(Activity::Producing).await.unwrap();
    assert!(matches!(bench.publish(generator, &term, 2, &["c"]).await, Publish::Published { .. }));
}

#[tokio::test]
async fn a_publisher_is_refused_in_a_pause_except_for_repeats_and_duplicates() {
    let bench = TestBench::new().await;
    let first = [draft("a", Some("k"))];
    let submitted = bench.store.submit(&submission(1, &first)).await.unwrap();
    bench.store.pause(Activity::Producing, None).await.unwrap();
    assert_eq!(bench.store.submit(&submission(1, &first)).await.unwrap(), submitted, "a repeat");
    let duplicate = Submit::Submitted(vec![Submitted { id: 1, duplicate: true }]);
    assert_eq!(bench.store.submit(&submission(2, &first)).await.unwrap(), duplicate);
    assert_eq!(bench.brakes(), Some(format!("{NEVER} 0 0 0 0 0 0 0")), "the pause goes on");
    let before = bench.everything();
    let mixed = [draft("a", Some("k")), draft("b", Some("l"))];
    assert_eq!(bench.store.submit(&submission(3, &mixed)).await.unwrap(), Submit::Paused(None));
    let reused = [draft("x", Some("k"))];
    assert_eq!(bench.store.submit(&submission(3, &reused)).await.unwrap(), Submit::Reused(0));
    assert_eq!(bench.everything(), before, "the key is free");
    bench.store.pause(Activity::Producing, Some(HOUR)).await.unwrap();
    let Submit::Paused(Some(left)) = bench.store.submit(&submission(3, &mixed)).await.unwrap() else {
        panic!("it is paused")
    };
    assert!(nearly_an_hour(left), "{left:?}");
    bench.pass_pause();
    let ids = |answer| match answer {
        Submit::Submitted(ids) => ids.iter().map(|one| one.id).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(ids(bench.store.submit(&submission(3, &mixed)).await.unwrap()), [1, 2]);
    assert_eq!(bench.brakes(), None);
}

#[tokio::test]
async fn each_change_is_one_event_and_a_repeat_changes_nothing() {
    let bench = TestBench::new().await;
    bench.join(MemberKind::Node, 1).await;
    let end = bench.ask::<(u64, u64)>(&["TIME"]).0 * 1000 + 3_600_000;
    bench.store.end_pause_at(Activity::Both, end).await.unwrap();
    let before = bench.everything();
    bench.store.end_pause_at(Activity::Both, end).await.unwrap();
    bench.store.end_pause_at(Activity::Handling, 1).await.unwrap();
    assert_eq!(bench.everything(), before, "a repeat, and a pause that arrives when it is over");
    let events = bench.events(2);
    assert_eq!(events[0][..4], ["kind", "paused", "what", "producing"]);
    assert_eq!(events[1][..5], ["kind", "paused", "what", "handling", "for"]);
    assert!(nearly_an_hour(Duration::from_millis(events[1][5].parse().unwrap())), "{events:?}");
    bench.store.pause(Activity::Handling, None).await.unwrap();
    bench.store.acting_as("anna").resume(Activity::Producing).await.unwrap();
    assert_eq!(bench.events(2)[0], ["kind", "paused", "what", "handling", "for", "", "by", ""]);
    assert_eq!(bench.events(1)[0], ["kind", "resumed", "what", "producing", "by", "anna"]);
    let snapshot = bench.snapshot().await;
    assert_eq!(snapshot.producing_pause, None);
    assert_eq!(snapshot.handling_pause.map(|pause| pause.left_ms), Some(None));
    bench.store.resume(Activity::Both).await.unwrap();
    let before = bench.everything();
    bench.store.resume(Activity::Both).await.unwrap();
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.brakes(), None);
}

#[tokio::test]
async fn a_pause_needs_a_ring_and_a_sensible_time() {
    let bench = TestBench::new().await;
    let error = bench.store.pause(Activity::Both, None).await.unwrap_err().to_string();
    assert_eq!(error, "ring: expected a ring that exists, got 'estafeta'");
    assert_eq!(bench.ask::<u64>(&["DBSIZE"]), 0);
    bench.join(MemberKind::Node, 1).await;
    let before = bench.everything();
    for time in [Duration::ZERO, Duration::from_micros(999), Duration::MAX, Duration::from_secs(315_576_001)]
    {
        let error = bench.store.pause(Activity::Both, Some(time)).await.unwrap_err().to_string();
        assert!(error.starts_with("for: expected 1ms to 10 years, got '"), "{error}");
    }
    assert_eq!(bench.everything(), before);
    bench.store.pause(Activity::Both, Some(Duration::from_secs(315_576_000))).await.unwrap();
    assert!(bench.snapshot().await.handling_pause.unwrap().left_ms > Some(315_000_000_000));
}

#[tokio::test]
async fn a_pause_survives_a_take_over_and_a_burial() {
    let bench = TestBench::new().await;
    let (generator, term, [heir, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.store.pause(Activity::Both, Some(HOUR)).await.unwrap();
    bench.expire(generator);
    let term = bench.lead(heir).await;
    assert!(matches!(bench.bury(generator).await, Bury::Buried { .. }));
    assert!(matches!(bench.publish(heir, &term, 0, &["b"]).await, Publish::Paused { .. }));
    let snapshot = bench.snapshot().await;
    assert!(snapshot.producing_pause.is_some() && snapshot.handling_pause.is_some());
    bench.assert_balanced().await;
}

#[tokio::test]
async fn damaged_brakes_pause_everything_until_someone_resumes() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    for (damage, n) in
        ["", "many", "1e3 0 0 0 0 0 0 0", "99999999999999999999", "-1 0 0 0 0 0 0 0", "5 5"].iter().zip(1..)
    {
        bench.ask::<()>(&["HSET", LEDGER, "brakes", damage]);
        let refused = bench.publish(generator, &term, n, &["c"]).await;
        assert!(matches!(refused, Publish::Paused { end_ms: NEVER, .. }), "{damage:?} {refused:?}");
        let refused = bench.store.submit(&submission(n, &[draft("c", None)])).await.unwrap();
        assert_eq!(refused, Submit::Paused(None), "{damage:?}");
        let applied = bench.make(handler, &bench.asks(handler)).await.unwrap();
        assert_eq!((applied.paused, applied.claims), (true, vec![]), "{damage:?}");
        let snapshot = bench.snapshot().await;
        let endless = Some(Pause { left_ms: None });
        assert_eq!((snapshot.producing_pause, snapshot.handling_pause), (endless, endless), "{damage:?}");
        assert!(!bench.store.suspects(LEASE).await.unwrap().needs_wakeup, "{damage:?}");
        bench.store.resume(Activity::Handling).await.unwrap();
        assert_eq!(bench.brakes(), Some(format!("{NEVER} 0 0 0 0 0 0 0")), "{damage:?}");
        bench.store.resume(Activity::Producing).await.unwrap();
        assert_eq!(bench.brakes(), None, "{damage:?}");
        assert!(matches!(bench.publish(generator, &term, n, &["c"]).await, Publish::Published { .. }));
    }
    bench.assert_balanced().await;
}
