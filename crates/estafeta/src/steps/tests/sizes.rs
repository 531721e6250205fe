//! Tests with more than a step handles at once: several chunks per command, many members, many lanes, long reasons, a
//! full event stream.

use super::*;

/// More than two chunks of 500, and not a multiple of 500.
const MANY: usize = 1203;

/// Messages that share no pack, because neighbours have different publication times.
fn singles(epoch: Epoch, count: usize) -> Vec<Message> {
    let bodies: Vec<String> = (1..=count).map(|id| format!("body {id}")).collect();
    let mut messages = messages(epoch, 1, &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    for message in messages.iter_mut().filter(|message| message.id % 2 == 0) {
        message.published_ms += 1;
    }
    messages
}

fn ids(messages: &[Message]) -> Vec<u64> {
    messages.iter().map(|message| message.id).collect()
}

/// Publishes [`MANY`] single messages. Returns them and a handler.
async fn long_queue(bench: &TestBench) -> (Vec<Message>, Actor) {
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 3).await);
    let term = bench.lead(generator).await;
    let messages = singles(term.epoch, MANY);
    let batch = Dispatch { max_waiting: 5000, limit: 0, ..batch(term.epoch, 0, &messages) };
    assert!(matches!(
        bench.store.publish(generator.incarnation, &batch).await.unwrap(),
        Publish::Published { .. }
    ));
    (messages, handler)
}

#[tokio::test]
async fn a_publish_of_many_elements_appends_each_of_them_once() {
    let bench = TestBench::new().await;
    let (messages, handler) = long_queue(&bench).await;
    assert_eq!(bench.ready().len(), MANY);
    assert_eq!(bench.claim(handler, 5000).await, messages);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_member_that_settles_some_of_many_messages_keeps_the_others() {
    let bench = TestBench::new().await;
    let (messages, handler) = long_queue(&bench).await;
    bench.claim(handler, 5000).await;
    let reasons: Vec<String> = (0..700).map(|index| format!("reason {index}")).collect();
    let failures: Vec<(usize, &str)> = reasons.iter().map(String::as_str).enumerate().collect();
    assert_eq!(bench.settle(handler, 701, &failures, 5).await, []);
    assert_eq!(bench.hand(handler).cursor, 701);
    assert_eq!(bench.held(handler), ids(&messages[701..]));
    let asks = Settlement { seen: 0, ..bench.settlement(handler, 0, &[]) };
    assert_eq!(bench.turn(handler, &asks).await, None, "claims 1 to 701 are gone");
    let asks = Settlement { seen: 701, ..asks };
    assert_eq!(bench.turn(handler, &asks).await.unwrap().messages(), messages[701..]);
    let errors = bench.store.errors(0, 5000).await.unwrap();
    let found: Vec<_> = errors.iter().map(|error| (error.message.id, error.reason.clone())).collect();
    let expected: Vec<_> = (0..700_u64).map(|index| (index + 1, format!("reason {index}"))).collect();
    assert_eq!(found, expected);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn many_messages_of_a_dead_member_return_in_order() {
    let bench = TestBench::new().await;
    let (_, handler) = long_queue(&bench).await;
    for (want, expected) in [(601, 601), (501, 501), (101, 101)] {
        assert_eq!(bench.claim(handler, want).await.len(), expected);
    }
    bench.expire(handler);
    assert!(matches!(bench.bury(handler).await, Bury::Buried { returned: 1203, gave_up: 0, .. }));
    let waiting: Vec<u64> =
        bench.ready().iter().map(|element| element.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(waiting, (1..=MANY as u64).collect::<Vec<_>>());
    bench.assert_balanced().await;
}

#[tokio::test]
async fn many_messages_that_too_many_died_with_become_as_many_errors() {
    let bench = TestBench::new().await;
    let (_, handler) = long_queue(&bench).await;
    let last_delivery: Vec<String> = (1..=MANY).map(|id| format!("{id} 1 7 2 0 2 0 0 body {id}")).collect();
    bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
    let (hand, claims) = (bench.store.keys().member(handler.incarnation), 1..=MANY);
    let names: Vec<String> = claims.map(|claim| claim.to_string()).collect();
    let mut push = vec!["HSET", &hand];
    push.extend(names.iter().zip(&last_delivery).flat_map(|(name, element)| [name.as_str(), element]));
    bench.ask::<()>(&push);
    bench.expire(handler);
    assert!(matches!(bench.bury(handler).await, Bury::Buried { returned: 0, gave_up: 1203, .. }));
    let errors = bench.store.errors(0, 5000).await.unwrap();
    assert_eq!(
        errors.iter().map(|error| error.message.id).collect::<Vec<_>>(),
        (1..=MANY as u64).collect::<Vec<_>>()
    );
    assert_eq!(errors[MANY - 1].message.body(), b"body 1203");
    assert_eq!(bench.ledger("failed"), MANY as u64);
    let journal: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:journal", "-", "+"]);
    assert_eq!(journal[0].1[1].split(' ').count(), MANY);
}

#[tokio::test]
async fn many_errors_are_retried_in_one_step_and_in_order() {
    let bench = TestBench::new().await;
    let handler = bench.join(MemberKind::Node, 1).await;
    let elements: Vec<String> =
        (1..=MANY).map(|id| format!("!9 1 6 reason {id} 1 7 3 1 2 0 0 body {id}")).collect();
    let mut push = vec!["RPUSH", "{estafeta}:errors"];
    push.extend(elements.iter().map(String::as_str));
    bench.ask::<()>(&push);
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "1203", "failed", "1203"]);
    let chosen: Vec<(u64, &[u8])> = (0..).zip(elements.iter().map(String::as_bytes)).collect();
    assert_eq!(bench.store.resolve("retry", &chosen).await.unwrap(), MANY as u64);
    bench.assert_balanced().await;
    let held = bench.claim(handler, 5000).await;
    assert_eq!(ids(&held), (1..=MANY as u64).collect::<Vec<_>>());
    assert!(
        held.iter().all(|message| message.delivery == 5 && message.text() == format!("body {}", message.id))
    );
}

#[tokio::test]
async fn among_many_members_exactly_the_expired_and_absent_ones_are_suspects() {
    let bench = TestBench::new().await;
    let now = bench.store.suspects(LEASE).await.unwrap().now_ms;
    let names: Vec<String> = (0..MANY).map(|index| format!("{index:016x}")).collect();
    // The deadlines grow, so the members are listed in the order of their names. The first deadline is over.
    let mut add = redis::cmd("ZADD");
    add.arg("{estafeta}:members");
    for (index, name) in names.iter().enumerate() {
        add.arg(if index == 0 { 1 } else { now + 30_000 + index as u64 }).arg(name);
    }
    add.exec(&mut bench.redis.connect()).unwrap();
    // Some are at the ends of chunks, and one is in the middle of a chunk.
    let absent = [1, 499, 500, 777, 999, 1000, MANY - 1];
    let mut connection = bench.redis.connect();
    let mut subscriber = connection.as_pubsub();
    for (_, name) in names.iter().enumerate().filter(|(index, _)| !absent.contains(index)) {
        subscriber.subscribe(format!("{{estafeta}}:alive:{name}")).unwrap();
    }
    let suspects = bench.store.suspects(LEASE).await.unwrap();
    let found: Vec<_> = suspects.list.iter().map(|(who, health)| (who.to_string(), *health)).collect();
    let mut expected = vec![(names[0].clone(), Health::Expired)];
    expected.extend(absent.map(|index| (names[index].clone(), Health::Absent)));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_member_can_have_as_many_lanes_as_the_settings_allow() {
    let bench = TestBench::new().await;
    let (_, handler) = long_queue(&bench).await;
    assert_eq!(bench.claim_for(handler, 1024, 1).await.len(), 1024);
    bench.settle(handler, 1, &[(0, "no")], 0).await;
    let snapshot = bench.snapshot().await;
    let seen = &snapshot.members[1];
    let counts = (seen.in_flight, seen.processed, seen.failed, snapshot.waiting);
    assert_eq!(counts, (1023, 1, 1, 179), "{snapshot:?}");
    assert!(snapshot.balanced);
    assert_eq!(bench.store.leave(handler.incarnation).await.unwrap(), 1023);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_long_reason_is_kept_whole_and_leaves_the_body_intact() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a body", "another"]).await;
    bench.claim(handler, 2).await;
    // The first reason is as long as a failure may be, with four bytes per character. The second looks like a header.
    let reasons = ["\u{1f3c3}".repeat(1024), "1 2 3 4 5 6 7 ".repeat(290)];
    let failures: Vec<(usize, &str)> = reasons.iter().map(String::as_str).enumerate().collect();
    bench.settle(handler, 2, &failures, 0).await;
    let errors = bench.store.errors(0, 9).await.unwrap();
    assert_eq!(errors.iter().map(|error| error.reason.clone()).collect::<Vec<_>>(), reasons);
    let elements: Vec<(u64, &[u8])> = (0..).zip(errors.iter().map(DeadLetter::element)).collect();
    assert_eq!(bench.store.resolve("retry", &elements).await.unwrap(), 2);
    let again = bench.claim(handler, 2).await;
    assert_eq!(
        again.iter().map(|message| message.text().into_owned()).collect::<Vec<_>>(),
        ["a body", "another"]
    );
}

#[tokio::test]
async fn the_event_stream_keeps_about_the_last_ten_thousand_entries() {
    let bench = TestBench::new().await;
    let mut fill = redis::pipe();
    for _ in 0..12_000 {
        fill.cmd("XADD").arg("{estafeta}:events").arg("*").arg("kind").arg("filler").ignore();
    }
    fill.exec(&mut bench.redis.connect()).unwrap();
    let one = bench.join(MemberKind::Node, 1).await;
    let length: u64 = bench.ask(&["XLEN", "{estafeta}:events"]);
    // Redis trims about a hundred entries at a time.
    assert!((10_000..=10_100).contains(&length), "{length}");
    let newest: Vec<(String, Vec<String>)> =
        bench.ask(&["XREVRANGE", "{estafeta}:events", "+", "-", "COUNT", "1"]);
    assert_eq!(newest[0].1[..4], ["kind", "joined", "member", &one.number.to_string()]);
}

/// A step takes a few elements first, and looks at their size.
#[tokio::test]
async fn a_claim_of_large_messages_ends_when_the_budget_is_used_up() {
    for (bytes, want, expected) in [(600_000, 5, 4), (600_000, 3, 3), (100_000, 40, 21), (3_000_000, 5, 1)] {
        let bench = TestBench::new().await;
        let (generator, handler) =
            (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
        let term = bench.lead(generator).await;
        let large = "x".repeat(bytes);
        let messages = messages(term.epoch, 1, &[large.as_str(); 40]);
        let batch = Dispatch { max_waiting: 100, ..batch(term.epoch, 0, &messages) };
        bench.store.publish(generator.incarnation, &batch).await.unwrap();
        let claimed = bench.claim_for(handler, want, 1).await;
        assert_eq!(ids(&claimed), (1..=expected).collect::<Vec<_>>(), "{want} of {bytes} bytes");
        bench.assert_balanced().await;
    }
}

#[tokio::test]
async fn a_claim_of_a_pack_and_large_messages_is_measured() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    let large = "x".repeat(20_900);
    let bodies = [vec!["a", "b"], vec![large.as_str(); 120]].concat();
    let messages = messages(term.epoch, 1, &bodies);
    let batch = Dispatch { max_waiting: 500, limit: 0, ..batch(term.epoch, 0, &messages) };
    bench.store.publish(generator.incarnation, &batch).await.unwrap();
    let claimed = bench.claim(handler, 1000).await;
    assert!((95..=106).contains(&claimed.len()), "{}", claimed.len());
    assert_eq!(ids(&claimed), (1..=claimed.len() as u64).collect::<Vec<_>>());
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_reader_gets_as_many_errors_as_it_wants() {
    let bench = TestBench::new().await;
    let errors: Vec<String> = (1..=MANY).map(|id| format!("!1 1 2 no {id} 1 1 0 0 0 0 0 body")).collect();
    let mut push = vec!["RPUSH", "{estafeta}:errors"];
    push.extend(errors.iter().map(String::as_str));
    bench.ask::<()>(&push);
    let reader = bench.join(MemberKind::Reader, 1).await;
    let take = ShownLetters { want: 1000, ..ShownLetters::default() };
    let Take::Holds { held, .. } = bench.store.take(reader.identity(), &take).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(held.iter().map(|error| error.message.id).collect::<Vec<_>>(), (1..=1000).collect::<Vec<_>>());
}
