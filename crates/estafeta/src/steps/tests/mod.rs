//! Tests of the steps on a real Redis: repeats, late calls, burials, refusals.
//!
//! A [`TestBench`] has its own Redis server and calls one step at a time through a store. An [`Actor`] is a member without
//! presence. Only its lease keeps it alive, and a test decides when that lease is over. `stories` tests random orders
//! of the same steps.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use estafeta_testbed::RedisServer;
use redis::FromRedisValue;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::durability::Durability;
use crate::effects::{Effect, Effects};
use crate::error::{Error, Result};
use crate::headers::Headers;
use crate::identity::{Epoch, Identity, Incarnation, MemberId};
use crate::inspect::snapshot::{MemberView, Snapshot, read as read_snapshot};
use crate::keys::{Keys, RingName};
use crate::layout::Layouts;
use crate::message::{DeadLetter, ENTRY, Message};
use crate::redis::{CallError, Keeper, ManagedConnection, Reply, Store, Topology};
use crate::source::Plan;

mod burials;
mod checkpoints;
mod confirming;
mod damage;
mod dividing;
mod effects;
mod entries;
mod giving_way;
mod headers;
mod judging;
mod later;
mod limits;
mod lines;
mod links;
mod looks;
mod packs;
mod pauses;
mod publishing;
mod refusals;
mod rollbacks;
mod sampling;
mod singles;
mod sizes;
mod stories;
mod submitting;
mod totals;
mod turns;
mod upgrades;

const LEASE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_millis(100);

/// A Redis server for one test, a store on it, and what the test needs to inspect it.
struct TestBench {
    /// The connection through which the test itself reads and changes keys.
    connection: RefCell<redis::Connection>,
    redis: RedisServer,
    store: Store,
    _keeper: Keeper,
    /// What each member knows of its own hand.
    hands: RefCell<HashMap<Incarnation, Hand>>,
}

/// What a member knows of its own hand, from the answers that it received.
#[derive(Clone, Default)]
struct Hand {
    cursor: u64,
    seen: u64,
    held: Vec<HeldMessage>,
}

#[derive(Clone)]
struct HeldMessage {
    /// The name of its element.
    name: String,
    /// The number of messages that Redis counts in that element.
    size: usize,
    index: usize,
    message: Message,
}

/// What becomes of a message in a hand.
#[derive(Clone, Debug)]
enum Fate {
    Stays,
    Done,
    /// It is done, and has these effects.
    Affects(Vec<Effect>),
    Fails(String),
    /// It becomes an error because of its last death.
    Perishes(String),
    /// It comes again after this number of milliseconds, with one more failure.
    Retries(u64),
    /// It comes again after this number of milliseconds, with one more death.
    Dies(u64),
    /// It comes again after this number of milliseconds, with these headers.
    Snoozes(u64, Vec<u8>),
    /// It returns to the queue, because no lane has started it.
    Returns,
}

/// What a turn brought.
#[derive(Debug, PartialEq)]
struct Applied {
    cursor: u64,
    claimed: u64,
    waits: bool,
    due: Option<Duration>,
    paused: bool,
    claims: Vec<(String, Vec<u8>)>,
    bad: Vec<BadEffects>,
}

impl Applied {
    fn messages(&self) -> Vec<Message> {
        self.held().into_iter().map(|held| held.message).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.claims.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn held(&self) -> Vec<HeldMessage> {
        let mut all = Vec::new();
        for (name, element) in &self.claims {
            let mut messages = Vec::new();
            crate::pack::read(&RingName::sample(), element.clone(), &mut messages);
            let size = name.split_once('*').map_or(1, |(_, size)| size.parse().unwrap());
            let held = |(index, message)| HeldMessage { name: name.clone(), size, index, message };
            all.extend(messages.into_iter().enumerate().map(held));
        }
        all
    }
}

impl Hand {
    /// A turn that lets go of each message as `fate` says. Its position is that in the hand.
    fn settlement(&self, fate: impl Fn(usize) -> Fate) -> Settlement {
        let mut settlement = Settlement { cursor: self.cursor, seen: self.seen, ..Settlement::default() };
        let elements = self.held.chunk_by(|one, next| one.name == next.name);
        let mut at = 0;
        for element in elements {
            let HeldMessage { name, size, .. } = &element[0];
            let fates: Vec<(&HeldMessage, Fate)> =
                element.iter().enumerate().map(|(i, held)| (held, fate(at + i))).collect();
            at += element.len();
            let mut part = Part { name: name.clone(), ..Part::default() };
            for (held, fate) in fates {
                let index = held.index;
                let ms = Duration::from_millis;
                let disposition = match fate {
                    Fate::Stays => continue,
                    Fate::Returns => {
                        part.back.push(index);
                        continue;
                    }
                    Fate::Done => None,
                    Fate::Affects(effects) => {
                        let (name, id, effects) = (name.clone(), held.message.id, Effects(effects).into());
                        settlement.effects.push(MessageEffects { name, index, id, effects });
                        None
                    }
                    Fate::Fails(reason) => Some(Disposition::Fail { reason, died: false }),
                    Fate::Perishes(reason) => Some(Disposition::Fail { reason, died: true }),
                    Fate::Retries(after) => {
                        Some(Disposition::Retry { after: ms(after), reason: "again".into() })
                    }
                    Fate::Dies(after) => {
                        Some(Disposition::Die { after: ms(after), reason: "signal 9".into() })
                    }
                    Fate::Snoozes(after, headers) => Some(Disposition::Snooze { after: ms(after), headers }),
                };
                part.settled.push(index);
                if disposition.is_none() && held.message.is_of_open_entry() {
                    settlement.ends.push(name.clone());
                }
                let not_done = |disposition| NotDone { name: name.clone(), index, disposition };
                settlement.not_done.extend(disposition.map(not_done));
            }
            let gone = part.settled.len() + part.back.len();
            if part.settled.len() == element.len() {
                settlement.whole.push(part.name);
                settlement.count += size;
            } else if part.back.len() == element.len() {
                settlement.returns.push(part.name);
                settlement.count += size;
            } else if gone > 0 {
                settlement.parts.push(part);
                settlement.count += gone;
            }
        }
        settlement
    }

    /// Updates the hand after a turn that was applied.
    fn apply(&mut self, settlement: &Settlement, applied: &Applied) {
        let is_whole = |held: &HeldMessage| {
            settlement.whole.contains(&held.name) || settlement.returns.contains(&held.name)
        };
        self.held.retain(|held| !is_whole(held));
        for Part { name, settled, back } in &settlement.parts {
            let left = |held: &HeldMessage| settled.contains(&held.index) || back.contains(&held.index);
            self.held.retain(|held| held.name != *name || !left(held));
            for held in self.held.iter_mut().filter(|held| held.name == *name) {
                let claim = name.split('*').next().unwrap();
                (held.name, held.size, held.index) = (format!("{claim}.{}", held.index), 1, 0);
            }
        }
        (self.cursor, self.seen) = (applied.cursor, applied.claimed);
        self.held.extend(applied.held());
    }
}

/// The way to the ring of a test.
fn topology(redis: &RedisServer) -> Arc<Topology> {
    Arc::new(Topology::new(redis.url().parse().unwrap(), &RingName::sample()))
}

/// A member without presence, so that tests decide when it dies.
#[derive(Clone, Copy)]
struct Actor {
    incarnation: Incarnation,
    number: MemberId,
}

impl Actor {
    fn identity(self) -> Identity {
        Identity { number: self.number, incarnation: self.incarnation }
    }
}

impl TestBench {
    async fn new() -> Self {
        let redis = RedisServer::start();
        let opened = ManagedConnection::open(topology(&redis), Duration::from_secs(10)).await;
        let (connection, keeper) = opened.unwrap();
        let store = Store::new(Arc::new(connection), RingName::sample());
        let hands = RefCell::default();
        Self { connection: redis.connect().into(), redis, store, _keeper: keeper, hands }
    }

    async fn join(&self, kind: MemberKind, lanes: usize) -> Actor {
        let incarnation = Incarnation::random();
        let number = self.store.join(&introduction(incarnation, kind, lanes, false)).await.unwrap();
        Actor { incarnation, number }
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

    /// Makes a turn that the test has built. What the member knows of its hand stays as it is.
    async fn turn(&self, actor: Actor, settlement: &Settlement) -> Option<Applied> {
        match self.store.turn(actor.identity(), settlement, true).await.unwrap() {
            Turn::Applied { cursor, claimed, waits, due, paused, claims, bad } => {
                Some(Applied { cursor, claimed, waits, due, paused, claims, bad })
            }
            Turn::Lost => None,
            Turn::Forbidden { reason } => panic!("{reason}"),
        }
    }

    /// Makes a turn, after which the member knows its hand.
    async fn make(&self, actor: Actor, settlement: &Settlement) -> Option<Applied> {
        let applied = self.turn(actor, settlement).await?;
        self.hands.borrow_mut().entry(actor.incarnation).or_default().apply(settlement, &applied);
        Some(applied)
    }

    /// Claims up to `want` messages for one lane.
    async fn claim(&self, actor: Actor, want: usize) -> Vec<Message> {
        self.claim_for(actor, 1, want).await
    }

    /// Claims messages for this number of free lanes, of which each wants `each`.
    async fn claim_for(&self, actor: Actor, lanes: usize, each: usize) -> Vec<Message> {
        let settlement = Settlement { want: lanes * each, each, ..self.settlement(actor, 0, &[]) };
        self.make(actor, &settlement).await.expect("a member").messages()
    }

    /// Settles the first `count` messages of a hand, of which some failed, and claims up to `want` for one lane.
    async fn settle(
        &self,
        actor: Actor,
        count: usize,
        failures: &[(usize, &str)],
        want: usize,
    ) -> Vec<Message> {
        let settlement = Settlement { want, each: want, ..self.settlement(actor, count, failures) };
        self.make(actor, &settlement).await.expect("a member").messages()
    }

    /// A turn that settles the first `count` messages of a hand, of which some failed.
    fn settlement(&self, actor: Actor, count: usize, failures: &[(usize, &str)]) -> Settlement {
        self.hand(actor).settlement(|at| match failures.iter().find(|(failed, _)| *failed == at) {
            _ if at >= count => Fate::Stays,
            Some((_, reason)) => Fate::Fails((*reason).to_owned()),
            None => Fate::Done,
        })
    }

    fn hand(&self, actor: Actor) -> Hand {
        self.hands.borrow().get(&actor.incarnation).cloned().unwrap_or_default()
    }

    /// The ids of the messages that a member knows to be in its hand.
    fn held(&self, actor: Actor) -> Vec<u64> {
        self.hand(actor).held.iter().map(|held| held.message.id).collect()
    }

    /// The line of idle members.
    fn line(&self) -> Vec<String> {
        let line: Option<String> = self.ask(&["HGET", "{estafeta}:ledger", "idle"]);
        line.unwrap_or_default().split_whitespace().map(ToOwned::to_owned).collect()
    }

    async fn bury(&self, actor: Actor) -> Bury {
        self.store.bury(actor.incarnation, 0, GRACE, None).await.unwrap()
    }

    fn expire(&self, actor: Actor) {
        self.ask::<()>(&["ZADD", "{estafeta}:members", "XX", "1", &actor.incarnation.to_string()]);
    }

    fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut call = redis::cmd(words[0]);
        for word in &words[1..] {
            call.arg(*word);
        }
        call.query(&mut *self.connection.borrow_mut()).unwrap()
    }

    fn ledger(&self, field: &str) -> u64 {
        self.ask::<Option<u64>>(&["HGET", "{estafeta}:ledger", field]).unwrap_or(0)
    }

    fn ready(&self) -> Vec<String> {
        self.ask(&["LRANGE", "{estafeta}:ready", "0", "-1"])
    }

    /// Returns every key with its value, which shows whether a step wrote anything.
    fn everything(&self) -> Vec<(String, Vec<u8>)> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.sort();
        let mut dumps = redis::pipe();
        for key in &keys {
            dumps.cmd("DUMP").arg(key);
        }
        let dumps: Vec<Vec<u8>> = dumps.query(&mut *self.connection.borrow_mut()).unwrap();
        keys.into_iter().zip(dumps).collect()
    }

    /// Replaces the contents of Redis with an earlier result of [`Self::everything`].
    fn restore(&self, everything: &[(String, Vec<u8>)]) {
        restoration(everything).exec(&mut *self.connection.borrow_mut()).unwrap();
    }

    /// Replaces a key of the ring with a value of another type than `expected`.
    fn plant_foreign(&self, key: &str, expected: &str) {
        self.ask::<()>(&["DEL", key]);
        self.ask::<()>(&[if expected == "list" { "SADD" } else { "RPUSH" }, key, "x"]);
    }

    async fn snapshot(&self) -> Snapshot {
        read_snapshot(&self.store, &RingName::sample(), 0).await.unwrap()
    }

    async fn assert_balanced(&self) {
        let snapshot = self.snapshot().await;
        assert!(snapshot.balanced, "{snapshot:?}");
    }
}

fn restoration(everything: &[(String, Vec<u8>)]) -> redis::Pipeline {
    let mut pipe = redis::pipe();
    pipe.cmd("FLUSHALL").ignore();
    for (key, dump) in everything {
        pipe.cmd("RESTORE").arg(key).arg(0).arg(dump).ignore();
    }
    pipe
}

/// Polls a condition until it is true. Panics with `what` if that takes too long.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LEASE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn introduction(
    incarnation: Incarnation,
    kind: MemberKind,
    lanes: usize,
    presence: bool,
) -> Introduction<'static> {
    Introduction {
        layouts: Layouts::KNOWN,
        application: if kind == MemberKind::Reader { "" } else { "tests" },
        incarnation,
        kind,
        lanes,
        host: "here",
        lease: LEASE,
        presence,
        max_deaths: 3,
        journal: true,
        duties: Duties::Both,
        durability: Durability::Memory,
        partitions: 1,
    }
}

fn candidacy() -> Candidacy {
    Candidacy {
        absent_since_ms: 0,
        grace: GRACE,
        interval: Duration::from_millis(500),
        silence: Duration::ZERO,
        known: Known::default(),
        replaces: None,
    }
}

fn failure(epoch: Epoch, n: u64, in_a_row: u64) -> SourceFailure<'static> {
    SourceFailure { epoch, n, in_a_row, reason: "no disk" }
}

fn messages(epoch: Epoch, first: u64, bodies: &[&str]) -> Vec<Message> {
    let message = |id, body: &str| Message::new(&RingName::sample(), id, epoch, 7, body.as_bytes().to_vec());
    (first..).zip(bodies).map(|(id, body)| message(id, body)).collect()
}

/// Messages of a schedule entry that is open until they have an outcome.
fn entry_messages(epoch: Epoch, first: u64, entry: &str, bodies: &[&str]) -> Vec<Message> {
    let of_entry = |message: Message| message.with_header(ENTRY, entry).with_header("estafeta-tick", "1");
    messages(epoch, first, bodies).into_iter().map(of_entry).collect()
}

/// A message for `submit`. If it has a key, its body decides whether it is equal to another one.
fn draft(body: &str, key: Option<&str>) -> NewMessage {
    let message = Message::new(&RingName::sample(), 0, Epoch(0), 0, body.as_bytes().to_vec());
    let key = key.map(|name| MessageKey {
        name: name.to_owned(),
        window: LEASE,
        fingerprint: body.bytes().map(|byte| format!("{byte:02x}")).chain(["f".into()]).collect(),
    });
    NewMessage { message, terms: PublishTerms { key, delay: Duration::ZERO } }
}

/// A message for `submit` with this single name.
fn single(body: &str, name: &str) -> NewMessage {
    let mut headers = Headers::new();
    headers.insert("estafeta-single", name).unwrap();
    headers.insert("other", "1").unwrap();
    let plain = draft(body, None);
    NewMessage { message: plain.message.with_headers(headers), ..plain }
}

/// A message for `submit` that waits for a time.
fn delayed(body: &str, key: Option<&str>, ms: u64) -> NewMessage {
    let NewMessage { message, terms } = draft(body, key);
    NewMessage { message, terms: PublishTerms { delay: Duration::from_millis(ms), ..terms } }
}

fn submission(sequence: u64, messages: &[NewMessage]) -> Submission<'_> {
    let publisher = "00000000000000ff".parse().unwrap();
    Submission { application: "tests", partitions: 1, publisher, sequence, max_waiting: 10, messages }
}

fn cancellation(sequence: u64, which: MessageRef<'_>) -> Cancellation<'_> {
    let publisher = "00000000000000ff".parse().unwrap();
    Cancellation { application: "tests", partitions: 1, publisher, sequence, which }
}

fn batch(epoch: Epoch, n: u64, messages: &[Message]) -> Dispatch<'_> {
    let interval = Duration::from_millis(500);
    Dispatch {
        epoch,
        n,
        first_id: messages.first().map_or(0, |message| message.id),
        messages,
        terms: &[],
        pack: crate::pack::MOST,
        checkpoint: None,
        ticks: &[],
        entry: None,
        plan: None,
        intervals: messages.len(),
        interval,
        catch_up: false,
        max_waiting: 10,
        limit: 100,
        lease: LEASE,
        late: GRACE,
    }
}
