//! Rings with partitions: who joins them, what is shared out, and where messages go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use estafeta::{Config, Draft, Error, Job, Node, Partition, Publisher, Ring, Snapshot, every};
use estafeta_testbed::RedisServer;

use crate::support::{SOON, changed, config, eventually, ring, start};

/// The bodies that were handled, with the ring of each.
type Handled = Arc<Mutex<Vec<(String, Bytes)>>>;

fn divided(redis: &RedisServer, count: u32) -> Config {
    changed(config(redis), |config| {
        (config.partitions, config.generator_handles, config.journal) = (count, true, true);
    })
}

/// A node that generates the number of its partition, again and again.
fn node(config: Config, handled: &Handled) -> Node {
    let (interval, handled) = (config.interval, Arc::clone(handled));
    let source = move |partition: Partition| {
        every(interval, move || async move { Ok(Bytes::from(partition.index.to_string())) })
    };
    Node::with(config).generate_each(source).handle(move |job: Job<Bytes>| {
        handled.lock().unwrap().push((job.ring().to_string(), job.body));
        async { Ok(()) }
    })
}

async fn parts(redis: &RedisServer) -> Vec<Ring> {
    ring(redis).await.partitions().await.unwrap()
}

async fn snapshots(parts: &[Ring]) -> Vec<Snapshot> {
    let mut all = Vec::new();
    for part in parts {
        all.push(part.snapshot(0).await.unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_all_partitions_add_up_and_nodes_end_when_all_are_done() {
    let redis = RedisServer::start();
    let settings = changed(divided(&redis, 3), |config| {
        (config.limit, config.until_done, config.concurrency) = (Some(101), true, 2);
        config.interval = Duration::from_millis(1);
    });
    let handled = Handled::default();
    let nodes = [start(node(settings.clone(), &handled)), start(node(settings, &handled))];
    for node in nodes {
        node.ended().await.unwrap();
    }
    let parts = parts(&redis).await;
    let seen = snapshots(&parts).await;
    let published: Vec<u64> = seen.iter().map(|part| part.published).collect();
    assert_eq!(published, [34, 34, 33], "each has its share");
    let whole = Snapshot::of_partitions(ring(&redis).await.name(), seen).unwrap();
    assert_eq!((whole.published, whole.done, whole.balanced), (101, 101, true));
    assert!(whole.members.is_empty(), "all have left: {whole:?}");
    for part in &parts {
        let mut ids: Vec<u64> =
            part.journal().await.unwrap().into_iter().flat_map(|entry| entry.ids).collect();
        ids.sort_unstable();
        let published = part.snapshot(0).await.unwrap().published;
        assert_eq!(ids, (1..=published).collect::<Vec<_>>(), "one outcome each in {part:?}");
    }
    for (ring, body) in handled.lock().unwrap().iter() {
        assert_eq!(ring.as_bytes(), [b"estafeta:", &body[..]].concat(), "a source knows its partition");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_partitions_is_refused_and_changes_nothing() {
    let redis = RedisServer::start();
    let handled = Handled::default();
    let running = start(node(divided(&redis, 3), &handled));
    running.notices.wait_for("handled").await;
    running.stop().await.unwrap();
    let keys = || -> BTreeSet<String> { redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap() };
    let before = keys();
    for wrong in [1, 2, 4] {
        let refused = start(node(divided(&redis, wrong), &handled)).ended().await.unwrap_err();
        let expected =
            format!("ring estafeta has 3 partitions, and this program expects {wrong}: the number is fixed");
        assert!(refused.to_string().starts_with(&expected), "{refused}");
    }
    for wrong in [2, 4] {
        let refused = Publisher::<Bytes>::of(&divided(&redis, wrong)).await.unwrap_err();
        assert!(matches!(refused, Error::Partitions { found: 3, .. }), "{refused}");
    }
    assert_eq!(keys(), before);

    redis::cmd("FLUSHALL").exec(&mut redis.connect()).unwrap();
    let running = start(node(divided(&redis, 1), &handled));
    running.notices.wait_for("handled").await;
    running.stop().await.unwrap();
    let refused = start(node(divided(&redis, 3), &handled)).ended().await.unwrap_err();
    assert!(matches!(refused, Error::Partitions { found: 1, expected: 3, .. }), "{refused}");
}

#[tokio::test]
async fn a_node_is_refused_before_it_connects_if_it_cannot_have_partitions() {
    let refused = async |ring: &str, change: fn(Node) -> Node| {
        let node = Node::on("redis://127.0.0.1:1", ring).unwrap().handle(async |_: Job<Bytes>| Ok(()));
        change(node).until(std::future::pending()).await.unwrap_err().to_string()
    };
    let one_source = |node: Node| node.partitions(3).generate(every(SOON, || async { Ok(1) }));
    let error = refused("orders", one_source).await;
    assert_eq!(
        error,
        "node: expected a source for each partition, by Node::generate_each, got 'one for all, by Node::generate'"
    );
    assert!(refused("orders:2", |node| node).await.contains("which is the name of a partition"));
    assert!(refused("shop/orders", |node| node.partitions(2)).await.contains("a ring in no group"));
    assert!(refused("orders", |node| node.partitions(0)).await.starts_with("partitions: expected 1 to 1024"));
    let publisher = Publisher::<Bytes>::on("redis://127.0.0.1:1", "orders:2").await.unwrap_err().to_string();
    assert!(publisher.contains("which is the name of a partition"), "{publisher}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_in_one_partition_stops_in_all() {
    let redis = RedisServer::start();
    redis::cmd("SET").arg("{estafeta:1}:ready").arg("x").exec(&mut redis.connect()).unwrap();
    let failed = start(node(divided(&redis, 3), &Handled::default())).ended().await.unwrap_err();
    assert!(matches!(&failed, Error::ForeignKey { key, .. } if key == "{estafeta:1}:ready"), "{failed}");
    let others = [&parts(&redis).await[0], &parts(&redis).await[2]].map(Ring::clone);
    for seen in snapshots(&others).await {
        assert!(seen.members.is_empty(), "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_single_names_stick_to_their_partition_and_other_calls_take_turns() {
    let redis = RedisServer::start();
    let publisher: Publisher = Publisher::of(&divided(&redis, 3)).await.unwrap();
    // Another publisher finds the partitions by itself.
    let other: Publisher = Publisher::of(&divided(&redis, 1)).await.unwrap();
    assert_eq!((publisher.partitions(), other.partitions()), (3, 3));
    let mut of_keys = BTreeMap::new();
    for n in 0..30 {
        let key = format!("order-{n}");
        let first = publisher.publish("body").key(&key).await.unwrap();
        assert_eq!(first.partition, Partition::of_key(&key, 3).index);
        let again = other.publish("body").key(&key).await.unwrap();
        assert!(again.duplicate && (again.id, again.partition) == (first.id, first.partition), "{again:?}");
        of_keys.entry(first.partition).or_insert_with(Vec::new).push(key);
        let single = publisher.publish("single").single(format!("s{n}")).await.unwrap();
        let waits = other.publish("single").single(format!("s{n}")).await.unwrap();
        assert!(waits.duplicate && waits.partition == single.partition, "{waits:?}");
    }
    assert_eq!(of_keys.len(), 3, "30 keys meet all partitions: {of_keys:?}");
    let mut turns = BTreeSet::new();
    for _ in 0..3 {
        let call = publisher.publish_all(["a", "b"]).await.unwrap();
        assert_eq!(call[0].partition, call[1].partition, "a call is one step");
        turns.insert(call[0].partition);
    }
    assert_eq!(turns.len(), 3, "each partition in turn");

    let (one, two) = (Draft::new("x").key(&of_keys[&0][0]), Draft::new("y").key(&of_keys[&1][0]));
    let refused = publisher.publish_all([one, two]).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("messages: expected keys and single names of one partition in one call"),
        "{refused}"
    );
    let only = publisher.partition(2).unwrap();
    assert_eq!(only.publish("x").await.unwrap().partition, 2);
    assert!(only.publish("z").key(&of_keys[&1][0]).await.is_err(), "the key belongs elsewhere");
    assert_eq!(publisher.partition(3).unwrap_err().to_string(), "partition: expected 0 to 2, got '3'");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_is_cancelled_by_its_key_or_in_its_partition() {
    let redis = RedisServer::start();
    let publisher: Publisher = Publisher::of(&divided(&redis, 3)).await.unwrap();
    let hour = Duration::from_secs(3600);
    publisher.publish("a").key("a").delay(hour).await.unwrap();
    assert!(publisher.cancel_key("a").await.unwrap());
    assert!(!publisher.cancel_key("a").await.unwrap());
    let receipt = publisher.publish("b").delay(hour).await.unwrap();
    let refused = publisher.cancel(receipt.id).await.unwrap_err().to_string();
    assert!(refused.starts_with("partition: expected the one of the message"), "{refused}");
    let there = publisher.partition(receipt.partition).unwrap();
    assert!(there.cancel(receipt.id).await.unwrap());
}

/// The nodes begin the partitions again. The plain name states nothing then, but the partitions do.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_found_even_after_redis_lost_everything() {
    let redis = RedisServer::start();
    let handled = Handled::default();
    let running = start(node(divided(&redis, 2), &handled));
    running.notices.wait_for("handled").await;
    redis::cmd("FLUSHALL").exec(&mut redis.connect()).unwrap();
    let first = Ring::on(&redis.url(), "estafeta:0").await.unwrap();
    eventually(&first, "a member again", |seen| !seen.members.is_empty()).await;
    assert_eq!(parts(&redis).await.len(), 2);
    let refused = start(node(divided(&redis, 3), &handled)).ended().await.unwrap_err();
    assert!(matches!(refused, Error::Partitions { found: 2, .. }), "{refused}");
    running.stop().await.unwrap();
}
