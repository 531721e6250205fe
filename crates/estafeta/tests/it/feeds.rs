//! Feeds of the library: checkpoints that do not parse, acknowledgements, and streams.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use estafeta::{Batch, Failure, Feed, Headers, Job, Node, feed_of};
use estafeta_testbed::RedisServer;
use futures_util::{StreamExt as _, stream};

use crate::support::{Counter, Keep, Notices, RunningNode, config, eventually, ring, start};

/// Makes the numbers 1, 2, 3, each in a batch, and notes each call of `published` and what Redis holds then.
struct LoggedNumbers {
    at: u64,
    redis: RedisServer,
    log: Arc<Mutex<Vec<String>>>,
}

impl Feed for LoggedNumbers {
    type Body = u64;
    type Checkpoint = u64;

    async fn open(&mut self, from: Option<u64>) -> Result<(), Failure> {
        self.at = from.unwrap_or(0);
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<u64, u64>, Failure> {
        if self.at == 3 {
            std::future::pending::<()>().await;
        }
        self.at += 1;
        let batch = Batch::one(self.at);
        // The second one has no checkpoint, so `published` is not called for it.
        Ok(if self.at == 2 { batch } else { batch.checkpoint(self.at) })
    }

    async fn published(&mut self, checkpoint: &u64) -> Result<(), Failure> {
        let stored: Option<String> =
            redis::cmd("GET").arg("{estafeta}:checkpoint").query(&mut self.redis.connect())?;
        self.log.lock().unwrap().push(format!("{checkpoint}, Redis has {stored:?}"));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_learns_of_each_checkpoint_that_redis_has() {
    let redis = RedisServer::start();
    let (settings, ring) = (config(&redis), ring(&redis).await);
    let log = Arc::<Mutex<Vec<String>>>::default();
    let feed = LoggedNumbers { at: 0, redis, log: Arc::clone(&log) };
    let one = RunningNode::start_feed(settings, feed, Keep::default());
    eventually(&ring, "all are published", |snapshot| snapshot.published == 3).await;
    eventually(&ring, "the feed has learned of both checkpoints", |_| log.lock().unwrap().len() == 2).await;
    assert_eq!(*log.lock().unwrap(), ["1, Redis has Some(\"1\")", "3, Redis has Some(\"3\")"]);
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_does_not_parse_is_reported_and_the_feed_does_not_start_over() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    redis::cmd("SET").arg("{estafeta}:checkpoint").arg("soon").exec(&mut redis.connect()).unwrap();
    let feed = LoggedNumbers { at: 0, redis: RedisServer::start(), log: Arc::default() };
    let one = RunningNode::start_feed(config(&redis), feed, Keep::default());
    let failed = one.notices.wait_for("SourceFailed").await;
    let reason = "the checkpoint in Redis does not parse: expected value at line 1 column 1";
    assert!(failed.contains(reason), "{failed}");
    assert_eq!(ring.snapshot(0).await.unwrap().published, 0);
    // Once an operator has set it, the feed goes on from there.
    redis::cmd("SET").arg("{estafeta}:checkpoint").arg("2").exec(&mut redis.connect()).unwrap();
    eventually(&ring, "the third number", |snapshot| snapshot.published == 1).await;
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_published_once_although_it_breaks_again_and_again() {
    const LAST: u64 = 5000;
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    // It breaks after every 700 items.
    let numbers = feed_of(|from: Option<u64>| {
        let first = from.unwrap_or(0) + 1;
        let items = stream::iter((first..=LAST).map(|n| Ok((n, n))));
        items.take(700).chain(stream::iter((first + 700 <= LAST).then(|| Err(Failure::new("broken")))))
    });
    let (notices, kept) = (Notices::new(), Arc::<Mutex<Vec<u64>>>::default());
    let heard = notices.clone();
    let node = Node::with(config(&redis))
        .generate(numbers)
        .handle_with(Arc::clone(&kept), async |kept, job: Job<u64>| {
            kept.lock().unwrap().push(job.body);
            Ok(())
        })
        .configure(|config| config.generator_handles = true)
        .observe(move |notice| heard.add(notice));
    let one = RunningNode::spawn(node, notices);
    eventually(&ring, "all are done", |snapshot| snapshot.done == LAST).await;
    let broken = one.notices.all().iter().filter(|line| line.starts_with("SourceFailed")).count();
    assert_eq!(broken as u64, LAST / 700, "{:?}", one.notices.all());
    one.stop().await.unwrap();
    let mut kept = kept.lock().unwrap().clone();
    kept.sort_unstable();
    assert_eq!(kept, (1..=LAST).collect::<Vec<_>>());
}

/// Makes a batch with headers, then one with a header that belongs to the ring.
struct WithHeaders {
    calls: u64,
}

impl Feed for WithHeaders {
    type Body = String;
    type Checkpoint = ();

    async fn open(&mut self, _: Option<()>) -> Result<(), Failure> {
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<String>, Failure> {
        self.calls += 1;
        let mut headers = Headers::new();
        headers.insert(if self.calls == 1 { "traceparent" } else { "estafeta-single" }, "t")?;
        match self.calls {
            1 | 2 => Ok(Batch::one("plain".into()).with_message("traced".into(), headers)),
            _ => std::future::pending().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_sets_headers_but_none_that_belongs_to_the_ring() {
    let redis = RedisServer::start();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let node = Node::with(config(&redis)).generate(WithHeaders { calls: 0 }).handle_with(
        Arc::clone(&seen),
        async |seen, job: Job<String>| {
            seen.lock().unwrap().push(format!("{} {:?}", job.body, job.traceparent()));
            Ok(())
        },
    );
    let one = start(node.configure(|config| config.generator_handles = true));
    let failed = one.notices.wait_for("SourceFailed").await;
    let reason = "header name: expected none that begins with estafeta-, got 'estafeta-single'";
    assert!(failed.contains(reason), "{failed}");
    let end = eventually(&ring(&redis).await, "both are done", |snapshot| snapshot.done == 2).await;
    one.stop().await.unwrap();
    assert_eq!(end.published, 2);
    assert_eq!(*seen.lock().unwrap(), ["plain None", "traced Some(\"t\")"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_large_items_is_cut_into_batches_that_fit() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let large = feed_of(|from: Option<u64>| {
        let first = from.unwrap_or(0) + 1;
        stream::iter((first..=12).map(|n| Ok((Bytes::from(vec![b'x'; 900_000]), n))))
    });
    let notices = Notices::new();
    let heard = notices.clone();
    let node = Node::with(config(&redis)).generate(large).observe(move |notice| heard.add(notice));
    let one = RunningNode::spawn(node, notices);
    eventually(&ring, "all are published", |snapshot| snapshot.published == 12).await;
    let batches: Vec<String> =
        one.notices.all().into_iter().filter(|line| line.starts_with("generated")).collect();
    assert_eq!(batches, ["generated 4 from #1", "generated 4 from #5", "generated 4 from #9"]);
    tokio::time::timeout(Duration::from_millis(100), one.notices.wait_for("SourceFailed")).await.unwrap_err();
    one.stop().await.unwrap();
}

/// Makes batches, and cannot acknowledge them where they come from.
struct Unacknowledged;

impl Feed for Unacknowledged {
    type Body = Bytes;
    type Checkpoint = u64;

    async fn open(&mut self, _: Option<u64>) -> Result<(), Failure> {
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<Bytes, u64>, Failure> {
        Ok(Batch::one(Bytes::from("x")).checkpoint(1))
    }

    async fn published(&mut self, _: &u64) -> Result<(), Failure> {
        Err(Failure::new("the origin is away"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_never_acknowledges_gives_way_after_five_failures() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::ZERO;
    let one = RunningNode::start_feed(settings.clone(), Unacknowledged, Keep::default());
    one.notices.wait_for("BecameGenerator").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("BecameGenerator").await;
    let reported = one.notices.all();
    let last = reported.iter().rfind(|line| line.starts_with("SourceFailed")).expect("it failed");
    assert!(last.contains("in_a_row: 5"), "{last}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}
