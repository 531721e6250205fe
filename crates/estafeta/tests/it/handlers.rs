//! What handlers may do to a node, and what becomes of their messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use estafeta::{Failure, Message, Outcome, Retry, Selection};
use estafeta_testbed::RedisServer;
use tokio::sync::Notify;

use crate::support::{
    Counter, Gate, Hang, Keep, ListedBodies, RunningNode, SOON, TestHandler, config, eventually, ring,
};

/// Fails, panics or succeeds, depending on the id.
struct Moody;

impl TestHandler for Moody {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        match message.id % 3 {
            0 => Err(Failure::fatal(format!("{} is divisible by three", message.id))),
            1 => panic!("I cannot stand {}", message.id),
            _ => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_and_a_panic_become_errors_with_their_reasons() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(3);
    settings.until_done = true;
    settings.retry = Retry::never();
    let one = RunningNode::start(settings.clone(), Counter(0), Moody);
    one.notices.wait_for("LimitReached").await;
    let other = RunningNode::start(settings, Counter(0), Moody);
    other.notices.wait_for("failed #1.1: the handler panicked: I cannot stand 1").await;
    other.notices.wait_for("handled #2.1").await;
    other.notices.wait_for("failed #3.1: 3 is divisible by three").await;
    other.ended().await.unwrap();
    one.ended().await.unwrap();
    let ring = ring(&redis).await;
    let errors = ring.errors(0, 10).await.unwrap();
    assert_eq!(errors.iter().map(|error| error.message.id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(errors[0].reason, "the handler panicked: I cannot stand 1");
    assert_eq!(errors[1].reason, "3 is divisible by three");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_returns_is_abandoned_at_the_deadline_and_its_message_goes_back() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    settings.stop_deadline = Duration::from_millis(300);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let hanging = RunningNode::start(settings, Counter(0), Hang);
    let ring = ring(&redis).await;
    eventually(&ring, "the message is in hand", |snapshot| snapshot.in_flight == 1).await;
    let notices = hanging.notices.clone();
    let start = Instant::now();
    hanging.stop().await.unwrap();
    // The default deadline would be 25 s.
    let took = start.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(20)).contains(&took), "{took:?}");
    assert_eq!(notices.all().last().unwrap(), "Left { returned: 1 }");
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (1, 0), "{snapshot:?}");
    one.stop().await.unwrap();
}

/// Always fails.
struct Refuse;

impl TestHandler for Refuse {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        Err(Failure::fatal("no"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_all_errors_ends_even_if_they_fail_again_at_once() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.limit) = (Duration::ZERO, Some(1000));
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = RunningNode::start(settings, Counter(0), Refuse);
    let ring = ring(&redis).await;
    eventually(&ring, "all have failed", |snapshot| snapshot.errors_kept == 1000).await;
    for _ in 0..3 {
        let retried =
            tokio::time::timeout(SOON, ring.retry_errors(&Selection::All)).await.expect("it ends").unwrap();
        assert!((1..=1000).contains(&retried), "{retried}");
        eventually(&ring, "all have failed again", |snapshot| snapshot.errors_kept == 1000).await;
    }
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_whose_reply_was_lost_is_settled_without_a_second_call_of_the_handler() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.limit, settings.max_batch) = (Some(2), 1);
    let bodies = vec![b"small".to_vec(), vec![b'x'; 100_000]];
    let one = RunningNode::start(settings.clone(), ListedBodies(bodies), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let (calls, started, finish) = <(Arc<AtomicUsize>, Arc<Notify>, Arc<Notify>)>::default();
    let gate = Gate { calls: Arc::clone(&calls), started: Arc::clone(&started), finish: Arc::clone(&finish) };
    let other = RunningNode::start(settings, Counter(0), gate);
    started.notified().await;
    // The reply to the settle also carries the second message. Redis executes the settle, but closes the connection
    // instead of sending a reply that is larger than the limit.
    limit_replies(&redis, 50_000);
    finish.notify_one();
    let ring = ring(&redis).await;
    eventually(&ring, "Redis has recorded the result", |snapshot| snapshot.done == 1).await;
    let notices = other.notices.all();
    assert!(!notices.iter().any(|line| line.starts_with("handled")), "no reply arrived: {notices:?}");
    limit_replies(&redis, 0);
    other.notices.wait_for("handled #1.1").await;
    finish.notify_one();
    other.notices.wait_for("handled #2.1").await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "one call per message");
    assert!(!other.notices.all().contains(&"DeclaredDead".to_owned()), "{:?}", other.notices.all());
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.done, snapshot.buried), (2, 0), "{snapshot:?}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// Lets Redis close every connection whose pending replies are larger than this. 0 means no limit. A connection that
/// shows presence has a subscription, and the limit of such connections is separate.
fn limit_replies(redis: &RedisServer, bytes: usize) {
    let limit = format!("normal {bytes} 0 0 pubsub {bytes} 0 0");
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("client-output-buffer-limit").arg(limit).exec(&mut redis.connect()).unwrap();
}

/// Panics when it is dropped.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in drop");
    }
}

/// An answer that panics when it becomes an outcome, unless it is `None`.
struct PanickingAnswer(Option<PanicsInDrop>);

impl From<PanickingAnswer> for Outcome {
    fn from(answer: PanickingAnswer) -> Self {
        assert!(answer.0.map(std::mem::forget).is_none(), "in into");
        Self::done()
    }
}

/// Panics when its future is dropped, and when its answer is converted.
struct Treacherous;

impl TestHandler<PanickingAnswer> for Treacherous {
    async fn handle(&self, message: &Message) -> Result<PanickingAnswer, Failure> {
        match message.id {
            1 => {
                let _trap = PanicsInDrop;
                std::future::pending().await
            }
            2 => Ok(PanickingAnswer(Some(PanicsInDrop))),
            _ => Ok(PanickingAnswer(None)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_after_the_time_limit_or_while_the_answer_is_converted_ends_no_node() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.generator_handles, settings.time_limit) = (true, Duration::from_millis(200));
    (settings.limit, settings.until_done, settings.retry) = (Some(3), true, Retry::never());
    let one = RunningNode::start(settings, Counter(0), Treacherous);
    let notices = one.notices.clone();
    one.ended().await.unwrap();
    notices.wait_for("failed #1.1: the handler took longer than its time limit of 200ms").await;
    notices.wait_for("failed #2.1: the handler panicked: in into").await;
    notices.wait_for("handled #3.1").await;
}
