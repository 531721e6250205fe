//! Tests of `lead` and `publish`: epochs, ids, ticks and limits.

use super::*;

#[tokio::test]
async fn a_publish_repeated_after_a_lost_reply_is_applied_once() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    for _ in 0..2 {
        let answer = bench.publish_from(one, &term, 0, 1, &["a", "b"]).await;
        assert!(matches!(answer, Publish::Published { first_id: 1, .. }), "{answer:?}");
    }
    assert_eq!(bench.ledger("published"), 2);
    assert_eq!(bench.snapshot().await.waiting, 2);
}

/// Publishers outside the ring take ids that the generator does not know of.
#[tokio::test]
async fn messages_whose_ids_are_taken_get_the_next_ones_and_the_answer_contains_them() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    bench.publish(one, &term, 0, &["a"]).await;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "50"]);
    let epoch = term.epoch;
    for bodies in [&["x"][..], &["y", "*1 2 3 4"], &["z"]] {
        let (n, next_id) = (bench.ledger("sent"), bench.ledger("published") + 1);
        for _ in 0..2 {
            let answer = bench.publish_from(one, &term, n, 2, bodies).await;
            assert!(
                matches!(answer, Publish::Published { first_id, .. } if first_id == next_id),
                "{answer:?} is not from {next_id}"
            );
        }
    }
    let waiting = [
        format!("1 {epoch} 7 0 0 0 0 0 a"),
        format!("51 {epoch} 7 0 0 0 0 0 x"),
        format!("*52 {epoch} 7 2 1:y8:*1 2 3 4"),
        format!("54 {epoch} 7 0 0 0 0 0 z"),
    ];
    assert_eq!(bench.ready(), waiting);
    // A repeat of a publish with the ids of the call is not confused with one that got others.
    assert!(matches!(
        bench.publish_from(one, &term, 4, 55, &["b"]).await,
        Publish::Published { first_id: 55, .. }
    ));
    assert!(matches!(
        bench.publish_from(one, &term, 4, 55, &["b"]).await,
        Publish::Published { first_id: 55, .. }
    ));
}

/// The last publish of a former term may have the same number.
#[tokio::test]
async fn ids_that_changed_in_a_former_term_do_not_count_in_this_one() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "9"]);
    bench.publish_from(one, &term, 0, 1, &["a"]).await;
    bench.store.resign(one.incarnation, term.epoch).await.unwrap();
    let next = bench.lead(one).await;
    for _ in 0..2 {
        let answer = bench.publish_from(one, &next, 0, 11, &["b"]).await;
        assert!(matches!(answer, Publish::Published { first_id: 11, .. }), "{answer:?}");
    }
}

#[tokio::test]
async fn a_late_publish_of_an_earlier_epoch_is_refused_and_only_counted() {
    let bench = TestBench::new().await;
    let (old, new) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let old_term = bench.lead(old).await;
    bench.publish(old, &old_term, 0, &["a"]).await;
    bench.expire(old);
    let new_term = bench.lead(new).await;
    assert!(new_term.epoch > old_term.epoch);
    assert_eq!(new_term.predecessor, Some(old.number));

    let before = bench.everything();
    assert_eq!(bench.publish_from(old, &old_term, 1, 2, &["late"]).await, Publish::Fenced);
    assert_eq!(bench.ledger("fenced"), 1);
    bench.ask::<()>(&["HDEL", "{estafeta}:ledger", "fenced"]);
    assert_eq!(bench.everything(), before, "and nothing else was written");
}

#[tokio::test]
async fn a_publish_that_knows_more_than_redis_or_is_beyond_a_limit_changes_nothing() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    bench.publish(one, &term, 0, &["1", "2", "3", "4", "5", "6", "7", "8"]).await;
    let before = bench.everything();
    assert_eq!(bench.publish_from(one, &term, 1, 42, &["x"]).await, Publish::Behind);
    let full = bench.publish(one, &term, 1, &["9", "10", "11"]).await;
    assert!(matches!(full, Publish::Full { .. }), "{full:?}");
    let last = messages(term.epoch, 9, &["9"]);
    let limited = Batch { limit: 8, ..batch(term.epoch, 1, &last) };
    assert_eq!(
        bench.store.publish(one.incarnation, &limited).await.unwrap(),
        Publish::Limit { published: 8 }
    );
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn ticks_keep_their_phase_across_a_take_over_and_a_pause() {
    let bench = TestBench::new().await;
    let (old, new) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(old).await;
    let Publish::Published { due_ms, .. } = bench.publish(old, &term, 0, &["a"]).await else {
        panic!("not published")
    };
    assert_eq!(due_ms, term.due_ms + 500);
    bench.expire(old);
    assert_eq!(bench.lead(new).await.due_ms, due_ms);

    // A long overdue tick is skipped, in steps of the interval.
    let due: u64 = term.due_ms - 1_000_000 + 123;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "due", &due.to_string()]);
    let term = bench.lead(new).await;
    let Publish::Published { due_ms, now_ms, .. } = bench.publish(new, &term, 0, &["b"]).await else {
        panic!("not published")
    };
    assert!((now_ms + 1..=now_ms + 500).contains(&due_ms), "{due_ms} {now_ms}");
    assert_eq!((due_ms - due) % 500, 0);
}

#[tokio::test]
async fn ticks_that_are_only_a_little_late_are_not_skipped() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    let due = term.now_ms - 50;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "due", &due.to_string()]);
    let messages = messages(term.epoch, 1, &["a", "b", "c"]);
    let interval = Duration::from_millis(10);
    let late = Duration::from_secs(10);
    let batch = Batch { interval, late, ..batch(term.epoch, 0, &messages) };
    let answer = bench.store.publish(one.incarnation, &batch).await.unwrap();
    assert!(matches!(answer, Publish::Published { due_ms, .. } if due_ms == due + 30), "{answer:?}");
}

#[tokio::test]
async fn a_living_generator_keeps_the_office_and_gets_the_same_answer_to_the_same_call() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(one).await;
    let before = bench.everything();
    let again = bench.lead(one).await;
    let facts = |term: &Term| (term.epoch, term.sent, term.published, term.due_ms);
    assert_eq!(facts(&again), facts(&term));
    let answer = bench.store.lead(other.incarnation, LEASE, &candidacy()).await.unwrap();
    assert!(matches!(answer, Lead::Follows));
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn epochs_grow_even_if_the_stored_one_or_the_clock_was_set_back() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let first = bench.lead(one).await;
    bench.ask::<()>(&["DEL", "{estafeta}:epoch"]);
    bench.expire(one);
    // The loop ends when Redis' clock has moved on by a millisecond. The promise needs no more than that.
    while bench.store.suspects(LEASE).await.unwrap().now_ms <= first.epoch.0 {}
    assert!(bench.lead(other).await.epoch > first.epoch);

    // If Redis' clock jumped back, the stored epoch decides.
    let ahead = first.epoch.0 + 1_000_000;
    bench.ask::<()>(&["SET", "{estafeta}:epoch", &ahead.to_string()]);
    bench.expire(other);
    let third = bench.join(MemberKind::Node, 1).await;
    assert_eq!(bench.lead(third).await.epoch.0, ahead + 1);
}

#[tokio::test]
async fn a_tick_too_far_ahead_after_a_clock_jump_is_brought_back() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    let far = term.now_ms + 3_600_000;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "due", &far.to_string()]);
    let Publish::Published { due_ms, now_ms, .. } = bench.publish(one, &term, 0, &["a"]).await else {
        panic!("not published")
    };
    assert!(due_ms <= now_ms + 1000, "{due_ms} is {} ms off", due_ms - now_ms);
}

#[tokio::test]
async fn a_limit_of_one_message_and_an_interval_of_one_millisecond_are_respected() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    let messages = messages(term.epoch, 1, &["a", "b"]);
    let interval = Duration::from_millis(1);
    let first = Batch { limit: 1, interval, late: LEASE, ..batch(term.epoch, 0, &messages[..1]) };
    let answer = bench.store.publish(one.incarnation, &first).await.unwrap();
    assert!(matches!(answer, Publish::Published { due_ms, .. } if due_ms == term.due_ms + 1), "{answer:?}");
    let second = Batch { limit: 1, interval, ..batch(term.epoch, 1, &messages[1..]) };
    assert_eq!(bench.store.publish(one.incarnation, &second).await.unwrap(), Publish::Limit { published: 1 });
    // A tick too far ahead is brought back to one interval from now.
    let far = term.now_ms + 3_600_000;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "due", &far.to_string()]);
    let answer = bench.store.publish(one.incarnation, &Batch { limit: 0, ..second }).await.unwrap();
    assert!(
        matches!(answer, Publish::Published { due_ms, now_ms, .. } if due_ms == now_ms + 2),
        "{answer:?}"
    );
}
