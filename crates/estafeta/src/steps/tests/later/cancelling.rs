//! Tests of delayed messages that are cancelled.

use super::*;

#[tokio::test]
async fn a_delayed_message_can_be_cancelled_by_its_id_or_its_key() {
    let bench = TestBench::new().await;
    let batch = [
        delayed("a", None, HOUR),
        delayed("b", Some("k"), 2 * HOUR),
        delayed("c", Some("l"), 3 * HOUR),
        delayed("d", None, 4 * HOUR),
    ];
    bench.submit_all(1, &batch).await;
    let soonest = bench.soonest();
    assert!(bench.cancel(2, MessageRef::Key("k")).await);
    assert_eq!(bench.soonest(), soonest, "it was not the earliest");
    assert!(bench.cancel(3, MessageRef::Id(1)).await && bench.cancel(4, MessageRef::Id(3)).await);
    assert_eq!(bench.later().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [4]);
    assert_eq!(bench.soonest(), bench.ask::<u64>(&["ZSCORE", "{estafeta}:later", "000000000000004"]));
    let snapshot = bench.snapshot().await;
    assert_eq!((snapshot.published, snapshot.later, snapshot.cancelled), (4, 1, 3));
    assert!(snapshot.balanced && snapshot.balance().contains(&("cancelled", 3)), "{snapshot:?}");
    // Only a cancel by its key frees a key.
    assert_eq!(bench.submit_all(5, &[draft("b", Some("k")), draft("c", Some("l"))]).await, [5, 3]);
    assert!(bench.cancel(6, MessageRef::Id(4)).await);
    assert_eq!((bench.later(), bench.soonest()), (vec![], 0));
    let one = bench.join(MemberKind::Node, 1).await;
    assert_eq!(
        bench.beat(one, Known::default()).await.outstanding,
        1,
        "a cancelled message needs no outcome"
    );
    bench.assert_balanced().await;
}

#[tokio::test]
async fn only_what_no_handler_has_seen_is_cancelled() {
    let bench = TestBench::new().await;
    let (.., [handler, _]) = bench.claimed(&["retried", "snoozed", "held"]).await;
    let fates = [Fate::Retries(HOUR), Fate::Snoozes(HOUR, Vec::new()), Fate::Stays];
    bench.let_go(handler, |at| fates[at].clone()).await;
    bench.submit_all(1, &[draft("waits", Some("k"))]).await;
    for (sequence, id) in [(2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 0), (8, u64::MAX)] {
        assert!(!bench.cancel(sequence, MessageRef::Id(id)).await, "{id}");
    }
    assert!(!bench.cancel(9, MessageRef::Key("k")).await && !bench.cancel(10, MessageRef::Key("free")).await);
    assert_eq!((bench.later().len(), bench.ready().len(), bench.ledger("cancelled")), (2, 1, 0));
    assert_eq!(bench.submit_all(11, &[draft("waits", Some("k"))]).await, [4], "its key is still taken");
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_cancel_that_is_repeated_has_the_same_answer_and_a_late_one_does_nothing() {
    let bench = TestBench::new().await;
    bench.submit_all(1, &[delayed("a", Some("k"), HOUR)]).await;
    assert!(!bench.cancel(2, MessageRef::Key("l")).await);
    assert!(bench.cancel(3, MessageRef::Key("k")).await);
    let other = Incarnation::random();
    let message = [delayed("a", Some("k"), HOUR), delayed("a", Some("l"), HOUR)];
    let again = Submission { publisher: other, ..submission(1, &message) };
    assert!(matches!(bench.store.submit(&again).await.unwrap(), Submit::Submitted(ids) if ids[0].id == 2));
    let before = bench.everything();
    assert!(bench.cancel(3, MessageRef::Key("k")).await, "it was cancelled by the first try");
    let late = bench.store.cancel(&cancellation(2, MessageRef::Key("l"))).await;
    assert!(matches!(late, Err(Error::Answer(_))), "{late:?}");
    assert_eq!(bench.everything(), before);
    let memory: i64 = bench.ask(&["PTTL", "{estafeta}:publisher:00000000000000ff"]);
    assert!((1..=600_000).contains(&memory), "{memory}");
}

#[tokio::test]
async fn a_cancel_that_finds_a_count_that_is_not_a_number_writes_nothing() {
    let bench = TestBench::new().await;
    bench.submit_all(1, &[delayed("a", None, HOUR)]).await;
    let whole = bench.everything();
    for count in ["cancelled", "soonest", "born"] {
        bench.restore(&whole);
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", count, "many"]);
        let before = bench.everything();
        assert!(bench.store.cancel(&cancellation(2, MessageRef::Id(1))).await.is_err(), "{count}");
        assert_eq!(bench.everything(), before, "{count}");
    }
}

#[tokio::test]
async fn a_cancel_begins_no_ring_and_leaves_those_of_others_alone() {
    let bench = TestBench::new().await;
    assert!(!bench.cancel(1, MessageRef::Id(1)).await && !bench.cancel(2, MessageRef::Key("k")).await);
    assert_eq!(bench.ask::<u64>(&["DBSIZE"]), 0);
    bench.submit_all(1, &[delayed("a", Some("k"), HOUR)]).await;
    let before = bench.everything();
    let stranger = Cancellation { application: "another", ..cancellation(2, MessageRef::Id(1)) };
    assert!(matches!(bench.store.cancel(&stranger).await, Err(Error::Application { .. })));
    assert_eq!(bench.everything(), before);
    // A key that a deleted ring left behind names no message of this one.
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "born", "1"]);
    assert!(!bench.cancel(3, MessageRef::Key("k")).await);
    let anybody = Cancellation { application: "", ..cancellation(4, MessageRef::Id(1)) };
    assert!(bench.store.cancel(&anybody).await.unwrap());
    bench.ask::<()>(&["SET", "{estafeta}:schema", "1"]);
    assert!(matches!(
        bench.store.cancel(&cancellation(5, MessageRef::Id(1))).await,
        Err(Error::Layout { .. })
    ));
}
