//! What sources may do to a node: nothing that ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use estafeta::{EventKind, Failure, MemberId, Snapshot};
use estafeta_testbed::RedisServer;

use crate::support::{Counter, Keep, RunningNode, TestSource, config, eventually, ring};

/// Fails or panics in turn, as often as the counter says. After that it makes messages.
struct Broken(Arc<AtomicU64>);

impl Broken {
    fn times(times: u64) -> Self {
        Self(Arc::new(times.into()))
    }
}

impl TestSource for Broken {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        let left = self.0.load(Ordering::Relaxed);
        match left {
            0 => Ok(b"mended".to_vec()),
            _ => {
                self.0.store(left - 1, Ordering::Relaxed);
                assert!(left.is_multiple_of(2), "an odd number is left: {left}");
                Err(Failure::new(format_args!("{left} left, {}", "ä".repeat(300))))
            }
        }
    }
}

/// Every event about a source.
fn failures(snapshot: &Snapshot) -> Vec<(MemberId, u64, &str)> {
    let failure = |kind| match kind {
        &EventKind::SourceFailed { member, in_a_row, ref reason } => {
            Some((member, in_a_row, reason.as_str()))
        }
        _ => None,
    };
    snapshot.events.iter().filter_map(|event| failure(&event.kind)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_fails_and_panics_is_called_again_after_growing_pauses() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Broken::times(3), Keep::default());
    one.notices.wait_for("generated 1 from #1").await;
    let ring = ring(&redis).await;
    let snapshot = eventually(&ring, "it generates", |snapshot| snapshot.published > 3).await;
    let reported = one.notices.all();
    one.stop().await.unwrap();
    let failed = reported.iter().filter(|line| line.starts_with("SourceFailed")).collect::<Vec<_>>();
    for (line, pause) in failed.iter().zip(["100ms", "200ms", "400ms"]) {
        assert!(line.ends_with(&format!("pause: {pause} }}")), "{failed:?}");
    }
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert_eq!(snapshot.source_failed, 3);
    let events = failures(&snapshot);
    let (one, panicked) = (MemberId(1), "the source panicked: an odd number is left: ");
    assert_eq!(events[0], (one, 1, &*format!("{panicked}3")));
    assert_eq!(events[2], (one, 3, &*format!("{panicked}1")));
    let (_, in_a_row, reason) = events[1];
    assert_eq!((in_a_row, reason.chars().count()), (2, 200), "{reason}");
    assert!(reason.starts_with("2 left, "), "{reason}");
    let resigned = |kind: &EventKind| matches!(kind, EventKind::Resigned { .. });
    assert!(!snapshot.events.iter().any(|event| resigned(&event.kind)), "{snapshot:?}");
}

/// Makes every second message.
struct EverySecond(u64);

impl TestSource for EverySecond {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        self.0 += 1;
        if self.0.is_multiple_of(2) {
            Err(Failure::new("not now"))
        } else {
            Ok(self.0.to_string().into_bytes())
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_were_made_before_a_failure_are_published_and_end_the_row_of_failures() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.limit, settings.until_done) = (Duration::ZERO, Some(7), true);
    let one = RunningNode::start(settings.clone(), EverySecond(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let failed = one.notices.all().into_iter().filter(|line| line.starts_with("SourceFailed"));
    assert!(
        failed.clone().all(|line| line.contains("in_a_row: 1, pause: 100ms")),
        "{:?}",
        failed.collect::<Vec<_>>()
    );
    let kept = Keep::default();
    let other = RunningNode::start(settings, Counter(0), kept.clone());
    other.ended().await.unwrap();
    one.ended().await.unwrap();
    let bodies: Vec<_> =
        kept.0.lock().unwrap().iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect();
    assert_eq!(bodies, ["1", "3", "5", "7", "9", "11", "13"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_whose_source_fails_five_times_gives_way_to_a_node_whose_source_works() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Broken::times(u64::MAX), Keep::default());
    one.notices.wait_for("SourceFailed").await;
    let others = [(); 2].map(|()| RunningNode::start(config(&redis), Counter(0), Keep::default()));
    one.notices.wait_for("BecameHandler").await;
    let ring = ring(&redis).await;
    let snapshot = eventually(&ring, "another node generates", |snapshot| snapshot.published > 10).await;
    let generator = snapshot.generator.as_ref().expect("a generator");
    assert_ne!(generator.member, MemberId(1));
    // It stands behind the node that has not generated yet.
    let rank = snapshot.members.iter().find(|member| member.id == MemberId(1)).unwrap().rank;
    assert_eq!(rank, Some(1), "{snapshot:?}");
    let in_a_row: Vec<u64> = failures(&snapshot).into_iter().map(|(_, in_a_row, _)| in_a_row).collect();
    assert_eq!(in_a_row, [1, 2, 3, 4, 5]);
    // It handles messages, as any other node.
    one.notices.wait_for("handled").await;
    one.stop().await.unwrap();
    for other in others {
        other.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_heirs_keeps_the_office_however_often_its_source_fails() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Broken::times(6), Keep::default());
    one.notices.wait_for("generated 1 from #1").await;
    let ring = ring(&redis).await;
    let snapshot = ring.snapshot(100).await.unwrap();
    assert_eq!((snapshot.source_failed, snapshot.takeovers), (6, 0), "{snapshot:?}");
    let terms = one.notices.all().iter().filter(|line| line.starts_with("BecameGenerator")).count();
    assert_eq!(terms, 1);
    one.stop().await.unwrap();
}

/// Never makes a message. It waits, or blocks its thread.
struct Hanging {
    blocks: bool,
}

impl TestSource for Hanging {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        if self.blocks {
            std::thread::sleep(Duration::from_secs(5));
        }
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_source_hangs_can_lose_its_office_and_stop() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Hanging { blocks: false }, Keep::default());
    one.notices.wait_for("BecameGenerator").await;
    // As if Redis had been rolled back to a time before the election.
    redis::cmd("HDEL").arg("{estafeta}:ledger").arg("member").exec(&mut redis.connect()).unwrap();
    one.notices.wait_for("BecameHandler").await;
    let ring = ring(&redis).await;
    eventually(&ring, "it leads again", |snapshot| snapshot.generator.is_some()).await;
    let start = Instant::now();
    one.stop().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "the deadline of 25 s did not end it");
    let last = ring.snapshot(1).await.unwrap();
    assert!(last.members.is_empty() && last.generator.is_none(), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_source_blocks_its_thread_stays_a_member_and_can_stop() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.lease, settings.stop_deadline) = (Duration::from_millis(400), Duration::from_millis(100));
    // A blocked thread can stop the timers and the sockets of its runtime, so the node has its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let one = {
        let _inside = runtime.enter();
        RunningNode::start(settings.clone(), Hanging { blocks: true }, Keep::default())
    };
    one.notices.wait_for("BecameGenerator").await;
    let ring = ring(&redis).await;
    let start = ring.snapshot(0).await.unwrap().time_ms;
    let held = eventually(&ring, "three leases", |snapshot| snapshot.time_ms > start + 1200).await;
    assert_eq!(held.generator.map(|generator| generator.member), Some(MemberId(1)));
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    one.stop().await.unwrap();
    other.notices.wait_for("generated").await;
    other.stop().await.unwrap();
    runtime.shutdown_background();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_failed_in_an_earlier_term_gets_its_pause_before_the_next_term_calls_it() {
    let redis = RedisServer::start();
    let nodes = [(); 2].map(|()| {
        let always = Broken::times(u64::MAX);
        RunningNode::start(config(&redis), always, Keep::default())
    });
    let ring = ring(&redis).await;
    let snapshot = eventually(&ring, "each node has led once", |snapshot| snapshot.takeovers >= 3).await;
    let took_over = |kind: &EventKind| matches!(kind, EventKind::TookOver { .. });
    let terms: Vec<u64> =
        snapshot.events.iter().filter(|event| took_over(&event.kind)).map(|event| event.time_ms).collect();
    // The second take-over brings the first node back. Its source has failed five times.
    assert!(terms[2] - terms[1] >= 1600, "{snapshot:?}");
    let start = Instant::now();
    for node in nodes {
        node.stop().await.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(2), "a stop waits for no pause");
}

/// Makes every second message. Otherwise it waits, and panics when it is dropped.
struct WaitPanicsInDrop(u64);

impl TestSource for WaitPanicsInDrop {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        struct Trap;
        impl Drop for Trap {
            fn drop(&mut self) {
                panic!("in drop");
            }
        }
        self.0 += 1;
        if self.0.is_multiple_of(2) {
            let _trap = Trap;
            std::future::pending::<()>().await;
        }
        Ok(self.0.to_string().into_bytes())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_panics_when_its_future_is_dropped_ends_no_node() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::ZERO;
    let one = RunningNode::start(settings.clone(), WaitPanicsInDrop(0), Keep::default());
    one.notices.wait_for("generated 1 from #3").await;
    one.stop().await.unwrap();
    // The first call of this one waits.
    let one = RunningNode::start(settings, WaitPanicsInDrop(1), Keep::default());
    one.notices.wait_for("BecameGenerator").await;
    redis::cmd("HDEL").arg("{estafeta}:ledger").arg("member").exec(&mut redis.connect()).unwrap();
    one.notices.wait_for("generated").await;
    one.stop().await.unwrap();
}
