//! The pace of the generator: ticks, missed ticks, limits, room in the queue, and the wakeup of idle handlers.

use std::time::Duration;

use estafeta::Failure;
use estafeta_testbed::RedisServer;

use crate::support::{
    Counter, Keep, ListedBodies, RunningNode, SOON, TestSource, config, eventually, ring, steps,
};

/// Sets the next tick two seconds back, as if no node had generated for that long.
fn miss_two_seconds(redis: &RedisServer) {
    let mut connection = redis.connect();
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let due = (seconds - 2) * 1000;
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("due").arg(due).exec(&mut connection).unwrap();
}

/// The line of members that wait for a call.
fn idle(redis: &RedisServer) -> String {
    let line: Option<String> =
        redis::cmd("HGET").arg(&["{estafeta}:ledger", "idle"]).query(&mut redis.connect()).unwrap();
    line.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_ticks_are_skipped_or_made_up_for_as_configured() {
    for (catch_up, at_once) in [(false, 1..2), (true, 20..40)] {
        let redis = RedisServer::start();
        miss_two_seconds(&redis);
        let mut settings = config(&redis);
        settings.interval = Duration::from_millis(100);
        settings.catch_up = catch_up;
        let one = RunningNode::start(settings, Counter(0), Keep::default());
        let line = one.notices.wait_for("generated").await;
        let count: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(at_once.contains(&count), "{catch_up}: {line}");
        one.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_generator_pauses_while_the_queue_is_full() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::ZERO;
    settings.max_waiting = 50;
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    let ring = ring(&redis).await;
    // A batch is published as a whole or not at all. It has at most a quarter of the messages that may wait.
    let holds = |snapshot: &estafeta::Snapshot| {
        assert!(snapshot.waiting <= 50, "{snapshot:?}");
        snapshot.waiting > 50 - 50 / 4
    };
    let full = eventually(&ring, "the queue is full", holds).await;
    // Meanwhile the generator tries again and again, and is refused.
    let before = steps(&redis);
    estafeta_testbed::eventually(SOON, "it asks again", || (steps(&redis) > before + 20).then_some(()));
    let before = steps(&redis);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = steps(&redis) - before;
    // The generator tries twenty times, and there are a dozen looks and beats. Without a pause there would be
    // thousands.
    assert!(asked < 200, "{asked} steps in a second");
    let later = ring.snapshot(0).await.unwrap();
    assert_eq!(
        (later.published, later.waiting),
        (full.published, full.waiting),
        "it does not pause: {later:?}"
    );
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    let goes_on = |snapshot: &estafeta::Snapshot| {
        assert!(snapshot.waiting <= 50, "{snapshot:?}");
        snapshot.published > 1000
    };
    eventually(&ring, "it goes on", goes_on).await;
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_holds_for_the_whole_ring_across_take_overs() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::from_millis(5);
    settings.limit = Some(60);
    let ring = ring(&redis).await;
    let mut running = vec![RunningNode::start(settings.clone(), Counter(0), Keep::default())];
    for reached in [20, 40, 60] {
        eventually(&ring, "some messages", |snapshot| snapshot.published >= reached).await;
        running.push(RunningNode::start(settings.clone(), Counter(0), Keep::default()));
        running.last().unwrap().notices.wait_for("Joined").await;
        running.remove(0).stop().await.unwrap();
    }
    running[0].notices.wait_for("LimitReached").await;
    let snapshot =
        eventually(&ring, "everything is settled or waits", |snapshot| snapshot.in_flight == 0).await;
    assert_eq!(snapshot.published, 60, "{snapshot:?}");
    assert!(snapshot.takeovers >= 2, "{snapshot:?}");
    for member in running {
        member.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_wakes_an_idle_handler() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // No sweep may call the handler.
    settings.sweep = Duration::from_secs(600);
    settings.interval = Duration::from_secs(1);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated 1 from #1").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled #1.1").await;
    other.notices.wait_for("handled #2.1").await;
    other.notices.wait_for("handled #3.1").await;
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_office_publishes_on_the_connection_where_it_waited_for_a_call() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // A command that Redis does not answer counts as lost after half of this.
    settings.lease = Duration::from_secs(40);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    estafeta_testbed::eventually(SOON, "it waits for a call", || (!idle(&redis).is_empty()).then_some(()));
    let start = std::time::Instant::now();
    one.stop().await.unwrap();
    other.notices.wait_for("generated").await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wakeup_that_was_lost_is_sent_again() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    // The turn that settles a message finds no other one, so the node waits for a call. No step makes that call.
    let script = "redis.call('HINCRBY', KEYS[1], 'published', 1); redis.call('RPUSH', KEYS[2], ARGV[1])";
    for id in 2..=4 {
        other.notices.wait_for(&format!("handled #{}.1", id - 1)).await;
        estafeta_testbed::eventually(SOON, "it waits for a call", || {
            (!idle(&redis).is_empty()).then_some(())
        });
        let mut call = redis::cmd("EVAL");
        call.arg(script)
            .arg(2)
            .arg("{estafeta}:ledger")
            .arg("{estafeta}:ready")
            .arg(format!("{id} 1 7 0 0 0 0 0 x"));
        call.exec(&mut redis.connect()).unwrap();
    }
    other.notices.wait_for("handled #4.1").await;
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// A call can get lost without a sign, on a connection that is half open. The member is then out of the line.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_idle_for_a_while_looks_even_if_it_is_not_called() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled #1.1").await;
    estafeta_testbed::eventually(SOON, "it waits for a call", || (!idle(&redis).is_empty()).then_some(()));
    let script = "redis.call('HINCRBY', KEYS[1], 'published', 1); redis.call('HDEL', KEYS[1], 'idle') \
                  redis.call('RPUSH', KEYS[2], ARGV[1])";
    let mut call = redis::cmd("EVAL");
    call.arg(script).arg(2).arg("{estafeta}:ledger").arg("{estafeta}:ready").arg("2 1 7 0 0 0 0 0 x");
    call.exec(&mut redis.connect()).unwrap();
    other.notices.wait_for("handled #2.1").await;
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// Returns the messages of a channel. It waits if there is none, even after the channel is closed.
struct ChannelSource(tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>);

impl TestSource for ChannelSource {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        match self.0.recv().await {
            Some(body) => Ok(body),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_does_not_wait_for_the_next_one_of_a_slow_source() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::ZERO;
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    sender.send(b"already there".to_vec()).unwrap();
    let one = RunningNode::start(settings, ChannelSource(receiver), Keep::default());
    one.notices.wait_for("generated 1 from #1").await;
    // The generator has waited by now.
    sender.send(b"late".to_vec()).unwrap();
    one.notices.wait_for("generated 1 from #2").await;
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_publish_exceeds_the_limits_on_messages_and_bytes() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.max_batch, settings.limit) = (Duration::ZERO, 7, Some(100));
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let sizes_of = |notices: &[String]| -> Vec<u64> {
        let size = |line: &String| line.strip_prefix("generated ")?.split(' ').next()?.parse().ok();
        notices.iter().filter_map(size).collect()
    };
    let sizes = sizes_of(&one.notices.all());
    assert!(sizes.iter().all(|size| *size <= 7) && sizes.iter().sum::<u64>() == 100, "{sizes:?}");
    // The size is limited as well, to about a mebibyte.
    let redis = RedisServer::start();
    let mut large = config(&redis);
    (large.interval, large.limit) = (Duration::ZERO, Some(40));
    let other = RunningNode::start(large, ListedBodies(vec![vec![b'x'; 300_000]]), Keep::default());
    other.notices.wait_for("LimitReached").await;
    let sizes = sizes_of(&other.notices.all());
    assert!(sizes.iter().all(|size| *size <= 4) && sizes.iter().sum::<u64>() == 40, "{sizes:?}");
    settings.max_batch = 1001;
    let error = RunningNode::start(settings, Counter(0), Keep::default()).ended().await.unwrap_err();
    assert_eq!(error.to_string(), "max-batch: expected 1 to 1000, got '1001'");
}
