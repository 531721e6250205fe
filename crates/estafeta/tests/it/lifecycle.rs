//! What happens to a node from start to end, and what its handlers may do to it.
//!
//! Many tests change Redis by hand, as a fault would. They delete a member, set a counter back, or remove the
//! generator. The node must notice that at its next step or beat, and it must come back to work by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use estafeta::{
    Config, DeadLetterReader, Error, EventKind, Failure, Handler, MemberId, Message, Notice, Observer, Ring,
    RingName, Selection,
};
use estafeta_testbed::RedisServer;
use tokio::sync::Notify;

use crate::support::{Counter, Keep, Notices, Running, SOON, config, eventually, ring, steps};

/// Fails, panics or succeeds, depending on the id.
struct Moody;

impl Handler for Moody {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        match message.id % 3 {
            0 => Err(Failure::new(format!("{} is divisible by three", message.id))),
            1 => panic!("I cannot stand {}", message.id),
            _ => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_and_a_panic_become_errors_with_their_reasons() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(3);
    settings.until_done = true;
    let one = Running::start(settings.clone(), Counter(0), Moody);
    one.notices.wait_for("LimitReached").await;
    let other = Running::start(settings, Counter(0), Moody);
    other.notices.wait_for("failed #1.1: the handler panicked: I cannot stand 1").await;
    other.notices.wait_for("handled #2.1").await;
    other.notices.wait_for("failed #3.1: 3 is divisible by three").await;
    other.ended().await.unwrap();
    one.ended().await.unwrap();
    let ring = ring(&redis).await;
    let errors = ring.errors(0, 10).await.unwrap();
    assert_eq!(errors.iter().map(|error| error.id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(errors[0].reason, "the handler panicked: I cannot stand 1");
    assert_eq!(errors[1].reason, "3 is divisible by three");
}

/// Delays every notice except those about messages.
struct SlowObserver(Notices);

impl Observer for SlowObserver {
    fn notice(&self, notice: Notice<'_>) {
        if !matches!(notice, Notice::Generated { .. } | Notice::Settled { .. }) {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.0.notice(notice);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reports_that_it_joined_before_it_handles_anything() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let notices = Notices::new();
    let other = Running::start_with(
        config(&redis),
        Counter(0),
        Keep::default(),
        SlowObserver(notices.clone()),
        notices.clone(),
    );
    notices.wait_for("handled").await;
    assert!(notices.all()[0].starts_with("Joined"), "{:?}", notices.all());
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_is_behind_the_ring_renumbers_its_messages_in_the_same_term_and_drops_none() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let kept = Keep::default();
    let other = Running::start(config(&redis), Counter(0), kept.clone());
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
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    let first = one.notices.wait_for("BecameGenerator").await;
    assert!(first.contains("from: None"), "{first}");
    one.notices.wait_for("generated").await;
    redis::cmd("HDEL").arg("{estafeta}:leader").arg("member").exec(&mut redis.connect()).unwrap();
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
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = Running::start(settings, Counter(0), Hang);
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
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = Running::start(settings, Counter(0), Keep::default());
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
    back.cmd("HDEL").arg("{estafeta}:leader").arg("member").ignore();
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
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = Running::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let ring = ring(&redis).await;
    let start = ring.snapshot(0).await.unwrap().time_ms;
    // Enough time for about thirty beats between thousands of publishes.
    eventually(&ring, "eight leases", |snapshot| snapshot.time_ms > start + 3_200).await;
    let reported = one.notices.all();
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    let count = |start: &str| reported.iter().filter(|line| line.starts_with(start)).count();
    // If the machine stalls for a lease, the office may pass on. Then there is a reason for a new term.
    let lost = count("BecameHandler") + count("DeclaredDead");
    assert!(count("BecameGenerator") <= 1 + lost, "{} terms", count("BecameGenerator"));
}

/// Never returns.
struct Hang;

impl Handler for Hang {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_returns_is_abandoned_at_the_deadline_and_its_message_goes_back() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    settings.stop_deadline = Duration::from_millis(300);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let hanging = Running::start(settings, Counter(0), Hang);
    let ring = ring(&redis).await;
    eventually(&ring, "the message is in hand", |snapshot| snapshot.in_flight == 1).await;
    let notices = hanging.notices.clone();
    let start = Instant::now();
    hanging.stop().await.unwrap();
    // The default deadline would be 25 s.
    let took = start.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(20)).contains(&took), "{took:?}");
    assert_eq!(notices.all().last().unwrap(), "Left { returned: 1 }");
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (1, 0), "{snapshot:?}");
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_declared_dead_joins_again_as_a_new_member() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = Running::start(config(&redis), Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let ring = ring(&redis).await;
    for wanted in [3, 5] {
        // The test removes both members by hand, and both nodes join again.
        let mut connection = redis.connect();
        redis::cmd("DEL").arg("{estafeta}:members").exec(&mut connection).unwrap();
        one.notices.wait_for("DeclaredDead").await;
        other.notices.wait_for("DeclaredDead").await;
        let snapshot = eventually(&ring, "both are back under new numbers", |snapshot| {
            let is_new = snapshot.members.iter().all(|member| member.id.0 >= wanted);
            snapshot.members.len() == 2 && snapshot.generator.is_some() && is_new
        })
        .await;
        let before = snapshot.done;
        eventually(&ring, "messages flow", |snapshot| snapshot.done > before + 3).await;
    }
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!(snapshot.members.len(), 0, "each left as who it was in the end: {snapshot:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_notices_writes_that_redis_lost_and_takes_a_new_term() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
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
    let snapshot = eventually(&ring, "the loss is told", rolled_back).await;
    let epoch = |snapshot: &estafeta::Snapshot| snapshot.generator.as_ref().unwrap().epoch;
    assert!(epoch(&snapshot) > epoch(&first));
    let before = snapshot.published;
    eventually(&ring, "messages flow", |snapshot| snapshot.published > before + 3).await;
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_is_fenced_while_it_holds_the_office_takes_a_new_term() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let ring = ring(&redis).await;
    let epoch = |snapshot: &estafeta::Snapshot| snapshot.generator.as_ref().unwrap().epoch;
    let first = epoch(&ring.snapshot(0).await.unwrap());
    redis::cmd("HSET").arg("{estafeta}:leader").arg("sent").arg(0).exec(&mut redis.connect()).unwrap();
    let before = eventually(&ring, "the refusal", |snapshot| snapshot.fenced == 1).await.published;
    let after = eventually(&ring, "messages flow", |snapshot| snapshot.published > before + 3).await;
    assert!(epoch(&after) > first, "{after:?}");
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_cursor_differs_from_the_one_in_redis_joins_again() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = Running::start(config(&redis), Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let mut connection = redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:member:*").query(&mut connection).unwrap();
    for key in keys {
        redis::cmd("HSET").arg(key).arg("cursor:0").arg(999_999).exec(&mut connection).unwrap();
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
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let ring = ring(&redis).await;
    for _ in 0..30 {
        let other = Running::start(settings.clone(), Counter(0), Keep::default());
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
async fn a_generator_that_resigns_calls_the_heir_which_does_not_wait_for_its_next_look() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // No node looks at the generator for a quarter of an hour.
    (settings.look, settings.lease) = (Duration::from_secs(900), Duration::from_secs(3600));
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = Running::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    one.stop().await.unwrap();
    let taken = other.notices.wait_for("BecameGenerator").await;
    assert!(taken.contains("from: Some(MemberId(1))"), "{taken}");
    other.notices.wait_for("generated").await;
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_had_to_join_again_stays_alive_while_its_caller_holds_the_errors() {
    let redis = RedisServer::start();
    let mut connection = redis.connect();
    redis::cmd("RPUSH").arg("{estafeta}:errors").arg("1 1 1 1 1 1 2 no body").exec(&mut connection).unwrap();
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).exec(&mut connection).unwrap();
    let mut settings = config(&redis);
    settings.lease = Duration::from_millis(400);
    let mut reader = DeadLetterReader::join(settings).await.unwrap();
    assert_eq!(reader.next().await.unwrap().len(), 1);
    delete_member_hash(&redis, 1);
    assert_eq!(reader.next().await.unwrap().len(), 1, "it joins again and shows the same");
    // The caller works on the errors for three leases.
    let ring = ring(&redis).await;
    let start = ring.snapshot(0).await.unwrap().time_ms;
    eventually(&ring, "three leases", |snapshot| {
        let [reader] = &snapshot.members[..] else { panic!("{snapshot:?}") };
        assert!((reader.id.0, reader.lease_ms > 0) == (2, true), "{snapshot:?}");
        snapshot.time_ms > start + 1200
    })
    .await;
    assert_eq!(reader.next().await.unwrap().len(), 0);
    reader.leave().await.unwrap();
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.errors_taken, snapshot.errors_kept, snapshot.buried), (1, 0, 0), "{snapshot:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_a_reader_released_are_taken_and_those_it_did_not_go_back() {
    for is_released in [true, false] {
        let redis = RedisServer::start();
        let mut connection = redis.connect();
        redis::cmd("RPUSH")
            .arg("{estafeta}:errors")
            .arg("1 1 1 1 1 1 2 no body")
            .exec(&mut connection)
            .unwrap();
        redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).exec(&mut connection).unwrap();
        let mut reader = DeadLetterReader::join(config(&redis)).await.unwrap();
        assert_eq!(reader.next().await.unwrap().len(), 1);
        if is_released {
            reader.release().await.unwrap();
        }
        reader.leave().await.unwrap();
        let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
        let expected = if is_released { (1, 0) } else { (0, 1) };
        assert_eq!((snapshot.errors_taken, snapshot.errors_kept), expected, "{snapshot:?}");
    }
}

/// Always fails.
struct Refuse;

impl Handler for Refuse {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        Err(Failure::new("no"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_all_errors_ends_even_if_they_fail_again_at_once() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.limit) = (Duration::ZERO, Some(1000));
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = Running::start(settings, Counter(0), Refuse);
    let ring = ring(&redis).await;
    eventually(&ring, "all have failed", |snapshot| snapshot.errors_kept == 1000).await;
    for _ in 0..3 {
        let retried =
            tokio::time::timeout(SOON, ring.retry_errors(&Selection::All)).await.expect("it ends").unwrap();
        assert!((1..=1000).contains(&retried), "{retried}");
        eventually(&ring, "all have failed again", |snapshot| snapshot.errors_kept == 1000).await;
    }
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// Signals `started` for each message, and returns when the test signals `finish`.
struct Gate {
    calls: Arc<AtomicUsize>,
    started: Arc<Notify>,
    finish: Arc<Notify>,
}

impl Handler for Gate {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.started.notify_one();
        self.finish.notified().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_whose_reply_was_lost_is_settled_without_a_second_call_of_the_handler() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    // No member may be buried because it is silent for a moment.
    settings.sweep = Duration::from_secs(600);
    settings.lease = Duration::from_secs(10);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    settings.lease = Duration::from_secs(2);
    let (calls, started, finish) = <(Arc<AtomicUsize>, Arc<Notify>, Arc<Notify>)>::default();
    let gate = Gate { calls: Arc::clone(&calls), started: Arc::clone(&started), finish: Arc::clone(&finish) };
    let other = Running::start(settings, Counter(0), gate);
    started.notified().await;
    // The settle reaches a Redis that executes it only after the node stopped waiting for the reply.
    redis.freeze();
    finish.notify_one();
    other.notices.wait_for("RedisLost").await;
    // This notice may come from the heartbeat. The lane gives up its first attempt after half a lease.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    redis.thaw();
    other.notices.wait_for("handled #1.1").await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(!other.notices.all().contains(&"DeclaredDead".to_owned()), "{:?}", other.notices.all());
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.done, snapshot.buried), (1, 0), "{snapshot:?}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test]
async fn a_ring_with_another_layout_version_is_left_alone() {
    let redis = RedisServer::start();
    redis::cmd("SET").arg("{estafeta}:schema").arg(99).exec(&mut redis.connect()).unwrap();
    let error = Running::start(config(&redis), Counter(0), Keep::default()).ended().await.unwrap_err();
    assert!(matches!(&error, Error::Schema { found, .. } if found == "99"), "{error}");
    let ring = ring(&redis).await;
    for refused in [
        ring.snapshot(0).await.map(drop),
        ring.events_after("", 1).await.map(drop),
        ring.errors(0, 1).await.map(drop),
        ring.error_count().await.map(drop),
        ring.retry_errors(&Selection::All).await.map(drop),
        ring.sweep().await.map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Schema { .. })), "{refused:?}");
    }
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, ["{estafeta}:schema"]);
    assert_eq!(ring.erase().await.unwrap(), 1, "a ring of any version can be deleted");
}

#[tokio::test]
async fn a_ring_belongs_to_the_application_of_its_first_node() {
    let redis = RedisServer::start();
    let with = |application: &str| Config { application: application.to_owned(), ..config(&redis) };
    // A reader belongs to no application. It neither decides nor is refused.
    let reader = DeadLetterReader::join(with("readers")).await.unwrap();
    let node = Running::start(with("orders"), Counter(0), Keep::default());
    node.notices.wait_for("BecameGenerator").await;
    let same = Running::start(with("orders"), Counter(0), Keep::default());
    same.notices.wait_for("Joined").await;
    let error = Running::start(with("payments"), Counter(0), Keep::default()).ended().await.unwrap_err();
    assert!(
        matches!(&error, Error::Application { found, expected, .. } if found == "orders" && expected == "payments"),
        "{error}"
    );
    assert_eq!(ring(&redis).await.application().await.unwrap().as_deref(), Some("orders"));
    reader.leave().await.unwrap();
    DeadLetterReader::join(with("readers")).await.unwrap().leave().await.unwrap();
    node.stop().await.unwrap();
    same.stop().await.unwrap();
    let late = Running::start(with("payments"), Counter(0), Keep::default()).ended().await;
    assert!(matches!(late, Err(Error::Application { .. })), "it stays so when all nodes have left: {late:?}");
}

/// Status, monitors and programs keep one `Ring` for hours.
#[tokio::test]
async fn a_ring_reconnects_by_itself_and_its_clones_with_it() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let clone = ring.clone();
    let works = async |ring: &Ring| ring.error_count().await.is_ok();
    assert!(works(&ring).await && works(&clone).await);
    redis.kill();
    eventually_async("a call fails while Redis is away", async || !works(&ring).await).await;
    let error = clone.error_count().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    redis.restart();
    eventually_async("calls work again", async || works(&ring).await && works(&clone).await).await;
    drop(ring);
    assert!(works(&clone).await, "one clone is enough to keep the connection");
}

async fn eventually_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rings_in_one_redis_do_not_see_each_other() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    let mut settings = config(&redis);
    settings.ring = "other".parse::<RingName>().unwrap();
    let other = Running::start(settings, Counter(0), Keep::default());
    one.notices.wait_for("generated 1 from #3").await;
    other.notices.wait_for("generated 1 from #3").await;
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!(snapshot.members.len(), 1, "{snapshot:?}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// Deletes the hash of the member with this number. Its entry in the key `members` stays.
fn delete_member_hash(redis: &RedisServer, number: u64) {
    let mut connection = redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:member:*").query(&mut connection).unwrap();
    let mut number_of =
        |key: &String| -> u64 { redis::cmd("HGET").arg(key).arg("number").query(&mut connection).unwrap() };
    let key = keys.into_iter().find(|key| number_of(key) == number).expect("a member");
    redis::cmd("DEL").arg(key).exec(&mut connection).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_whose_member_hash_is_gone_joins_again_and_leads_again() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
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

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_member_hash_is_gone_hands_back_what_it_holds() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    // No sweep may find the member first.
    settings.sweep = Duration::from_secs(600);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let (calls, started, finish) = <(Arc<AtomicUsize>, Arc<Notify>, Arc<Notify>)>::default();
    let gate = Gate { calls: Arc::clone(&calls), started: Arc::clone(&started), finish: Arc::clone(&finish) };
    let other = Running::start(settings, Counter(0), gate);
    started.notified().await;
    delete_member_hash(&redis, 2);
    other.notices.wait_for("DeclaredDead").await;
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert!(snapshot.waiting == 1 && snapshot.balanced, "{snapshot:?}");
    // The ring no longer accepts the first result, and the message is handled again.
    finish.notify_one();
    other.notices.wait_for("Joined { member: MemberId(3) }").await;
    finish.notify_one();
    other.notices.wait_for("handled #1.2").await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let reported: Vec<_> =
        other.notices.all().into_iter().filter(|line| line.starts_with("handled")).collect();
    assert_eq!(reported, ["handled #1.2"], "only what Redis has recorded is reported");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_member_hash_is_gone_shows_its_errors_again() {
    let redis = RedisServer::start();
    let mut connection = redis.connect();
    redis::cmd("RPUSH").arg("{estafeta}:errors").arg("1 1 1 1 1 1 2 no body").exec(&mut connection).unwrap();
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).exec(&mut connection).unwrap();
    let mut reader = DeadLetterReader::join(config(&redis)).await.unwrap();
    for number in 1..=3 {
        let shown: Vec<_> = reader.next().await.unwrap().iter().map(|error| error.id).collect();
        assert_eq!(shown, [1]);
        delete_member_hash(&redis, number);
    }
    reader.leave().await.unwrap();
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.errors_kept), (0, 1), "{snapshot:?}");
    assert!(snapshot.balanced);
}
