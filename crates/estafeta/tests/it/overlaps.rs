//! Overlapping ticks: an entry skips its ticks as long as a message of an earlier tick has no outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use estafeta::{
    Config, Endpoint, Failure, Job, Missed, Node, Outcome, Overlap, Publisher, Ring, Schedule, Snapshot,
};
use estafeta_testbed::{Process, RedisServer};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::support::{RunningNode, SOON, after_damage, endpoint, eventually, ring, start};

/// Where the ring is, for a node in a child process.
const URL: &str = "ESTAFETA_TEST_OVERLAPS";
const PACE: Duration = Duration::from_millis(20);

type HandlerAnswer = Result<Outcome, Failure>;

fn settings(redis: Endpoint) -> Config {
    Config::new(redis, "estafeta".parse().unwrap())
}

/// Starts a node that only generates. Also counts how often messages were made.
fn start_generator(redis: &RedisServer, overlap: Overlap, made: &Arc<AtomicU64>) -> RunningNode {
    let (entry, made) = (Schedule::every("slow", PACE).unwrap().missed(Missed::Skip), Arc::clone(made));
    let schedule = entry.overlap(overlap).each(move |_| {
        made.fetch_add(1, Ordering::Relaxed);
        ["slow".to_owned()]
    });
    start(Node::with(settings(endpoint(redis))).generate(schedule))
}

/// Starts a node whose handler gives one answer of the test after another.
fn start_handler(redis: &RedisServer) -> (RunningNode, UnboundedSender<HandlerAnswer>) {
    let (sender, answers) = unbounded_channel();
    let answers = Arc::new(Mutex::new(answers));
    let answer = async |answers: Arc<Mutex<UnboundedReceiver<HandlerAnswer>>>, _: Job<String>| match answers
        .lock()
        .await
        .recv()
        .await
    {
        Some(answer) => answer,
        None => std::future::pending().await,
    };
    (start(Node::with(settings(endpoint(redis))).handle_with(answers, answer)), sender)
}

/// A ring that has another message, which waits for an hour. So the generator never finds that no message is left at all.
async fn busy_ring(redis: &RedisServer) -> Ring {
    let publisher: Publisher<String> = Publisher::of(&settings(endpoint(redis))).await.unwrap();
    publisher.publish(&"later".to_owned()).delay(Duration::from_secs(3600)).await.unwrap();
    ring(redis).await
}

/// How many messages of the schedule were published in such a ring.
fn published(snapshot: &Snapshot) -> u64 {
    snapshot.published - snapshot.submitted
}

/// Waits until more ticks have passed.
async fn ticks_pass(redis: &RedisServer) {
    let last = || -> Option<u64> {
        redis::cmd("HGET").arg(&["{estafeta}:ticks", "slow"]).query(&mut redis.connect()).unwrap()
    };
    let before = last();
    let passed = || last() > before.map(|tick| tick + 4 * PACE.as_millis() as u64);
    estafeta_testbed::eventually(SOON, "ticks pass", || passed().then_some(()));
}

/// Asserts that ticks pass, and that no message is published meanwhile.
async fn assert_skips(redis: &RedisServer, ring: &Ring, expected: u64, when: &str) {
    ticks_pass(redis).await;
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!(published(&snapshot), expected, "{when}: {snapshot:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ticks_are_skipped_until_the_message_has_its_outcome_whatever_that_is() {
    let retry = || Err(Failure::retry_after(Duration::ZERO, "again"));
    let snooze = || Ok(Outcome::snooze(Duration::ZERO));
    let ways: [(&str, Vec<HandlerAnswer>, HandlerAnswer); 6] = [
        ("done", vec![], Ok(Outcome::done())),
        ("done with effects", vec![], Ok(Outcome::done().add("good", 1))),
        ("retried, then done", vec![retry(), retry()], Ok(Outcome::done())),
        (
            "snoozed, then done",
            vec![snooze(), Ok(Outcome::snooze(Duration::ZERO).carry("x"))],
            Ok(Outcome::done()),
        ),
        ("fatal", vec![retry(), snooze()], Err(Failure::fatal("no good"))),
        ("bad effects", vec![], Ok(Outcome::done().add("text", 1))),
    ];
    for (way, before, last) in ways {
        let redis = RedisServer::start();
        redis::cmd("SET").arg(&["{estafeta}:u:text", "some text"]).exec(&mut redis.connect()).unwrap();
        let (ring, made) = (busy_ring(&redis).await, Arc::default());
        let generator = start_generator(&redis, Overlap::Skip, &made);
        eventually(&ring, "a message", |snapshot| published(snapshot) == 1).await;
        assert_skips(&redis, &ring, 1, "it waits").await;
        let (handler, answers) = start_handler(&redis);
        for (answer, delivery) in before.into_iter().zip(2..) {
            answers.send(answer).unwrap();
            handler.notices.wait_for(&format!("again #2.{}", delivery - 1)).await;
            assert_skips(&redis, &ring, 1, way).await;
        }
        eventually(&ring, "it is in hand", |snapshot| snapshot.in_flight == 1).await;
        assert_skips(&redis, &ring, 1, way).await;
        assert_eq!(made.load(Ordering::Relaxed), 1, "{way}: no messages are made for a skipped tick");
        answers.send(last).unwrap();
        eventually(&ring, "the next message", |snapshot| published(snapshot) == 2).await;
        assert_skips(&redis, &ring, 2, "the next one").await;
        generator.stop().await.unwrap();
        answers.send(Ok(Outcome::done())).unwrap();
        handler.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_a_tick_does_not_wait_for_earlier_ones() {
    let redis = RedisServer::start();
    let generator = start_generator(&redis, Overlap::Queue, &Arc::default());
    let ring = ring(&redis).await;
    eventually(&ring, "several messages wait", |snapshot| snapshot.waiting >= 3).await;
    let keys: u64 = redis::cmd("EXISTS").arg("{estafeta}:open").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, 0, "such messages are not open");
    generator.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_generator_skips_ticks_because_of_a_message_of_its_predecessor() {
    let redis = RedisServer::start();
    let ring = busy_ring(&redis).await;
    let one = start_generator(&redis, Overlap::Skip, &Arc::default());
    let (handler, answers) = start_handler(&redis);
    eventually(&ring, "it is in hand", |snapshot| snapshot.in_flight == 1).await;
    let other = start_generator(&redis, Overlap::Skip, &Arc::default());
    other.notices.wait_for("Joined").await;
    one.stop().await.unwrap();
    other.notices.wait_for("BecameGenerator").await;
    assert_skips(&redis, &ring, 1, "after a take-over").await;
    answers.send(Ok(Outcome::done())).unwrap();
    eventually(&ring, "the next message", |snapshot| published(snapshot) == 2).await;
    other.stop().await.unwrap();
    answers.send(Ok(Outcome::done())).unwrap();
    handler.stop().await.unwrap();
}

/// Runs a node that dies of every message, in a child process that another test starts. As one of the tests it does
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn run_a_dying_node_for_the_other_test() {
    let Ok(url) = std::env::var(URL) else { return };
    let node = Node::with(settings(url.parse().unwrap())).configure(|config| config.max_deaths = 2);
    let node = node.handle(async |_: Job<String>| -> Result<(), Failure> { std::process::abort() });
    node.until(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ticks_are_skipped_until_a_message_that_kills_its_nodes_is_given_up() {
    let redis = RedisServer::start();
    let ring = busy_ring(&redis).await;
    let generator = start_generator(&redis, Overlap::Skip, &Arc::default());
    eventually(&ring, "a message", |snapshot| published(snapshot) == 1).await;
    let program = std::env::current_exe().unwrap();
    for deaths in 1..=2 {
        assert_skips(&redis, &ring, 1, "nobody gave it up").await;
        let name = "overlaps::run_a_dying_node_for_the_other_test";
        let node = Process::spawn(&program, ["--exact", name, "--nocapture"], [(URL, redis.url())]);
        assert!(!node.wait(SOON).success());
        eventually(&ring, "it is buried", |snapshot| snapshot.buried == deaths).await;
    }
    eventually(&ring, "the next message", |snapshot| published(snapshot) == 2).await;
    assert_eq!(ring.error_count().await.unwrap(), 1);
    generator.stop().await.unwrap();
}

/// Two entries come at the same times. Each of them must notice that its message is gone, although the other one has
/// published by then.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_message_a_foreign_client_deleted_goes_on() {
    let redis = RedisServer::start();
    let entry = |name| Schedule::every(name, PACE).unwrap().overlap(Overlap::Skip).body(());
    let generator = start(Node::with(settings(endpoint(&redis))).generate(entry("one").and(entry("two"))));
    let ring = ring(&redis).await;
    eventually(&ring, "both wait", |snapshot| snapshot.waiting == 2).await;
    redis::cmd("DEL").arg("{estafeta}:ready").exec(&mut redis.connect()).unwrap();
    after_damage(&ring, "both go on", |snapshot| snapshot.waiting == 2).await;
    let open: Vec<(u64, String)> =
        redis::cmd("HGETALL").arg("{estafeta}:open").query(&mut redis.connect()).unwrap();
    let [(_, one), (_, two)] = &open[..] else { panic!("one message of each: {open:?}") };
    assert_ne!(one, two);
    assert!(open.iter().all(|(id, _)| *id > 2), "{open:?}");
    generator.stop().await.unwrap();
}
