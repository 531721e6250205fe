//! How a generator takes, keeps and loses the office.

use std::time::Duration;

use estafeta::{EventKind, MemberId};
use estafeta_testbed::RedisServer;

use crate::support::{Counter, Hang, Keep, RunningNode, SOON, config, eventually, ring, steps};

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_is_behind_the_ring_renumbers_its_messages_in_the_same_term_and_drops_none() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let kept = Keep::default();
    let other = RunningNode::start(config(&redis), Counter(0), kept.clone());
    other.notices.wait_for("handled #3.1").await;
    let mut ahead = redis::pipe();
    for count in ["published", "done"] {
        ahead.cmd("HINCRBY").arg("{estafeta}:ledger").arg(count).arg(1000).ignore();
    }
    ahead.atomic().exec(&mut redis.connect()).unwrap();
    other.notices.wait_for("handled #100").await;
    let reported = one.notices.all();
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    let bodies: Vec<u64> = kept
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|body| std::str::from_utf8(body).unwrap().parse().unwrap())
        .collect();
    assert!(bodies.iter().copied().eq(1..=bodies.len() as u64), "{bodies:?}");
    let terms = reported.iter().filter(|line| line.starts_with("BecameGenerator")).count();
    assert_eq!(terms, 1, "{reported:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_loses_the_office_reports_it_and_stays_the_same_member() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    let first = one.notices.wait_for("BecameGenerator").await;
    assert!(first.contains("from: None"), "{first}");
    one.notices.wait_for("generated").await;
    redis::cmd("HDEL").arg("{estafeta}:ledger").arg("member").exec(&mut redis.connect()).unwrap();
    one.notices.wait_for("BecameHandler").await;
    let ring = ring(&redis).await;
    let published = ring.snapshot(0).await.unwrap().published;
    let snapshot = eventually(&ring, "it generates again", |now| now.published > published + 5).await;
    assert_eq!(snapshot.members.iter().map(|member| member.id.0).collect::<Vec<_>>(), [1], "{snapshot:?}");
    let reported = one.notices.all();
    one.stop().await.unwrap();
    assert!(!reported.iter().any(|line| line.starts_with("DeclaredDead")), "{reported:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_node_does_not_take_office() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.limit, settings.stop_deadline) = (Some(1), Duration::from_secs(2));
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = RunningNode::start(settings, Counter(0), Hang);
    let ring = ring(&redis).await;
    eventually(&ring, "the message is in hand", |snapshot| snapshot.in_flight == 1).await;
    let notices = other.notices.clone();
    let stopping = tokio::spawn(other.stop());
    notices.wait_for("Stopping").await;
    // The stopping node is the heir, so the generator calls it.
    one.stop().await.unwrap();
    stopping.await.unwrap().unwrap();
    assert!(!notices.all().iter().any(|line| line.starts_with("BecameGenerator")), "{:?}", notices.all());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_notices_that_redis_lost_what_its_predecessor_had_published() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // The generator has reached its limit, and beats only every 15 seconds.
    (settings.limit, settings.lease) = (Some(5), Duration::from_secs(60));
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled #5").await;
    let before = steps(&redis);
    estafeta_testbed::eventually(SOON, "the heir has looked", || (steps(&redis) > before + 60).then_some(()));
    // As if Redis had lost its latest writes: the office is vacant, and the predecessor never joined.
    let mut connection = redis.connect();
    let first: Vec<String> =
        redis::cmd("ZRANGE").arg("{estafeta}:succession").arg(0).arg(0).query(&mut connection).unwrap();
    let mut back = redis::pipe();
    back.atomic();
    for key in ["{estafeta}:members", "{estafeta}:succession"] {
        back.cmd("ZREM").arg(key).arg(&first).ignore();
    }
    back.cmd("HDEL").arg("{estafeta}:ledger").arg("member").ignore();
    back.cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).arg("done").arg(1).ignore();
    back.exec(&mut connection).unwrap();
    other.notices.wait_for("BecameGenerator").await;
    let events = ring(&redis).await.events_after("", 1000).await.unwrap();
    let rolled_back = EventKind::RolledBack { member: MemberId(2), known: 5, found: 1 };
    assert!(events.iter().any(|event| event.kind == rolled_back), "{events:?}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_during_a_beat_is_not_taken_for_a_roll_back() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.lease) = (Duration::ZERO, Duration::from_millis(400));
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let ring = ring(&redis).await;
    let start = ring.snapshot(0).await.unwrap().time_ms;
    // Enough time for about thirty beats between thousands of publishes.
    let last = eventually(&ring, "eight leases", |snapshot| snapshot.time_ms > start + 3_200).await;
    assert_eq!(last.lost, 0);
    let reported = one.notices.all();
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    let count = |start: &str| reported.iter().filter(|line| line.starts_with(start)).count();
    // If the machine stalls for a lease, the office may pass on. Then there is a reason for a new term.
    let lost = count("BecameHandler") + count("DeclaredDead");
    assert!(count("BecameGenerator") <= 1 + lost, "{} terms", count("BecameGenerator"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_notices_writes_that_redis_lost_and_takes_a_new_term() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let ring = ring(&redis).await;
    let first = eventually(&ring, "thirty messages", |snapshot| snapshot.published >= 30).await;
    // As after the promotion of a replica that lagged: the last messages and their count are gone.
    let script =
        "redis.call('HINCRBY', KEYS[1], 'published', -10); for _ = 1, 10 do redis.call('RPOP', KEYS[2]) end";
    let mut call = redis::cmd("EVAL");
    call.arg(script).arg(2).arg("{estafeta}:ledger").arg("{estafeta}:ready");
    call.exec(&mut redis.connect()).unwrap();
    let rolled_back = |snapshot: &estafeta::Snapshot| {
        snapshot.events.iter().any(|event| matches!(event.kind, EventKind::RolledBack { .. }))
    };
    let snapshot = eventually(&ring, "the loss is reported", rolled_back).await;
    let epoch = |snapshot: &estafeta::Snapshot| snapshot.generator.as_ref().unwrap().epoch;
    assert!(epoch(&snapshot) > epoch(&first));
    let before = snapshot.published;
    eventually(&ring, "messages flow", |snapshot| snapshot.published > before + 3).await;
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_is_fenced_while_it_holds_the_office_takes_a_new_term() {
    let redis = RedisServer::start();
    let one = RunningNode::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let ring = ring(&redis).await;
    let epoch = |snapshot: &estafeta::Snapshot| snapshot.generator.as_ref().unwrap().epoch;
    let first = epoch(&ring.snapshot(0).await.unwrap());
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("sent").arg(0).exec(&mut redis.connect()).unwrap();
    let before = eventually(&ring, "the refusal", |snapshot| snapshot.fenced == 1).await.published;
    let after = eventually(&ring, "messages flow", |snapshot| snapshot.published > before + 3).await;
    assert!(epoch(&after) > first, "{after:?}");
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_resigns_calls_the_heir_which_does_not_wait_for_its_next_look() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // No node looks at the generator for a quarter of an hour.
    (settings.look, settings.lease) = (Duration::from_secs(900), Duration::from_secs(3600));
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    one.stop().await.unwrap();
    let taken = other.notices.wait_for("BecameGenerator").await;
    assert!(taken.contains("from: Some(MemberId(1))"), "{taken}");
    other.notices.wait_for("generated").await;
    other.stop().await.unwrap();
}
