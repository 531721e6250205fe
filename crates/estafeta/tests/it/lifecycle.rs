//! What happens to a node from start to end, and what its handlers may do to it.
//!
//! Many tests change Redis by hand, as a fault would. They delete a member, set a counter back, or remove the
//! generator. The node must notice that at its next step or beat, and it must come back to work by itself.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use estafeta::{Job, Node, Notice};
use estafeta_testbed::{Process, RedisServer};
use nix::sys::signal::Signal;
use tokio::sync::Notify;

use crate::support::{
    Counter, Gate, Keep, Notices, RunningNode, SOON, after_damage, config, delete_member_hash, eventually,
    generate, handle, ring,
};

/// Set for the process of a test.
const FAILED: &str = "LIFECYCLE_TEST_FAILED";

/// Delays every notice except those about messages.
fn observe_slowly(notices: &Notices, notice: &Notice<'_>) {
    if !matches!(notice, Notice::Generated { .. } | Notice::Settled { .. }) {
        std::thread::sleep(Duration::from_millis(100));
    }
    notices.add(notice);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reports_that_it_joined_before_it_handles_anything() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let notices = Notices::new();
    let (settings, heard) = (config(&redis), notices.clone());
    let node = Node::with(settings.clone()).generate(generate(settings.interval, Counter(0)));
    let node = handle(node, Keep::default()).observe(move |notice| observe_slowly(&heard, notice));
    let other = RunningNode::spawn(node, notices.clone());
    notices.wait_for("handled").await;
    assert!(notices.all()[0].starts_with("Joined"), "{:?}", notices.all());
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_declared_dead_joins_again_as_a_new_member() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = RunningNode::start(config(&redis), Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let ring = ring(&redis).await;
    for wanted in [3, 5] {
        // The test removes both members by hand, and both nodes join again. What a removed member holds is in no
        // snapshot until the node gives it back.
        let mut connection = redis.connect();
        redis::cmd("DEL").arg("{estafeta}:members").exec(&mut connection).unwrap();
        let snapshot = after_damage(&ring, "both are back under new numbers", |snapshot| {
            let is_new = snapshot.members.iter().all(|member| member.id.0 >= wanted);
            snapshot.members.len() == 2 && snapshot.generator.is_some() && is_new
        })
        .await;
        let before = snapshot.done;
        eventually(&ring, "messages flow", |snapshot| snapshot.done > before + 3).await;
    }
    for node in [&one, &other] {
        assert!(node.notices.all().iter().any(|line| line.starts_with("DeclaredDead")));
    }
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!(snapshot.members.len(), 0, "each left as who it was in the end: {snapshot:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_cursor_differs_from_the_one_in_redis_joins_again() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = RunningNode::start(config(&redis), Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let mut connection = redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:member:*").query(&mut connection).unwrap();
    for key in keys {
        redis::cmd("HSET").arg(key).arg("cursor").arg(999_999).exec(&mut connection).unwrap();
    }
    other.notices.wait_for("DeclaredDead").await;
    other.notices.wait_for("Joined { member: MemberId(3) }").await;
    let ring = ring(&redis).await;
    let before = ring.snapshot(0).await.unwrap().done;
    eventually(&ring, "messages flow", |snapshot| snapshot.done > before + 3).await;
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_left_does_not_join_again() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // With constant beats, one of them falls between leaving and ending.
    settings.look = Duration::from_millis(1);
    settings.lease = Duration::from_millis(200);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let ring = ring(&redis).await;
    for _ in 0..30 {
        let other = RunningNode::start(settings.clone(), Counter(0), Keep::default());
        other.notices.wait_for("handled").await;
        let notices = other.notices.clone();
        other.stop().await.unwrap();
        assert!(!notices.all().contains(&"DeclaredDead".to_owned()), "{:?}", notices.all());
        let snapshot = ring.snapshot(0).await.unwrap();
        assert_eq!(snapshot.members.len(), 1, "{snapshot:?}");
    }
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_whose_member_hash_is_gone_joins_again_and_leads_again() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    delete_member_hash(&redis, 1);
    one.notices.wait_for("DeclaredDead").await;
    one.notices.wait_for("Joined { member: MemberId(2) }").await;
    let ring = ring(&redis).await;
    let snapshot = eventually(&ring, "it leads", |snapshot| {
        snapshot.members.len() == 1 && snapshot.generator.as_ref().is_some_and(|leader| leader.member.0 == 2)
    })
    .await;
    let before = snapshot.published;
    eventually(&ring, "messages flow", |snapshot| snapshot.published > before + 3).await;
    one.stop().await.unwrap();
}

/// The hash holds the messages of the member as well, so nothing is left to hand back.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_member_hash_is_gone_joins_again_and_the_balance_shows_what_was_lost() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    // No sweep may find the member first.
    settings.sweep = Duration::from_secs(600);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let (calls, started, finish) = <(Arc<AtomicUsize>, Arc<Notify>, Arc<Notify>)>::default();
    let gate = Gate { calls: Arc::clone(&calls), started: Arc::clone(&started), finish: Arc::clone(&finish) };
    let other = RunningNode::start(settings, Counter(0), gate);
    started.notified().await;
    delete_member_hash(&redis, 2);
    other.notices.wait_for("DeclaredDead").await;
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert!(snapshot.waiting + snapshot.in_flight == 0 && !snapshot.balanced, "{snapshot:?}");
    let script = "redis.call('HINCRBY', KEYS[1], 'published', 1); redis.call('RPUSH', KEYS[2], ARGV[1])";
    let mut call = redis::cmd("EVAL");
    call.arg(script).arg(2).arg("{estafeta}:ledger").arg("{estafeta}:ready").arg("2 1 7 0 0 0 0 0 x");
    call.exec(&mut redis.connect()).unwrap();
    // The ring no longer accepts the first result, and the new member goes on with the next message.
    finish.notify_one();
    other.notices.wait_for("Joined { member: MemberId(3) }").await;
    finish.notify_one();
    other.notices.wait_for("handled #2.1").await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let reported: Vec<_> =
        other.notices.all().into_iter().filter(|line| line.starts_with("handled")).collect();
    assert_eq!(reported, ["handled #2.1"], "only what Redis has recorded is reported");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// The process of the next test: its node cannot start, and it goes on without one.
#[tokio::test(flavor = "multi_thread")]
async fn run_a_process_whose_node_failed_for_the_other_test() {
    if std::env::var_os(FAILED).is_none() {
        return;
    }
    let node = Node::on("redis+unix:///no/such/socket", "estafeta").unwrap();
    let error = node.handle(async |_: Job<String>| Ok(())).run().await.unwrap_err();
    writeln!(std::io::stdout(), "{error}").unwrap();
    std::future::pending::<()>().await;
}

#[test]
fn a_signal_ends_a_process_whose_node_has_ended() {
    let name = "lifecycle::run_a_process_whose_node_failed_for_the_other_test";
    let process =
        Process::spawn(&std::env::current_exe().unwrap(), ["--exact", name, "--nocapture"], [(FAILED, "1")]);
    process.wait_for_line(SOON, |line| line.starts_with("cannot reach Redis"));
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(SOON).code(), Some(143));
}
