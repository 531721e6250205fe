//! Tests of messages that are published with a delay.

use super::*;

#[tokio::test]
async fn a_delayed_message_is_published_at_once_and_waits_for_its_time() {
    let bench = TestBench::new().await;
    let batch = [
        draft("a", None),
        draft("b", None),
        delayed("c", None, 2 * HOUR),
        delayed("d", Some("k"), HOUR),
        draft("e", None),
        delayed("f", None, HOUR),
    ];
    for _ in 0..2 {
        assert_eq!(bench.submit_all(1, &batch).await, [1, 2, 3, 4, 5, 6], "the second call is a repeat");
    }
    let later = bench.later();
    assert_eq!(later.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [4, 6, 3]);
    let wait = |ms: u64| ms as i64 - 60_000..=ms as i64;
    assert!(wait(HOUR).contains(&later[0].1) && wait(2 * HOUR).contains(&later[2].1), "{later:?}");
    assert_eq!(bench.ready().len(), 2, "a pack of two and a message between two delayed ones");
    assert!(bench.delayed(4).ends_with(" 0 0 0 0 0 d"), "{}", bench.delayed(4));
    let snapshot = bench.snapshot().await;
    assert_eq!((snapshot.published, snapshot.waiting, snapshot.later), (6, 3, 3));
    assert_eq!((bench.ledger("submitted"), snapshot.balanced), (6, true));
    // The delay is no part of what makes messages equal.
    assert_eq!(bench.submit_all(2, &[draft("d", Some("k")), delayed("d", Some("k"), 1)]).await, [4, 4]);
    assert_eq!(bench.later().len(), 3);
    let handler = bench.join(MemberKind::Node, 1).await;
    let ids = |messages: Vec<Message>| messages.iter().map(|message| message.id).collect::<Vec<_>>();
    assert_eq!(ids(bench.claim(handler, 9).await), [1, 2, 5]);
    bench.pass();
    let claimed = bench.claim(handler, 9).await;
    assert!(claimed.iter().all(|message| facts(message) == [1, 0, 0, 0]), "{claimed:?}");
    assert_eq!(ids(claimed), [4, 6, 3]);
    assert_eq!((bench.later(), bench.soonest()), (vec![], 0));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_full_ring_accepts_delayed_messages() {
    let bench = TestBench::new().await;
    bench.submit_all(1, &vec![draft("x", None); 10]).await;
    assert_eq!(bench.submit_all(2, &vec![delayed("y", None, HOUR); 20]).await.len(), 20);
    let before = bench.everything();
    let mixed = [delayed("y", None, HOUR), draft("x", None)];
    assert_eq!(bench.store.submit(&submission(3, &mixed)).await.unwrap(), Submit::Full);
    assert_eq!(bench.everything(), before);
    // What is due goes to the queue however many messages wait.
    let handler = bench.join(MemberKind::Node, 1).await;
    bench.pass();
    bench.claim(handler, 0).await;
    assert_eq!((bench.ready().len(), bench.later().len()), (21, 0));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn the_first_in_line_learns_of_a_delayed_message_if_it_is_the_earliest() {
    let bench = TestBench::new().await;
    let (.., [idle, other]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[idle, other]);
    bench.stand_in_line(idle).await;
    bench.stand_in_line(other).await;
    let expected = [(2 * HOUR, true), (3 * HOUR, false), (HOUR, true)];
    for (sequence, (ms, is_announced)) in (1..).zip(expected) {
        bench.submit_all(sequence, &[delayed("a", None, ms)]).await;
        let announced = calls.announced();
        assert_eq!(
            announced.iter().map(|(who, _)| *who).collect::<Vec<_>>(),
            [idle.incarnation][..is_announced.into()]
        );
        assert!(
            announced.iter().all(|(_, wait)| (ms - 60_000..=ms).contains(wait)),
            "{announced:?} instead of {ms}"
        );
    }
    assert_eq!(calls.all(), [], "nobody is called to work");
    assert_eq!(bench.line(), bench.names(&[idle, other]));
}

/// Only an intruder, or one who deletes counts, can make two messages with one id.
#[tokio::test]
async fn a_publish_never_takes_the_place_of_a_delayed_message() {
    let bench = TestBench::new().await;
    bench.submit_all(1, &[delayed("a", None, HOUR)]).await;
    bench.ask::<()>(&["HDEL", "{estafeta}:ledger", "published"]);
    let before = bench.everything();
    assert!(bench.store.submit(&submission(2, &[delayed("b", None, HOUR)])).await.is_err());
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn foreign_values_stop_a_publish_that_needs_them_and_no_other() {
    for (key, kind) in [("{estafeta}:later", "zset"), ("{estafeta}:delayed", "hash")] {
        let bench = TestBench::new().await;
        bench.submit_all(1, &[draft("a", None)]).await;
        bench.plant_foreign(key, kind);
        bench.submit_all(2, &[draft("b", None)]).await;
        let before = bench.everything();
        assert!(bench.store.submit(&submission(3, &[delayed("c", None, HOUR)])).await.is_err(), "{key}");
        assert_eq!(bench.everything(), before);
    }
}

/// Otherwise nobody could cancel such a message by its key, and it could be published twice.
#[tokio::test]
async fn the_key_of_a_delayed_message_outlasts_its_delay() {
    let bench = TestBench::new().await;
    bench.submit_all(1, &[draft("a", Some("now")), delayed("b", Some("then"), 9 * HOUR)]).await;
    let left = |key: &str| bench.ask::<u64>(&["PTTL", &bench.store.keys().message_key(key)]);
    let window = left("now");
    assert!((window + 9 * HOUR - 60_000..=window + 9 * HOUR).contains(&left("then")), "{window}");
}

#[tokio::test]
async fn a_foreign_time_stops_nobody() {
    for (time, expected) in [("inf", 999_999_999_999_999), ("-inf", 1), ("1e300", 999_999_999_999_999)] {
        let bench = TestBench::new().await;
        bench.ask::<()>(&["ZADD", "{estafeta}:later", time, "foreign"]);
        bench.submit_all(1, &[delayed("a", None, HOUR), delayed("b", None, HOUR)]).await;
        assert!(bench.cancel(2, MessageRef::Id(1)).await);
        let handler = bench.join(MemberKind::Node, 1).await;
        if time == "-inf" {
            assert_eq!(bench.soonest(), expected);
        }
        bench.claim(handler, 0).await;
        assert!(bench.cancel(3, MessageRef::Id(2)).await);
        assert_eq!(bench.soonest(), if time == "-inf" { 0 } else { expected }, "{time}");
        bench.submit_all(4, &[draft("c", None)]).await;
        assert_eq!(bench.claim(handler, 1).await.len(), 1);
    }
}
