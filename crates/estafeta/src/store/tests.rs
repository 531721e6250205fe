//! The scripts on a real Redis, step by step: repeats, late calls, burials, refusals.

use std::time::Duration;

use estafeta_testbed::RedisServer;

use super::*;

const LEASE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_millis(100);

/// A store on a Redis of its own, and what tests look at from outside.
struct Bench {
    redis: RedisServer,
    store: Store,
    _keeper: Keeper,
}

/// A member that lives on its lease alone, so that tests decide when it dies.
#[derive(Clone, Copy)]
struct Actor {
    incarnation: Incarnation,
    number: MemberId,
    lanes: usize,
}

impl Bench {
    async fn new() -> Self {
        let redis = RedisServer::start();
        let endpoint = redis.url().parse().unwrap();
        let (link, keeper) = Link::open(endpoint, Duration::from_secs(10)).await.unwrap();
        let store = Store::new(Arc::new(link), RingName::default());
        Self { redis, store, _keeper: keeper }
    }

    async fn join(&self, kind: Kind, lanes: usize) -> Actor {
        let incarnation = Incarnation::random();
        let number = self.store.join(&introduction(incarnation, kind, lanes, false)).await.unwrap();
        Actor { incarnation, number, lanes }
    }

    async fn lead(&self, actor: Actor) -> Term {
        match self.store.lead(actor.incarnation, LEASE, &candidacy()).await.unwrap() {
            Lead::Leads(term) => term,
            Lead::Follows => panic!("the office is taken"),
            Lead::Lost => panic!("no member"),
        }
    }

    /// Publishes messages with the next ids.
    async fn publish(&self, actor: Actor, term: &Term, n: u64, bodies: &[&str]) -> Publish {
        let first = self.ledger("published") + 1;
        self.publish_from(actor, term, n, first, bodies).await
    }

    async fn publish_from(&self, actor: Actor, term: &Term, n: u64, first: u64, bodies: &[&str]) -> Publish {
        let messages = messages(term.epoch, first, bodies);
        self.store.publish(actor.incarnation, &batch(term.epoch, n, &messages)).await.unwrap()
    }

    async fn turn(&self, actor: Actor, lane: usize, settlement: Settlement) -> Option<(u64, Vec<Message>)> {
        match self.store.turn(actor.incarnation, lane, &settlement, true).await.unwrap() {
            Turn::Holds { cursor, held } => Some((cursor, held)),
            Turn::Lost => None,
        }
    }

    async fn claim(&self, actor: Actor, lane: usize, want: usize) -> Vec<Message> {
        let settlement = Settlement { want, ..Settlement::default() };
        self.turn(actor, lane, settlement).await.expect("a member").1
    }

    async fn bury(&self, actor: Actor) -> Bury {
        let facts = Facts { lanes: actor.lanes, ..Facts::default() };
        self.store.bury(actor.incarnation, &facts, 0, GRACE, None).await.unwrap()
    }

    fn expire(&self, actor: Actor) {
        let name = actor.incarnation.to_string();
        let mut call = redis::cmd("ZADD");
        call.arg("{estafeta}:members").arg("XX").arg(1).arg(name).exec(&mut self.redis.connect()).unwrap();
    }

    fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut call = redis::cmd(words[0]);
        for word in &words[1..] {
            call.arg(*word);
        }
        call.query(&mut self.redis.connect()).unwrap()
    }

    fn ledger(&self, field: &str) -> u64 {
        self.ask::<Option<u64>>(&["HGET", "{estafeta}:ledger", field]).unwrap_or(0)
    }

    fn ready(&self) -> Vec<String> {
        self.ask(&["LRANGE", "{estafeta}:ready", "0", "-1"])
    }

    /// Every key with its value, to see whether anything was written.
    fn everything(&self) -> Vec<(String, Vec<u8>)> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.sort();
        keys.into_iter().map(|key| (key.clone(), self.ask(&["DUMP", &key]))).collect()
    }

    /// Puts something of another type where one of our keys was.
    fn plant_foreign(&self, key: &str, expected: &str) {
        self.ask::<()>(&["DEL", key]);
        self.ask::<()>(&[if expected == "list" { "SADD" } else { "RPUSH" }, key, "x"]);
    }

    async fn assert_balanced(&self) {
        let snapshot = crate::snapshot::read(&self.store, &RingName::default(), 0).await.unwrap();
        assert!(snapshot.balanced, "{snapshot:?}");
    }
}

fn introduction(incarnation: Incarnation, kind: Kind, lanes: usize, presence: bool) -> Introduction<'static> {
    Introduction {
        incarnation,
        kind,
        lanes,
        host: "here",
        lease: LEASE,
        presence,
        max_attempts: 3,
        journal: true,
    }
}

fn candidacy() -> Candidacy {
    Candidacy {
        absent_since_ms: 0,
        grace: GRACE,
        interval: Duration::from_millis(500),
        silence: Duration::ZERO,
        known_published: 0,
        renew: false,
    }
}

fn messages(epoch: Epoch, first: u64, bodies: &[&str]) -> Vec<Message> {
    (first..).zip(bodies).map(|(id, body)| Message::new(id, epoch, 7, body.as_bytes())).collect()
}

fn batch(epoch: Epoch, n: u64, messages: &[Message]) -> Batch<'_> {
    let interval = Duration::from_millis(500);
    Batch { epoch, n, messages, interval, catch_up: false, max_waiting: 10, limit: 100, lease: LEASE }
}

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
    assert_eq!(bench.ready().len(), 2);
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

    let strip = |mut all: Vec<(String, Vec<u8>)>| {
        all.retain(|(key, _)| key != "{estafeta}:ledger");
        all
    };
    let (before, published) = (strip(bench.everything()), bench.ledger("published"));
    assert_eq!(bench.publish_from(old, &old_term, 1, 2, &["late"]).await, Publish::Fenced);
    assert_eq!(strip(bench.everything()), before);
    assert_eq!((bench.ledger("published"), bench.ledger("fenced")), (published, 1));
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
async fn nobody_takes_office_from_a_living_generator_and_the_same_call_is_answered_the_same() {
    let bench = Bench::new().await;
    let (one, other) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(one).await;
    assert_eq!(bench.lead(one).await.epoch, term.epoch);
    let before = bench.everything();
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
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(bench.lead(other).await.epoch > first.epoch);

    // And when Redis' clock jumped back, the stored one decides.
    let ahead = first.epoch.0 + 1_000_000;
    bench.ask::<()>(&["SET", "{estafeta}:epoch", &ahead.to_string()]);
    bench.expire(other);
    let third = bench.join(Kind::Member, 1).await;
    assert_eq!(bench.lead(third).await.epoch.0, ahead + 1);
}

#[tokio::test]
async fn a_turn_repeated_after_a_lost_reply_settles_once_and_answers_the_same() {
    let bench = Bench::new().await;
    let (generator, handler) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 2).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d"]).await;
    let first = bench.claim(handler, 0, 2).await;
    assert_eq!(first.iter().map(|message| message.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(bench.claim(handler, 0, 2).await, first, "a repeated claim claims nothing more");

    let settlement = || Settlement { cursor: 0, settled: 2, failures: vec![(1, "no good".into())], want: 1 };
    let settled = bench.turn(handler, 0, settlement()).await.unwrap();
    assert_eq!((settled.0, settled.1[0].id), (2, 3));
    assert_eq!(bench.turn(handler, 0, settlement()).await.unwrap(), settled);
    assert_eq!((bench.ledger("done"), bench.ledger("failed")), (1, 1));
    let errors = bench.store.errors(0, 10).await.unwrap();
    assert_eq!((errors.len(), errors[0].id, errors[0].body()), (1, 2, &b"b"[..]));
    assert_eq!((errors[0].member, errors[0].reason.as_str()), (handler.number, "no good"));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_settle_from_a_wrong_cursor_or_by_a_buried_member_is_refused_and_writes_nothing() {
    let bench = Bench::new().await;
    let (generator, handler) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    bench.claim(handler, 0, 2).await;
    let settle = |cursor, settled| Settlement { cursor, settled, want: 5, ..Settlement::default() };

    let before = bench.everything();
    assert_eq!(bench.turn(handler, 0, settle(5, 2)).await, None);
    assert_eq!(bench.turn(handler, 0, settle(0, 3)).await, None, "more than it holds");
    assert_eq!(bench.everything(), before);

    bench.expire(handler);
    assert!(matches!(bench.bury(handler).await, Bury::Buried { returned: 2, .. }));
    let before = bench.everything();
    assert_eq!(bench.turn(handler, 0, settle(0, 2)).await, None);
    assert_eq!(bench.turn(handler, 0, settle(0, 0)).await, None, "it may not claim either");
    let beat = bench.store.beat(handler.incarnation, LEASE).await.unwrap();
    assert!(matches!(beat, Beat::Lost));
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn a_burial_returns_what_all_lanes_held_in_order_and_gives_up_in_the_end() {
    let bench = Bench::new().await;
    let generator = bench.join(Kind::Member, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d", "e"]).await;
    for attempt in 1..=3_u64 {
        let handler = bench.join(Kind::Member, 4).await;
        for lane in [2, 0, 3, 1] {
            bench.claim(handler, lane, 1).await;
        }
        assert!(matches!(bench.bury(handler).await, Bury::Alive), "a member that looks well");
        bench.expire(handler);
        let Bury::Buried { returned, gave_up, .. } = bench.bury(handler).await else { panic!("not buried") };
        assert_eq!((returned, gave_up), if attempt < 3 { (4, 0) } else { (0, 4) });
        assert!(matches!(bench.bury(handler).await, Bury::Gone), "a repeat");
        bench.assert_balanced().await;
    }
    let waiting: Vec<_> =
        bench.ready().iter().map(|element| element.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(waiting, ["5"]);
    let errors = bench.store.errors(0, 10).await.unwrap();
    assert_eq!(
        errors.iter().map(|error| (error.id, error.attempt)).collect::<Vec<_>>(),
        [(1, 3), (2, 3), (3, 3), (4, 3)]
    );
    assert!(errors[0].reason.starts_with("gave up"), "{}", errors[0].reason);
    let journal: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:journal", "-", "+"]);
    assert_eq!(journal[0].1[..2], ["ids", "1 2 3 4"]);
}

#[tokio::test]
async fn the_returned_messages_come_first_with_one_more_attempt() {
    let bench = Bench::new().await;
    let (generator, handler) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    bench.claim(handler, 0, 2).await;
    let returned = bench.store.leave(handler.incarnation, 1).await.unwrap();
    assert_eq!(returned, 2);
    let next = bench.join(Kind::Member, 3).await;
    let mut seen = Vec::new();
    for lane in 0..3 {
        let claimed = bench.claim(next, lane, 3).await;
        seen.extend(
            claimed.iter().map(|message| (lane, message.id, message.attempt, message.text().into_owned())),
        );
    }
    let expected = [(0, 1, 2, "a"), (1, 2, 2, "b"), (2, 3, 1, "c")];
    assert_eq!(seen, expected.map(|(lane, id, attempt, text)| (lane, id, attempt, text.to_owned())));
}

#[tokio::test]
async fn burying_the_generator_vacates_its_office() {
    let bench = Bench::new().await;
    let (one, other) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(one).await;
    bench.expire(one);
    bench.bury(one).await;
    assert_eq!(bench.publish_from(one, &term, 0, 1, &["late"]).await, Publish::Fenced);
    let Beat::Stands(stand) = bench.store.beat(other.incarnation, LEASE).await.unwrap() else {
        panic!("a member")
    };
    assert_eq!((stand.office, stand.rank), (Office::Empty, 0));
    assert_eq!(bench.lead(other).await.predecessor, Some(one.number));
    assert_eq!(bench.ledger("takeovers"), 1);
}

#[tokio::test]
async fn a_deadline_that_a_clock_jump_left_too_far_off_is_cut_to_one_lease() {
    let bench = Bench::new().await;
    let one = bench.join(Kind::Member, 1).await;
    let name = one.incarnation.to_string();
    let far = "99999999999999";
    bench.ask::<()>(&["ZADD", "{estafeta}:members", far, &name]);
    let suspects = bench.store.suspects(LEASE).await.unwrap();
    // It has no presence, so absence is what a look sees first; `bury` knows better.
    assert_eq!(suspects.list.len(), 1);
    assert!(matches!(bench.bury(one).await, Bury::Alive));
    let deadline: f64 = bench.ask(&["ZSCORE", "{estafeta}:members", &name]);
    let now = suspects.now_ms as f64;
    assert!((now..now + 120_000.0).contains(&deadline), "{deadline}");
}

#[tokio::test]
async fn a_member_that_subscribed_is_buried_only_after_two_looks_a_grace_apart() {
    let bench = Bench::new().await;
    let incarnation = Incarnation::random();
    bench.store.join(&introduction(incarnation, Kind::Member, 1, true)).await.unwrap();
    let facts = bench.store.facts(incarnation).await.unwrap().unwrap();
    let now = bench.store.suspects(LEASE).await.unwrap().now_ms;
    for since in [0, now, now - 50] {
        let verdict =
            bench.store.bury(incarnation, &facts, since, Duration::from_secs(5), None).await.unwrap();
        assert!(matches!(verdict, Bury::Alive), "missed since {since}");
    }
    assert!(bench.store.show_presence(incarnation).await.unwrap());
    let verdict = bench.store.bury(incarnation, &facts, now - 200, GRACE, None).await.unwrap();
    assert!(matches!(verdict, Bury::Alive), "it is back");
}

#[tokio::test]
async fn what_a_dead_reader_held_is_back_at_the_head_of_the_errors() {
    let bench = Bench::new().await;
    for id in 1..=4 {
        bench.ask::<()>(&["RPUSH", "{estafeta}:errors", &format!("{id} 1 1 1 1 1 2 no body {id}")]);
    }
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "4", "failed", "4"]);
    let reader = bench.join(Kind::Reader, 1).await;
    let take = |cursor, settled, want| Settlement { cursor, settled, want, ..Settlement::default() };
    let Turn::Holds { held, .. } = bench.store.take(reader.incarnation, &take(0, 0, 2)).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(held.len(), 2);
    bench.assert_balanced().await;
    for _ in 0..2 {
        let again = bench.store.take(reader.incarnation, &take(0, 2, 1)).await.unwrap();
        assert!(matches!(again, Turn::Holds { cursor: 2, held } if held[0].id == 3));
    }
    assert_eq!(bench.ledger("taken"), 2);
    bench.expire(reader);
    bench.bury(reader).await;
    let left: Vec<_> = bench.store.errors(0, 9).await.unwrap().iter().map(|error| error.id).collect();
    assert_eq!(left, [3, 4]);
    assert_eq!(bench.ledger("returned"), 0, "errors are no returned messages");
    bench.assert_balanced().await;
}

#[tokio::test]
async fn foreign_elements_fail_one_by_one_and_block_nobody() {
    let bench = Bench::new().await;
    let handler = bench.join(Kind::Member, 1).await;
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "what is this"]);
    let held = bench.claim(handler, 0, 5).await;
    assert_eq!((held[0].id, held[0].body()), (0, &b"what is this"[..]));
    let settlement = Settlement { cursor: 0, settled: 1, failures: vec![(0, "foreign".into())], want: 0 };
    bench.turn(handler, 0, settlement).await.unwrap();
    let errors = bench.store.errors(0, 9).await.unwrap();
    assert_eq!((errors[0].id, errors[0].body()), (0, &b"what is this"[..]));
}

#[tokio::test]
async fn a_key_of_another_type_is_named_to_whoever_joins() {
    let keys = Keys::new(&RingName::default());
    for (key, expected) in keys.fixed() {
        let bench = Bench::new().await;
        bench.plant_foreign(key, expected);
        let before = bench.everything();
        let incarnation = Incarnation::random();
        let stranger = introduction(incarnation, Kind::Member, 1, false);
        let error = bench.store.join(&stranger).await.map(drop).unwrap_err();
        let named = matches!(&error, Error::ForeignKey { key: found, .. } if found == key);
        assert!(named, "{key}: {error}");
        assert_eq!(bench.everything(), before, "{key}");
    }
}

/// Redis does not roll a script back, so a step that fails half-way would lose a message. Whichever key goes bad under a
/// running ring, a step either happens as a whole or not at all.
#[tokio::test]
async fn a_step_that_fails_on_a_key_of_another_type_has_written_nothing() {
    let keys = Keys::new(&RingName::default());
    let mut failed = 0;
    for (key, expected) in keys.fixed() {
        for step in 0..8 {
            let bench = Bench::new().await;
            let (leader, dead) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
            let term = bench.lead(leader).await;
            bench.publish(leader, &term, 0, &["a", "b", "c"]).await;
            bench.claim(leader, 0, 1).await;
            bench.claim(dead, 0, 1).await;
            bench.expire(dead);
            let element = b"9 1 1 1 1 1 2 no body".as_slice();
            bench.ask::<()>(&["RPUSH", "{estafeta}:errors", "9 1 1 1 1 1 2 no body"]);
            bench.plant_foreign(key, expected);

            let (before, me) = (bench.everything(), leader.incarnation);
            let failures = vec![(0, "x".into())];
            let settlement = Settlement { settled: 1, failures, want: 1, ..Settlement::default() };
            let next = messages(term.epoch, 4, &["d"]);
            let facts = Facts { lanes: 1, ..Facts::default() };
            let outcome = match step {
                0 => bench.store.turn(me, 0, &settlement, true).await.map(drop),
                1 => bench.store.publish(me, &batch(term.epoch, 1, &next)).await.map(drop),
                2 => bench.store.lead(me, LEASE, &Candidacy { renew: true, ..candidacy() }).await.map(drop),
                3 => bench.store.leave(me, 1).await.map(drop),
                4 => bench.store.bury(dead.incarnation, &facts, 0, GRACE, None).await.map(drop),
                5 => bench.store.resign(me, term.epoch).await,
                6 => bench.store.resolve("retry", &[element]).await.map(drop),
                _ => bench.store.beat(me, LEASE).await.map(drop),
            };
            if outcome.is_err() {
                failed += 1;
                assert_eq!(bench.everything(), before, "step {step} with {key} gone bad");
            }
        }
    }
    assert!(failed > 30, "only {failed} steps failed: are the keys still the right ones?");
}

#[tokio::test]
async fn a_turn_that_its_own_repeat_overtook_claims_nothing() {
    let bench = Bench::new().await;
    let (generator, handler) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(generator).await;
    assert!(
        bench.claim(handler, 0, 5).await.is_empty(),
        "the repeat finds nothing, and its lane goes to sleep"
    );
    bench.publish(generator, &term, 0, &["a"]).await;

    let keys = &bench.store.keys;
    let (member, inflight) = (keys.member(handler.incarnation), keys.inflight(handler.incarnation, 0));
    let names = [
        &keys.members,
        &member,
        &inflight,
        &keys.ready,
        &keys.bell,
        &keys.errors,
        &keys.ledger,
        &keys.journal,
    ];
    let mut late = script::TURN.call(&names);
    late.arg(handler.incarnation.to_string()).arg(0).arg(0).arg(0).arg(0).arg(5);
    let before = bench.everything();
    assert_eq!(bench.store.run(&script::TURN, &late).await.unwrap().text().unwrap(), "late");
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn a_message_that_kills_its_handlers_takes_no_others_along() {
    let bench = Bench::new().await;
    let generator = bench.join(Kind::Member, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["good", "poison", "good"]).await;
    let mut claimed = Vec::new();
    while bench.ledger("failed") == 0 {
        let handler = bench.join(Kind::Member, 1).await;
        let held = bench.claim(handler, 0, 10).await;
        claimed.push(held.len());
        if held.iter().any(|message| message.body() == b"poison") {
            bench.expire(handler);
            bench.bury(handler).await;
        } else {
            let settlement = Settlement { settled: held.len(), ..Settlement::default() };
            bench.turn(handler, 0, settlement).await.unwrap();
        }
    }
    assert_eq!(claimed, [3, 1, 1, 1], "all at first, then one by one");
    let errors = bench.store.errors(0, 9).await.unwrap();
    assert_eq!(errors.iter().map(|error| error.id).collect::<Vec<_>>(), [2]);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn whoever_leaves_in_peace_makes_no_message_an_error() {
    let bench = Bench::new().await;
    let generator = bench.join(Kind::Member, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    for _ in 0..10 {
        let handler = bench.join(Kind::Member, 1).await;
        assert_eq!(bench.claim(handler, 0, 1).await.len(), 1);
        assert_eq!(bench.store.leave(handler.incarnation, 1).await.unwrap(), 1);
    }
    assert_eq!((bench.ready().len(), bench.ledger("failed")), (1, 0));
}

#[tokio::test]
async fn whoever_overslept_its_own_lease_has_no_say_about_others() {
    let bench = Bench::new().await;
    let (old, judge) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    bench.lead(old).await;
    bench.expire(old);
    bench.expire(judge);
    let facts = bench.store.facts(old.incarnation).await.unwrap().unwrap();
    let bury =
        async || bench.store.bury(old.incarnation, &facts, 0, GRACE, Some(judge.incarnation)).await.unwrap();
    assert!(matches!(bury().await, Bury::Alive));
    let answer = bench.store.lead(judge.incarnation, LEASE, &candidacy()).await.unwrap();
    assert!(matches!(answer, Lead::Follows));

    let overslept = async || match bench.store.beat(judge.incarnation, LEASE).await.unwrap() {
        Beat::Stands(stand) => stand.overslept,
        Beat::Lost => panic!("a member"),
    };
    assert!(overslept().await);
    assert!(!overslept().await);
    assert!(matches!(bury().await, Bury::Buried { .. }));
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
async fn large_messages_are_claimed_a_few_at_a_time_whatever_was_asked_for() {
    let bench = Bench::new().await;
    let (generator, handler) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(generator).await;
    let large = "x".repeat(100_000);
    for n in 0..20 {
        let messages = messages(term.epoch, n * 10 + 1, &[large.as_str(); 10]);
        let batch = Batch { max_waiting: 1000, limit: 0, ..batch(term.epoch, n, &messages) };
        bench.store.publish(generator.incarnation, &batch).await.unwrap();
    }
    let claimed = bench.claim(handler, 0, 200).await.len();
    assert!((10..=32).contains(&claimed), "{claimed}");
    bench.assert_balanced().await;
}

#[tokio::test]
async fn counts_that_are_no_numbers_stop_a_step_before_it_writes() {
    let bench = Bench::new().await;
    let (generator, handler) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.claim(handler, 0, 1).await;
    for field in ["done", "failed", "returned", "buried", "published"] {
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", field, "abc"]);
    }
    bench.expire(generator);
    let before = bench.everything();
    let settlement = Settlement { settled: 1, ..Settlement::default() };
    assert!(bench.store.turn(handler.incarnation, 0, &settlement, false).await.is_err());
    assert!(bench.store.leave(handler.incarnation, 1).await.is_err());
    let facts = Facts { lanes: 1, ..Facts::default() };
    assert!(bench.store.bury(generator.incarnation, &facts, 0, GRACE, None).await.is_err());
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn what_is_half_or_not_at_all_a_member_bothers_nobody() {
    let bench = Bench::new().await;
    let one = bench.join(Kind::Member, 1).await;
    bench.ask::<()>(&["ZADD", "{estafeta}:members", "0", "bob", "0", "00000000000000aa"]);
    let snapshot = crate::snapshot::read(&bench.store, &RingName::default(), 0).await.unwrap();
    assert_eq!(snapshot.members.len(), 1, "{snapshot:?}");
    let suspects = bench.store.suspects(LEASE).await.unwrap().list;
    let half = "00000000000000aa".parse().unwrap();
    assert!(
        suspects.contains(&(half, Health::Expired)) && suspects.len() == 2,
        "{suspects:?} {:?}",
        one.incarnation
    );
    let verdict = bench.store.bury(half, &Facts::default(), 0, GRACE, None).await.unwrap();
    assert!(matches!(verdict, Bury::Buried { returned: 0, .. }));
}
