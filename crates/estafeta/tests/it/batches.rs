//! Messages that are handled with one call of a function, and what becomes of each of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use estafeta::{Config, Failure, Job, Node, Outcome, Outcomes, Publisher, Retry};
use estafeta_testbed::RedisServer;
use tokio::sync::Notify;

use crate::support::{SOON, config, eventually, ring, start};

/// Long enough for a batch to be complete.
const LONG: Duration = SOON;
const SHORT: Duration = Duration::from_millis(50);

/// The id and the delivery of each job of a call.
type BatchCall = Vec<(u64, u32)>;

/// The calls of a function.
#[derive(Clone, Default)]
struct BatchCalls(Arc<Mutex<Vec<BatchCall>>>);

impl BatchCalls {
    fn add<T>(&self, jobs: &[Job<T>]) {
        self.0.lock().unwrap().push(jobs.iter().map(|job| (job.id(), job.delivery())).collect());
    }

    fn sizes(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().map(Vec::len).collect()
    }

    fn all(&self) -> Vec<BatchCall> {
        self.0.lock().unwrap().clone()
    }
}

/// Each message has one attempt.
fn once(redis: &RedisServer) -> Config {
    let mut settings = config(redis);
    settings.retry = Retry::never();
    settings
}

async fn publish(settings: &Config, count: u64) -> Publisher {
    let publisher: Publisher = Publisher::of(settings).await.unwrap();
    if count > 0 {
        publisher.publish_all((1..=count).map(|n| n.to_string())).await.unwrap();
    }
    publisher
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_messages_take_three_calls_of_a_hundred() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    publish(&settings, 300).await;
    let calls = BatchCalls::default();
    let counted = calls.clone();
    let node = Node::with(settings).handle_batch(100, LONG, move |jobs: Vec<Job<u64>>| {
        counted.add(&jobs);
        let good = jobs.iter().all(|job| job.body == job.id());
        async move { if good { Ok(()) } else { Err(Failure::fatal("another body")) } }
    });
    let one = start(node);
    eventually(&ring(&redis).await, "all are done", |snapshot| snapshot.done == 300).await;
    one.stop().await.unwrap();
    assert_eq!(calls.sizes(), [100; 3]);
    let mut ids: Vec<u64> = calls.all().concat().into_iter().map(|(id, _)| id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=300).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_does_not_fill_begins_after_its_wait() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    publish(&settings, 3).await;
    let calls = BatchCalls::default();
    let counted = calls.clone();
    let one = start(Node::with(settings).handle_batch(100, SHORT, move |jobs: Vec<Job<Bytes>>| {
        counted.add(&jobs);
        async { Ok(()) }
    }));
    eventually(&ring(&redis).await, "all are done", |snapshot| snapshot.done == 3).await;
    one.stop().await.unwrap();
    assert_eq!(calls.sizes().iter().sum::<usize>(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_a_batch_gets_its_own_outcome() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    publish(&settings, 5).await;
    let day = Duration::from_secs(24 * 3600);
    let node = Node::with(settings).handle_batch(5, LONG, move |jobs: Vec<Job<u64>>| async move {
        let one = |job: Job<u64>| match job.body {
            1 => Ok(Outcome::done().add("sum", 7)),
            2 => Err(Failure::retry_after(day, "not yet")),
            3 => Err(Failure::fatal("never")),
            4 => Ok(Outcome::snooze(day)),
            _ => Ok(Outcome::snooze(day).add("sum", 1)),
        };
        Ok(Outcomes::each(jobs.into_iter().map(one)))
    });
    let one = start(node);
    one.notices.wait_for("handled #1.1").await;
    one.notices.wait_for("again #2.1 after 86400s: not yet").await;
    one.notices.wait_for("failed #3.1: never").await;
    one.notices.wait_for("again #4.1 after 86400s: snoozed").await;
    one.notices.wait_for("failed #5.1: effects: expected a message that is done, got a snooze").await;
    one.stop().await.unwrap();
    let sum: u64 = redis::cmd("GET").arg("{estafeta}:u:sum").query(&mut redis.connect()).unwrap();
    assert_eq!(sum, 7);
    let end = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((end.done, end.errors_kept, end.later, end.retries, end.snoozes), (1, 2, 2, 1, 1), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_call_is_a_failure_of_each_message_by_its_own_attempts() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.retry = Retry::default().attempts(2);
    let publisher = publish(&settings, 2).await;
    let node = Node::with(settings).handle_batch(2, LONG, async |jobs: Vec<Job<u64>>| {
        if jobs.iter().any(|job| job.body == 3) {
            return Err(Failure::retry_after(Duration::from_secs(3600), "the table is locked"));
        }
        let one = |job: Job<u64>| match job.body {
            1 => Err(Failure::retry_after(Duration::ZERO, "once more")),
            _ => Ok(()),
        };
        Ok(Outcomes::each(jobs.into_iter().map(one)))
    });
    let one = start(node);
    one.notices.wait_for("again #1.1 after 0ns: once more").await;
    one.notices.wait_for("handled #2.1").await;
    publisher.publish("3").await.unwrap();
    one.notices.wait_for("failed #1.2: the table is locked").await;
    one.notices.wait_for("again #3.1 after 3600s: the table is locked").await;
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_and_a_wrong_number_of_outcomes_fail_all_messages_of_the_batch() {
    let redis = RedisServer::start();
    let settings = once(&redis);
    publish(&settings, 4).await;
    let node = Node::with(settings).handle_batch(2, LONG, async |jobs: Vec<Job<u64>>| {
        assert!(jobs[0].body > 2, "no way");
        Ok(Outcomes::each([Ok(Outcome::done())]))
    });
    let one = start(node);
    for id in [1, 2] {
        one.notices.wait_for(&format!("failed #{id}.1: the handler panicked: no way")).await;
    }
    let reason = "outcomes: expected one per message, 2 in all, got 1";
    for id in [3, 4] {
        one.notices.wait_for(&format!("failed #{id}.1: {reason}")).await;
    }
    one.stop().await.unwrap();
    assert_eq!(ring(&redis).await.snapshot(0).await.unwrap().errors_kept, 4);
}

/// Counts when it is dropped.
struct CountsDrop(Arc<AtomicUsize>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_beyond_its_time_limit_fails_and_its_function_is_dropped() {
    let redis = RedisServer::start();
    let settings = once(&redis);
    let publisher = publish(&settings, 3).await;
    let (calls, dropped) = (BatchCalls::default(), Arc::new(AtomicUsize::new(0)));
    let (counted, counter) = (calls.clone(), Arc::clone(&dropped));
    let node = Node::with(settings).time_limit(Duration::from_secs(1));
    let one = start(node.handle_batch(3, Duration::from_millis(900), move |jobs: Vec<Job<u64>>| {
        counted.add(&jobs);
        let counter = CountsDrop(Arc::clone(&counter));
        async move {
            let _counter = counter;
            if jobs.iter().any(|job| job.body <= 3) {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    }));
    for id in 1..=3 {
        let reason = "the handler took longer than its time limit of 1s";
        one.notices.wait_for(&format!("failed #{id}.1: {reason}")).await;
    }
    assert_eq!(dropped.load(Ordering::SeqCst), calls.sizes().len(), "before the next batch begins");
    publisher.publish_all(["4", "5", "6"]).await.unwrap();
    one.notices.wait_for("handled #6.1").await;
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_parse_is_a_dead_letter_and_its_neighbours_are_handled() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher = publish(&settings, 0).await;
    publisher.publish_all(["1", "two", "3"]).await.unwrap();
    let calls = BatchCalls::default();
    let counted = calls.clone();
    let one = start(Node::with(settings).handle_batch(2, LONG, move |jobs: Vec<Job<u64>>| {
        counted.add(&jobs);
        async { Ok(()) }
    }));
    one.notices.wait_for("handled #1.1").await;
    one.notices
        .wait_for("failed #2.1: the body does not parse: it is not JSON and begins with \"two\"")
        .await;
    one.notices.wait_for("handled #3.1").await;
    one.stop().await.unwrap();
    assert_eq!(calls.sizes(), [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_begins_its_batch_at_once_even_behind_a_wrapper() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    publish(&settings, 2).await;
    let wrapped = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&wrapped);
    let joined = Arc::new(Notify::new());
    let joining = Arc::clone(&joined);
    let node = Node::with(settings).wrap(move |job, next| {
        if counter.fetch_add(1, Ordering::SeqCst) == 1 {
            joining.notify_one();
        }
        next.run(job)
    });
    let calls = BatchCalls::default();
    let counted = calls.clone();
    // The limit is longer than this test may take.
    let one = start(node.handle_batch(3, Duration::from_secs(500), move |jobs: Vec<Job<u64>>| {
        counted.add(&jobs);
        async { Ok(()) }
    }));
    tokio::time::timeout(SOON, joined.notified()).await.expect("both wait for a third");
    assert_eq!(calls.sizes(), [0; 0]);
    one.stop().await.unwrap();
    let end = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((end.done, end.waiting), (2, 0), "{end:?}");
    assert_eq!(wrapped.load(Ordering::SeqCst), 2, "once per message");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_back_to_an_open_batch_is_handled_once() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    publish(&settings, 1).await;
    let calls = BatchCalls::default();
    let counted = calls.clone();
    let one = start(Node::with(settings).handle_batch(2, LONG, move |jobs: Vec<Job<u64>>| {
        counted.add(&jobs);
        async { Ok(()) }
    }));
    let ring = ring(&redis).await;
    eventually(&ring, "the message is in hand", |snapshot| snapshot.in_flight == 1).await;
    redis::cmd("DEL").arg("{estafeta}:members").exec(&mut redis.connect()).unwrap();
    one.notices.wait_for("handled #1.2").await;
    one.stop().await.unwrap();
    assert_eq!(calls.all(), [[(1, 2)]]);
}

#[tokio::test]
async fn a_batch_of_an_impossible_size_or_wait_is_refused() {
    let refused = [
        (0, SHORT, "batch: expected 1 to 1024 messages, got '0'"),
        (1025, SHORT, "batch: expected 1 to 1024 messages, got '1025'"),
        (
            1,
            Duration::ZERO,
            "wait of a batch: expected 1ms or more, and less than the time limit of 1s, got '0ns'",
        ),
        (
            1,
            Duration::from_secs(1),
            "wait of a batch: expected 1ms or more, and less than the time limit of 1s, got '1s'",
        ),
    ];
    for (most, wait, error) in refused {
        let node = Node::on("redis://127.0.0.1:1", "estafeta").unwrap();
        let node = node.handle_batch(most, wait, async |_: Vec<Job<Bytes>>| Ok(()));
        let found = node.time_limit(Duration::from_secs(1)).until(std::future::pending()).await.unwrap_err();
        assert_eq!(found.to_string(), error);
    }
}
