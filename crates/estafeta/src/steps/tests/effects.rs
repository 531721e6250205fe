//! Tests of effects: what a message that is done writes, and what becomes of it if one of its effects is bad.

mod forwards;

use bytes::Bytes;

use super::*;
use crate::trace::TraceContext;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn set(key: &str, value: &str) -> Effect {
    Effect::Set { key: key.into(), value: Bytes::copy_from_slice(value.as_bytes()), ttl: None }
}

fn add(key: &str, n: i64) -> Effect {
    Effect::Add { key: key.into(), n }
}

fn append(stream: &str, value: &str) -> Effect {
    let field = ("field".into(), Bytes::copy_from_slice(value.as_bytes()));
    Effect::Append { stream: stream.into(), fields: vec![field], maxlen: None }
}

fn result(value: &str) -> Effect {
    Effect::Result { value: Bytes::copy_from_slice(value.as_bytes()), ttl: DAY }
}

fn forward(ring: &str, body: &str) -> Effect {
    Effect::forward(ring.parse().unwrap(), Bytes::copy_from_slice(body.as_bytes()))
}

/// A ring with one handler that holds messages.
struct HeldRing {
    bench: TestBench,
    generator: Actor,
    handler: Actor,
    term: Term,
}

impl HeldRing {
    async fn new(count: usize) -> Self {
        let bench = TestBench::new().await;
        let generator = bench.join(MemberKind::Node, 1).await;
        let handler = bench.join(MemberKind::Node, 1).await;
        let term = bench.lead(generator).await;
        let bodies: Vec<String> = (1..=count).map(|n| n.to_string()).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        let messages = messages(term.epoch, 1, &bodies);
        let batch = Dispatch { max_waiting: 1000, limit: 0, ..batch(term.epoch, 0, &messages) };
        bench.store.publish(generator.incarnation, &batch).await.unwrap();
        assert_eq!(bench.claim(handler, count).await.len(), count);
        Self { bench, generator, handler, term }
    }

    /// Settles all messages that the handler holds, each with its effects.
    async fn settle(&self, effects: Vec<Vec<Effect>>) -> Applied {
        let settlement = self.settlement(effects);
        self.bench.make(self.handler, &settlement).await.expect("a member")
    }

    fn settlement(&self, effects: Vec<Vec<Effect>>) -> Settlement {
        self.bench.hand(self.handler).settlement(|at| match effects.get(at) {
            Some(effects) if effects.is_empty() => Fate::Done,
            Some(effects) => Fate::Affects(effects.clone()),
            None => Fate::Stays,
        })
    }

    /// Another ring on the same Redis.
    async fn other(&self, name: &str) -> (Store, Keeper) {
        let (connection, keeper) = ManagedConnection::open(topology(&self.bench.redis), LEASE).await.unwrap();
        (Store::new(Arc::new(connection), name.parse().unwrap()), keeper)
    }

    fn get(&self, name: &str) -> Option<String> {
        self.bench.ask(&["GET", &format!("{{estafeta}}:u:{name}")])
    }

    /// The ids of the errors and their reasons.
    async fn errors(&self) -> Vec<(u64, String)> {
        let errors = self.bench.store.errors(0, 100).await.unwrap();
        errors.into_iter().map(|error| (error.message.id, error.reason)).collect()
    }
}

fn bad(position: usize, reason: &str) -> BadEffects {
    BadEffects { position, reason: reason.to_owned() }
}

#[tokio::test]
async fn effects_are_applied_in_order_with_the_settle_of_their_message() {
    let ring = HeldRing::new(3).await;
    let short = Effect::Set { key: "short".into(), value: "x".into(), ttl: Some(Duration::from_secs(60)) };
    let effects = vec![
        vec![add("sold", 5), set("last", "1"), append("log", "one"), short, result("first")],
        vec![],
        vec![add("sold", -7), set("last", "a b\r\n\u{0}"), append("log", "two"), set("n", "41"), add("n", 1)],
    ];
    let applied = ring.settle(effects).await;
    assert_eq!((applied.cursor, applied.bad), (3, vec![]));
    assert_eq!(ring.get("sold").as_deref(), Some("-2"));
    assert_eq!(ring.get("last").as_deref(), Some("a b\r\n\u{0}"));
    assert_eq!(ring.get("n").as_deref(), Some("42"), "set, then add");
    let log: Vec<(String, Vec<String>)> = ring.bench.ask(&["XRANGE", "{estafeta}:u:log", "-", "+"]);
    let log: Vec<_> = log.into_iter().map(|(_, fields)| fields.join("=")).collect();
    assert_eq!(log, ["field=one", "field=two"]);
    let left: i64 = ring.bench.ask(&["PTTL", "{estafeta}:u:short"]);
    assert!((30_000..=60_000).contains(&left), "{left}");
    assert_eq!(ring.bench.ask::<i64>(&["PTTL", "{estafeta}:u:last"]), -1);
    let kept: String = ring.bench.ask(&["GET", "{estafeta}:result:1"]);
    let (epoch, rest) = kept.split_once(' ').unwrap();
    let (time, value) = rest.split_once(' ').unwrap();
    assert_eq!((epoch, value), (ring.term.epoch.to_string().as_str(), "first"));
    assert!(time.parse::<u64>().unwrap() >= ring.term.epoch.0 - 1000);
    assert!(ring.bench.ask::<i64>(&["PTTL", "{estafeta}:result:1"]) > 1000);
    assert_eq!((ring.bench.ledger("done"), ring.bench.ledger("failed")), (3, 0));
    ring.bench.assert_balanced().await;
}

#[tokio::test]
async fn a_repeated_a_late_and_a_lost_turn_apply_no_effect() {
    let ring = HeldRing::new(2).await;
    let effects = || vec![vec![add("sold", 1), append("log", "x"), forward("estafeta/next", "x")]];
    let settlement = ring.settlement(effects());
    let (bench, handler) = (&ring.bench, ring.handler);
    // The answer of the first try is lost.
    bench.turn(handler, &settlement).await.unwrap();
    let before = |key: &str| -> Vec<u8> { bench.ask(&["DUMP", key]) };
    let written =
        ["{estafeta}:u:sold", "{estafeta}:u:log", "{estafeta}/next:ready", "{estafeta}/next:ledger"];
    let dumps = written.map(before);
    let again = bench.make(handler, &settlement).await.unwrap();
    assert_eq!((again.cursor, again.bad), (1, vec![]));
    assert_eq!(written.map(before), dumps, "the settle was applied before");
    // A try that its repeat overtook.
    let late = turn::call(bench.store.keys(), handler.identity(), 1, &settlement, true);
    let reply = bench.store.run(&turn::SCRIPT, &late).await.unwrap();
    assert!(matches!(turn::read(reply).unwrap(), Turn::Lost));
    // The member is dead.
    let next = ring.settlement(effects());
    assert_eq!(next.effects[0].id, 2);
    bench.expire(handler);
    bench.bury(handler).await;
    assert_eq!(bench.turn(handler, &next).await, None);
    assert_eq!(written.map(before), dumps, "a lost member writes nothing");
    bench.assert_balanced().await;
}

/// Each case is a message with bad effects, between two messages with good ones.
#[tokio::test]
async fn a_message_with_a_bad_effect_becomes_an_error_and_the_others_settle() {
    let most = 999_999_999_999_999;
    let cases: [(Vec<Effect>, &str); 14] = [
        (
            vec![add("text", 1)],
            "add {estafeta}:u:text: expected a whole number of at most 15 digits, got another text",
        ),
        (vec![add("list", 1)], "add {estafeta}:u:list: expected a string, got a list"),
        (vec![add("stream", 1)], "add {estafeta}:u:stream: expected a string, got a stream"),
        (vec![add("padded", 1)], "add {estafeta}:u:padded: expected a whole number"),
        (vec![add("huge", 1)], "add {estafeta}:u:huge: expected a whole number"),
        (vec![add("most", 1)], "add {estafeta}:u:most: expected a sum of at most 15 digits, got more"),
        (vec![add("least", -1)], "add {estafeta}:u:least: expected a sum of at most 15 digits, got more"),
        (vec![set("list", "x")], "set {estafeta}:u:list: expected a string, got a list"),
        (vec![set("stream", "x")], "set {estafeta}:u:stream: expected a string, got a stream"),
        (vec![append("text", "x")], "append {estafeta}:u:text: expected a stream, got a string"),
        (vec![append("full", "x")], "append {estafeta}:u:full: the stream has no id left"),
        (vec![set("mine", "text"), add("mine", 1)], "add {estafeta}:u:mine: expected a whole number"),
        (
            vec![add("mine", most), add("mine", 1)],
            "add {estafeta}:u:mine: expected a sum of at most 15 digits",
        ),
        (
            vec![add("mine", 1), append("mine", "x")],
            "append {estafeta}:u:mine: expected a stream, got a string",
        ),
    ];
    let count = cases.len();
    let ring = HeldRing::new(2 * count + 1).await;
    let ask = |words: &[&str]| ring.bench.ask::<redis::Value>(words);
    ask(&["SET", "{estafeta}:u:text", "12 apples"]);
    ask(&["SET", "{estafeta}:u:padded", "007"]);
    ask(&["SET", "{estafeta}:u:huge", "1000000000000000"]);
    ask(&["SET", "{estafeta}:u:most", "999999999999999"]);
    ask(&["SET", "{estafeta}:u:least", "-999999999999999"]);
    ask(&["RPUSH", "{estafeta}:u:list", "x"]);
    ask(&["XADD", "{estafeta}:u:stream", "*", "a", "b"]);
    ask(&["XADD", "{estafeta}:u:full", "18446744073709551615-0", "a", "b"]);
    let keys = ["text", "padded", "huge", "most", "least", "list", "stream", "full"];
    let dump = |key: &str| -> Vec<u8> { ring.bench.ask(&["DUMP", &format!("{{estafeta}}:u:{key}")]) };
    let before = keys.map(dump);
    let mut effects = vec![vec![add("good", 1)]];
    for (bad, _) in &cases {
        // What comes before and after a bad effect is not applied either.
        let whole = [&[set("before", "x"), forward("estafeta/next", "x")][..], bad, &[result("no")]].concat();
        effects.extend([whole, vec![add("good", 1), forward("estafeta/next", "y")]]);
    }
    let applied = ring.settle(effects).await;
    assert_eq!(applied.bad.len(), count);
    let errors = ring.errors().await;
    for (n, (_, reason)) in cases.iter().enumerate() {
        let (id, found) = &errors[n];
        assert!(*id == 2 * n as u64 + 2 && found.starts_with(reason), "#{id}: {found}");
        assert_eq!(applied.bad[n], bad(2 * n + 1, found));
    }
    assert_eq!(keys.map(dump), before);
    assert_eq!(ring.get("good"), Some((count + 1).to_string()));
    assert_eq!((ring.get("before"), ring.get("mine")), (None, None));
    assert_eq!(ring.bench.ask::<Vec<String>>(&["KEYS", "*:result:*"]), [""; 0]);
    let next: Vec<String> = ring.bench.ask(&["LRANGE", "{estafeta}/next:ready", "0", "-1"]);
    assert_eq!(next.len(), count, "only messages of good ones: {next:?}");
    assert_eq!((ring.bench.ledger("done"), ring.bench.ledger("failed")), (count as u64 + 1, count as u64));
    let member = ring.bench.snapshot().await.members.into_iter().find(|it| it.failed > 0).unwrap();
    assert_eq!((member.processed, member.failed), (2 * count as u64 + 1, count as u64));
    ring.bench.assert_balanced().await;
}

#[tokio::test]
async fn effects_of_one_turn_are_checked_together() {
    let ring = HeldRing::new(7).await;
    let half = 600_000_000_000_000;
    let effects = vec![
        vec![add("sum", half)],
        vec![add("sum", half)],
        // What bad messages would have written does not count.
        vec![set("sum", "text"), append("sum", "x")],
        vec![add("sum", 300_000_000_000_000)],
        vec![append("kind", "x")],
        vec![set("kind", "x")],
        vec![set("sum", "7"), add("sum", half)],
    ];
    let applied = ring.settle(effects).await;
    let positions: Vec<usize> = applied.bad.iter().map(|bad| bad.position).collect();
    assert_eq!(positions, [1, 2, 5], "{:?}", applied.bad);
    assert_eq!(ring.get("sum"), Some((half + 7).to_string()));
    ring.bench.assert_balanced().await;
}

#[tokio::test]
async fn each_sum_counts_all_that_was_added_before() {
    let ring = HeldRing::new(2).await;
    let third = 400_000_000_000_000;
    let applied = ring.settle(vec![vec![add("sum", third); 2], vec![add("sum", third)]]).await;
    let reason = "add {estafeta}:u:sum: expected a sum of at most 15 digits, got more";
    assert_eq!(applied.bad, [bad(1, reason)]);
    assert_eq!(ring.get("sum"), Some((2 * third).to_string()));
}

/// The node reports bad effects to its observer, even if the first answer was lost.
#[tokio::test]
async fn bad_effects_are_shown_again_after_a_lost_answer() {
    let ring = HeldRing::new(3).await;
    ring.bench.ask::<()>(&["SET", "{estafeta}:u:text", "x"]);
    let settlement = ring.settlement(vec![vec![add("good", 1)], vec![add("text", 1)]]);
    let first = ring.bench.turn(ring.handler, &settlement).await.unwrap();
    let again = ring.bench.make(ring.handler, &settlement).await.unwrap();
    assert_eq!((first.bad.len(), &again.bad), (1, &first.bad));
    // The next turn has none, and neither has its repeat.
    let settlement = ring.settlement(vec![vec![add("good", 1)]]);
    for _ in 0..2 {
        assert_eq!(ring.bench.turn(ring.handler, &settlement).await.unwrap().bad, []);
    }
    assert_eq!(ring.get("good").as_deref(), Some("2"));
    assert_eq!(ring.errors().await.len(), 1);
}

#[tokio::test]
async fn effects_of_a_part_of_a_pack_belong_to_its_messages() {
    let ring = HeldRing::new(4).await;
    let hand = ring.bench.hand(ring.handler);
    assert_eq!(hand.held[0].name, "1*4", "one pack");
    ring.bench.ask::<()>(&["SET", "{estafeta}:u:text", "x"]);
    let settlement = hand.settlement(|at| match at {
        1 => Fate::Affects(vec![result("one")]),
        2 => Fate::Affects(vec![add("text", 1)]),
        _ => Fate::Stays,
    });
    let applied = ring.bench.make(ring.handler, &settlement).await.unwrap();
    assert_eq!(applied.bad.len(), 1);
    assert_eq!(ring.errors().await.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3]);
    let result: String = ring.bench.ask(&["GET", "{estafeta}:result:2"]);
    assert!(result.starts_with(&format!("{} ", ring.term.epoch)) && result.ends_with(" one"), "{result}");
    assert_eq!(ring.bench.held(ring.handler), [1, 4]);
    let settlement = ring.bench.hand(ring.handler).settlement(|_| Fate::Affects(vec![add("rest", 1)]));
    ring.bench.make(ring.handler, &settlement).await.unwrap();
    assert_eq!(ring.get("rest").as_deref(), Some("2"));
    ring.bench.assert_balanced().await;
}

#[tokio::test]
async fn a_settle_with_effects_needs_no_journal() {
    let ring = HeldRing::new(2).await;
    let settlement =
        ring.settlement(vec![vec![add("sold", 1), forward("estafeta/next", "x")], vec![add("sold", 2)]]);
    let turn = ring.bench.store.turn(ring.handler.identity(), &settlement, false).await.unwrap();
    assert!(matches!(turn, Turn::Applied { cursor: 2, .. }));
    assert_eq!(ring.get("sold").as_deref(), Some("3"));
    assert_eq!(ring.bench.ask::<u64>(&["EXISTS", "{estafeta}:journal"]), 0);
    assert_eq!(ring.bench.ask::<u64>(&["LLEN", "{estafeta}/next:ready"]), 1);
}

#[tokio::test]
async fn a_stream_is_cut_to_about_its_length() {
    let ring = HeldRing::new(400).await;
    let cut =
        Effect::Append { stream: "log".into(), fields: vec![("f".into(), "v".into())], maxlen: Some(10) };
    ring.settle(vec![vec![cut]; 400]).await;
    let length: u64 = ring.bench.ask(&["XLEN", "{estafeta}:u:log"]);
    assert!((10..300).contains(&length), "{length}");
}

#[tokio::test]
async fn forwarded_messages_are_published_like_submitted_ones() {
    let ring = HeldRing::new(3).await;
    let next: RingName = "estafeta/next".parse().unwrap();
    let (store, _keeper) = ring.other("estafeta/next").await;
    let waiting = Incarnation::random();
    let mut introduction = introduction(waiting, MemberKind::Node, 1, false);
    introduction.application = "estafeta/next";
    let number = store.join(&introduction).await.unwrap();
    // An idle member of the other ring is called.
    let me = Identity { number, incarnation: waiting };
    let wants = Settlement { want: 1, each: 1, listens: true, ..Settlement::default() };
    store.turn(me, &wants, false).await.map(drop).unwrap();
    let mut listener = ring.bench.redis.connect();
    let mut channel = listener.as_pubsub();
    channel.subscribe(store.keys().wakeup(waiting)).unwrap();

    let mut traced = Effects(vec![forward("estafeta/next", "c")]);
    let trace = Message::sample("r", 1, "").with_header("traceparent", "00-1-2-01");
    traced.carry_on(&TraceContext::of(&trace).unwrap());
    let effects = vec![vec![forward("estafeta/next", "a"), forward("estafeta/next", "b")], vec![], traced.0];
    ring.settle(effects).await;
    channel.set_read_timeout(Some(LEASE)).unwrap();
    let called: String = channel.get_message().unwrap().get_payload().unwrap();
    assert_eq!(called, "work");
    let field = |name: &str| -> Option<String> { ring.bench.ask(&["HGET", "{estafeta}/next:ledger", name]) };
    assert_eq!(field("published").as_deref(), Some("3"));
    assert_eq!(field("submitted").as_deref(), Some("3"));
    assert_eq!(field("idle").unwrap_or_default(), "");
    let claim = Settlement { want: 9, each: 9, ..Settlement::default() };
    let Turn::Applied { claims, .. } = store.turn(me, &claim, false).await.unwrap() else { panic!("lost") };
    let mut messages = Vec::new();
    claims.into_iter().for_each(|(_, element)| crate::pack::read(&next, element, &mut messages));
    let facts: Vec<_> = messages.iter().map(|it| (it.id, it.text().into_owned(), it.delivery)).collect();
    assert_eq!(facts, [(1, "a".into(), 1), (2, "b".into(), 1), (3, "c".into(), 1)]);
    assert!(messages.iter().all(|it| it.epoch.0 == it.published_ms && it.published_ms > 1_700_000_000_000));
    let traceparents: Vec<_> = messages.iter().map(|it| it.headers().get("traceparent")).collect();
    assert_eq!(traceparents, [None, None, Some("00-1-2-01")]);
    let seen = read_snapshot(&store, &next, 0).await.unwrap();
    assert!(seen.balanced && seen.submitted == 3, "{seen:?}");
    ring.bench.assert_balanced().await;
}

#[tokio::test]
async fn a_forward_begins_a_ring_and_never_finds_it_full() {
    let ring = HeldRing::new(101).await;
    let settlement = ring.settlement(vec![vec![forward("estafeta/next", "x"); 100]; 101]);
    ring.bench.make(ring.handler, &settlement).await.unwrap();
    let get = |key: &str| -> Option<String> { ring.bench.ask(&["GET", key]) };
    assert_eq!(get("{estafeta}/next:schema"), get("{estafeta}:schema"));
    assert_eq!(get("{estafeta}/next:application").as_deref(), Some("estafeta/next"));
    assert!(ring.bench.ask::<Option<u64>>(&["HGET", "{estafeta}/next:ledger", "born"]).is_some());
    assert_eq!(ring.bench.ask::<u64>(&["LLEN", "{estafeta}/next:ready"]), 10_100);
    let (store, _keeper) = ring.other("estafeta/next").await;
    let seen = read_snapshot(&store, store.ring(), 0).await.unwrap();
    assert!(seen.balanced && seen.waiting == 10_100, "{seen:?}");
}

/// A crawler forwards what it finds to its own ring.
#[tokio::test]
async fn a_ring_may_forward_to_itself() {
    let ring = HeldRing::new(2).await;
    let effects =
        vec![vec![forward("estafeta", "a")], vec![forward("estafeta", "b"), forward("estafeta/next", "c")]];
    let settlement =
        Settlement { want: 9, each: 9, application: Some("tests".into()), ..ring.settlement(effects) };
    let applied = ring.bench.make(ring.handler, &settlement).await.unwrap();
    let claimed: Vec<_> = applied.messages().iter().map(|it| (it.id, it.text().into_owned())).collect();
    assert_eq!(claimed, [(3, "a".to_owned()), (4, "b".to_owned())], "claimed in the same step");
    assert_eq!((ring.bench.ledger("published"), ring.bench.ledger("submitted")), (4, 2));
    assert_eq!(ring.bench.ask::<u64>(&["LLEN", "{estafeta}/next:ready"]), 1);
    ring.bench.assert_balanced().await;
    // The generator numbers its next messages after them.
    let publish = ring.bench.publish_from(ring.generator, &ring.term, 1, 3, &["x"]).await;
    assert!(matches!(publish, Publish::Published { first_id: 5, .. }), "{publish:?}");
}

/// Whatever is wrong with the other ring makes an error of the message, and is no reason to stop this ring.
#[tokio::test]
async fn a_forward_to_a_ring_that_takes_none_is_a_bad_effect() {
    let cases: [(&[&str], &str); 11] = [
        (&["SET", "{estafeta}/next:schema", "99"], "it has layout 99, this node knows 4 to 4"),
        (&["SET", "{estafeta}/next:schema", "x"], "it has layout x, this node knows 4 to 4"),
        (&["SADD", "{estafeta}/next:requires", "tides"], "it requires tides, which this node does not know"),
        (
            &["SADD", "{estafeta}/next:requires", "estafeta/other"],
            "it requires estafeta/other, which this node does not know",
        ),
        (
            &["SET", "{estafeta}/next:application", "theirs"],
            "it belongs to the application theirs, expected estafeta/next",
        ),
        (&["RPUSH", "{estafeta}/next:schema", "x"], "something else uses one of its keys"),
        (&["SET", "{estafeta}/next:requires", "x"], "something else uses one of its keys"),
        (&["RPUSH", "{estafeta}/next:application", "x"], "something else uses one of its keys"),
        (&["SET", "{estafeta}/next:ready", "x"], "something else uses one of its keys"),
        (&["SET", "{estafeta}/next:ledger", "x"], "something else uses one of its keys"),
        (&["HSET", "{estafeta}/next:ledger", "published", "many"], "something else uses one of its keys"),
    ];
    for (damage, reason) in cases {
        let ring = HeldRing::new(2).await;
        ring.bench.ask::<redis::Value>(damage);
        let key = damage[1];
        let before: Vec<u8> = ring.bench.ask(&["DUMP", key]);
        let applied = ring
            .settle(vec![
                vec![forward("estafeta/other", "x")],
                vec![add("sold", 1), forward("estafeta/next", "x")],
            ])
            .await;
        let reason = format!("forward to estafeta/next: {reason}");
        assert_eq!(applied.bad, [bad(1, &reason)]);
        assert_eq!(ring.errors().await, [(2, reason)]);
        assert_eq!(ring.bench.ask::<Vec<String>>(&["KEYS", "{estafeta}/next:*"]), [key]);
        assert_eq!((ring.bench.ask::<Vec<u8>>(&["DUMP", key]), ring.get("sold")), (before, None));
        assert_eq!(ring.bench.ask::<u64>(&["LLEN", "{estafeta}/other:ready"]), 1);
        ring.bench.assert_balanced().await;
    }
}

/// The checks of the own ring come before all effects.
#[tokio::test]
async fn a_turn_that_fails_on_its_own_ring_applies_no_effect() {
    let ring = HeldRing::new(2).await;
    ring.bench.ask::<()>(&["SET", "{estafeta}:u:text", "x"]);
    let effects = || vec![vec![add("sold", 1), forward("estafeta/next", "x")], vec![add("text", 1)]];
    let settlement = ring.settlement(effects());
    let whole = ring.bench.everything();
    for (key, expected) in ring.bench.store.keys().fixed() {
        ring.bench.restore(&whole);
        ring.bench.plant_foreign(key, expected);
        let before = ring.bench.everything();
        if ring.bench.store.turn(ring.handler.identity(), &settlement, true).await.is_err() {
            assert_eq!(ring.bench.everything(), before, "{key}");
        }
    }
    for count in ["done", "failed", "packed", "published"] {
        ring.bench.restore(&whole);
        ring.bench.ask::<()>(&["HSET", "{estafeta}:ledger", count, "many"]);
        let before = ring.bench.everything();
        let own = ring.settlement(vec![vec![add("sold", 1), forward("estafeta", "x")], vec![add("text", 1)]]);
        let turn = ring.bench.store.turn(ring.handler.identity(), &own, true).await;
        // A damaged count of published messages matters only to the message that is forwarded.
        assert_eq!(turn.is_err(), count != "published", "{count}");
        if turn.is_err() {
            assert_eq!(ring.bench.everything(), before, "{count}");
        }
    }
}

#[tokio::test]
async fn effects_of_a_message_that_its_member_does_not_hold_make_it_lost() {
    let ring = HeldRing::new(2).await;
    let before = ring.bench.everything();
    for name in ["7", "1*2"] {
        let mut settlement = ring.settlement(vec![vec![add("sold", 1)], vec![]]);
        (settlement.effects[0].name, settlement.effects[0].index) = (name.into(), 2);
        assert_eq!(ring.bench.turn(ring.handler, &settlement).await, None);
        assert_eq!(ring.bench.everything(), before, "{name}");
    }
}
