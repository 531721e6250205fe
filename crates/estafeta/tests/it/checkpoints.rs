//! Feeds: messages and checkpoint move together, and a new generator continues from exactly what Redis holds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use estafeta::{Batch, Config, Endpoint, Failure, Feed, Node, Ring};
use estafeta_testbed::{Process, RedisServer};

use crate::support::{Keep, RunningNode, config, endpoint, eventually, ring};

/// Where the ring is, for a node in a child process.
const URL: &str = "ESTAFETA_TEST_CHECKPOINTS";
const LINES: u64 = 3000;

/// Makes the lines 1, 2, 3 ... up to `last`, a few in each batch. Its checkpoint is the last line that it made.
struct LineSource {
    last: u64,
    at: u64,
    /// What each `open` got, and each batch that was made: its first and its last line.
    log: Arc<Mutex<Vec<String>>>,
}

impl LineSource {
    fn up_to(last: u64) -> Self {
        Self { last, at: 0, log: Arc::default() }
    }
}

impl Feed for LineSource {
    type Body = Bytes;
    type Checkpoint = u64;

    async fn open(&mut self, from: Option<u64>) -> Result<(), Failure> {
        self.at = from.unwrap_or(0);
        self.log.lock().unwrap().push(format!("from {from:?}"));
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<Bytes, u64>, Failure> {
        if self.at == self.last {
            std::future::pending::<()>().await;
        }
        let first = self.at + 1;
        // The size differs from batch to batch.
        self.at = (self.at + 1 + first % 5).min(self.last);
        self.log.lock().unwrap().push(format!("{first} to {}", self.at));
        Ok(Batch::new((first..=self.at).map(line)).checkpoint(self.at))
    }
}

fn settings(redis: Endpoint) -> Config {
    let mut settings = Config::new(redis, "estafeta".parse().unwrap());
    // The ring is full most of the time, so a generator that dies mostly holds a batch.
    (settings.interval, settings.max_waiting) = (Duration::ZERO, 20);
    settings
}

/// Runs a node that only generates, in a child process that another test starts. As one of the tests it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn run_a_generator_for_the_other_test() {
    let Ok(url) = std::env::var(URL) else { return };
    let settings = settings(url.parse().unwrap());
    Node::with(settings).generate(LineSource::up_to(LINES)).until(std::future::pending()).await.unwrap();
}

fn start_generator(redis: &RedisServer) -> Process {
    let program = std::env::current_exe().unwrap();
    let name = "checkpoints::run_a_generator_for_the_other_test";
    Process::spawn(&program, ["--exact", name, "--nocapture"], [(URL, redis.url())])
}

/// The checkpoint that Redis holds.
fn stored(redis: &RedisServer) -> Option<String> {
    redis::cmd("GET").arg("{estafeta}:checkpoint").query(&mut redis.connect()).unwrap()
}

fn line(number: u64) -> Bytes {
    number.to_string().into()
}

fn texts(kept: &Keep) -> Vec<String> {
    kept.0.lock().unwrap().iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect()
}

fn lines(last: u64) -> Vec<String> {
    (1..=last).map(|line| line.to_string()).collect()
}

async fn published(ring: &Ring, least: u64) -> u64 {
    eventually(ring, "it publishes", |snapshot| snapshot.published >= least).await.published
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_is_published_once_although_generator_after_generator_is_killed() {
    let redis = RedisServer::start();
    let mut only_handles = settings(endpoint(&redis));
    only_handles.never_generate = true;
    let kept = Keep::default();
    let handler = RunningNode::start_feed(only_handles, LineSource::up_to(0), kept.clone());
    handler.notices.wait_for("Joined").await;
    let ring = ring(&redis).await;
    let mut generators = vec![start_generator(&redis), start_generator(&redis)];
    let mut at = 0;
    for _ in 0..6 {
        at = published(&ring, at + LINES / 10).await;
        let snapshot = eventually(&ring, "a generator", |snapshot| snapshot.generator.is_some()).await;
        let number = snapshot.generator.map(|generator| generator.member);
        let member = snapshot.members.iter().find(|member| Some(member.id) == number);
        let pid = member.map(|member| member.pid);
        if let Some(dead) = generators.iter().position(|process| Some(u64::from(process.pid())) == pid) {
            generators.remove(dead).kill();
            generators.push(start_generator(&redis));
        }
    }
    eventually(&ring, "everything is done", |snapshot| snapshot.done >= LINES).await;
    let snapshot = ring.snapshot(100).await.unwrap();
    assert_eq!((snapshot.published, snapshot.done), (LINES, LINES), "{snapshot:?}");
    assert!(snapshot.takeovers >= 3, "{snapshot:?}");
    assert_eq!(stored(&redis), Some(LINES.to_string()));
    handler.stop().await.unwrap();
    assert_eq!(texts(&kept), lines(LINES), "each line once, and in order");
}

/// As if Redis had been rolled back to a time before the election.
fn end_term(redis: &RedisServer) {
    redis::cmd("HDEL").arg("{estafeta}:ledger").arg("member").exec(&mut redis.connect()).unwrap();
}

/// Makes batches of four lines without end, and notes what it is asked.
struct Fours(LineSource);

impl Feed for Fours {
    type Body = Bytes;
    type Checkpoint = u64;

    async fn open(&mut self, from: Option<u64>) -> Result<(), Failure> {
        self.0.open(from).await
    }

    async fn next(&mut self) -> Result<Batch<Bytes, u64>, Failure> {
        let first = self.0.at + 1;
        self.0.at += 4;
        self.0.log.lock().unwrap().push(format!("{first} to {}", self.0.at));
        Ok(Batch::new((first..=self.0.at).map(line)).checkpoint(self.0.at))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_finds_no_room_is_held_and_dropped_when_the_term_ends() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.max_waiting) = (Duration::ZERO, 10);
    let source = Fours(LineSource::up_to(0));
    let log = Arc::clone(&source.0.log);
    // Between its two terms it is a handler, and would claim what the other node is to keep.
    let mut only_generates = settings.clone();
    only_generates.never_handle = true;
    let one = RunningNode::start_feed(only_generates, source, Keep::default());
    let ring = ring(&redis).await;
    published(&ring, 8).await;
    let expected = ["from None", "1 to 4", "5 to 8", "9 to 12"];
    eventually(&ring, "the third batch is held", |_| log.lock().unwrap().len() == 4).await;
    // Redis has answered `full` many times by now, or will.
    tokio::time::timeout(Duration::from_millis(200), eventually(&ring, "", |now| now.published > 8))
        .await
        .unwrap_err();
    assert_eq!(*log.lock().unwrap(), expected, "the source is not asked while its batch is held");
    assert_eq!(stored(&redis), Some("8".into()));
    end_term(&redis);
    one.notices.wait_for("BecameHandler").await;
    eventually(&ring, "the source is asked again", |_| log.lock().unwrap().len() == 6).await;
    assert_eq!(log.lock().unwrap()[4..], ["from Some(8)", "9 to 12"]);
    assert_eq!(stored(&redis), Some("8".into()), "what was held did not move it");
    let kept = Keep::default();
    let other = RunningNode::start_feed(settings, LineSource::up_to(0), kept.clone());
    eventually(&ring, "it goes on", |snapshot| snapshot.done >= 40).await;
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    let texts = texts(&kept);
    assert_eq!(texts, lines(texts.len() as u64));
}

/// Makes each of these in turn: a batch, or a failure for `None`. Then it waits.
struct ListedBatches {
    batches: Vec<Option<Batch<Bytes, Bytes>>>,
    log: Arc<Mutex<Vec<String>>>,
    /// How often `open` fails or panics.
    bad_starts: u32,
}

impl Feed for ListedBatches {
    type Body = Bytes;
    type Checkpoint = Bytes;

    async fn open(&mut self, from: Option<Bytes>) -> Result<(), Failure> {
        self.bad_starts = self.bad_starts.saturating_sub(1);
        assert!(self.bad_starts != 1, "this is a panic");
        let checkpoint = from.as_deref().map(String::from_utf8_lossy);
        self.log.lock().unwrap().push(format!("from {checkpoint:?}"));
        if self.bad_starts > 0 { Err(Failure::new("not yet")) } else { Ok(()) }
    }

    async fn next(&mut self) -> Result<Batch<Bytes, Bytes>, Failure> {
        if self.batches.is_empty() {
            std::future::pending::<()>().await;
        }
        self.batches.remove(0).ok_or_else(|| Failure::new("no batch"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failure_and_a_refused_batch_the_source_continues_from_what_redis_holds() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.max_body, settings.max_waiting) = (Duration::ZERO, 3, 2000);
    let log = Arc::<Mutex<Vec<String>>>::default();
    let texts_of = |texts: &[&'static str]| Batch::new(texts.iter().copied().map(Bytes::from));
    let batches = vec![
        Some(texts_of(&["one", "too long", "two"]).checkpoint("a".into())),
        None,
        Some(texts_of(&["x"; 1001]).checkpoint("b".into())),
        Some(texts_of(&["x"]).checkpoint(vec![b'x'; 64 * 1024 + 1].into())),
        Some(Batch::empty()),
        Some(Batch::empty().checkpoint("c".into())),
        Some(texts_of(&["end"])),
    ];
    let source = ListedBatches { batches, log: Arc::clone(&log), bad_starts: 3 };
    let one = RunningNode::start_feed(settings.clone(), source, Keep::default());
    let ring = ring(&redis).await;
    published(&ring, 4).await;
    let failed: Vec<_> =
        one.notices.all().into_iter().filter(|line| line.starts_with("SourceFailed")).collect();
    let reasons = [
        ("not yet", 1),
        ("the source panicked: this is a panic", 2),
        ("no batch", 1),
        ("batch: expected at most 1000 messages, got 1001", 2),
        ("checkpoint: expected at most 65536 bytes, got 65537", 3),
    ];
    assert_eq!(failed.len(), reasons.len(), "{failed:?}");
    for (line, (reason, in_a_row)) in failed.iter().zip(reasons) {
        assert!(line.contains(&format!("reason: {reason:?}, in_a_row: {in_a_row}")), "{line}");
    }
    let opened = ["None", "None", "Some(\"a\")", "Some(\"a\")", "Some(\"a\")"];
    assert_eq!(*log.lock().unwrap(), opened.map(|checkpoint| format!("from {checkpoint}")));
    assert_eq!(stored(&redis), Some("c".into()));
    let kept = Keep::default();
    let other = RunningNode::start_feed(settings, LineSource::up_to(0), kept.clone());
    let snapshot = eventually(&ring, "all are settled", |now| now.done == 3 && now.errors_kept == 1).await;
    assert_eq!(snapshot.published, 4);
    assert_eq!(texts(&kept), ["one", "two", "end"]);
    let errors = ring.errors(0, 1).await.unwrap();
    assert_eq!((errors[0].message.id, &*errors[0].reason), (2, "body: expected at most 3 bytes, got 8"));
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// The interval sets the pace of batches, not of messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_takes_one_tick_and_an_empty_one_as_well() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::from_millis(300);
    let first = Batch::new((0..30).map(line));
    let batches = [first, Batch::empty(), Batch::one("b".into())].map(Some).into();
    let source = ListedBatches { batches, log: Arc::default(), bad_starts: 0 };
    let one = RunningNode::start_feed(settings, source, Keep::default());
    let ring = ring(&redis).await;
    let before = published(&ring, 30).await;
    let start = std::time::Instant::now();
    assert_eq!((before, published(&ring, 31).await), (30, 31));
    let apart = start.elapsed();
    assert!((Duration::from_millis(450)..Duration::from_secs(3)).contains(&apart), "{apart:?}");
    one.stop().await.unwrap();
}

/// A batch that the rest of the limit does not allow is not split.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_beyond_the_limit_is_not_published() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.limit) = (Duration::ZERO, Some(6));
    let one = RunningNode::start_feed(settings, Fours(LineSource::up_to(0)), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.published, stored(&redis)), (4, Some("4".into())));
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_ticks_are_a_failure_of_the_source_and_end_no_node() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::ZERO;
    redis::cmd("HSET").arg(&["{estafeta}:ticks", "lines", "soon"]).exec(&mut redis.connect()).unwrap();
    let one = RunningNode::start_feed(settings, LineSource::up_to(3), Keep::default());
    let failed = one.notices.wait_for("SourceFailed").await;
    assert!(failed.contains("the last tick of 'lines' in Redis is no number: 'soon'"), "{failed}");
    redis::cmd("HDEL").arg("{estafeta}:ticks").arg("lines").exec(&mut redis.connect()).unwrap();
    published(&ring(&redis).await, 3).await;
    one.stop().await.unwrap();
}
