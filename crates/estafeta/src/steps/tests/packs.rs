//! Tests of packs: many messages share one element until one of them has to move alone.

mod parsing;

use super::*;

/// Creates a ring with a generator, a handler and `count` small messages in the queue.
async fn ring_with(bench: &TestBench, count: usize) -> (Actor, Term, Actor) {
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    fill(bench, generator, &term, 0, count).await;
    (generator, term, handler)
}

async fn fill(bench: &TestBench, generator: Actor, term: &Term, n: u64, count: usize) -> Publish {
    let messages = messages(term.epoch, bench.ledger("published") + 1, &vec!["x"; count]);
    let batch = Dispatch { max_waiting: 1000, limit: 0, ..batch(term.epoch, n, &messages) };
    bench.store.publish(generator.incarnation, &batch).await.unwrap()
}

/// Claims and settles up to `want` messages at a time until the queue is empty. Foreign messages fail. Returns the ids
/// of each claim.
async fn settle_all(bench: &TestBench, handler: Actor, want: usize) -> Vec<Vec<u64>> {
    let mut claims = Vec::new();
    loop {
        let held = bench.held(handler);
        let foreign = held.iter().enumerate().filter(|(_, id)| **id == 0);
        let failures: Vec<_> = foreign.map(|(index, _)| (index, "foreign")).collect();
        let claimed = bench.settle(handler, held.len(), &failures, want).await;
        if claimed.is_empty() {
            return claims;
        }
        claims.push(claimed.iter().map(|message| message.id).collect());
    }
}

fn sizes(claims: &[Vec<u64>]) -> Vec<usize> {
    claims.iter().map(Vec::len).collect()
}

#[tokio::test]
async fn a_claim_takes_as_many_whole_packs_as_fit() {
    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 250).await;
    assert_eq!((bench.ready().len(), bench.snapshot().await.waiting), (3, 250));
    let claims = settle_all(&bench, handler, 220).await;
    assert_eq!(sizes(&claims), [200, 50]);
    fill(&bench, generator, &term, 1, 250).await;
    let other = bench.join(MemberKind::Node, 1).await;
    let claims = [claims, settle_all(&bench, other, 1000).await].concat();
    assert_eq!(sizes(&claims), [200, 50, 250]);
    assert_eq!(claims.concat(), (1..=500).collect::<Vec<u64>>());
    assert_eq!((bench.ledger("done"), bench.ledger("packed")), (500, 0));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_claim_of_less_than_a_pack_divides_the_pack() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 250).await;
    let first = bench.claim(handler, 30).await;
    assert_eq!(first.iter().map(|message| message.id).collect::<Vec<_>>(), (1..=30).collect::<Vec<u64>>());
    assert_eq!((bench.ready().len(), bench.snapshot().await.waiting), (3, 220));
    let other = bench.join(MemberKind::Node, 1).await;
    let claims = settle_all(&bench, other, 30).await;
    assert_eq!(claims.concat(), (31..=250).collect::<Vec<u64>>());
    bench.assert_balanced().await;
}

#[tokio::test]
async fn the_rest_of_a_partly_settled_pack_returns_in_order() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 20).await;
    assert_eq!(bench.claim(handler, 1000).await.len(), 20);
    assert_eq!(bench.snapshot().await.in_flight, 20);
    // The node stops halfway, with one failure among the settled messages.
    bench.settle(handler, 8, &[(2, "no")], 0).await;
    assert_eq!((bench.hand(handler).cursor, bench.held(handler)), (8, (9..=20).collect()));
    assert_eq!(bench.store.errors(0, 9).await.unwrap()[0].message.id, 3);
    assert_eq!(bench.store.leave(handler.incarnation).await.unwrap(), 12);
    let other = bench.join(MemberKind::Node, 1).await;
    let claims = settle_all(&bench, other, 1000).await;
    assert_eq!(sizes(&claims), [12], "their handler left and did not die");
    assert_eq!(claims.concat(), (9..=20).collect::<Vec<u64>>());
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_broken_pack_is_one_foreign_message_to_scripts_and_lanes() {
    let broken = [
        "*",
        "*1 2 4 0 ",
        "*1 2 4 2 1:a",
        "*1 2 4 1 1:ab",
        "*1 2 4 1 9:a",
        "*1 2 4 -1 1:a",
        "*1 2 4 999999999 1:a",
        "*1 2 4 2 1:a99999999999999999999:b",
        "*x 2 4 1 1:a",
        "*1 2  4 2 1:a1:b",
        "*99999999999999999999 2 4 2 1:a1:b",
        // No pack has more than a hundred messages.
        &format!("*1 2 4 101 {}", "1:a".repeat(101)),
    ];
    for want in [1, 3, 1000] {
        let bench = TestBench::new().await;
        let (generator, term, handler) = ring_with(&bench, 4).await;
        for element in broken {
            bench.ask::<()>(&["RPUSH", "{estafeta}:ready", element]);
        }
        fill(&bench, generator, &term, 1, 4).await;
        let ids = settle_all(&bench, handler, want).await.concat();
        let ours: Vec<u64> = ids.iter().copied().filter(|id| *id > 0).collect();
        assert_eq!(ours, (1..=8).collect::<Vec<u64>>(), "claims of {want}: {ids:?}");
        assert_eq!(ids.len() - ours.len(), broken.len(), "claims of {want}: {ids:?}");
        let snapshot = bench.snapshot().await;
        assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0), "claims of {want}");
        assert_eq!((bench.ledger("done"), bench.ledger("failed")), (8, 12), "claims of {want}");
    }
}

/// If a count is wrong, a member gets as many messages as it wants all the same, and none is lost.
#[tokio::test]
async fn wrong_counts_of_the_queue_lose_no_message() {
    for damage in [
        &["HDEL", "{estafeta}:ledger", "packed"][..],
        &["HSET", "{estafeta}:ledger", "packed", "-1"],
        &["HSET", "{estafeta}:ledger", "packed", "1"],
        &["HSET", "{estafeta}:ledger", "packed", "99999"],
    ] {
        let bench = TestBench::new().await;
        let (.., handler) = ring_with(&bench, 250).await;
        bench.ask::<()>(damage);
        assert_eq!(bench.claim(handler, 2).await.len(), 2, "{damage:?}");
        assert_eq!(bench.snapshot().await.in_flight, 2, "{damage:?}");
        let claims = settle_all(&bench, handler, 1000).await;
        assert_eq!(claims.concat(), (3..=250).collect::<Vec<u64>>(), "{damage:?}");
        assert_eq!((bench.ledger("done"), bench.ledger("packed")), (250, 0), "{damage:?}");
        bench.assert_balanced().await;
    }
}

#[tokio::test]
async fn a_deleted_queue_is_not_full() {
    let bench = TestBench::new().await;
    let (generator, term, _) = ring_with(&bench, 1000).await;
    assert!(matches!(fill(&bench, generator, &term, 1, 10).await, Publish::Full { .. }));
    bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
    let answer = fill(&bench, generator, &term, 1, 10).await;
    assert!(matches!(answer, Publish::Published { .. }), "{answer:?}");
    assert_eq!(bench.snapshot().await.waiting, 10);
}

/// Two of a thousand messages are not in the queue when it is deleted: a node holds one, and the other is an error.
#[tokio::test]
async fn a_message_that_returns_to_a_deleted_queue_is_the_only_one_counted_there() {
    for by_retry in [false, true] {
        let bench = TestBench::new().await;
        let (.., handler) = ring_with(&bench, 1000).await;
        bench.claim(handler, 1).await;
        bench.settle(handler, 1, &[(0, "no")], 1).await;
        bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
        if by_retry {
            let errors: Vec<String> = bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]);
            assert_eq!(bench.store.resolve("retry", &[(0, errors[0].as_bytes())]).await.unwrap(), 1);
        } else {
            bench.store.leave(handler.incarnation).await.unwrap();
        }
        assert_eq!(bench.snapshot().await.waiting, 1, "by retry: {by_retry}");
    }
}

#[tokio::test]
async fn a_publish_repairs_damaged_counts() {
    for damage in
        [&["HDEL", "{estafeta}:ledger", "packed"][..], &["HSET", "{estafeta}:ledger", "packed", "-5"]]
    {
        let bench = TestBench::new().await;
        let (generator, term, _) = ring_with(&bench, 1).await;
        bench.ask::<()>(damage);
        fill(&bench, generator, &term, 1, 3).await;
        assert_eq!((bench.ledger("packed"), bench.snapshot().await.waiting), (2, 4), "{damage:?}");
    }
}

/// A message with deaths waits behind two packs, of which one is opened by the first claim.
#[tokio::test]
async fn a_message_with_deaths_takes_the_share_of_a_whole_lane() {
    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 20).await;
    fill(&bench, generator, &term, 1, 3).await;
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "24 9 7 1 0 1 0 0 x", "25 9 7 1 0 0 0 0 x"]);
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "25"]);
    assert_eq!(bench.claim(handler, 5).await.len(), 5);
    // One lane gets what stands before it, then the message alone, then what stands behind it.
    let other = bench.join(MemberKind::Node, 1).await;
    assert_eq!(sizes(&settle_all(&bench, other, 1000).await), [18, 1, 1]);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn several_lanes_get_a_message_with_deaths_and_the_shares_of_the_others() {
    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 1).await;
    bench.ask::<()>(&["LPUSH", "{estafeta}:ready", "8 9 7 1 0 1 0 0 x", "what is this", "7 9 7 1 0 1 0 0 x"]);
    for n in 1..20 {
        fill(&bench, generator, &term, n, 1).await;
    }
    // Four lanes want ten messages each. Three of these shares are used up by one element each.
    let claimed = bench.claim_for(handler, 4, 10).await;
    let ids: Vec<u64> = claimed.iter().map(|message| message.id).collect();
    assert_eq!(ids, [vec![7, 0, 8], (1..=10).collect()].concat());
    // If lanes want one each, all messages are equal.
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 5).await;
    bench.ask::<()>(&["LPUSH", "{estafeta}:ready", "7 9 7 1 0 1 0 0 x"]);
    assert_eq!(bench.claim_for(handler, 4, 1).await.len(), 4);
}

/// A pack stays whole for a lane that wants many messages, even if it is somewhat larger. Lanes that want one message
/// each get small packs.
#[tokio::test]
async fn a_pack_is_divided_only_for_lanes_that_want_few_messages() {
    for (lanes, each, names, waiting) in [
        (1, 100, vec!["1*100"], 150),
        (1, 50, vec!["1*100"], 150),
        (2, 25, vec!["1*100"], 150),
        (1, 120, vec!["1*100"], 150),
        (1, 151, vec!["1*100", "2*100"], 50),
        (1, 1, vec!["1"], 249),
        (3, 1, vec!["1*3"], 247),
        (17, 1, vec!["1*8", "2*8", "3"], 233),
        (2, 20, vec!["1*20", "2*20"], 210),
    ] {
        let bench = TestBench::new().await;
        let (.., handler) = ring_with(&bench, 250).await;
        let want = Settlement { want: lanes * each, each, ..Settlement::default() };
        let applied = bench.make(handler, &want).await.unwrap();
        assert_eq!(applied.names(), names, "{lanes} lanes want {each} each");
        assert_eq!(bench.snapshot().await.waiting, waiting, "{lanes} lanes want {each} each");
        bench.assert_balanced().await;
    }
    // A lane that wants much less than the pack has gets its share as one pack.
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 250).await;
    assert_eq!(bench.claim(handler, 49).await.len(), 49);
    assert_eq!(bench.ready().len(), 3);
}

/// One header names nine messages, which is more than the lane wants. The other one names none.
#[tokio::test]
async fn a_broken_pack_is_claimed_as_one_message_whatever_number_its_header_names() {
    let bench = TestBench::new().await;
    for foreign in ["*1 2 4 9 x", "*1 2 4 0 "] {
        bench.ask::<()>(&["FLUSHALL"]);
        let (.., handler) = ring_with(&bench, 4).await;
        bench.ask::<()>(&["LPUSH", "{estafeta}:ready", foreign]);
        // Together with the pack of four behind it, the claim would be too large.
        let held = bench.claim(handler, 4).await;
        assert_eq!((held.len(), held[0].id, held[0].body()), (1, 0, foreign.as_bytes()));
        assert_eq!(bench.snapshot().await.in_flight, 1);
        assert_eq!(bench.ledger("packed"), 3);
    }
}

#[tokio::test]
async fn the_parts_of_a_pack_are_settled_in_any_order() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 10).await;
    assert_eq!(bench.claim(handler, 10).await.len(), 10);
    // Some messages of the pack are settled, one of them failed, and one goes back.
    let fate = |at: usize| match at {
        7 | 2 => Fate::Done,
        4 => Fate::Fails("no".into()),
        9 => Fate::Returns,
        _ => Fate::Stays,
    };
    let first = bench.hand(handler).settlement(fate);
    assert_eq!((first.count, first.parts[0].settled.len(), first.parts[0].back.len()), (4, 3, 1));
    for _ in 0..2 {
        assert_eq!(bench.turn(handler, &first).await.unwrap().cursor, 4);
    }
    bench.make(handler, &first).await.unwrap();
    let member = bench.store.keys().member(handler.incarnation);
    let mut fields: Vec<String> = bench.ask(&["HKEYS", &member]);
    fields.retain(|field| field.starts_with(|first: char| first.is_ascii_digit()));
    fields.sort();
    assert_eq!(fields, ["1.0", "1.1", "1.3", "1.5", "1.6", "1.8"]);
    assert_eq!(bench.ready(), [format!("10 {} 7 0 0 0 0 0 x", first_epoch(&bench))]);
    assert_eq!((bench.ledger("done"), bench.ledger("failed")), (2, 1));
    assert_eq!(bench.snapshot().await.in_flight, 6);
    bench.assert_balanced().await;
    // The rest is settled from its end.
    let last = bench.hand(handler).settlement(|at| if at >= 3 { Fate::Done } else { Fate::Stays });
    bench.make(handler, &last).await.unwrap();
    bench.settle(handler, 3, &[(1, "no")], 0).await;
    assert_eq!((bench.ledger("done"), bench.ledger("failed")), (7, 2));
    assert_eq!(bench.snapshot().await.in_flight, 0);
    bench.assert_balanced().await;
}

fn first_epoch(bench: &TestBench) -> String {
    bench.ask(&["HGET", "{estafeta}:ledger", "epoch"])
}

/// With a journal, the script reads what it settles and refuses. Without one, it counts only what was there.
#[tokio::test]
async fn messages_deleted_from_a_hand_are_not_settled() {
    for (each, journal) in [(1, false), (1, true), (5, false), (5, true)] {
        let bench = TestBench::new().await;
        let (.., handler) = ring_with(&bench, 5).await;
        for _ in 0..5 / each {
            assert_eq!(bench.claim(handler, each).await.len(), each);
        }
        let settlement = bench.settlement(handler, 5, &[]);
        bench.ask::<()>(&["HDEL", &bench.store.keys().member(handler.incarnation), &settlement.whole[0]]);
        let turn = bench.store.turn(handler.identity(), &settlement, journal).await.unwrap();
        assert_eq!(matches!(turn, Turn::Lost), journal, "claims of {each}");
        let done = if journal { 0 } else { 5 - each as u64 };
        assert_eq!(bench.ledger("done"), done, "claims of {each}");
    }
}

#[tokio::test]
async fn a_message_with_an_empty_body_keeps_its_id_when_it_fails_and_when_its_handler_dies() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["", ""]).await;
    assert_eq!(bench.claim(handler, 2).await.len(), 2);
    bench.settle(handler, 1, &[(0, "no")], 0).await;
    let failed = bench.store.errors(0, 10).await.unwrap();
    assert_eq!(
        failed.iter().map(|error| (error.message.id, error.message.body())).collect::<Vec<_>>(),
        [(1, &b""[..])]
    );
    bench.expire(handler);
    bench.bury(handler).await;
    let heir = bench.join(MemberKind::Node, 1).await;
    let returned = bench.claim(heir, 1).await;
    let seen: Vec<_> =
        returned.iter().map(|message| (message.id, message.delivery, message.body())).collect();
    assert_eq!(seen, [(2, 2, &b""[..])]);
}
