//! Messages that come again: retries, snoozes, and who brings them back when nodes die.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use estafeta::{Config, Failure, Message, Outcome, Publisher, Retry};
use estafeta_testbed::{Process, RedisServer};

use crate::support::{
    Counter, Keep, ListedBodies, RunningNode, SOON, TestHandler, config, endpoint, eventually, ring,
};

const URL: &str = "LATER_TEST_URL";
/// How long the handlers of these tests have a message wait.
const NAP: Duration = Duration::from_millis(1200);

/// What a handler saw of a message: id, delivery, failures, snoozes, carry.
type SeenMessage = (u64, u32, u32, u32, Option<String>);

/// Answers as its function decides, and remembers what it saw.
#[derive(Clone)]
struct RememberingHandler {
    seen: Arc<Mutex<Vec<SeenMessage>>>,
    answer: fn(&Message) -> Result<Outcome, Failure>,
}

impl RememberingHandler {
    fn new(answer: fn(&Message) -> Result<Outcome, Failure>) -> Self {
        Self { seen: Arc::default(), answer }
    }

    fn seen(&self) -> Vec<SeenMessage> {
        self.seen.lock().unwrap().clone()
    }
}

impl TestHandler<Outcome> for RememberingHandler {
    async fn handle(&self, message: &Message) -> Result<Outcome, Failure> {
        let Message { id, delivery, failures, snoozes, .. } = *message;
        let carry = message.carry().map(ToOwned::to_owned);
        self.seen.lock().unwrap().push((id, delivery, failures, snoozes, carry));
        (self.answer)(message)
    }
}

/// Naps before it handles a message.
fn nap(message: &Message) -> Result<Outcome, Failure> {
    Ok(if message.snoozes == 0 { Outcome::snooze(NAP) } else { Outcome::done() })
}

fn settings(redis: &RedisServer, limit: u64) -> Config {
    let mut settings = config(redis);
    (settings.limit, settings.journal) = (Some(limit), true);
    settings.retry = Retry::exponential(Duration::from_millis(20)).attempts(3);
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_tried_again_until_its_attempts_are_used_up() {
    let redis = RedisServer::start();
    let mut settings = settings(&redis, 4);
    settings.until_done = true;
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let script = RememberingHandler::new(|message| match message.id {
        1 => Err(Failure::new("never")),
        2 if message.failures < 2 => Err(Failure::retry_after(Duration::from_millis(5), "not yet")),
        3 => Err(Failure::fatal("no use")),
        4 if message.delivery == 1 => panic!("I cannot stand {}", message.id),
        _ => Ok(Outcome::done()),
    });
    let other = RunningNode::start(settings, Counter(0), script.clone());
    other.notices.wait_for("failed #3.1: no use").await;
    other.notices.wait_for("again #1.1 after").await;
    other.notices.wait_for("again #2.1 after 5ms: not yet").await;
    other.notices.wait_for("again #4.1 after").await;
    other.notices.wait_for("failed #1.3: never").await;
    other.notices.wait_for("handled #2.3").await;
    other.notices.wait_for("handled #4.2").await;
    // The last message has its outcome only after its last attempt.
    other.ended().await.unwrap();
    one.ended().await.unwrap();
    let of = |id: u64| -> Vec<_> {
        let seen = script.seen();
        seen.iter().filter(|seen| seen.0 == id).map(|seen| (seen.1, seen.2, seen.3)).collect()
    };
    assert_eq!(of(1), [(1, 0, 0), (2, 1, 0), (3, 2, 0)]);
    assert_eq!(of(2), [(1, 0, 0), (2, 1, 0), (3, 2, 0)]);
    assert_eq!((of(3), of(4)), (vec![(1, 0, 0)], vec![(1, 0, 0), (2, 1, 0)]));
    let ring = ring(&redis).await;
    let errors = ring.errors(0, 10).await.unwrap();
    let facts: Vec<_> = errors.iter().map(|error| (error.message.id, error.message.failures)).collect();
    assert_eq!(facts, [(3, 1), (1, 3)], "failures include the last one");
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.retries, snapshot.later, snapshot.done, snapshot.errors_kept), (5, 0, 2, 2));
    assert!(snapshot.balanced, "{snapshot:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snoozed_message_comes_again_with_what_it_carries_and_uses_up_no_attempt() {
    let redis = RedisServer::start();
    let settings = settings(&redis, 1);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let script = RememberingHandler::new(|message| match message.snoozes {
        5 if message.failures == 0 => Err(Failure::new("once")),
        5 => Ok(Outcome::done()),
        page => Ok(Outcome::snooze(Duration::from_millis(2)).carry(format!("page {page}"))),
    });
    let other = RunningNode::start(settings, Counter(0), script.clone());
    other.notices.wait_for("handled #1.7").await;
    let carried: Vec<_> = script.seen().into_iter().map(|seen| seen.4).collect();
    let page = |page: &str| Some(format!("page {page}"));
    let expected = [None, page("0"), page("1"), page("2"), page("3"), page("4"), page("4")];
    assert_eq!(carried, expected, "a retry keeps what was carried");
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.snoozes, snapshot.retries, snapshot.done), (5, 1, 1), "{snapshot:?}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// Every node is idle, so nothing but the time of the message brings it back.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_due_on_an_idle_ring_arrives() {
    let redis = RedisServer::start();
    let mut settings = settings(&redis, 40);
    settings.interval = Duration::from_millis(1);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let naps = Naps::default();
    let handlers: Vec<_> =
        (0..3).map(|_| RunningNode::start(settings.clone(), Counter(0), naps.clone())).collect();
    let ring = ring(&redis).await;
    eventually(&ring, "all are done", |snapshot| snapshot.done == 40).await;
    let mut late: Vec<Duration> = naps.late.lock().unwrap().clone();
    late.sort_unstable();
    assert_eq!(late.len(), 40 * NAPS as usize);
    assert!(late[late.len() - 1] < SOON / 3, "at worst {:?}", late[late.len() - 1]);
    for node in handlers.into_iter().chain([one]) {
        node.stop().await.unwrap();
    }
}

const NAPS: u32 = 5;

/// Has each message nap for different times, and measures how late it comes back.
#[derive(Clone, Default)]
struct Naps {
    until: Arc<Mutex<std::collections::HashMap<u64, Instant>>>,
    late: Arc<Mutex<Vec<Duration>>>,
}

impl TestHandler<Outcome> for Naps {
    async fn handle(&self, message: &Message) -> Result<Outcome, Failure> {
        let now = Instant::now();
        if let Some(until) = self.until.lock().unwrap().get(&message.id) {
            self.late.lock().unwrap().push(now.saturating_duration_since(*until));
        }
        if message.snoozes == NAPS {
            return Ok(Outcome::done());
        }
        let nap = Duration::from_millis(50 + message.id * 37 % 400);
        self.until.lock().unwrap().insert(message.id, now + nap);
        Ok(Outcome::snooze(nap))
    }
}

/// Runs a node that naps, in a child process that another test starts. As one of the tests it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn run_a_napping_node_for_the_other_tests() {
    let Ok(url) = std::env::var(URL) else { return };
    let mut settings = Config::new(url.parse().unwrap(), "estafeta".parse().unwrap());
    (settings.limit, settings.interval) = (Some(3), Duration::from_millis(20));
    // Its lease does not run out while it is frozen.
    settings.lease = Duration::from_secs(60);
    RunningNode::for_ever(settings, Counter(0), RememberingHandler::new(nap)).await;
}

fn start_node(redis: &RedisServer) -> Process {
    let program = std::env::current_exe().unwrap();
    let test = "later::run_a_napping_node_for_the_other_tests";
    Process::spawn(&program, ["--exact", test, "--nocapture"], [(URL, redis.url())])
}

/// How many members stand in the line of idle members.
fn idle(redis: &RedisServer) -> usize {
    let mut get = redis::cmd("HGET");
    let line: Option<String> = get.arg("{estafeta}:ledger").arg("idle").query(&mut redis.connect()).unwrap();
    line.unwrap_or_default().split_whitespace().count()
}

/// A killed node is buried, and a frozen one is passed over by the next sweep.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_arrives_although_the_node_that_waits_for_its_time_is_killed() {
    arrives_without(Process::kill, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_arrives_although_the_node_that_waits_for_its_time_is_frozen() {
    arrives_without(Process::freeze, 0).await;
}

async fn arrives_without<T>(fault: impl FnOnce(&Process) -> T, buried: u64) {
    let redis = RedisServer::start();
    let settings = settings(&redis, 3);
    let generator = RunningNode::start(settings.clone(), ListedBodies(vec![b"x".to_vec()]), Keep::default());
    generator.notices.wait_for("LimitReached").await;
    let first = start_node(&redis);
    let ring = ring(&redis).await;
    eventually(&ring, "the first node is idle, and the messages nap", |snapshot| {
        snapshot.later == 3 && idle(&redis) == 1
    })
    .await;
    let second = RunningNode::start(settings, Counter(0), RememberingHandler::new(nap));
    eventually(&ring, "the second node is idle", |_| idle(&redis) == 2).await;
    fault(&first);
    second.notices.wait_for("handled #1.2").await;
    second.notices.wait_for("handled #2.2").await;
    second.notices.wait_for("handled #3.2").await;
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.done, snapshot.later, snapshot.buried), (3, 0, buried), "{snapshot:?}");
    second.stop().await.unwrap();
    generator.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_survive_the_death_of_the_generator() {
    let redis = RedisServer::start();
    let generator = start_node(&redis);
    let ring = ring(&redis).await;
    eventually(&ring, "it generates", |snapshot| snapshot.published == 3).await;
    let settings = settings(&redis, 3);
    let heirs: Vec<_> = (0..2)
        .map(|_| RunningNode::start(settings.clone(), Counter(0), RememberingHandler::new(nap)))
        .collect();
    eventually(&ring, "the messages nap", |snapshot| snapshot.later == 3).await;
    generator.kill();
    let snapshot = eventually(&ring, "all are done", |snapshot| snapshot.done == 3).await;
    assert_eq!((snapshot.later, snapshot.takeovers, snapshot.snoozes), (0, 1, 3), "{snapshot:?}");
    let journal = ring.journal().await.unwrap();
    let mut done: Vec<u64> = journal.iter().flat_map(|entry| entry.ids.clone()).collect();
    done.sort_unstable();
    assert_eq!(done, [1, 2, 3], "one outcome each");
    for node in heirs {
        node.stop().await.unwrap();
    }
}

/// A node that Redis cannot call looks for messages at short intervals.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_be_called_finds_due_messages_by_itself() {
    let redis = RedisServer::start();
    let mut settings = settings(&redis, 1);
    settings.presence = false;
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = RunningNode::start(settings, Counter(0), RememberingHandler::new(nap));
    other.notices.wait_for("handled #1.2").await;
    assert_eq!(idle(&redis), 0);
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test]
async fn impossible_settings_of_retries_are_refused() {
    let redis = RedisServer::start();
    let second = Duration::from_secs(1);
    let impossible = [
        (Retry::default().attempts(0), "attempts"),
        (Retry::exponential(40_000_000 * second), "backoff"),
        (Retry::exponential(2 * second).longest(second), "longest wait"),
        (Retry::default().factor(0.5), "backoff factor"),
        (Retry::default().factor(f64::NAN), "backoff factor"),
        (Retry::default().jitter(1.5), "jitter"),
    ];
    for (retry, name) in impossible {
        let mut settings = Config::new(endpoint(&redis), "estafeta".parse().unwrap());
        settings.retry = retry;
        let error = settings.validate().unwrap_err().to_string();
        assert!(error.starts_with(name), "{error}");
    }
    let least = Retry::fixed(Duration::ZERO).attempts(1).jitter(0.0);
    let mut settings = Config::new(endpoint(&redis), "estafeta".parse().unwrap());
    settings.retry = least;
    settings.validate().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_for_a_delayed_message_still_looks_for_others_by_itself() {
    let redis = RedisServer::start();
    let publisher: Publisher =
        Publisher::of(&Config::new(endpoint(&redis), "estafeta".parse().unwrap())).await.unwrap();
    publisher.publish("later").delay(Duration::from_secs(3600)).await.unwrap();
    let mut settings = config(&redis);
    settings.never_generate = true;
    let kept = Keep::default();
    let one = RunningNode::start(settings, Counter(0), kept.clone());
    let mut connection = redis.connect();
    estafeta_testbed::eventually(SOON, "the node is idle", || {
        let idle: Option<String> =
            redis::cmd("HGET").arg("{estafeta}:ledger").arg("idle").query(&mut connection).unwrap();
        idle.filter(|idle| !idle.is_empty())
    });
    // As if the ring had called the node, and the call had got lost.
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("idle").arg("").exec(&mut connection).unwrap();
    let start = Instant::now();
    publisher.publish("now").await.unwrap();
    one.notices.wait_for("handled #2").await;
    assert!(start.elapsed() < Duration::from_secs(8), "it looks every five seconds: {:?}", start.elapsed());
    assert_eq!(*kept.0.lock().unwrap(), [b"now".to_vec()]);
    one.stop().await.unwrap();
}
