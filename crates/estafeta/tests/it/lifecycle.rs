//! What happens to a member from start to end, and what its handlers may do to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use estafeta::{DeadLetterReader, Error, Failure, Handler, Message, Notice, Observer, RingName, Selection};
use estafeta_testbed::RedisServer;
use tokio::sync::Notify;

use crate::support::{Counter, Ears, Keep, Running, SOON, config, eventually, ring, steps};

/// Fails, panics or succeeds, by the body.
struct Moody;

impl Handler for Moody {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        match message.id % 3 {
            0 => Err(format!("{} is divisible by three", message.id).into()),
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
    one.ears.hear("LimitReached").await;
    let other = Running::start(settings, Counter(0), Moody);
    other.ears.hear("failed #1.1: the handler panicked: I cannot stand 1").await;
    other.ears.hear("handled #2.1").await;
    other.ears.hear("failed #3.1: 3 is divisible by three").await;
    other.ended().await.unwrap();
    one.ended().await.unwrap();
    let ring = ring(&redis).await;
    let errors = ring.errors(0, 10).await.unwrap();
    assert_eq!(errors.iter().map(|error| error.id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(errors[0].reason, "the handler panicked: I cannot stand 1");
    assert_eq!(errors[1].reason, "3 is divisible by three");
}

/// Takes its time, except with messages.
struct Slow(Ears);

impl Observer for Slow {
    fn notice(&self, notice: Notice<'_>) {
        if !matches!(notice, Notice::Generated { .. } | Notice::Settled { .. }) {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.0.notice(notice);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_tells_that_it_joined_before_it_handles_anything() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let ears = Ears::new();
    let other =
        Running::start_with(config(&redis), Counter(0), Keep::default(), Slow(ears.clone()), ears.clone());
    ears.hear("handled").await;
    assert!(ears.heard()[0].starts_with("Joined"), "{:?}", ears.heard());
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_follows_a_ring_that_is_ahead_of_it_in_the_same_term_and_drops_no_message() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let kept = Keep::default();
    let other = Running::start(config(&redis), Counter(0), kept.clone());
    other.ears.hear("handled #3.1").await;
    let mut ahead = redis::pipe();
    for count in ["published", "done"] {
        ahead.cmd("HINCRBY").arg("{estafeta}:ledger").arg(count).arg(1000).ignore();
    }
    ahead.atomic().exec(&mut redis.connect()).unwrap();
    other.ears.hear("handled #100").await;
    let told = one.ears.heard();
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
    let terms = told.iter().filter(|line| line.starts_with("BecameGenerator")).count();
    assert_eq!(terms, 1, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_loses_the_office_says_so_and_stays_the_same_member() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    let first = one.ears.hear("BecameGenerator").await;
    assert!(first.contains("from: None"), "{first}");
    one.ears.hear("generated").await;
    redis::cmd("HDEL").arg("{estafeta}:leader").arg("member").exec(&mut redis.connect()).unwrap();
    one.ears.hear("BecameHandler").await;
    let ring = ring(&redis).await;
    let published = ring.snapshot(0).await.unwrap().published;
    let snapshot = eventually(&ring, "it generates again", |now| now.published > published + 5).await;
    assert_eq!(snapshot.members.iter().map(|member| member.id.0).collect::<Vec<_>>(), [1], "{snapshot:?}");
    let told = one.ears.heard();
    one.stop().await.unwrap();
    assert!(!told.iter().any(|line| line.starts_with("DeclaredDead")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_about_to_stop_does_not_take_office() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.limit, settings.stop_deadline) = (Some(1), Duration::from_secs(2));
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("LimitReached").await;
    let other = Running::start(settings, Counter(0), Hang);
    let ring = ring(&redis).await;
    eventually(&ring, "the message is in hand", |snapshot| snapshot.in_flight == 1).await;
    let ears = other.ears.clone();
    let stopping = tokio::spawn(other.stop());
    ears.hear("Stopping").await;
    // It is the heir, and is called.
    one.stop().await.unwrap();
    stopping.await.unwrap().unwrap();
    assert!(!ears.heard().iter().any(|line| line.starts_with("BecameGenerator")), "{:?}", ears.heard());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_notices_that_redis_lost_what_its_predecessor_had_published() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // The generator has nothing more to do, and beats only every 15 seconds.
    (settings.limit, settings.lease) = (Some(5), Duration::from_secs(60));
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("LimitReached").await;
    let other = Running::start(settings, Counter(0), Keep::default());
    other.ears.hear("handled #5").await;
    let before = steps(&redis);
    estafeta_testbed::eventually(SOON, "the heir has looked", || (steps(&redis) > before + 60).then_some(()));
    // As if Redis had been set back: nobody is in office, and the predecessor never joined.
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
    other.ears.hear("BecameGenerator").await;
    let events = ring(&redis).await.events_after("", 1000).await.unwrap();
    let event = events.iter().find(|event| event.kind == "rolled-back").expect("it is noticed");
    let expected = [("member", "2"), ("known", "5"), ("found", "1")];
    assert_eq!(event.fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_while_a_beat_travels_is_no_roll_back() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.lease) = (Duration::ZERO, Duration::from_millis(400));
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let other = Running::start(settings, Counter(0), Keep::default());
    other.ears.hear("handled").await;
    let ring = ring(&redis).await;
    let start = ring.snapshot(0).await.unwrap().time_ms;
    // Some thirty beats beside thousands of publishes.
    eventually(&ring, "eight leases", |snapshot| snapshot.time_ms > start + 3_200).await;
    let told = one.ears.heard();
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    let count = |start: &str| told.iter().filter(|line| line.starts_with(start)).count();
    // On a machine that stands still for a lease the office may pass on; then there is a reason for a new term.
    let lost = count("BecameHandler") + count("DeclaredDead");
    assert!(count("BecameGenerator") <= 1 + lost, "{} terms", count("BecameGenerator"));
}

/// Never ends.
struct Hang;

impl Handler for Hang {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_does_not_end_is_given_up_after_the_deadline_and_its_message_goes_back() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    settings.stop_deadline = Duration::from_millis(300);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("LimitReached").await;
    let hanging = Running::start(settings, Counter(0), Hang);
    let ring = ring(&redis).await;
    eventually(&ring, "the message is in hand", |snapshot| snapshot.in_flight == 1).await;
    let ears = hanging.ears.clone();
    let start = Instant::now();
    hanging.stop().await.unwrap();
    // The deadline that nobody set would be 25 s.
    let took = start.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(20)).contains(&took), "{took:?}");
    assert_eq!(ears.heard().last().unwrap(), "Left { returned: 1 }");
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (1, 0), "{snapshot:?}");
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_declared_dead_comes_back_as_a_new_one() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let other = Running::start(config(&redis), Counter(0), Keep::default());
    other.ears.hear("handled").await;
    let ring = ring(&redis).await;
    for wanted in [3, 5] {
        // Both are thrown out by hand, and both come back by themselves.
        let mut connection = redis.connect();
        redis::cmd("DEL").arg("{estafeta}:members").exec(&mut connection).unwrap();
        one.ears.hear("DeclaredDead").await;
        other.ears.hear("DeclaredDead").await;
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
async fn writes_that_redis_lost_are_noticed_and_answered_by_a_new_term() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let ring = ring(&redis).await;
    let first = eventually(&ring, "thirty messages", |snapshot| snapshot.published >= 30).await;
    // As after the promotion of a replica that lagged: the last messages and their count are gone.
    let script =
        "redis.call('HINCRBY', KEYS[1], 'published', -10); for _ = 1, 10 do redis.call('RPOP', KEYS[2]) end";
    let mut call = redis::cmd("EVAL");
    call.arg(script).arg(2).arg("{estafeta}:ledger").arg("{estafeta}:ready");
    call.exec(&mut redis.connect()).unwrap();
    let rolled_back =
        |snapshot: &estafeta::Snapshot| snapshot.events.iter().any(|event| event.kind == "rolled-back");
    let snapshot = eventually(&ring, "the loss is told", rolled_back).await;
    let epoch = |snapshot: &estafeta::Snapshot| snapshot.generator.as_ref().unwrap().epoch;
    assert!(epoch(&snapshot) > epoch(&first));
    let before = snapshot.published;
    eventually(&ring, "messages flow", |snapshot| snapshot.published > before + 3).await;
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_is_refused_in_its_own_office_takes_a_new_term() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.ears.hear("generated").await;
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
async fn a_handler_whose_settles_redis_forgot_joins_again() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let other = Running::start(config(&redis), Counter(0), Keep::default());
    other.ears.hear("handled").await;
    let mut connection = redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:member:*").query(&mut connection).unwrap();
    for key in keys {
        redis::cmd("HSET").arg(key).arg("cursor:0").arg(999_999).exec(&mut connection).unwrap();
    }
    other.ears.hear("DeclaredDead").await;
    other.ears.hear("Joined { member: MemberId(3) }").await;
    let ring = ring(&redis).await;
    let before = ring.snapshot(0).await.unwrap().done;
    eventually(&ring, "messages flow", |snapshot| snapshot.done > before + 3).await;
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_has_left_does_not_come_back() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // A heart that beats all the time meets the moment between leaving and ending.
    settings.look = Duration::from_millis(1);
    settings.lease = Duration::from_millis(200);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let ring = ring(&redis).await;
    for _ in 0..30 {
        let other = Running::start(settings.clone(), Counter(0), Keep::default());
        other.ears.hear("handled").await;
        let ears = other.ears.clone();
        other.stop().await.unwrap();
        assert!(!ears.heard().contains(&"DeclaredDead".to_owned()), "{:?}", ears.heard());
        let snapshot = ring.snapshot(0).await.unwrap();
        assert_eq!(snapshot.members.len(), 1, "{snapshot:?}");
    }
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_heir_is_called_and_does_not_wait_for_its_next_look() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // Nobody looks at the generator for a quarter of an hour.
    (settings.look, settings.lease) = (Duration::from_secs(900), Duration::from_secs(3600));
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let other = Running::start(settings, Counter(0), Keep::default());
    other.ears.hear("handled").await;
    one.stop().await.unwrap();
    let taken = other.ears.hear("BecameGenerator").await;
    assert!(taken.contains("from: Some(MemberId(1))"), "{taken}");
    other.ears.hear("generated").await;
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_had_to_join_again_stays_alive_while_it_shows_its_errors() {
    let redis = RedisServer::start();
    let mut connection = redis.connect();
    redis::cmd("RPUSH").arg("{estafeta}:errors").arg("1 1 1 1 1 1 2 no body").exec(&mut connection).unwrap();
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).exec(&mut connection).unwrap();
    let mut settings = config(&redis);
    settings.lease = Duration::from_millis(400);
    let mut reader = DeadLetterReader::join(settings).await.unwrap();
    assert_eq!(reader.next().await.unwrap().len(), 1);
    forget(&redis, 1);
    assert_eq!(reader.next().await.unwrap().len(), 1, "it joins again and shows the same");
    // For three leases the caller looks at what it was shown.
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
async fn what_a_reader_released_is_gone_and_what_it_did_not_goes_back() {
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

/// Never succeeds.
struct Refuse;

impl Handler for Refuse {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        Err("no".into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_all_errors_ends_although_they_fail_again_at_once() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.limit) = (Duration::ZERO, Some(1000));
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("LimitReached").await;
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

/// Says when it has a message, and is done with it when it is told so.
struct Gate {
    calls: Arc<AtomicUsize>,
    has_one: Arc<Notify>,
    go: Arc<Notify>,
}

impl Handler for Gate {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.has_one.notify_one();
        self.go.notified().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_settled_although_the_reply_was_lost() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    // Nobody is to judge whoever is away for a moment.
    settings.sweep = Duration::from_secs(600);
    settings.lease = Duration::from_secs(10);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("LimitReached").await;
    settings.lease = Duration::from_secs(2);
    let (calls, has_one, go) = <(Arc<AtomicUsize>, Arc<Notify>, Arc<Notify>)>::default();
    let gate = Gate { calls: Arc::clone(&calls), has_one: Arc::clone(&has_one), go: Arc::clone(&go) };
    let other = Running::start(settings, Counter(0), gate);
    has_one.notified().await;
    // The settle reaches a Redis that carries it out only when nobody waits for its reply any more.
    redis.freeze();
    go.notify_one();
    other.ears.hear("RedisLost").await;
    // The heartbeat may have said so; the lane gives up its first try after half a lease.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    redis.thaw();
    other.ears.hear("handled #1.1").await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(!other.ears.heard().contains(&"DeclaredDead".to_owned()), "{:?}", other.ears.heard());
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.done, snapshot.buried), (1, 0), "{snapshot:?}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test]
async fn a_ring_of_another_version_is_left_alone() {
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
        ring.erase().await.map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Schema { .. })), "{refused:?}");
    }
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, ["{estafeta}:schema"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rings_of_one_redis_do_not_see_each_other() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    let mut settings = config(&redis);
    settings.ring = "other".parse::<RingName>().unwrap();
    let other = Running::start(settings, Counter(0), Keep::default());
    one.ears.hear("generated 1 from #3").await;
    other.ears.hear("generated 1 from #3").await;
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!(snapshot.members.len(), 1, "{snapshot:?}");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// Deletes what the member with this number told of itself; its name stays.
fn forget(redis: &RedisServer, number: u64) {
    let mut connection = redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:member:*").query(&mut connection).unwrap();
    let mut number_of =
        |key: &String| -> u64 { redis::cmd("HGET").arg(key).arg("number").query(&mut connection).unwrap() };
    let key = keys.into_iter().find(|key| number_of(key) == number).expect("a member");
    redis::cmd("DEL").arg(key).exec(&mut connection).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_of_which_only_the_name_is_left_joins_again_and_leads_again() {
    let redis = RedisServer::start();
    let one = Running::start(config(&redis), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    forget(&redis, 1);
    one.ears.hear("DeclaredDead").await;
    one.ears.hear("Joined { member: MemberId(2) }").await;
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
async fn a_handler_of_which_only_the_name_is_left_hands_back_what_it_holds() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    // Nobody else is to find it.
    settings.sweep = Duration::from_secs(600);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("LimitReached").await;
    let (calls, has_one, go) = <(Arc<AtomicUsize>, Arc<Notify>, Arc<Notify>)>::default();
    let gate = Gate { calls: Arc::clone(&calls), has_one: Arc::clone(&has_one), go: Arc::clone(&go) };
    let other = Running::start(settings, Counter(0), gate);
    has_one.notified().await;
    forget(&redis, 2);
    other.ears.hear("DeclaredDead").await;
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert!(snapshot.waiting == 1 && snapshot.balanced, "{snapshot:?}");
    // The first result is not wanted any more; the message is handled again.
    go.notify_one();
    other.ears.hear("Joined { member: MemberId(3) }").await;
    go.notify_one();
    other.ears.hear("handled #1.2").await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let reported: Vec<_> =
        other.ears.heard().into_iter().filter(|line| line.starts_with("handled")).collect();
    assert_eq!(reported, ["handled #1.2"], "only what Redis has recorded is reported");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_which_only_the_name_is_left_shows_its_errors_again() {
    let redis = RedisServer::start();
    let mut connection = redis.connect();
    redis::cmd("RPUSH").arg("{estafeta}:errors").arg("1 1 1 1 1 1 2 no body").exec(&mut connection).unwrap();
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).exec(&mut connection).unwrap();
    let mut reader = DeadLetterReader::join(config(&redis)).await.unwrap();
    for number in 1..=3 {
        let shown: Vec<_> = reader.next().await.unwrap().iter().map(|error| error.id).collect();
        assert_eq!(shown, [1]);
        forget(&redis, number);
    }
    reader.leave().await.unwrap();
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.errors_kept), (0, 1), "{snapshot:?}");
    assert!(snapshot.balanced);
}
