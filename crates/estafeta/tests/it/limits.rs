//! Limits on messages in flight and on the rate of claims, on rings of real nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use estafeta::{Config, EventKind, Failure, Message, Publisher, Rate, Ring};
use estafeta_testbed::RedisServer;

use crate::support::{Counter, RunningNode, TestHandler, config, eventually, ring};

/// Counts how many messages are handled at the same time, on all nodes together.
#[derive(Clone, Default)]
struct Gauge {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl TestHandler for Gauge {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A generator that publishes nothing more, and three handlers with four lanes each.
async fn nodes(settings: &Config, gauge: &Gauge, ring: &Ring) -> Vec<RunningNode> {
    let start = || RunningNode::start(settings.clone(), Counter(0), gauge.clone());
    let mut nodes = vec![start()];
    nodes[0].notices.wait_for("BecameGenerator").await;
    nodes.extend((0..3).map(|_| start()));
    eventually(ring, "all join", |snapshot| snapshot.members.len() == 4 && snapshot.done == 1).await;
    nodes
}

fn settings(redis: &RedisServer) -> Config {
    let mut settings = config(redis);
    (settings.concurrency, settings.limit) = (4, Some(1));
    settings
}

async fn publish(publisher: &Publisher, count: usize) {
    publisher.publish_all(vec!["x"; count]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_messages_are_handled_at_one_time_than_the_limit_allows() {
    let redis = RedisServer::start();
    let (settings, ring, gauge) = (settings(&redis), ring(&redis).await, Gauge::default());
    let nodes = nodes(&settings, &gauge, &ring).await;
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    ring.limit_in_flight(Some(3)).await.unwrap();
    publish(&publisher, 300).await;
    let done = eventually(&ring, "all are handled", |snapshot| {
        assert!(snapshot.in_flight <= 3, "{snapshot:?}");
        snapshot.done == 301
    })
    .await;
    assert_eq!((gauge.most.load(Ordering::SeqCst), done.in_flight_limit), (3, Some(3)));
    ring.limit_in_flight(None).await.unwrap();
    publish(&publisher, 300).await;
    let done = eventually(&ring, "all are handled", |snapshot| snapshot.done == 601).await;
    assert!(gauge.most.load(Ordering::SeqCst) > 3, "twelve lanes were free");
    let limited = |in_flight| EventKind::Limited { in_flight, rate: None };
    for kind in [limited(Some(3)), limited(None)] {
        assert!(done.events.iter().any(|event| event.kind == kind), "{:?}", done.events);
    }
    for node in nodes {
        node.stop().await.unwrap();
    }
}

/// A killed node holds nothing any more. The others get its place.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_node_held_no_longer_counts() {
    let redis = RedisServer::start();
    let (settings, ring, gauge) = (settings(&redis), ring(&redis).await, Gauge::default());
    let mut nodes = nodes(&settings, &gauge, &ring).await;
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    ring.limit_in_flight(Some(1)).await.unwrap();
    publish(&publisher, 200).await;
    eventually(&ring, "one is held", |snapshot| snapshot.in_flight == 1).await;
    for node in nodes.drain(1..3) {
        node.stop().await.unwrap();
    }
    eventually(&ring, "all are handled", |snapshot| snapshot.done == 201).await;
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_claimed_as_fast_as_the_rate_allows() {
    let redis = RedisServer::start();
    let (settings, ring, gauge) = (settings(&redis), ring(&redis).await, Gauge::default());
    let nodes = nodes(&settings, &gauge, &ring).await;
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let start = Instant::now();
    ring.limit_rate(Some(Rate::per_second(100))).await.unwrap();
    publish(&publisher, 60).await;
    eventually(&ring, "all are handled", |snapshot| snapshot.done == 61).await;
    let took = start.elapsed();
    // A rate begins with nothing saved up. The clocks of Redis and of the test may differ by a few milliseconds.
    assert!(took >= Duration::from_millis(590), "{took:?}");
    ring.limit_rate(None).await.unwrap();
    publish(&publisher, 60).await;
    eventually(&ring, "all are handled", |snapshot| snapshot.done == 121).await;
    for node in nodes {
        node.stop().await.unwrap();
    }
}
