//! Tests of repeated looks at a ring: what a snapshot costs, and that snapshots and events miss nothing.

use super::*;
use crate::inspect::{Event, EventKind, Ring};

impl TestBench {
    async fn ring(&self) -> Ring {
        Ring::connect(self.redis.url().parse().unwrap(), RingName::sample()).await.unwrap()
    }

    /// How often Redis reads hashes of members for one snapshot.
    async fn reads_of_a_snapshot(&self, ring: &Ring) -> usize {
        self.ask::<()>(&["CONFIG", "RESETSTAT"]);
        ring.snapshot(0).await.unwrap();
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let calls = stats.split("cmdstat_hmget:calls=").nth(1).and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }
}

#[tokio::test]
async fn a_snapshot_reads_the_hash_of_each_member_once() {
    let bench = TestBench::new().await;
    let ring = bench.ring().await;
    let mut members = Vec::new();
    for _ in 0..5 {
        members.push(bench.join(MemberKind::Node, 1).await);
    }
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 5);
    bench.join(MemberKind::Reader, 1).await;
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 6);
    bench.store.leave(members[2].incarnation).await.unwrap();
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 5);
}

#[tokio::test]
async fn a_member_that_is_replaced_while_a_snapshot_reads_the_members_makes_the_reading_start_again() {
    let bench = TestBench::new().await;
    let (stays, leaves) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let members = [stays.incarnation, leaves.incarnation];
    bench.store.leave(leaves.incarnation).await.unwrap();
    bench.join(MemberKind::Node, 1).await;
    assert!(
        bench.store.snapshot(&Roll::new(members.len(), &members), 1).await.unwrap().is_none(),
        "as many, but others"
    );
}

#[tokio::test]
async fn ranks_count_the_possible_successors_wherever_the_generator_stands() {
    let bench = TestBench::new().await;
    let mut members = Vec::new();
    for kind in [MemberKind::Node, MemberKind::Node, MemberKind::Reader, MemberKind::Node, MemberKind::Node] {
        members.push(bench.join(kind, 1).await);
    }
    let ranks = async || -> Vec<Option<u64>> {
        bench.snapshot().await.members.iter().map(|member| member.rank).collect()
    };
    assert_eq!(ranks().await, [Some(0), Some(1), None, Some(2), Some(3)], "nobody is in office");
    let mut term = bench.lead(members[0]).await;
    for (leads, expected) in [
        (0, [None, Some(0), None, Some(1), Some(2)]),
        (1, [Some(0), None, None, Some(1), Some(2)]),
        (3, [Some(0), Some(1), None, None, Some(2)]),
        (4, [Some(0), Some(1), None, Some(2), None]),
    ] {
        let incumbent = bench.ask::<Option<String>>(&["HGET", "{estafeta}:ledger", "member"]).unwrap();
        bench.store.resign(incumbent.parse().unwrap(), term.epoch).await.unwrap();
        term = bench.lead(members[leads]).await;
        assert_eq!(ranks().await, expected, "member {leads} is in office");
    }
}

#[tokio::test]
async fn a_snapshot_shows_the_layout_and_the_application_of_the_ring() {
    let bench = TestBench::new().await;
    let seen = async || {
        let snapshot = bench.snapshot().await;
        (snapshot.layout, snapshot.application)
    };
    assert_eq!(seen().await, (None, None));
    bench.join(MemberKind::Reader, 1).await;
    assert_eq!(seen().await, (Some(4), None), "a reader has no application");
    bench.join(MemberKind::Node, 1).await;
    assert_eq!(seen().await, (Some(4), Some("tests".into())));
}

#[tokio::test]
async fn messages_that_a_member_holds_when_it_takes_office_stay_in_flight() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    assert_eq!(bench.claim(handler, 2).await.len(), 2);
    bench.store.resign(generator.incarnation, term.epoch).await.unwrap();
    bench.lead(handler).await;
    let snapshot = bench.snapshot().await;
    assert_eq!((snapshot.in_flight, snapshot.balanced), (2, true), "{snapshot:?}");
}

#[tokio::test]
async fn a_ring_is_erased_completely_and_thousands_of_foreign_keys_stay() {
    let bench = TestBench::new().await;
    bench.join(MemberKind::Node, 2).await;
    let mut foreign = redis::pipe();
    for number in 0..20_000 {
        foreign.cmd("SET").arg(format!("foreign:{number}")).arg("x").ignore();
    }
    foreign.exec(&mut *bench.connection.borrow_mut()).unwrap();
    // These hashes are left over from members that no list contains any more.
    for _ in 0..20 {
        bench.ask::<()>(&["HSET", &bench.store.keys().member(Incarnation::random()), "number", "7"]);
    }
    assert!(!bench.store.is_untouched().await.unwrap());
    bench.store.erase().await.unwrap();
    assert_eq!(bench.ask::<u64>(&["DBSIZE"]), 20_000);
    assert!(bench.store.is_untouched().await.unwrap());
}

#[tokio::test]
async fn a_member_whose_hash_was_deleted_does_not_block_snapshots() {
    let bench = TestBench::new().await;
    let ring = bench.ring().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 2).await);
    assert_eq!(ring.snapshot(0).await.unwrap().members.len(), 2);
    bench.ask::<()>(&["DEL", &bench.store.keys().member(one.incarnation)]);
    for _ in 0..2 {
        let members = ring.snapshot(0).await.unwrap().members;
        assert_eq!(members.iter().map(|member| member.id).collect::<Vec<_>>(), [other.number]);
    }
}

#[tokio::test]
async fn events_can_be_read_on_from_the_last_one_that_was_read() {
    let bench = TestBench::new().await;
    let ring = bench.ring().await;
    assert!(ring.events_after("", 10).await.unwrap().is_empty(), "a ring to which nothing happened");
    for _ in 0..3 {
        bench.join(MemberKind::Node, 1).await;
    }
    let all = ring.events_after("", 10).await.unwrap();
    let joined = |event: &Event| match event.kind {
        EventKind::Joined { member, .. } => member.0,
        ref other => panic!("{other}"),
    };
    assert_eq!(all.iter().map(joined).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(all[0].id.starts_with(&format!("{}-", all[0].time_ms)), "{all:?}");

    let ids = async |after: &str, count| {
        let events = ring.events_after(after, count).await.unwrap();
        events.into_iter().map(|event| event.id).collect::<Vec<_>>()
    };
    assert_eq!(ids("", 2).await, [all[0].id.as_str(), &all[1].id]);
    assert_eq!(ids(&all[0].id, 1).await, [all[1].id.as_str()]);
    assert_eq!(ids(&all[0].id, 10).await, [all[1].id.as_str(), &all[2].id]);
    assert!(ids(&all[2].id, 10).await.is_empty());
    assert!(ids("", 0).await.is_empty());
    let shown = ring.snapshot(1).await.unwrap().events;
    assert_eq!(shown[0].id, all[2].id, "a snapshot names them the same");
    let one = bench.join(MemberKind::Node, 1).await;
    let next = ring.events_after(&all[2].id, 10).await.unwrap();
    assert_eq!((next.len(), joined(&next[0])), (1, one.number.0));
}

/// The counts of the queue are a cache. If one was deleted, elements are counted instead.
#[tokio::test]
async fn a_snapshot_counts_messages_even_if_the_counts_of_the_queue_are_damaged() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    assert_eq!(bench.claim(handler, 3).await.len(), 3);
    assert_eq!(bench.snapshot().await.in_flight, 3, "in one pack");
    bench.publish(generator, &term, 1, &["d", "e"]).await;
    bench.publish(generator, &term, 2, &["f"]).await;
    assert_eq!(bench.snapshot().await.waiting, 3);
    // A queue may be long, so it is not read. Without a count, its elements are counted instead.
    for damage in
        [&["HSET", "{estafeta}:ledger", "packed", "many"][..], &["HDEL", "{estafeta}:ledger", "packed"]]
    {
        bench.ask::<()>(damage);
        assert_eq!(bench.snapshot().await.waiting, 2, "{damage:?}");
    }
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "packed", "999"]);
    bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
    assert_eq!(bench.snapshot().await.waiting, 0);
}

#[tokio::test]
async fn a_snapshot_with_an_outdated_list_of_members_is_refused() {
    let bench = TestBench::new().await;
    let (one, gone) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let roll = [one.incarnation, gone.incarnation];
    assert!(bench.store.snapshot(&Roll::new(2, &roll), 0).await.unwrap().is_some());
    assert!(bench.store.snapshot(&Roll::new(3, &roll), 0).await.unwrap().is_none(), "there are not three");
    bench.join(MemberKind::Node, 1).await;
    // First only its entry in the member list is gone, then also its hash.
    bench.ask::<()>(&["ZREM", "{estafeta}:members", &gone.incarnation.to_string()]);
    for _ in 0..2 {
        assert!(
            bench.store.snapshot(&Roll::new(2, &roll), 0).await.unwrap().is_none(),
            "as many, and not the same"
        );
        bench.ask::<()>(&["DEL", &bench.store.keys().member(gone.incarnation)]);
    }
    bench.ask::<()>(&["HDEL", &bench.store.keys().member(one.incarnation), "number"]);
    let names: Vec<Incarnation> =
        bench.store.members().await.unwrap().iter().map(|it| it.parse().unwrap()).collect();
    assert!(
        bench.store.snapshot(&Roll::new(2, &names), 0).await.unwrap().is_some(),
        "one of them is not whole"
    );
    assert_eq!(bench.snapshot().await.members.len(), 1, "it is not shown");
}

#[tokio::test]
async fn an_error_that_a_reader_holds_counts_as_one_even_if_it_looks_like_a_pack() {
    let bench = TestBench::new().await;
    let reader = bench.join(MemberKind::Reader, 1).await;
    bench.ask::<()>(&["RPUSH", "{estafeta}:errors", "*1 2 4 2 1:a1:b"]);
    bench.store.take(reader.identity(), &ShownLetters { want: 1, ..ShownLetters::default() }).await.unwrap();
    assert_eq!(bench.snapshot().await.errors_kept, 1);
}
