//! Who counts as alive, and what it costs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use estafeta::{Failure, Handler, Message};
use estafeta_testbed::RedisServer;

use crate::support::{Counter, Keep, Running, config, eventually, ring, steps};

#[tokio::test(flavor = "multi_thread")]
async fn a_member_has_two_connections() {
    let redis = RedisServer::start();
    let count = |redis: &RedisServer| {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut redis.connect()).unwrap();
        clients.lines().count() - 1
    };
    assert_eq!(count(&redis), 0);
    let mut four_lanes = config(&redis);
    four_lanes.concurrency = 4;
    let one = Running::start(four_lanes.clone(), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    assert_eq!(count(&redis), 2);
    let other = Running::start(four_lanes, Counter(0), Keep::default());
    other.ears.hear("handled").await;
    assert_eq!(count(&redis), 4);
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_nothing_to_do_ask_redis_a_few_times_a_second_and_the_generator_keeps_its_epoch() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("LimitReached").await;
    let other = Running::start(settings, Counter(0), Keep::default());
    other.ears.hear("handled").await;
    let before = steps(&redis);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = steps(&redis) - before;
    // Ten looks for dead members, twenty at the generator and two beats a second; without a pause there would be thousands.
    assert!(asked < 200, "{asked} steps in two seconds");
    let terms = one.ears.heard().iter().filter(|line| line.starts_with("BecameGenerator")).count();
    assert_eq!(terms, 1, "{:?}", one.ears.heard());
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_one_connection_had_to_be_replaced_the_one_that_only_waits_is_replaced_too() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.lease, settings.limit) = (Duration::from_millis(400), Some(1));
    // If that connection had died in silence, nobody would find out.
    settings.wakeup_wait = Duration::from_secs(600);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let other = Running::start(settings, Counter(0), Keep::default());
    other.ears.hear("handled").await;
    let connection = std::cell::RefCell::new(redis.connect());
    let ask = |words: &[&str]| -> String {
        let mut call = redis::cmd(words[0]);
        call.arg(&words[1..]);
        call.query(&mut *connection.borrow_mut()).unwrap()
    };
    let connections_ever = || -> u64 {
        let stats = ask(&["INFO", "stats"]);
        let count = |line: &str| line.strip_prefix("total_connections_received:")?.trim().parse().ok();
        stats.lines().find_map(count).unwrap()
    };
    let waiting = |wanted: &dyn Fn(&str, u64) -> bool| {
        let clients = ask(&["CLIENT", "LIST"]);
        let field = |line: &str, name: &str| {
            line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        let mut lines = clients.lines().filter(|line| field(line, "flags=").contains('b'));
        lines.find_map(|line| {
            let (id, age) = (field(line, "id="), field(line, "age=").parse().unwrap());
            wanted(&id, age).then_some(id)
        })
    };
    let within = Duration::from_secs(10);
    // Redis counts whole seconds by the clock on the wall: one of them may have been an instant.
    let before =
        estafeta_testbed::eventually(within, "it has waited for a while", || waiting(&|_, age| age > 1));
    let connections = connections_ever();
    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").exec(&mut *connection.borrow_mut()).unwrap();
    let new =
        estafeta_testbed::eventually(within, "it waits on a new one", || waiting(&|id, _| id != before));
    // Longer than the two may be replaced one after the other.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(waiting(&|_, _| true), Some(new), "it is replaced once");
    let new_ones = connections_ever() - connections;
    assert!(new_ones < 10, "{new_ones} new connections where two members need two each");
    assert_eq!(waiting(&|id, _| id == before), None, "nobody waits on the old one any more");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_redis_disconnects_show_that_they_live_on_their_new_connections() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // So long that a slow machine has time to reconnect before anybody is buried.
    settings.grace = Duration::from_secs(20);
    let running = [0, 1, 2].map(|_| Running::start(settings.clone(), Counter(0), Keep::default()));
    for member in &running {
        member.ears.hear("Joined").await;
    }
    let mut connection = redis.connect();
    let names: Vec<String> =
        redis::cmd("ZRANGE").arg("{estafeta}:members").arg(0).arg(-1).query(&mut connection).unwrap();
    assert_eq!(names.len(), 3);
    let mut shown = || -> usize {
        let mut call = redis::cmd("PUBSUB");
        call.arg("NUMSUB");
        for name in &names {
            call.arg(format!("{{estafeta}}:alive:{name}"));
        }
        let subscribers: Vec<(String, usize)> = call.query(&mut connection).unwrap();
        subscribers.iter().map(|(_, count)| count).sum()
    };
    let connections = || -> BTreeSet<String> {
        let clients: String =
            redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut redis.connect()).unwrap();
        clients.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
    };
    let within = Duration::from_secs(15);
    for _ in 0..3 {
        let before = connections();
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").exec(&mut redis.connect()).unwrap();
        estafeta_testbed::eventually(within, "all are seen again, on new connections", || {
            (shown() == 3 && connections().is_disjoint(&before)).then_some(())
        });
    }
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.buried, snapshot.takeovers), (3, 0, 0), "{snapshot:?}");
    for member in running {
        assert!(!member.ears.heard().contains(&"DeclaredDead".to_owned()), "{:?}", member.ears.heard());
        member.stop().await.unwrap();
    }
}

/// Burns the CPU without ever yielding.
struct Burn(Duration);

impl Handler for Burn {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < self.0 {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_burns_the_cpu_for_longer_than_the_lease_is_not_declared_dead() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.lease = Duration::from_millis(400);
    settings.limit = Some(2);
    // The generator is on a runtime of its own; the burner shares this one, and blocks it whole.
    let generator_settings = settings.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let generator = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let generator = Running::start(generator_settings, Counter(0), Keep::default());
            generator.ears.hear("LimitReached").await;
            let _ = stopped.await;
            generator.stop().await.unwrap();
        });
    });
    let ring = ring(&redis).await;
    eventually(&ring, "two messages wait", |snapshot| snapshot.waiting == 2).await;
    let burner = Running::start(settings, Counter(0), Burn(Duration::from_millis(1500)));
    burner.ears.hear("handled #2.1").await;
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.buried, snapshot.returned, snapshot.done), (0, 0, 2), "{snapshot:?}");
    assert!(!burner.ears.heard().iter().any(|line| line.starts_with("DeclaredDead")));
    burner.stop().await.unwrap();
    stop.send(()).unwrap();
    generator.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_presence_nobody_is_missed() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.presence = false;
    settings.lease = Duration::from_millis(600);
    let one = Running::start(settings.clone(), Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let other = Running::start(settings, Counter(0), Keep::default());
    other.ears.hear("handled").await;
    let ring = ring(&redis).await;
    let before = ring.snapshot(0).await.unwrap().published;
    // Long enough for several sweeps: nobody subscribes, and nobody is buried for it.
    eventually(&ring, "fifty more messages", |snapshot| snapshot.published > before + 50).await;
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.buried), (2, 0), "{snapshot:?}");
    one.stop().await.unwrap();
    other.ears.hear("BecameGenerator").await;
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_presence_that_vanishes_is_buried_when_its_lease_is_over() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.lease = Duration::from_millis(500);
    // A member that somebody registered and never cared for again.
    let incarnation = "00000000000000aa";
    let mut connection = redis.connect();
    let one = Running::start(settings, Counter(0), Keep::default());
    one.ears.hear("generated").await;
    let key = format!("{{estafeta}}:member:{incarnation}");
    redis::cmd("HSET")
        .arg(&key)
        .arg(&["number", "99", "kind", "member", "lanes", "1", "presence", "0", "lease", "2000"])
        .arg(&["host", "h", "pid", "1", "started", "0"])
        .exec(&mut connection)
        .unwrap();
    let inflight = format!("{{estafeta}}:inflight:{incarnation}:0");
    redis::cmd("LMOVE").arg(&["{estafeta}:ready", &inflight, "LEFT", "RIGHT"]).exec(&mut connection).unwrap();
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let soon = (seconds + 2) * 1000;
    redis::cmd("ZADD").arg("{estafeta}:members").arg(soon).arg(incarnation).exec(&mut connection).unwrap();
    one.ears.hear("Buried { member: MemberId(99), returned: 1").await;
    let events = ring(&redis).await.events_after("", 100).await.unwrap();
    let buried = events.iter().find(|event| event.kind == "buried").unwrap();
    assert!(buried.time_ms >= soon, "buried {} ms before its lease was over", soon - buried.time_ms);
    one.stop().await.unwrap();
}
