//! Tests of limits: what a turn gets, who is called or learns the time when there is room again, and how exact the counts are.

use super::*;

const LEDGER: &str = "{estafeta}:ledger";

impl TestBench {
    pub(super) async fn limit_in_flight(&self, limit: Option<u64>) {
        let change = LimitChange { in_flight: Some(limit), ..LimitChange::default() };
        self.store.limit(&change).await.unwrap();
    }

    async fn limit_rate(&self, limit: Option<Rate>) {
        self.store.limit(&LimitChange { rate: Some(limit), ..LimitChange::default() }).await.unwrap();
    }

    fn set_brakes(&self, brakes: &str) {
        self.ask::<()>(&["HSET", LEDGER, "brakes", brakes]);
    }

    pub(super) fn brake(&self, index: usize) -> u64 {
        let brakes: String = self.ask(&["HGET", LEDGER, "brakes"]);
        brakes.split(' ').nth(index).unwrap().parse().unwrap()
    }

    fn now(&self) -> u64 {
        let (seconds, micros) = self.ask::<(u64, u64)>(&["TIME"]);
        seconds * 1000 + micros / 1000
    }

    /// A turn of a member that wants so many messages for so many lanes, and listens.
    fn wants(&self, actor: Actor, want: usize, each: usize, reserve: usize) -> Settlement {
        Settlement { want, each, reserve, listens: true, ..self.settlement(actor, 0, &[]) }
    }
}

#[tokio::test]
async fn all_members_together_hold_no_more_than_the_limit() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["x"; 10]).await;
    // Without a limit, the member would get the whole pack and a reserve.
    bench.limit_in_flight(Some(7)).await;
    let applied = bench.make(one, &bench.wants(one, 5, 5, 9)).await.unwrap();
    assert_eq!((applied.messages().len(), applied.waits), (5, true));
    let applied = bench.make(two, &bench.wants(two, 40, 40, 9)).await.unwrap();
    assert_eq!((applied.messages().len(), applied.waits, applied.due), (2, false, None));
    assert_eq!((bench.line(), bench.brake(3)), (bench.names(&[two]), 7));
    // The line is called when there is room, and only then.
    let mut calls = bench.listen(&[one, two]);
    bench.publish(generator, &term, 1, &["x"]).await;
    bench.store.wake().await.unwrap();
    assert!(!bench.store.suspects(LEASE).await.unwrap().needs_wakeup);
    assert_eq!(calls.all(), []);
    let settles = Settlement { want: 0, ..bench.hand(one).settlement(|_| Fate::Done) };
    bench.make(one, &settles).await.unwrap();
    assert_eq!((calls.all(), bench.brake(3)), (vec![two.incarnation], 2));
    let applied = bench.make(two, &bench.wants(two, 40, 40, 9)).await.unwrap();
    assert_eq!((applied.messages().len(), bench.brake(3)), (4, 6), "no more wait");
    bench.limit_in_flight(None).await;
    assert_eq!(bench.ask::<Option<String>>(&["HGET", LEDGER, "brakes"]), None);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_limit_below_what_is_held_waits_until_enough_is_settled() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    for (n, body) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        bench.publish(generator, &term, n as u64, &[body]).await;
    }
    assert_eq!(bench.claim(one, 3).await.len(), 3);
    bench.limit_in_flight(Some(2)).await;
    assert_eq!(bench.brake(3), 3, "what was in hand before counts");
    assert_eq!(bench.make(two, &bench.wants(two, 1, 1, 0)).await.unwrap().messages().len(), 0);
    // One of three is settled: still no room. The death of its member makes room for two.
    let applied = bench.make(one, &Settlement { want: 1, each: 1, ..bench.settlement(one, 1, &[]) }).await;
    assert_eq!((applied.unwrap().messages().len(), bench.brake(3)), (0, 2));
    let mut calls = bench.listen(&[two]);
    bench.expire(one);
    assert!(matches!(bench.bury(one).await, Bury::Buried { .. }));
    assert_eq!((bench.brake(3), calls.all()), (0, vec![two.incarnation]));
    assert_eq!(
        bench.make(two, &bench.wants(two, 9, 9, 0)).await.unwrap().messages().len(),
        1,
        "it had a death"
    );
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_wrong_count_is_repaired_when_the_limit_is_set_again() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d"]).await;
    bench.limit_in_flight(Some(2)).await;
    assert_eq!(bench.claim(one, 2).await.len(), 2);
    bench.ask::<()>(&["DEL", &bench.store.keys().member(one.incarnation)]);
    bench.expire(one);
    assert!(matches!(bench.bury(one).await, Bury::Buried { .. }));
    assert_eq!(bench.make(two, &bench.wants(two, 1, 1, 0)).await.unwrap().messages().len(), 0);
    let mut calls = bench.listen(&[two]);
    bench.limit_in_flight(Some(2)).await;
    assert_eq!((bench.brake(3), calls.all()), (0, vec![two.incarnation]));
}

/// 50 messages per second: 20 ms each, and 6 can be saved up.
#[tokio::test]
async fn claims_follow_the_rate_and_few_can_be_saved_up() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["x"; 10]).await;
    let mut calls = bench.listen(&[one, two]);
    // Nothing was claimed for an hour.
    bench.set_brakes(&format!("0 0 0 0 50 1000 0 {}", bench.now() - 3_600_000));
    let applied = bench.make(one, &bench.wants(one, 40, 40, 9)).await.unwrap();
    assert_eq!((applied.messages().len(), applied.waits), (6, false));
    assert_eq!(bench.brake(6), 0, "nothing is left, not even a part of a message");
    let due = applied.due.expect("it is the first in line");
    assert!(due <= Duration::from_millis(20), "{due:?}");
    // The next one has to wait as well. It is the second, so the first learns the time.
    bench.set_brakes(&format!("0 0 0 0 50 1000 0 {}", bench.now() + 60_000));
    let applied = bench.make(two, &bench.wants(two, 40, 40, 9)).await.unwrap();
    assert_eq!((applied.messages().len(), applied.waits, applied.due), (0, false, None));
    assert_eq!((calls.announced(), bench.line()), (vec![(one.incarnation, 20)], bench.names(&[one, two])));
    // A clock that was set back gives and takes nothing: 20 ms from now.
    bench.set_brakes(&format!("0 0 0 0 50 1000 0 {}", bench.now() + 60_000));
    let due = bench.make(one, &bench.wants(one, 40, 40, 9)).await.unwrap().due;
    assert_eq!(due, Some(Duration::from_millis(20)));
    // Half of a message is left: 10 ms from now.
    bench.set_brakes(&format!("0 0 0 0 50 1000 500 {}", bench.now() + 60_000));
    let due = bench.make(one, &bench.wants(one, 40, 40, 9)).await.unwrap().due;
    assert_eq!(due, Some(Duration::from_millis(10)));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_the_rate_goes_on_from_then() {
    let bench = TestBench::new().await;
    let (generator, term, [one, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["x"; 10]).await;
    bench.set_brakes(&format!("0 0 0 0 50 1000 0 {}", bench.now() + 3_600_000));
    assert_eq!(bench.make(one, &bench.wants(one, 1, 1, 0)).await.unwrap().messages().len(), 0);
    until("the next message may be claimed", async || {
        !bench.make(one, &bench.wants(one, 1, 1, 0)).await.unwrap().messages().is_empty()
    })
    .await;
}

/// A fast rate opens for the messages of 10 ms, so that a node does not make a turn for each.
#[tokio::test]
async fn a_fast_rate_opens_every_ten_milliseconds_and_a_slow_one_for_each_message() {
    let bench = TestBench::new().await;
    let (generator, term, [one, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    for (rate, wait) in
        [("2000 1000", 10), ("100 1000", 10), ("1 1000", 1000), ("7 1000", 143), ("1 3600000", 3_600_000)]
    {
        bench.set_brakes(&format!("0 0 0 0 {rate} 0 {}", bench.now() + 60_000));
        let due = bench.make(one, &bench.wants(one, 40, 40, 9)).await.unwrap().due;
        assert_eq!(due, Some(Duration::from_millis(wait)), "{rate}");
    }
}

#[tokio::test]
async fn a_new_rate_begins_with_nothing_and_the_same_rate_again_changes_nothing() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[one, two]);
    bench.stand_in_line(one).await;
    bench.limit_rate(Some(Rate { messages: 1, per_ms: 3_600_000 })).await;
    assert_eq!((bench.brake(6), calls.announced().len()), (0, 1), "the first in line waits for an hour");
    let before = bench.everything();
    bench.limit_rate(Some(Rate { messages: 1, per_ms: 3_600_000 })).await;
    assert_eq!(bench.everything(), before);
    calls.announced();
    bench.publish(generator, &term, 0, &["a"]).await;
    assert_eq!(calls.all(), [], "nobody may claim it");
    let [(who, ms)] = calls.announced()[..] else { panic!("the first in line learns the time") };
    assert!(who == one.incarnation && (3_590_000..=3_600_000).contains(&ms), "{ms}");
    // Another one becomes the first.
    bench.store.leave(one.incarnation).await.unwrap();
    assert_eq!(bench.make(two, &bench.wants(two, 1, 1, 0)).await.unwrap().messages().len(), 0);
    bench.limit_rate(None).await;
    assert_eq!(calls.all(), [two.incarnation]);
    assert_eq!(bench.make(two, &bench.wants(two, 1, 1, 0)).await.unwrap().messages().len(), 1);
}

#[tokio::test]
async fn the_same_number_of_messages_in_another_time_is_a_new_rate() {
    let bench = TestBench::new().await;
    bench.join(MemberKind::Node, 1).await;
    for per_ms in [60_000, 1000, 1000] {
        bench.limit_rate(Some(Rate { messages: 60, per_ms })).await;
    }
    let limited = |per| ["kind", "limited", "in-flight", "", "rate", "60", "per", per];
    assert_eq!(bench.events(2), [limited("60000"), limited("1000")]);
}

/// The rate would allow a claim at once. But a settle makes room, and not the time.
#[tokio::test]
async fn nobody_waits_for_the_rate_while_the_limit_in_flight_is_reached() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    assert_eq!(bench.claim(one, 1).await.len(), 1);
    let mut calls = bench.listen(&[one, two]);
    for credit in [1000, 1001, 6000] {
        // The clock was set back, so exactly this much is left.
        bench.set_brakes(&format!("0 0 1 1 50 1000 {credit} {}", bench.now() + 60_000));
        let applied = bench.make(two, &bench.wants(two, 1, 1, 0)).await.unwrap();
        assert_eq!((applied.messages().len(), applied.waits, applied.due), (0, false, None), "{credit}");
    }
    bench.set_brakes(&format!("0 0 1 1 50 1000 1000 {}", bench.now() + 60_000));
    bench.publish(generator, &term, 1, &["c"]).await;
    assert_eq!(calls.announced(), []);
}

/// A foreign client changed the count. A negative one would let the members hold too much.
#[tokio::test]
async fn no_count_of_what_is_held_falls_below_zero() {
    let bench = TestBench::new().await;
    let (generator, term, [one, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    bench.limit_in_flight(Some(1)).await;
    assert_eq!(bench.claim(one, 1).await.len(), 1);
    bench.set_brakes("0 0 1 0 0 0 0 0");
    bench.settle(one, 1, &[], 0).await;
    assert_eq!(bench.brake(3), 0);
    assert_eq!(bench.claim_for(one, 2, 1).await.len(), 1);
}

#[tokio::test]
async fn limits_and_pauses_do_not_touch_each_other() {
    let bench = TestBench::new().await;
    let (generator, term, [one, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    bench.store.pause(Activity::Handling, None).await.unwrap();
    bench.limit_in_flight(Some(1)).await;
    let snapshot = bench.snapshot().await;
    assert!(snapshot.handling_pause.is_some() && snapshot.in_flight_limit == Some(1));
    assert!(bench.make(one, &bench.wants(one, 2, 2, 0)).await.unwrap().paused);
    bench.store.resume(Activity::Handling).await.unwrap();
    assert_eq!(bench.make(one, &bench.wants(one, 2, 2, 0)).await.unwrap().messages().len(), 1);
    bench.store.pause(Activity::Producing, None).await.unwrap();
    bench.limit_in_flight(None).await;
    assert!(bench.snapshot().await.producing_pause.is_some());
    bench.store.resume(Activity::Producing).await.unwrap();
    assert_eq!(bench.ask::<Option<String>>(&["HGET", LEDGER, "brakes"]), None);
}

#[tokio::test]
async fn a_limit_needs_a_ring_and_a_sensible_number() {
    let bench = TestBench::new().await;
    let change = LimitChange { in_flight: Some(Some(1)), ..LimitChange::default() };
    let error = bench.store.limit(&change).await.unwrap_err().to_string();
    assert_eq!(error, "ring: expected a ring that exists, got 'estafeta'");
    bench.join(MemberKind::Node, 1).await;
    for limit in [0, 1_000_000_001, u64::MAX] {
        let change = LimitChange { in_flight: Some(Some(limit)), ..LimitChange::default() };
        let error = bench.store.limit(&change).await.unwrap_err().to_string();
        assert!(error.starts_with("in-flight: expected 1 to 1000000000 messages, got '"), "{error}");
    }
    for (messages, per_ms) in [(0, 1000), (1_000_001, 1000), (1, 0), (1, 86_400_001)] {
        let change = LimitChange { rate: Some(Some(Rate { messages, per_ms })), ..LimitChange::default() };
        let error = bench.store.limit(&change).await.unwrap_err().to_string();
        assert!(error.starts_with("rate: expected 1 to 1000000 messages in 1ms to 24h, got '"), "{error}");
    }
    assert_eq!(bench.ask::<Option<String>>(&["HGET", LEDGER, "brakes"]), None);
}
