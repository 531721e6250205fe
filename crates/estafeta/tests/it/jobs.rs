//! What handlers of the library get, and in which forms they can be written.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use estafeta::{Failure, Job, Node, Notice, Outcome, Publisher, Retry};
use estafeta_testbed::RedisServer;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::support::{SOON, config, eventually, ring, start};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum MailOrReport {
    Mail { to: String },
    Report(u32),
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typed_body_arrives_as_it_was_published_with_all_that_belongs_to_it() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher<MailOrReport> = Publisher::of(&settings).await.unwrap();
    let seen = Arc::<Mutex<Vec<Job<MailOrReport>>>>::default();
    let node = Node::with(settings).handle_with(Arc::clone(&seen), async |seen, job: Job<MailOrReport>| {
        seen.lock().unwrap().push(job.clone());
        match (&job.body, job.snoozes(), job.attempt()) {
            (MailOrReport::Report(_), 0, _) => Ok(Outcome::snooze(Duration::ZERO).carry("once")),
            (MailOrReport::Report(_), _, 1) => Err(Failure::retry_after(Duration::ZERO, "not yet")),
            _ => Ok(Outcome::done()),
        }
    });
    let one = start(node.retry(Retry::default().attempts(3)));
    let mail = MailOrReport::Mail { to: "me".into() };
    let receipt = publisher.publish(&mail).header("lang", "de").await.unwrap();
    publisher.publish_all([&MailOrReport::Report(7)]).await.unwrap();
    let ring = ring(&redis).await;
    eventually(&ring, "both are done", |snapshot| snapshot.done == 2).await;
    one.stop().await.unwrap();
    let seen = seen.lock().unwrap();
    let first = seen.iter().find(|job| job.body == mail).unwrap();
    assert_eq!((first.id(), first.headers().get("lang")), (receipt.id, Some("de")));
    assert_eq!((first.attempt(), first.attempts(), first.is_last_attempt()), (1, 3, false));
    assert!(first.message_name().starts_with("estafeta/"), "{}", first.message_name());
    assert_eq!((first.tick(), first.carry()), (None, None));
    let reports: Vec<_> = seen.iter().filter(|job| job.body == MailOrReport::Report(7)).collect();
    let facts = |job: &&Job<MailOrReport>| (job.snoozes(), job.attempt(), job.carry().map(ToOwned::to_owned));
    let once = Some("once".to_owned());
    let expected = [(0, 1, None), (1, 1, once.clone()), (1, 2, once)];
    assert_eq!(reports.iter().map(facts).collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_parse_is_a_dead_letter_and_an_unknown_kind_waits_first() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let one = start(Node::with(settings).handle(async |_: Job<MailOrReport>| Ok(())));
    publisher.publish_all([r#"{"Mail":{}}"#, r#"{"Fax":{"to":"me"}}"#, r#"{"Report":1}"#]).await.unwrap();
    let ring = ring(&redis).await;
    let fits = |now: &estafeta::Snapshot| (now.done, now.errors_kept, now.later) == (1, 1, 1);
    let snapshot = eventually(&ring, "each has its place", fits).await;
    assert_eq!((snapshot.snoozes, snapshot.retries), (1, 0));
    let errors = ring.errors(0, 1).await.unwrap();
    assert_eq!(errors[0].message.id, 1);
    assert!(errors[0].reason.starts_with("the body does not parse: missing field `to`"), "{errors:?}");
    // Ten minutes later it is still unknown.
    redis::cmd("ZADD").arg(&["{estafeta}:later", "1", "000000000000002"]).exec(&mut redis.connect()).unwrap();
    redis::cmd("HSET").arg(&["{estafeta}:ledger", "soonest", "1"]).exec(&mut redis.connect()).unwrap();
    eventually(&ring, "it is a dead letter", |snapshot| snapshot.errors_kept == 2).await;
    let errors = ring.errors(0, 2).await.unwrap();
    assert!(errors[1].reason.contains("unknown variant `Fax`"), "{errors:?}");
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrappers_see_the_job_from_the_outside_in_and_may_change_it() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let log = Arc::<Mutex<Vec<String>>>::default();
    let wrapper = |name: &'static str| {
        let log = Arc::clone(&log);
        move |job: Job<Bytes>, next: estafeta::Next| {
            let log = Arc::clone(&log);
            async move {
                log.lock().unwrap().push(format!("{name} {:?}", job.body));
                let outcome = next.run(job.map(|body| [&body[..], name.as_bytes()].concat().into())).await;
                log.lock().unwrap().push(format!("{name} {:?}", outcome.is_ok()));
                outcome
            }
        }
    };
    let handled = Arc::clone(&log);
    let node = Node::with(settings).wrap(wrapper("a")).wrap(wrapper("b")).handle(move |job: Job<Bytes>| {
        handled.lock().unwrap().push(format!("handler {:?}", job.body));
        async { Ok(()) }
    });
    let one = start(node);
    publisher.publish("x").await.unwrap();
    eventually(&ring(&redis).await, "it is done", |snapshot| snapshot.done == 1).await;
    one.stop().await.unwrap();
    let expected = ["a b\"x\"", "b b\"xa\"", "handler b\"xab\"", "b true", "a true"];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_handler_beyond_its_time_is_stuck_until_it_notices() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, released) = (Arc::clone(&calls), Arc::new(AtomicUsize::new(0)));
    let release = Arc::clone(&released);
    // A wrapper does not change what the handler is.
    let node = Node::with(settings).wrap(async |job, next| next.run(job).await);
    let node = node.time_limit(Duration::from_millis(100)).handle_blocking(
        move |job: Job<Bytes>| -> Result<(), Failure> {
            if counted.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok(());
            }
            while !job.is_cancelled() || release.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err("too late".into())
        },
    );
    let retry = Retry::fixed(Duration::ZERO);
    let one = start(node.retry(retry));
    publisher.publish("x").await.unwrap();
    one.notices.wait_for("HandlerStuck").await;
    let ring = ring(&redis).await;
    let stuck = eventually(&ring, "a stuck lane", |snapshot| snapshot.members[0].stuck == 1).await;
    assert_eq!((stuck.retries, stuck.done), (1, 0));
    assert_eq!(calls.load(Ordering::SeqCst), 1, "the only lane is stuck, so nobody tries again");
    released.store(1, Ordering::SeqCst);
    eventually(&ring, "it is done", |snapshot| snapshot.done == 1 && snapshot.members[0].stuck == 0).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_a_blocking_handler_is_its_failure() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let node = Node::with(settings).retry(Retry::never());
    let one = start(node.handle_blocking(|_: Job<Bytes>| -> Result<(), Failure> { panic!("no way") }));
    publisher.publish("x").await.unwrap();
    one.notices.wait_for("failed #1.1: the handler panicked: no way").await;
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_node_was_declared_dead_is_cancelled() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let (started, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let state = (Arc::clone(&started), Arc::clone(&ended));
    let node = Node::with(settings).handle_with(state, async |(started, ended), job: Job<Bytes>| {
        started.notify_one();
        job.cancelled().await;
        assert!(job.is_cancelled());
        ended.notify_one();
        Ok(())
    });
    let one = start(node);
    publisher.publish("x").await.unwrap();
    started.notified().await;
    redis::cmd("DEL").arg("{estafeta}:members").exec(&mut redis.connect()).unwrap();
    tokio::time::timeout(crate::support::SOON, ended.notified()).await.expect("the handler notices it");
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_panics_ends_no_node_and_keeps_no_other_from_hearing() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let node =
        Node::with(settings).observe(|_| panic!("an observer panics")).handle(async |_: Job<Bytes>| Ok(()));
    let one = start(node);
    one.notices.wait_for("Joined").await;
    publisher.publish("x").await.unwrap();
    one.notices.wait_for("handled #1.1").await;
    one.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_with_nothing_to_do_is_refused() {
    let node = Node::on("redis://127.0.0.1:1", "estafeta").unwrap();
    let error = node.until(std::future::pending()).await.unwrap_err();
    assert_eq!(error.to_string(), "node: expected something to generate or to handle, got 'neither'");
    assert!(Node::on("http://127.0.0.1", "estafeta").is_err());
    assert!(Node::on("redis://127.0.0.1:1", "no ring").is_err());
}

/// The message goes back to the queue at that moment, and another node may handle it.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_handler_learns_that_the_node_gave_up_on_it_when_it_stopped() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.stop_deadline = Duration::from_millis(100);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let (begun, noticed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signals = (Arc::clone(&begun), Arc::clone(&noticed));
    let one = start(Node::with(settings).handle_blocking(move |job: Job<Bytes>| {
        signals.0.notify_one();
        while !job.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        signals.1.notify_one();
        Ok(())
    }));
    publisher.publish("x").await.unwrap();
    begun.notified().await;
    one.stop().await.unwrap();
    tokio::time::timeout(SOON, noticed.notified()).await.expect("long before its time limit");
    assert_eq!(ring(&redis).await.snapshot(0).await.unwrap().waiting, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_handler_died_again_and_again_becomes_a_dead_letter_and_uses_up_no_attempt() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.max_deaths = 3;
    let publisher: Publisher<u64> = Publisher::of(&settings).await.unwrap();
    let seen = Arc::<Mutex<Vec<(u32, u32)>>>::default();
    let node = Node::with(settings).retry(Retry::fixed(Duration::ZERO).attempts(1));
    let one = start(node.handle_with(Arc::clone(&seen), async |seen, job: Job<u64>| {
        seen.lock().unwrap().push((job.attempt(), job.message().deaths));
        Err::<(), _>(Failure::died("signal 9"))
    }));
    publisher.publish(&1).await.unwrap();
    let ring = ring(&redis).await;
    eventually(&ring, "it is a dead letter", |snapshot| snapshot.errors_kept == 1).await;
    one.stop().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 0), (1, 1), (1, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_handler_gives_its_message_to_another_node_and_rests() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher<u64> = Publisher::of(&settings).await.unwrap();
    let calls = Arc::<AtomicUsize>::default();
    let (notices, hour) = (Arc::<Mutex<Vec<String>>>::default(), Duration::from_secs(3600));
    let heard = Arc::clone(&notices);
    let broken = Node::with(settings.clone()).handle_with(Arc::clone(&calls), async |calls, _: Job<u64>| {
        calls.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>(Failure::broken(Duration::from_secs(3600), "no such program"))
    });
    let broken = start(broken.observe(move |notice| {
        if let Notice::HandlerBroken { message, reason, rest } = notice {
            heard.lock().unwrap().push(format!("{} {reason} {rest:?}", message.id));
        }
    }));
    publisher.publish_all(&[1, 2, 3]).await.unwrap();
    let ring = ring(&redis).await;
    let is_back = |waiting, in_flight| !notices.lock().unwrap().is_empty() && (waiting, in_flight) == (3, 0);
    eventually(&ring, "the message is back", |snapshot| is_back(snapshot.waiting, snapshot.in_flight)).await;
    let seen = Arc::<Mutex<Vec<(u64, u32, u32)>>>::default();
    let good = Node::with(settings).handle_with(Arc::clone(&seen), async |seen, job: Job<u64>| {
        seen.lock().unwrap().push((job.body, job.attempt(), job.message().deaths));
        Ok(())
    });
    let good = start(good);
    eventually(&ring, "all are done", |snapshot| snapshot.done == 3).await;
    good.stop().await.unwrap();
    broken.stop().await.unwrap();
    seen.lock().unwrap().sort_unstable();
    assert_eq!(*seen.lock().unwrap(), [(1, 1, 0), (2, 1, 0), (3, 1, 0)]);
    assert_eq!(calls.load(Ordering::Relaxed), 1, "its only lane rests");
    assert_eq!(*notices.lock().unwrap(), [format!("1 no such program {hour:?}")]);
}
