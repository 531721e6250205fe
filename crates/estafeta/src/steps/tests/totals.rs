//! Tests of the running totals: each member is credited once with what it published and settled.

use super::*;

/// What the snapshot shows for a member: generated, processed, failed.
async fn totals(bench: &TestBench, actor: Actor) -> [u64; 3] {
    let snapshot = bench.snapshot().await;
    let member = snapshot.members.iter().find(|member| member.id == actor.number);
    let MemberView { generated, processed, failed, .. } = member.expect("a member");
    [*generated, *processed, *failed]
}

fn hash_of(actor: Actor) -> String {
    Keys::new(&RingName::sample()).member(actor.incarnation)
}

#[tokio::test]
async fn every_member_is_credited_once_with_what_it_published_and_settled() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 2).await);
    let term = bench.lead(generator).await;
    assert_eq!(totals(&bench, generator).await, [0, 0, 0]);
    for _ in 0..2 {
        bench.publish_from(generator, &term, 0, 1, &["a", "b", "c"]).await;
    }
    bench.publish(generator, &term, 1, &["d", "e"]).await;

    bench.claim(handler, 5).await;
    let settlement = bench.settlement(handler, 3, &[(1, "no")]);
    bench.turn(handler, &settlement).await.unwrap();
    bench.make(handler, &settlement).await.unwrap();
    assert_eq!(totals(&bench, handler).await, [0, 3, 1]);
    bench.settle(handler, 2, &[(0, "no"), (1, "no")], 0).await;
    assert_eq!(totals(&bench, handler).await, [0, 5, 3]);
    assert_eq!(totals(&bench, generator).await, [5, 0, 0]);

    let reader = bench.join(MemberKind::Reader, 1).await;
    let take = |count, want| ShownLetters { count, want, ..ShownLetters::default() };
    bench.store.take(reader.identity(), &take(0, 2)).await.unwrap();
    bench.store.take(reader.identity(), &take(2, 0)).await.unwrap();
    assert_eq!(totals(&bench, reader).await, [0, 2, 0]);
}

#[tokio::test]
async fn a_publish_does_not_recreate_the_deleted_hash_of_a_member() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    bench.ask::<()>(&["DEL", &hash_of(one)]);
    let answer = bench.publish(one, &term, 0, &["a"]).await;
    assert!(matches!(answer, Publish::Published { .. }), "{answer:?}");
    assert!(!bench.ask::<bool>(&["EXISTS", &hash_of(one)]));
}

#[tokio::test]
async fn a_total_that_is_not_a_number_stops_a_step_before_it_writes() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.claim(handler, 1).await;
    bench.ask::<()>(&["HSET", &hash_of(generator), "generated", "many"]);
    bench.ask::<()>(&["HSET", &hash_of(handler), "failed", "some"]);
    assert_eq!(totals(&bench, generator).await, [0, 0, 0], "it can be looked at all the same");

    let next = messages(term.epoch, 2, &["b"]);
    let publish = async || bench.store.publish(generator.incarnation, &batch(term.epoch, 1, &next)).await;
    let before = bench.everything();
    publish().await.unwrap_err();
    let settlement = bench.settlement(handler, 1, &[(0, "no")]);
    assert!(bench.store.turn(handler.identity(), &settlement, true).await.is_err());
    assert_eq!(bench.everything(), before);

    bench.plant_foreign(&hash_of(generator), "hash");
    let before = bench.everything();
    publish().await.unwrap_err();
    assert_eq!(bench.everything(), before);
}
