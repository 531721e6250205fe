//! The plan: the generator stores the definitions of its schedule, so that others can see them.

use std::time::Duration;

use estafeta::{Config, Definition, Missed, Node, Overlap, PlannedEntry, Ring, Schedule, Times};
use estafeta_testbed::RedisServer;

use crate::support::{Notices, RunningNode, SOON, endpoint, eventually, ring};

const HOUR: Duration = Duration::from_secs(3600);

fn start(redis: &RedisServer, change: impl FnOnce(Node) -> Node) -> RunningNode {
    let notices = Notices::new();
    let heard = notices.clone();
    let node = Node::with(Config::new(endpoint(redis), "estafeta".parse().unwrap()));
    RunningNode::spawn(change(node).observe(move |notice| heard.add(notice)), notices)
}

fn nightly() -> Schedule<()> {
    let entry = Schedule::cron("nightly", "30 2 * * *", "Europe/Berlin").unwrap();
    entry.overlap(Overlap::Skip).max_age(HOUR).body(())
}

fn hourly() -> Schedule<()> {
    Schedule::every("hourly", HOUR).unwrap().missed(Missed::All).body(())
}

async fn names(ring: &Ring) -> Vec<String> {
    ring.schedule(0).await.unwrap().into_iter().map(|entry| entry.name).collect()
}

/// Waits until the ring has a plan with these entries.
async fn until_planned(ring: &Ring, expected: &[&str]) {
    let start = std::time::Instant::now();
    while names(ring).await != expected {
        assert!(start.elapsed() < SOON, "{expected:?} is not the plan: {:?}", names(ring).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many publishes without messages the term in office has made, if all others have one message.
fn without_messages(redis: &RedisServer) -> u64 {
    let fields = ["{estafeta}:ledger", "sent", "published", "base"];
    let [sent, published, base]: [u64; 3] =
        redis::cmd("HMGET").arg(&fields).query(&mut redis.connect()).unwrap();
    sent - (published - base)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_shows_the_entries_of_its_generator() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    assert_eq!(ring.schedule(5).await.unwrap(), []);
    let pulse = Schedule::every("pulse", Duration::from_millis(10)).unwrap().overlap(Overlap::Skip).body(());
    let node = start(&redis, |node| node.generate(nightly().and(hourly()).and(pulse)));
    eventually(&ring, "a message", |snapshot| snapshot.published == 1).await;
    let entries = ring.schedule(3).await.unwrap();
    let [hourly, nightly, pulse]: &[PlannedEntry; 3] = entries.as_slice().try_into().unwrap();
    assert_eq!([&hourly.name, &nightly.name, &pulse.name], ["hourly", "nightly", "pulse"]);
    assert_eq!([hourly, nightly, pulse].map(|entry| entry.is_open), [false, false, true]);

    let Some(Definition { times: Times::Every { interval, .. }, missed, max_age, overlap, .. }) =
        hourly.definition
    else {
        panic!("{hourly:?}")
    };
    let day = 24 * HOUR;
    assert_eq!((interval, missed, max_age, overlap), (HOUR, Missed::All, day, Overlap::Queue));
    let began = hourly.last_tick.as_ref().unwrap().ms;
    let next: Vec<u64> = hourly.upcoming.iter().map(|moment| moment.ms - began).collect();
    assert_eq!(next, [3_600_000, 7_200_000, 10_800_000]);

    let definition = nightly.definition.clone().unwrap();
    assert_eq!((definition.missed, definition.max_age), (Missed::Last, HOUR));
    assert_eq!(definition.overlap, Overlap::Skip);
    let Times::Cron { expression, zone, .. } = definition.times else { panic!("{nightly:?}") };
    assert_eq!((expression.as_str(), zone.as_str()), ("30 2 * * *", "Europe/Berlin"));
    let first = &nightly.upcoming[0].local;
    assert!(first.contains("T02:30:00+0") || first.contains("T03:00:00+02:00"), "{first}");
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_replaced_by_the_next_generator_and_by_no_other_node() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let old = start(&redis, |node| node.generate(nightly()));
    until_planned(&ring, &["nightly"]).await;
    let new = start(&redis, |node| node.generate(hourly()).handle(async |_: estafeta::Job<()>| Ok(())));
    new.notices.wait_for("Joined").await;
    assert_eq!(names(&ring).await, ["nightly"], "it is not in office");
    old.stop().await.unwrap();
    until_planned(&ring, &["hourly"]).await;
    // A node without a schedule removes the plan when it takes office.
    let without = start(&redis, |node| node.generate(estafeta::every(HOUR, || async { Ok(()) })));
    without.notices.wait_for("Joined").await;
    assert_eq!(names(&ring).await, ["hourly"]);
    new.stop().await.unwrap();
    until_planned(&ring, &[]).await;
    without.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_with_the_stored_plan_writes_nothing() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let schedule = || nightly().and(Schedule::every("pulse", Duration::from_millis(10)).unwrap().body(()));
    let one = start(&redis, |node| node.generate(schedule()));
    one.notices.wait_for("generated").await;
    assert_eq!(without_messages(&redis), 2, "the plan, and the beginning of its entries");
    let other = start(&redis, |node| node.generate(schedule()));
    other.notices.wait_for("Joined").await;
    one.stop().await.unwrap();
    other.notices.wait_for("generated").await;
    assert_eq!(without_messages(&redis), 0);
    assert_eq!(names(&ring).await, ["nightly", "pulse"]);
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_this_version_does_not_know_is_shown_as_it_is() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let text = r#"{"moon":"full","missed":"skip","maxAgeMs":0,"overlap":"queue"}"#;
    redis::cmd("HSET").arg(&["{estafeta}:schedule", "tides", text]).exec(&mut redis.connect()).unwrap();
    redis::cmd("HSET").arg(&["{estafeta}:ticks", "tides", "soon"]).exec(&mut redis.connect()).unwrap();
    let entries = ring.schedule(5).await.unwrap();
    let [tides] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((tides.name.as_str(), tides.text.as_str()), ("tides", text));
    assert_eq!((&tides.definition, &tides.last_tick, tides.is_open), (&None, &None, false));
    assert_eq!(tides.upcoming, []);
}
