//! How long a ring with 500 messages per second stands still while another server takes it over.
//!
//! The tests print their figures, which docs/operations.md lists:
//!
//!     cargo test -p estafeta --test it standstills -- --nocapture --test-threads 1

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use estafeta::{Failure, Message, Ring};
use estafeta_testbed::{RedisCluster, RedisSentinels, RedisServer};

use crate::sentinels::clients;
use crate::support::{Counter, LiveRing, RunningNode, TestHandler, changed, config_at, eventually};

const RING: &str = "estafeta";
const NODES: usize = 3;
/// A ring that stands still for longer has not moved by itself.
const LONGEST: Duration = Duration::from_secs(20);

/// Notes when each message is handled.
#[derive(Clone, Default)]
struct Clocked(Arc<Mutex<Vec<Instant>>>);

impl TestHandler for Clocked {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        self.0.lock().unwrap().push(Instant::now());
        Ok(())
    }
}

impl Clocked {
    /// Starts nodes that handle 500 messages per second, and waits until they do.
    async fn ring(&self, url: &str) -> LiveRing {
        let config = changed(config_at(url), |config| config.interval = Duration::from_millis(2));
        let ring = Ring::connect(config.redis.clone(), config.ring.clone()).await.unwrap();
        let nodes = (0..NODES).map(|_| RunningNode::start(config.clone(), Counter(0), self.clone()));
        let live = LiveRing { nodes: nodes.collect(), config, ring };
        eventually(&live.ring, "all nodes are members", |ring| ring.members.len() == NODES).await;
        live.progress(500).await;
        live
    }

    /// The longest time without a message since `start`.
    fn standstill(&self, start: Instant) -> Duration {
        let times = self.since(start);
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// When the first message was handled after `start`.
    fn first_after(&self, start: Instant) -> Instant {
        self.since(start)[1]
    }

    fn since(&self, start: Instant) -> Vec<Instant> {
        let mut times: Vec<Instant> =
            self.0.lock().unwrap().iter().copied().filter(|time| *time > start).collect();
        times.push(start);
        times.sort_unstable();
        times
    }
}

#[allow(clippy::print_stdout)]
fn show(event: &str, standstill: Duration, more: &str) {
    println!("{event}: a standstill of {} ms{more}", standstill.as_millis());
    assert!(standstill < LONGEST, "{event}: {standstill:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_planned_failover_in_a_cluster() {
    let redis = RedisCluster::start();
    let clocked = Clocked::default();
    let live = clocked.ring(&redis.url()).await;
    let start = Instant::now();
    redis.failover(RING);
    live.progress(500).await;
    show("CLUSTER FAILOVER", clocked.standstill(start), "");
    live.end_with_all_handled_once().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_slot_that_migrates() {
    let redis = RedisCluster::start();
    let clocked = Clocked::default();
    let live = clocked.ring(&redis.url()).await;
    let target = redis.other_masters(RING)[0];
    let start = Instant::now();
    redis.begin_migration(RING, target).finish();
    let took = start.elapsed();
    live.progress(500).await;
    show(
        "migration of a slot",
        clocked.standstill(start),
        &format!(", the migration took {} ms", took.as_millis()),
    );
    live.end_with_all_handled_once().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_owner_that_is_killed() {
    let redis = RedisCluster::start();
    let clocked = Clocked::default();
    let live = clocked.ring(&redis.url()).await;
    let owner = redis.owner_of(RING);
    let replica = redis.replica_of(owner);
    show_kill("kill -9 of a cluster node", &clocked, live, owner, &[replica], "{estafeta}:probe").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_master_that_is_killed_under_sentinels() {
    let redis = RedisSentinels::start();
    let clocked = Clocked::default();
    let live = clocked.ring(&redis.url()).await;
    let (master, replicas) = (redis.master(), redis.replicas());
    show_kill("kill -9 of a master under sentinels", &clocked, live, master, &replicas, "probe").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_planned_failover_under_sentinels() {
    let redis = RedisSentinels::start();
    let clocked = Clocked::default();
    let live = clocked.ring(&redis.url()).await;
    let (old, start) = (redis.master(), Instant::now());
    redis.failover();
    let named = Instant::now();
    let left = loop {
        if clients(old) == 0 {
            break named.elapsed();
        }
        assert!(named.elapsed() < LONGEST, "nodes stay at the old master");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let after = live.progress(500).await;
    let more = format!(
        ", all had left the old master {} ms after the switch, {} lost",
        left.as_millis(),
        after.lost
    );
    show("SENTINEL FAILOVER", clocked.standstill(start), &more);
    for node in live.nodes {
        node.stop().await.unwrap();
    }
}

/// Kills a server, and measures from when on another one accepts writes, and from when on messages flow.
async fn show_kill(
    event: &str,
    clocked: &Clocked,
    live: LiveRing,
    killed: &RedisServer,
    others: &[&RedisServer],
    key: &str,
) {
    let start = Instant::now();
    killed.kill();
    let writes =
        |server: &&&RedisServer| redis::cmd("SET").arg(key).arg("").exec(&mut server.connect()).is_ok();
    let writable = loop {
        if others.iter().any(|server| writes(&server)) {
            break Instant::now();
        }
        assert!(start.elapsed() < LONGEST, "no other server accepts writes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    live.progress(500).await;
    let flows = clocked.first_after(start.max(writable)) - writable;
    let (writable_after, flows) = ((writable - start).as_millis(), flows.as_millis());
    let more = format!(", writable after {writable_after} ms, messages {flows} ms later");
    show(event, clocked.standstill(start), &more);
    let after = live.snapshot().await;
    assert_eq!((after.members.len(), after.buried), (NODES, 0), "{after:?}");
    for node in live.nodes {
        node.stop().await.unwrap();
    }
}
