//! The history of a ring with live nodes: samples, take-overs, and gaps with their reasons.

use std::time::{Duration, Instant};

use estafeta::{
    Config, Failure, GapReason, HistoryGap, HistoryRange, Message, Node, Publisher, Ring, RingHistory, Sample,
};
use estafeta_testbed::RedisServer;

use crate::support::{
    Counter, Keep, RunningNode, SOON, TestHandler, changed, config, endpoint, eventually, handle, ring, start,
};

/// Waits until the last five minutes look as described.
async fn history(ring: &Ring, what: &str, fits: impl Fn(&RingHistory) -> bool) -> RingHistory {
    let start = Instant::now();
    loop {
        // Redis may be away.
        if let Ok(history) = ring.history(HistoryRange::FiveMinutes).await {
            if fits(&history) {
                return history;
            }
            assert!(start.elapsed() < SOON, "{what}: {history:?}");
        }
        assert!(start.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Takes 20 ms for each message.
struct Slow;

impl TestHandler for Slow {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_generator_samples_every_second_with_the_times_of_all_nodes() {
    let redis = RedisServer::start();
    let nodes = [(); 2].map(|()| RunningNode::start(config(&redis), Counter(0), Slow));
    let ring = ring(&redis).await;
    let is_timed = |sample: &Sample| sample.handling.total() > 0 && sample.wait.total() > 0;
    let read = history(&ring, "four seconds, one with times", |history| {
        history.samples.len() >= 4 && history.samples.iter().any(is_timed)
    })
    .await;
    assert_eq!(read.gaps, []);
    let (first, last) = (&read.samples[0], &read.samples[read.samples.len() - 1]);
    assert_eq!(first.epoch, last.epoch);
    let rates = last.rates_since(first).expect("no count fell");
    assert!(rates.published > 0.0 && rates.done > 0.0 && rates.failed == 0.0, "{rates:?}");
    let handling = read.samples.iter().find(|sample| is_timed(sample)).unwrap().handling.quantile(0.5);
    assert!(handling >= Some(Duration::from_millis(10)), "{handling:?}");
    for range in [HistoryRange::Hour, HistoryRange::Day] {
        let coarse = ring.history(range).await.unwrap();
        assert!((1..=3).contains(&coarse.samples.len()), "{coarse:?}");
        assert!(coarse.samples.last().unwrap().published >= last.published);
    }
    let counted = |samples: &[Sample]| samples.iter().map(|sample| sample.handling.total()).sum::<u64>();
    for node in nodes {
        node.stop().await.unwrap();
    }
    let (all, done) = (ring.history(HistoryRange::Day).await.unwrap(), ring.snapshot(0).await.unwrap().done);
    assert!(counted(&all.samples) <= done, "no time counts twice: {all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_shows_as_another_epoch() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    let ring = ring(&redis).await;
    let first = history(&ring, "a sample", |history| !history.samples.is_empty()).await.samples[0].clone();
    let other = RunningNode::start(config(&redis), Counter(0), Keep::default());
    other.notices.wait_for("Joined").await;
    one.stop().await.unwrap();
    let read = history(&ring, "a sample of the next term", |history| {
        history.samples.last().is_some_and(|last| last.epoch != first.epoch)
    })
    .await;
    let last = read.samples.last().unwrap();
    assert_eq!((last.takeovers, last.member == first.member), (1, false), "{read:?}");
    assert!(last.epoch > first.epoch && last.published >= first.published);
    assert_eq!(read.gaps, [], "the heir took over at once");
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_that_nobody_leads_shows_a_gap() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    for expected in [1, 2] {
        let node = RunningNode::start(config(&redis), Counter(0), Keep::default());
        let has_terms = |history: &RingHistory| {
            let mut epochs: Vec<_> = history.samples.iter().map(|sample| sample.epoch).collect();
            epochs.dedup();
            epochs.len() == expected
        };
        let read = history(&ring, "a sample of this term", has_terms).await;
        let reasons: Vec<_> = read.gaps.iter().map(|gap| gap.reason).collect();
        assert_eq!(reasons, vec![GapReason::NobodyInOffice; expected - 1], "{read:?}");
        node.stop().await.unwrap();
        let is_open = |history: &RingHistory| {
            history.gaps.len() == expected && history.gaps.last().unwrap().to_ms == history.time_ms
        };
        let read = history(&ring, "a gap that goes on", is_open).await;
        assert_eq!(read.gaps.last().unwrap().reason, GapReason::NobodyInOffice);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_does_not_answer_shows_as_a_gap_of_its_own() {
    let redis = RedisServer::start();
    let node = RunningNode::start(config(&redis), Counter(0), Keep::default());
    let ring = ring(&redis).await;
    history(&ring, "a sample", |history| !history.samples.is_empty()).await;
    redis.freeze();
    node.notices.wait_for("RedisLost").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    redis.thaw();
    node.notices.wait_for("RedisBack").await;
    // Redis may answer a call from before the gap first.
    let read = history(&ring, "a gap that is over", |history| {
        let is_over = |gap: &HistoryGap| gap.reason == GapReason::NoRedis && gap.to_ms < history.time_ms;
        history.gaps.first().is_some_and(is_over)
    })
    .await;
    let gap = read.gaps[0];
    assert!(gap.to_ms - gap.from_ms >= 4_000, "{gap:?}");
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_samples_a_ring_whose_nodes_never_generate() {
    let redis = RedisServer::start();
    let settings = changed(config(&redis), |config| config.never_generate = true);
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(start(handle(Node::with(settings.clone()), Slow)));
    }
    let publisher: Publisher =
        Publisher::of(&Config::new(endpoint(&redis), "estafeta".parse().unwrap())).await.unwrap();
    publisher.publish("a").await.unwrap();
    let ring = ring(&redis).await;
    let read = history(&ring, "three samples with the message", |history| {
        history.samples.len() >= 3 && history.samples.last().is_some_and(|last| last.done == 1)
    })
    .await;
    assert_eq!(read.gaps, []);
    let sampler = read.samples.last().unwrap().member;
    assert!(read.samples.iter().all(|sample| sample.member == sampler), "{read:?}");
    // When it goes, the other one samples.
    let at = eventually(&ring, "two members", |snapshot| snapshot.members.len() == 2)
        .await
        .members
        .iter()
        .position(|member| member.id == sampler)
        .unwrap();
    let is_first = nodes[0].notices.wait_for("Joined").await.contains(&format!("MemberId({sampler})"));
    assert!(at < 2);
    nodes.remove(usize::from(!is_first)).stop().await.unwrap();
    history(&ring, "a sample by the other one", |history| {
        history.samples.last().is_some_and(|last| last.member != sampler)
    })
    .await;
    nodes.remove(0).stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_history_does_not_hold_a_node_up() {
    let redis = RedisServer::start();
    let nodes = [(); 2].map(|()| RunningNode::start(config(&redis), Counter(0), Keep::default()));
    let ring = ring(&redis).await;
    history(&ring, "a sample", |history| !history.samples.is_empty()).await;
    for key in ["latencies", "history:1s", "history:10s", "history:1m"] {
        redis::cmd("SET").arg(format!("{{estafeta}}:{key}")).arg("x").exec(&mut redis.connect()).unwrap();
    }
    let epoch = async || {
        let office: (u64, u64) = redis::cmd("HMGET")
            .arg("{estafeta}:ledger")
            .arg("epoch")
            .arg("done")
            .query(&mut redis.connect())
            .unwrap();
        office
    };
    let (term, done) = epoch().await;
    // Longer than a lease.
    let start = Instant::now();
    while epoch().await.1 < done + 150 {
        assert!(start.elapsed() < SOON, "the nodes have stopped");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(epoch().await.0, term, "the same member is in office");
    let refused = ring.history(HistoryRange::FiveMinutes).await.unwrap_err().to_string();
    assert!(refused.contains("uses the names of this ring"), "{refused}");
    for key in ["latencies", "history:1s", "history:10s", "history:1m"] {
        redis::cmd("DEL").arg(format!("{{estafeta}}:{key}")).exec(&mut redis.connect()).unwrap();
    }
    history(&ring, "samples again", |history| !history.samples.is_empty()).await;
    for node in nodes {
        node.stop().await.unwrap();
    }
}
