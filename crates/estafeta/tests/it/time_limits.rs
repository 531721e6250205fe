//! How long a handler may take, and what becomes of a message whose handler takes longer.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use estafeta::{Failure, Message, Retry, Ring, Snapshot};
use estafeta_testbed::RedisServer;

use crate::support::{Counter, Hang, Keep, RunningNode, TestHandler, config, eventually, ring};

const LIMIT: Duration = Duration::from_millis(400);
const REASON: &str = "the handler took longer than its time limit of 400ms";

/// Hangs with the first message.
struct HangOnce;

impl TestHandler for HangOnce {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        if message.id == 1 { Hang.handle(message).await } else { Ok(()) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_waits_beyond_its_time_limit_is_dropped_and_its_lane_goes_on() {
    let redis = RedisServer::start();
    for concurrency in [1, 2] {
        let mut settings = config(&redis);
        settings.retry = Retry::never();
        settings.ring = format!("lanes-{concurrency}").parse().unwrap();
        (settings.generator_handles, settings.concurrency, settings.time_limit) = (true, concurrency, LIMIT);
        (settings.limit, settings.until_done) = (Some(3), true);
        let one = RunningNode::start(settings, Counter(0), HangOnce);
        let notices = one.notices.clone();
        one.ended().await.unwrap();
        notices.wait_for("HandlerSlow").await;
        notices.wait_for(&format!("failed #1.1: {REASON}")).await;
        notices.wait_for("handled #3.1").await;
        let lines = notices.all();
        assert!(!lines.iter().any(|line| line.starts_with("HandlerStuck")), "{lines:?}");
    }
}

#[tokio::test]
async fn the_time_limit_also_holds_on_a_runtime_with_one_thread() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.retry = Retry::never();
    (settings.generator_handles, settings.time_limit) = (true, LIMIT);
    (settings.limit, settings.until_done) = (Some(2), true);
    let one = RunningNode::start(settings, Counter(0), HangOnce);
    let notices = one.notices.clone();
    one.ended().await.unwrap();
    notices.wait_for(&format!("failed #1.1: {REASON}")).await;
    notices.wait_for("handled #2.1").await;
}

/// Blocks its thread with each message until the test opens the gate.
#[derive(Clone, Default)]
struct Block(Arc<(Mutex<bool>, Condvar)>);

impl Block {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl TestHandler for Block {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        let (open, opened) = &*self.0;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_blocks_its_thread_keeps_no_other_lane_from_starting() {
    let redis = RedisServer::start();
    for round in 1..=20 {
        let mut settings = config(&redis);
        settings.ring = format!("round-{round}").parse().unwrap();
        (settings.limit, settings.interval) = (Some(2), Duration::ZERO);
        let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
        one.notices.wait_for("LimitReached").await;
        (settings.concurrency, settings.time_limit) = (2, LIMIT);
        let block = Block::default();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let other = {
            let _inside = runtime.enter();
            RunningNode::start(settings.clone(), Counter(0), block.clone())
        };
        let ring = Ring::connect(settings.redis.clone(), settings.ring.clone()).await.unwrap();
        let stuck = |now: &Snapshot| now.members.iter().map(|member| member.stuck).sum::<u64>();
        eventually(&ring, "both lanes are stuck", |now| stuck(now) == 2).await;
        block.open();
        one.stop().await.unwrap();
        other.stop().await.unwrap();
        runtime.shutdown_background();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_blocks_its_thread_loses_its_message_and_keeps_its_lane() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.retry = Retry::never();
    settings.limit = Some(1);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    (settings.concurrency, settings.time_limit) = (2, LIMIT);
    let block = Block::default();
    // It can also stop the timers and the sockets of its runtime, so the node has its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let other = {
        let _inside = runtime.enter();
        RunningNode::start(settings, Counter(0), block.clone())
    };
    let ring = ring(&redis).await;
    let stuck = |now: &Snapshot| now.members.iter().map(|member| member.stuck).sum::<u64>();
    let snapshot = eventually(&ring, "its lane is stuck", |now| stuck(now) == 1).await;
    assert_eq!((snapshot.errors_kept, snapshot.in_flight, snapshot.waiting), (1, 0, 0), "{snapshot:?}");
    other.notices.wait_for("HandlerSlow").await;
    other.notices.wait_for("HandlerStuck").await;
    other.notices.wait_for(&format!("failed #1.1: {REASON}")).await;
    // The late result counts for nothing.
    block.open();
    let snapshot = eventually(&ring, "the lane is free again", |now| stuck(now) == 0).await;
    assert_eq!((snapshot.errors_kept, snapshot.done), (1, 0), "{snapshot:?}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    runtime.shutdown_background();
}
