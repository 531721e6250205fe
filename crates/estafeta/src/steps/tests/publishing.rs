//! Office and publishing: epochs, ids, the beat, the limits.

use super::*;

#[tokio::test]
async fn a_publish_repeated_after_a_lost_reply_is_published_once() {
    let bench = Bench::new().await;
    let one = bench.join(Kind::Member, 1).await;
    let term = bench.lead(one).await;
    for _ in 0..2 {
        let answer = bench.publish_from(one, &term, 0, 1, &["a", "b"]).await;
        assert!(matches!(answer, Publish::Published { .. }), "{answer:?}");
    }
    assert_eq!(bench.ledger("published"), 2);
    assert_eq!(bench.snapshot().await.waiting, 2);
}

#[tokio::test]
async fn a_late_publish_of_an_earlier_epoch_is_refused_and_only_counted() {
    let bench = Bench::new().await;
    let (old, new) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
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
async fn a_publish_that_does_not_fit_changes_nothing() {
    let bench = Bench::new().await;
    let one = bench.join(Kind::Member, 1).await;
    let term = bench.lead(one).await;
    bench.publish(one, &term, 0, &["1", "2", "3", "4", "5", "6", "7", "8"]).await;
    let before = bench.everything();
    assert_eq!(bench.publish_from(one, &term, 1, 42, &["x"]).await, Publish::Expected(9));
    let full = bench.publish(one, &term, 1, &["9", "10", "11"]).await;
    assert!(matches!(full, Publish::Full { .. }), "{full:?}");
    let last = messages(term.epoch, 9, &["9"]);
    let limited = Batch { limit: 8, ..batch(term.epoch, 1, &last) };
    assert_eq!(bench.store.publish(one.incarnation, &limited).await.unwrap(), Publish::Limit);
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn the_beat_keeps_its_phase_over_a_take_over() {
    let bench = Bench::new().await;
    let (old, new) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(old).await;
    let Publish::Published { due_ms, .. } = bench.publish(old, &term, 0, &["a"]).await else {
        panic!("not published")
    };
    assert_eq!(due_ms, term.due_ms + 500);
    bench.expire(old);
    assert_eq!(bench.lead(new).await.due_ms, due_ms);

    // A tick that is long overdue is passed over, in steps of the interval.
    let due: u64 = term.due_ms - 1_000_000 + 123;
    bench.ask::<()>(&["HSET", "{estafeta}:leader", "due", &due.to_string()]);
    let term = bench.lead(new).await;
    let Publish::Published { due_ms, now_ms } = bench.publish(new, &term, 0, &["b"]).await else {
        panic!("not published")
    };
    assert!((now_ms + 1..=now_ms + 500).contains(&due_ms), "{due_ms} {now_ms}");
    assert_eq!((due_ms - due) % 500, 0);
}

#[tokio::test]
async fn ticks_of_the_last_moment_are_late_and_not_missed() {
    let bench = Bench::new().await;
    let one = bench.join(Kind::Member, 1).await;
    let term = bench.lead(one).await;
    let due = term.now_ms - 50;
    bench.ask::<()>(&["HSET", "{estafeta}:leader", "due", &due.to_string()]);
    let messages = messages(term.epoch, 1, &["a", "b", "c"]);
    let interval = Duration::from_millis(10);
    let late = Duration::from_secs(10);
    let batch = Batch { interval, late, ..batch(term.epoch, 0, &messages) };
    let answer = bench.store.publish(one.incarnation, &batch).await.unwrap();
    assert!(matches!(answer, Publish::Published { due_ms, .. } if due_ms == due + 30), "{answer:?}");
}

#[tokio::test]
async fn nobody_takes_office_from_a_living_generator_and_the_same_call_is_answered_the_same() {
    let bench = Bench::new().await;
    let (one, other) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(one).await;
    let before = bench.everything();
    let again = bench.lead(one).await;
    let told = |term: &Term| (term.epoch, term.sent, term.published, term.due_ms);
    assert_eq!(told(&again), told(&term));
    let answer = bench.store.lead(other.incarnation, LEASE, &candidacy()).await.unwrap();
    assert!(matches!(answer, Lead::Follows));
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn epochs_grow_even_when_the_stored_one_was_rolled_back() {
    let bench = Bench::new().await;
    let (one, other) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let first = bench.lead(one).await;
    bench.ask::<()>(&["DEL", "{estafeta}:epoch"]);
    bench.expire(one);
    // Until Redis' clock has moved on by a millisecond, which is all that the promise needs.
    while bench.store.suspects(LEASE).await.unwrap().now_ms <= first.epoch.0 {}
    assert!(bench.lead(other).await.epoch > first.epoch);

    // And when Redis' clock jumped back, the stored one decides.
    let ahead = first.epoch.0 + 1_000_000;
    bench.ask::<()>(&["SET", "{estafeta}:epoch", &ahead.to_string()]);
    bench.expire(other);
    let third = bench.join(Kind::Member, 1).await;
    assert_eq!(bench.lead(third).await.epoch.0, ahead + 1);
}

#[tokio::test]
async fn a_tick_that_a_clock_jump_left_far_off_is_brought_back() {
    let bench = Bench::new().await;
    let one = bench.join(Kind::Member, 1).await;
    let term = bench.lead(one).await;
    let far = term.now_ms + 3_600_000;
    bench.ask::<()>(&["HSET", "{estafeta}:leader", "due", &far.to_string()]);
    let Publish::Published { due_ms, now_ms } = bench.publish(one, &term, 0, &["a"]).await else {
        panic!("not published")
    };
    assert!(due_ms <= now_ms + 1000, "{due_ms} is {} ms off", due_ms - now_ms);
}

#[tokio::test]
async fn the_smallest_limit_and_the_shortest_interval_hold_too() {
    let bench = Bench::new().await;
    let one = bench.join(Kind::Member, 1).await;
    let term = bench.lead(one).await;
    let messages = messages(term.epoch, 1, &["a", "b"]);
    let interval = Duration::from_millis(1);
    let first = Batch { limit: 1, interval, late: LEASE, ..batch(term.epoch, 0, &messages[..1]) };
    let answer = bench.store.publish(one.incarnation, &first).await.unwrap();
    assert!(matches!(answer, Publish::Published { due_ms, .. } if due_ms == term.due_ms + 1), "{answer:?}");
    let second = Batch { limit: 1, interval, ..batch(term.epoch, 1, &messages[1..]) };
    assert_eq!(bench.store.publish(one.incarnation, &second).await.unwrap(), Publish::Limit);
    // A tick far off is brought back to one interval from now.
    let far = term.now_ms + 3_600_000;
    bench.ask::<()>(&["HSET", "{estafeta}:leader", "due", &far.to_string()]);
    let answer = bench.store.publish(one.incarnation, &Batch { limit: 0, ..second }).await.unwrap();
    assert!(matches!(answer, Publish::Published { due_ms, now_ms } if due_ms == now_ms + 2), "{answer:?}");
}
