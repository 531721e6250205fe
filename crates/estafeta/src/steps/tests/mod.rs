//! Tests of the steps on a real Redis: repeats, late calls, burials, refusals.
//!
//! A [`TestBench`] has its own Redis server and calls one step at a time through a store. An [`Actor`] is a member without
//! presence. Only its lease keeps it alive, and a test decides when that lease is over. `stories` tests random orders
//! of the same steps.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use estafeta_testbed::RedisServer;
use redis::FromRedisValue;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::error::{Error, Result};
use crate::headers::Headers;
use crate::identity::{Epoch, Identity, Incarnation, MemberId};
use crate::inspect::snapshot::{KnownLanes, MemberView, Snapshot, read as read_snapshot};
use crate::keys::{Keys, RingName};
use crate::message::{DeadLetter, Message};
use crate::redis::{CallError, Keeper, ManagedConnection, Reply, Store};

mod burials;
mod damage;
mod headers;
mod judging;
mod links;
mod looks;
mod packs;
mod publishing;
mod refusals;
mod rollbacks;
mod sizes;
mod stories;
mod totals;
mod turns;

const LEASE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_millis(100);

/// A Redis server for one test, a store on it, and what the test needs to inspect it.
struct TestBench {
    /// The connection through which the test itself reads and changes keys.
    connection: RefCell<redis::Connection>,
    redis: RedisServer,
    store: Store,
    _keeper: Keeper,
}

/// A member without presence, so that tests decide when it dies.
#[derive(Clone, Copy)]
struct Actor {
    incarnation: Incarnation,
    number: MemberId,
    lanes: usize,
}

impl Actor {
    fn identity(self) -> Identity {
        Identity { number: self.number, incarnation: self.incarnation }
    }
}

impl TestBench {
    async fn new() -> Self {
        let redis = RedisServer::start();
        let endpoint = redis.url().parse().unwrap();
        let (connection, keeper) = ManagedConnection::open(endpoint, Duration::from_secs(10)).await.unwrap();
        let store = Store::new(Arc::new(connection), RingName::sample());
        Self { connection: redis.connect().into(), redis, store, _keeper: keeper }
    }

    async fn join(&self, kind: MemberKind, lanes: usize) -> Actor {
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
        match self.store.turn(actor.identity(), lane, &settlement, true).await.unwrap() {
            Turn::Holds { cursor, held, .. } => Some((cursor, held)),
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
        let mut pipe = redis::pipe();
        pipe.cmd("FLUSHALL").ignore();
        for (key, dump) in everything {
            pipe.cmd("RESTORE").arg(key).arg(0).arg(dump).ignore();
        }
        pipe.exec(&mut *self.connection.borrow_mut()).unwrap();
    }

    /// Replaces a key of the ring with a value of another type than `expected`.
    fn plant_foreign(&self, key: &str, expected: &str) {
        self.ask::<()>(&["DEL", key]);
        self.ask::<()>(&[if expected == "list" { "SADD" } else { "RPUSH" }, key, "x"]);
    }

    async fn snapshot(&self) -> Snapshot {
        read_snapshot(&self.store, &RingName::sample(), &KnownLanes::default(), 0).await.unwrap()
    }

    async fn assert_balanced(&self) {
        let snapshot = self.snapshot().await;
        assert!(snapshot.balanced, "{snapshot:?}");
    }
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
        application: if kind == MemberKind::Reader { "" } else { "tests" },
        incarnation,
        kind,
        lanes,
        host: "here",
        lease: LEASE,
        presence,
        max_deaths: 3,
        journal: true,
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

fn messages(epoch: Epoch, first: u64, bodies: &[&str]) -> Vec<Message> {
    let message = |id, body: &str| Message::new(&RingName::sample(), id, epoch, 7, body.as_bytes().to_vec());
    (first..).zip(bodies).map(|(id, body)| message(id, body)).collect()
}

fn batch(epoch: Epoch, n: u64, messages: &[Message]) -> Batch<'_> {
    let interval = Duration::from_millis(500);
    Batch {
        epoch,
        n,
        messages,
        interval,
        catch_up: false,
        max_waiting: 10,
        limit: 100,
        lease: LEASE,
        late: GRACE,
    }
}
