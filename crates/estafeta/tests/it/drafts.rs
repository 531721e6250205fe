//! Messages of a feed or a schedule with keys, delays and headers: what becomes of each, and that no key holds up its
//! source.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use estafeta::{Batch, Bytes, Draft, Failure, Feed, Job, Node, Overlap, Publisher, Schedule, Snapshot};
use estafeta_testbed::RedisServer;

use crate::support::{RunningNode, config, eventually, ring, start};

const HOUR: Duration = Duration::from_secs(3600);

/// Makes these batches, one after another. The checkpoint counts them.
struct Listed {
    batches: Vec<Vec<Draft<String>>>,
    at: usize,
}

impl Feed for Listed {
    type Body = String;
    type Checkpoint = usize;

    async fn open(&mut self, from: Option<usize>) -> Result<(), Failure> {
        self.at = from.unwrap_or(0);
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<String, usize>, Failure> {
        let Some(drafts) = self.batches.get(self.at) else { return std::future::pending().await };
        self.at += 1;
        let batch = drafts.iter().fold(Batch::empty(), |batch, draft| batch.with_draft(draft.clone()));
        Ok(batch.checkpoint(self.at))
    }
}

fn draft(body: &str) -> Draft<String> {
    Draft::new(&body.to_owned())
}

/// Each message that was handled: its body and its key.
type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

fn start_listed(redis: &RedisServer, batches: Vec<Vec<Draft<String>>>) -> (RunningNode, Seen) {
    let seen = Seen::default();
    let node = Node::with(config(redis))
        .generate(Listed { batches, at: 0 })
        .handle_with(Arc::clone(&seen), async |seen, job: Job<String>| {
            let key = job.publish_key().map(ToOwned::to_owned);
            seen.lock().unwrap().push((job.body, key));
            Ok(())
        })
        .configure(|config| config.generator_handles = true);
    (start(node), seen)
}

fn checkpoint(redis: &RedisServer) -> Option<String> {
    redis::cmd("GET").arg("{estafeta}:checkpoint").query(&mut redis.connect()).unwrap()
}

fn counts(snapshot: &Snapshot) -> [u64; 4] {
    [snapshot.published, snapshot.done, snapshot.later, snapshot.errors_kept]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_not_published_and_its_checkpoint_moves_all_the_same() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let publisher: Publisher<String> = Publisher::of(&config(&redis)).await.unwrap();
    publisher.publish(&"outside".to_owned()).key("k").await.unwrap();
    let batches = vec![
        vec![draft("outside").key("k"), draft("a").key("a"), draft("plain"), draft("a").key("a")],
        // Nothing but a duplicate.
        vec![draft("a").key("a")],
        vec![draft("last")],
    ];
    let (node, seen) = start_listed(&redis, batches);
    let snapshot = eventually(&ring, "all are done", |snapshot| snapshot.done == 4).await;
    assert_eq!(counts(&snapshot), [4, 4, 0, 0], "{snapshot:?}");
    assert_eq!(checkpoint(&redis).as_deref(), Some("3"));
    node.stop().await.unwrap();
    let key = |key: &str| Some(key.to_owned());
    let expected = [("outside", key("k")), ("a", key("a")), ("plain", None), ("last", None)];
    assert_eq!(*seen.lock().unwrap(), expected.map(|(body, key)| (body.to_owned(), key)));
    // The generator took the key for everyone.
    let receipt = publisher.publish(&"a".to_owned()).key("a").await.unwrap();
    assert!(receipt.duplicate && receipt.id == 2, "{receipt:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_the_key_of_another_one_becomes_a_dead_letter_and_the_source_goes_on() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let batches = vec![
        vec![draft("one").key("k")],
        vec![draft("before"), draft("another").key("k").header("shop", "berlin").delay(HOUR), draft("after")],
        vec![draft("last").key("l")],
    ];
    let (node, seen) = start_listed(&redis, batches);
    let snapshot =
        eventually(&ring, "all have an outcome", |snapshot| snapshot.done == 4 && snapshot.errors_kept == 1)
            .await;
    assert_eq!(counts(&snapshot), [5, 4, 0, 1], "{snapshot:?}");
    assert_eq!(checkpoint(&redis).as_deref(), Some("3"));
    node.stop().await.unwrap();
    let bodies: Vec<String> = seen.lock().unwrap().iter().map(|(body, _)| body.clone()).collect();
    assert_eq!(bodies, ["one", "before", "after", "last"]);
    let failed = ring.errors(0, 10).await.unwrap();
    let [failed] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!(failed.reason, "key: expected one that no other message has, got 'k'");
    assert_eq!(
        (failed.message.text().as_ref(), failed.message.headers().get("shop")),
        ("\"another\"", Some("berlin"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_of_a_feed_waits_in_redis_even_if_the_ring_is_full() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let mut settings = config(&redis);
    (settings.max_waiting, settings.never_handle) = (3, true);
    let soon = Duration::from_millis(1);
    let batches = vec![
        vec![draft("1"), draft("2"), draft("3")],
        // Two for later fit, although no place is left.
        vec![draft("4").delay(HOUR), draft("5").delay(soon)],
    ];
    let node = start(Node::with(settings).generate(Listed { batches, at: 0 }));
    let snapshot = eventually(&ring, "all are published", |snapshot| snapshot.published == 5).await;
    assert_eq!((snapshot.later, checkpoint(&redis).as_deref()), (2, Some("2")), "{snapshot:?}");
    node.stop().await.unwrap();
    let (node, seen) = start_listed(&redis, vec![]);
    eventually(&ring, "all but one are done", |snapshot| snapshot.done == 4 && snapshot.later == 1).await;
    node.stop().await.unwrap();
    let mut bodies: Vec<String> = seen.lock().unwrap().iter().map(|(body, _)| body.clone()).collect();
    bodies.sort();
    assert_eq!(bodies, ["1", "2", "3", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_that_no_ring_would_publish_is_a_failure_of_its_feed() {
    let cases = [
        (draft("x").key(""), "key: expected 1 to 512 bytes, got '0 bytes'"),
        (draft("x").single("s"), "single: expected no single name in a batch, got 'one'"),
        (draft("x").header("estafeta-key", "k"), "header name: expected none that begins with estafeta-"),
    ];
    for (bad, reason) in cases {
        let redis = RedisServer::start();
        let ring = ring(&redis).await;
        let (node, _) = start_listed(&redis, vec![vec![draft("good"), bad]]);
        let failed = node.notices.wait_for("SourceFailed").await;
        assert!(failed.contains(reason), "{failed}");
        assert_eq!(ring.snapshot(0).await.unwrap().published, 0);
        node.stop().await.unwrap();
    }
}

/// The scripts look for the entry of a message only in its first header.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_skips_ticks_goes_on_after_messages_with_headers_and_keys() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let mut n = 0;
    let entry = Schedule::every("slow", Duration::from_millis(20)).unwrap().overlap(Overlap::Skip);
    let schedule = entry.run(move |_, _: Option<Bytes>| {
        n += 1;
        let draft = Draft::new(&n).header("shop", "berlin").key(format!("tick {n}"));
        async move { Ok(Batch::empty().with_draft(draft)) }
    });
    let node = Node::with(config(&redis))
        .generate(schedule)
        .handle(async |job: Job<u64>| {
            assert!(job.tick().is_some() && job.headers().get("shop") == Some("berlin"));
            Ok(())
        })
        .configure(|config| config.generator_handles = true);
    let node = start(node);
    eventually(&ring, "tick after tick is done", |snapshot| snapshot.done >= 5).await;
    node.stop().await.unwrap();
    assert_eq!(ring.snapshot(0).await.unwrap().errors_kept, 0);
}
