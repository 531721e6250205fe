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
    let limited = Dispatch { limit: 8, ..batch(term.epoch, 1, &last) };
    assert_eq!(
        bench.store.publish(one.incarnation, &limited).await.unwrap(),
        Publish::Limit { published: 8 }
    );
    assert_eq!(bench.everything(), before);
}

/// A publish that moves a checkpoint and a tick, with these messages from the id `first` on.
fn moving<'a>(
    term: &Term,
    n: u64,
    first: u64,
    messages: &'a [Message],
    ticks: &'a [(String, u64)],
    checkpoint: &'a str,
) -> Dispatch<'a> {
    let checkpoint = Some(checkpoint.as_bytes());
    Dispatch { first_id: first, checkpoint, ticks, intervals: 1, ..batch(term.epoch, n, messages) }
}

impl TestBench {
    /// The checkpoint, and the last tick of the entry `nightly`.
    fn progress(&self) -> (Option<String>, Option<u64>) {
        let checkpoint = self.ask(&["GET", "{estafeta}:checkpoint"]);
        (checkpoint, self.ask(&["HGET", "{estafeta}:ticks", "nightly"]))
    }
}

fn nightly(ms: u64) -> [(String, u64); 1] {
    [("nightly".to_owned(), ms)]
}

#[tokio::test]
async fn a_checkpoint_and_ticks_move_with_their_messages_and_once() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    let three = messages(term.epoch, 1, &["a", "b", "c"]);
    let (first, second) = (nightly(1), nightly(2));
    let answer = bench.store.publish(one.incarnation, &moving(&term, 0, 1, &three, &first, "c")).await;
    let Publish::Published { first_id: 1, due_ms, .. } = answer.unwrap() else { panic!("not published") };
    assert_eq!(due_ms, term.due_ms + 500, "a batch takes one tick");
    assert_eq!((bench.progress(), bench.ledger("published")), ((Some("c".into()), Some(1)), 3));
    // A publish without either leaves both as they are.
    bench.publish(one, &term, 1, &["d"]).await;
    assert_eq!(bench.progress(), (Some("c".into()), Some(1)));
    // Without messages, both may move. The next id is the same as before.
    let answer = bench.store.publish(one.incarnation, &moving(&term, 2, 5, &[], &second, "e")).await.unwrap();
    assert!(matches!(answer, Publish::Published { first_id: 5, .. }), "{answer:?}");
    assert_eq!((bench.progress(), bench.ledger("published")), ((Some("e".into()), Some(2)), 4));
    let before = bench.everything();
    let late = moving(&term, 0, 1, &three, &first, "c");
    let answer = bench.store.publish(one.incarnation, &late).await.unwrap();
    assert!(matches!(answer, Publish::Published { first_id: 1, .. }), "{answer:?}");
    assert_eq!(bench.everything(), before, "a repeat moves nothing back");
    assert_eq!(bench.ready().len(), 2, "a pack and a message");
}

#[tokio::test]
async fn a_refused_publish_moves_neither_checkpoint_nor_ticks() {
    let bench = TestBench::new().await;
    let (old, new) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let former = bench.lead(old).await;
    bench.expire(old);
    let term = bench.lead(new).await;
    bench.publish(new, &term, 0, &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]).await;
    let (more, ticks) = (messages(term.epoch, 11, &["11"]), nightly(7));
    let next = || moving(&term, 1, 11, &more, &ticks, "here");
    let before = bench.everything();
    let answer =
        async |me: Actor, call: Dispatch<'_>| bench.store.publish(me.incarnation, &call).await.unwrap();
    assert!(matches!(answer(new, next()).await, Publish::Full { .. }));
    assert_eq!(answer(new, Dispatch { limit: 10, ..next() }).await, Publish::Limit { published: 10 });
    assert_eq!(answer(new, Dispatch { first_id: 42, ..next() }).await, Publish::Behind);
    assert_eq!(answer(new, Dispatch { first_id: 42, messages: &[], ..next() }).await, Publish::Behind);
    assert_eq!(bench.everything(), before);
    assert_eq!(answer(old, Dispatch { epoch: former.epoch, messages: &[], ..next() }).await, Publish::Fenced);
    assert_eq!(bench.progress(), (None, None));
    // What has no messages needs neither room nor limit.
    let none = Dispatch { messages: &[], limit: 1, max_waiting: 5, ..next() };
    assert!(matches!(answer(new, none).await, Publish::Published { first_id: 11, .. }));
    assert_eq!(bench.progress(), (Some("here".into()), Some(7)));
    bench.assert_balanced().await;
}

/// Publishers outside the ring have taken the ids, so the messages are numbered anew.
#[tokio::test]
async fn a_publish_that_is_numbered_anew_moves_its_checkpoint_and_no_argument_becomes_a_message() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "50"]);
    let (two, ticks) =
        (messages(term.epoch, 1, &["a", "b"]), [("1 2".to_owned(), 3), ("*4 5".to_owned(), 6)]);
    let call = moving(&term, 0, 1, &two, &ticks, "7 8 9");
    for _ in 0..2 {
        let answer = bench.store.publish(one.incarnation, &call).await.unwrap();
        assert!(matches!(answer, Publish::Published { first_id: 51, .. }), "{answer:?}");
    }
    assert_eq!(bench.ready(), [format!("*51 {} 7 2 1:a1:b", term.epoch)]);
    assert_eq!(bench.progress().0, Some("7 8 9".into()));
    let stored: Vec<(String, u64)> = bench.ask(&["HGETALL", "{estafeta}:ticks"]);
    assert_eq!(stored, ticks);
    // Nothing is left to number, and the answer still names the next id.
    let none = Dispatch { messages: &[], ..moving(&term, 1, 1, &[], &ticks, "") };
    let answer = bench.store.publish(one.incarnation, &none).await.unwrap();
    assert!(matches!(answer, Publish::Published { first_id: 53, .. }), "{answer:?}");
    assert_eq!(bench.progress().0, Some(String::new()));
}

#[tokio::test]
async fn the_largest_batch_is_one_publish() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    let bodies = vec!["x"; 1000];
    let all = messages(term.epoch, 1, &bodies);
    let ticks: Vec<_> = (0..1000).map(|n| (format!("{n:0512}"), n)).collect();
    let checkpoint = "c".repeat(64 * 1024);
    let call = Dispatch { max_waiting: 1000, limit: 0, ..moving(&term, 0, 1, &all, &ticks, &checkpoint) };
    let answer = bench.store.publish(one.incarnation, &call).await.unwrap();
    assert!(matches!(answer, Publish::Published { first_id: 1, .. }), "{answer:?}");
    assert_eq!(bench.snapshot().await.waiting, 1000);
    assert_eq!(bench.ask::<u64>(&["HLEN", "{estafeta}:ticks"]), 1000);
    assert_eq!(bench.progress().0, Some(checkpoint));
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
    let batch = Dispatch { interval, late, ..batch(term.epoch, 0, &messages) };
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
    let first = Dispatch { limit: 1, interval, late: LEASE, ..batch(term.epoch, 0, &messages[..1]) };
    let answer = bench.store.publish(one.incarnation, &first).await.unwrap();
    assert!(matches!(answer, Publish::Published { due_ms, .. } if due_ms == term.due_ms + 1), "{answer:?}");
    let second = Dispatch { limit: 1, interval, ..batch(term.epoch, 1, &messages[1..]) };
    assert_eq!(bench.store.publish(one.incarnation, &second).await.unwrap(), Publish::Limit { published: 1 });
    // A tick too far ahead is brought back to one interval from now.
    let far = term.now_ms + 3_600_000;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "due", &far.to_string()]);
    let answer = bench.store.publish(one.incarnation, &Dispatch { limit: 0, ..second }).await.unwrap();
    assert!(
        matches!(answer, Publish::Published { due_ms, now_ms, .. } if due_ms == now_ms + 2),
        "{answer:?}"
    );
}
