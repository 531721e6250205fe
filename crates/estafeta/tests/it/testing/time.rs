//! Time that passes for a ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use estafeta::testing::TestRing;
use estafeta::{Activity, Config, Failure, Job, Missed, Node, Outcome, Rate, Schedule, every};
use tokio_util::sync::CancellationToken;

use super::{DAY, HOUR};

async fn done(_: Job<Bytes>) -> Result<(), Failure> {
    Ok(())
}

/// Starts a node that stops when the token is dropped.
fn start(node: Node) -> tokio_util::sync::DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(node.until(stop.clone().cancelled_owned()));
    stop.drop_guard()
}

#[tokio::test]
async fn a_delayed_message_comes_when_its_delay_is_over() {
    let ring = TestRing::start().await.unwrap();
    ring.publish(&1).delay(DAY).await.unwrap();
    ring.advance(DAY - HOUR).await.unwrap();
    assert_eq!(ring.drain(done).await.unwrap(), []);
    assert_eq!(ring.published::<u32>().await.unwrap(), [1]);
    ring.advance(HOUR).await.unwrap();
    assert_eq!(ring.drain(done).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_publish_key_is_free_when_its_window_is_over() {
    let ring = TestRing::start().await.unwrap();
    let publish = async || ring.publish(&1).key("k").await.unwrap();
    assert!(!publish().await.duplicate);
    ring.advance(DAY - HOUR).await.unwrap();
    assert!(publish().await.duplicate);
    ring.advance(HOUR).await.unwrap();
    assert!(!publish().await.duplicate);
}

#[tokio::test]
async fn results_and_keys_of_effects_live_as_long_as_they_should() {
    let ring = TestRing::start().await.unwrap();
    ring.publish(&1).await.unwrap();
    let sell = async |_: Job<u32>| {
        let outcome = Outcome::done().result("sold", DAY).set("short", "x", Some(DAY));
        Ok(outcome.set("long", "x", None))
    };
    ring.drain(sell).await.unwrap();
    ring.advance(DAY - HOUR).await.unwrap();
    assert!(ring.ring().result(1).await.unwrap().is_some());
    assert_eq!(ring.ring().count_user_keys().await.unwrap(), 2);
    ring.advance(HOUR).await.unwrap();
    assert_eq!(ring.ring().result(1).await.unwrap(), None);
    assert_eq!(ring.ring().count_user_keys().await.unwrap(), 1);
}

#[tokio::test]
async fn pauses_end_and_a_rate_saves_up_claims() {
    let ring = TestRing::start().await.unwrap();
    for body in [1, 2, 3] {
        ring.publish(&body).await.unwrap();
    }
    let work = async || ring.work_one(done).await.unwrap().is_some();
    ring.ring().pause(Activity::Handling, Some(DAY)).await.unwrap();
    ring.ring().pause(Activity::Producing, None).await.unwrap();
    ring.advance(DAY - HOUR).await.unwrap();
    assert!(!work().await);
    ring.advance(HOUR).await.unwrap();
    assert!(work().await);
    let snapshot = ring.ring().snapshot(0).await.unwrap();
    assert_eq!(snapshot.producing_pause.map(|pause| pause.left_ms), Some(None), "this pause has no end");
    ring.ring().resume(Activity::Producing).await.unwrap();

    ring.ring().limit_in_flight(Some(7)).await.unwrap();
    ring.ring().limit_rate(Some(Rate { messages: 1, per_ms: 3_600_000 })).await.unwrap();
    for _ in 0..2 {
        assert!(!work().await);
        ring.advance(HOUR / 2).await.unwrap();
    }
    assert!(work().await);
    assert!(!work().await, "only one message per hour");
    assert_eq!(ring.ring().snapshot(0).await.unwrap().in_flight_limit, Some(7));
}

#[tokio::test]
async fn no_more_than_ten_years_pass_at_once() {
    let ring = TestRing::start().await.unwrap();
    let years = 3652 * DAY + 12 * HOUR;
    let daily = Schedule::every("daily", DAY).unwrap().missed(Missed::Last).body("day");
    ring.begin(&daily).await.unwrap();
    for _ in 0..10 {
        ring.publish(&1).delay(years).await.unwrap();
        ring.advance(years).await.unwrap();
    }
    // After a hundred years, the first of them would have been due before time began.
    assert_eq!(ring.drain(done).await.unwrap().len(), 10);
    let _node = start(ring.node().generate(daily));
    ring.wait_until(|ring| ring.published == 11).await.unwrap();
    let error = ring.advance(years + Duration::from_nanos(1)).await.unwrap_err().to_string();
    assert_eq!(error, "time: expected at most 10 years, got '315576000.000000001s'");
}

#[tokio::test]
async fn an_idle_node_handles_what_has_become_due_and_stays_a_member() {
    let ring = TestRing::start().await.unwrap();
    let _node = start(ring.node().handle(done));
    ring.wait_until(|ring| ring.members.len() == 1).await.unwrap();
    ring.publish(&1).delay(DAY).await.unwrap();
    ring.ring().pause(Activity::Handling, Some(2 * DAY)).await.unwrap();
    ring.advance(2 * DAY).await.unwrap();
    let snapshot = ring.wait_until(|ring| ring.done == 1).await.unwrap();
    assert_eq!((snapshot.buried, snapshot.members.len()), (0, 1));
}

#[tokio::test]
async fn each_interval_that_passes_brings_one_tick() {
    // A quarter of an hour lies between two beats, so the generator must be called.
    let rarely = |config: &mut Config| (config.lease, config.look) = (HOUR, HOUR);
    let ring = TestRing::start().await.unwrap().configure(rarely);
    let hourly = Schedule::every("hourly", HOUR).unwrap().body("hour");
    ring.begin(&hourly).await.unwrap();
    ring.advance(HOUR).await.unwrap();
    // An entry that has begun does not begin again.
    ring.begin(&hourly).await.unwrap();
    let _node = start(ring.node().generate(hourly));
    for hour in 1..=3 {
        ring.wait_until(|ring| ring.published == hour).await.unwrap();
        ring.advance(HOUR).await.unwrap();
    }
    ring.wait_until(|ring| ring.published == 4).await.unwrap();
    assert_eq!(ring.published::<String>().await.unwrap(), ["hour"; 4]);
}

#[tokio::test]
async fn each_day_that_passes_brings_the_daily_tick_of_the_last_24_hours() {
    let ring = TestRing::start().await.unwrap();
    // Twelve hours from now, so that no tick comes by itself while the test runs.
    let hour = (SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 3600 + 12) % 24;
    let daily = Schedule::cron("daily", &format!("0 {hour} * * *"), "UTC").unwrap().missed(Missed::Last);
    let daily = daily.each(|_| ["berlin", "hamburg"]);
    ring.begin(&daily).await.unwrap();
    ring.advance(DAY).await.unwrap();
    let _node = start(ring.node().generate(daily));
    for day in 1..=3 {
        ring.wait_until(|ring| ring.published == 2 * day).await.unwrap();
        ring.advance(DAY).await.unwrap();
    }
    ring.wait_until(|ring| ring.published == 8).await.unwrap();
    let reports = ring.published::<String>().await.unwrap();
    assert_eq!(reports, ["berlin", "hamburg"].repeat(4));
    let age = async |job: Job<String>| {
        let age = job.tick().unwrap().elapsed()?;
        if age <= DAY { Ok(()) } else { Err(Failure::fatal(format_args!("{age:?} old"))) }
    };
    ring.drain(age).await.unwrap();
    assert_eq!(ring.ring().snapshot(0).await.unwrap().done, 8);
}

#[tokio::test]
async fn a_function_is_called_once_its_interval_has_passed() {
    let ring = TestRing::start().await.unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&calls);
    let hourly = every(HOUR, move || {
        let call = counts.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(call) }
    });
    let _node = start(ring.node().generate(hourly));
    for call in 1..=3 {
        ring.wait_until(|ring| ring.published == call).await.unwrap();
        ring.advance(HOUR).await.unwrap();
    }
    ring.wait_until(|ring| ring.published == 4).await.unwrap();
    assert_eq!(ring.published::<u64>().await.unwrap(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn other_rings_in_the_same_redis_stay_as_they_are() {
    let ring = TestRing::start().await.unwrap();
    let other = ring.beside("other").await.unwrap();
    for ring in [&ring, &other] {
        ring.publish(&1).delay(HOUR).await.unwrap();
        ring.publish(&2).key("k").window(HOUR).await.unwrap();
    }
    ring.advance(HOUR).await.unwrap();
    let is_duplicate = async |ring: &TestRing| ring.publish(&2).key("k").await.unwrap().duplicate;
    assert!(!is_duplicate(&ring).await);
    assert!(is_duplicate(&other).await);
    assert_eq!((ring.drain(done).await.unwrap().len(), other.drain(done).await.unwrap().len()), (3, 1));
}
