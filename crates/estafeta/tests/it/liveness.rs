//! Which members count as alive, and how many calls and connections that costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use estafeta::{EventKind, Failure, Message};
use estafeta_testbed::RedisServer;

use crate::support::{Counter, Hang, Keep, RunningNode, TestHandler, config, eventually, ring, steps};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_has_two_connections() {
    let redis = RedisServer::start();
    let count = |redis: &RedisServer| {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut redis.connect()).unwrap();
        clients.lines().count() - 1
    };
    assert_eq!(count(&redis), 0);
    let mut four_lanes = config(&redis);
    four_lanes.concurrency = 4;
    let one = RunningNode::start(four_lanes.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    assert_eq!(count(&redis), 2);
    let other = RunningNode::start(four_lanes, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    assert_eq!(count(&redis), 4);
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_nodes_call_redis_a_few_times_per_second_and_the_generator_keeps_its_term() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let before = steps(&redis);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = steps(&redis) - before;
    // Per second there are ten sweeps, twenty looks at the generator and two beats. Without a pause there would be
    // thousands.
    assert!(asked < 200, "{asked} steps in two seconds");
    let terms = one.notices.all().iter().filter(|line| line.starts_with("BecameGenerator")).count();
    assert_eq!(terms, 1, "{:?}", one.notices.all());
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_command_connection_was_replaced_the_work_connection_is_replaced_once() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.lease, settings.limit) = (Duration::from_millis(400), Some(1));
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
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
    // The id of each connection, in order, with its age in seconds.
    let connections = || -> BTreeMap<u64, u64> {
        let clients = ask(&["CLIENT", "LIST"]);
        let field = |line: &str, name: &str| -> u64 {
            line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap().parse().unwrap()
        };
        clients.lines().map(|line| (field(line, "id="), field(line, "age="))).collect()
    };
    let older = connections();
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let own = || -> BTreeMap<u64, u64> {
        connections().into_iter().filter(|(id, _)| !older.contains_key(id)).collect()
    };
    let within = Duration::from_secs(10);
    // Redis counts whole seconds of the wall clock, so the first of them may have been very short.
    let before = estafeta_testbed::eventually(within, "both connections are a while old", || {
        let own = own();
        (own.len() == 2 && own.values().all(|age| *age > 1)).then_some(own)
    });
    let ever = connections_ever();
    // A node opens its command connection first. Redis says nothing to the node on the other one.
    let (command_connection, _) = before.first_key_value().unwrap();
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(command_connection);
    kill.exec(&mut *connection.borrow_mut()).unwrap();
    let new = estafeta_testbed::eventually(within, "both connections are new", || {
        let own = own();
        (own.len() == 2 && own.keys().all(|id| !before.contains_key(id))).then_some(own)
    });
    // Longer than the interval between the replacements of the two connections.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(own().keys().eq(new.keys()), "each is replaced once: {new:?}, then {:?}", own());
    let new_ones = connections_ever() - ever;
    assert!(new_ones < 10, "{new_ones} new connections where a member needs two");
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_redis_disconnects_show_their_presence_on_new_connections() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    // A slow machine has time to reconnect before any member is buried.
    settings.grace = Duration::from_secs(20);
    let running = [0, 1, 2].map(|_| RunningNode::start(settings.clone(), Counter(0), Keep::default()));
    for member in &running {
        member.notices.wait_for("Joined").await;
    }
    let mut connection = redis.connect();
    let names: Vec<String> =
        redis::cmd("ZRANGE").arg("{estafeta}:members").arg(0).arg(-1).query(&mut connection).unwrap();
    assert_eq!(names.len(), 3);
    let mut subscriptions = || -> usize {
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
            (subscriptions() == 3 && connections().is_disjoint(&before)).then_some(())
        });
    }
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.buried, snapshot.takeovers), (3, 0, 0), "{snapshot:?}");
    for member in running {
        assert!(!member.notices.all().contains(&"DeclaredDead".to_owned()), "{:?}", member.notices.all());
        member.stop().await.unwrap();
    }
}

/// Uses the CPU without ever yielding.
struct BusyLoop(Duration);

impl TestHandler for BusyLoop {
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
    // The generator has a separate runtime. The handler shares this one, and blocks it completely.
    let generator_settings = settings.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let generator = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let generator = RunningNode::start(generator_settings, Counter(0), Keep::default());
            generator.notices.wait_for("LimitReached").await;
            let _ = stopped.await;
            generator.stop().await.unwrap();
        });
    });
    let ring = ring(&redis).await;
    eventually(&ring, "two messages wait", |snapshot| snapshot.waiting == 2).await;
    let busy = RunningNode::start(settings, Counter(0), BusyLoop(Duration::from_millis(1500)));
    busy.notices.wait_for("handled #2.1").await;
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.buried, snapshot.returned, snapshot.done), (0, 0, 2), "{snapshot:?}");
    assert!(!busy.notices.all().iter().any(|line| line.starts_with("DeclaredDead")));
    busy.stop().await.unwrap();
    stop.send(()).unwrap();
    generator.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_presence_no_live_node_is_buried() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.presence = false;
    settings.lease = Duration::from_millis(600);
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    other.notices.wait_for("handled").await;
    let ring = ring(&redis).await;
    let before = ring.snapshot(0).await.unwrap().published;
    // Long enough for several sweeps. No member subscribes, and none is buried for that.
    eventually(&ring, "fifty more messages", |snapshot| snapshot.published > before + 50).await;
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.buried), (2, 0), "{snapshot:?}");
    one.stop().await.unwrap();
    other.notices.wait_for("BecameGenerator").await;
    other.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_without_presence_is_buried_after_its_lease_and_not_before() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.lease = Duration::from_millis(500);
    // A member that is registered by hand and never beats.
    let incarnation = "00000000000000aa";
    let mut connection = redis.connect();
    let one = RunningNode::start(settings, Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let key = format!("{{estafeta}}:member:{incarnation}");
    redis::cmd("HSET")
        .arg(&key)
        .arg(&["number", "99", "kind", "member", "lanes", "1", "presence", "0", "lease", "2000"])
        .arg(&["host", "h", "pid", "1", "started", "0"])
        .exec(&mut connection)
        .unwrap();
    let script = "redis.call('HSET', KEYS[1], '1', redis.call('LPOP', KEYS[2]), 'claimed', 1, 'held', 1)";
    redis::cmd("EVAL").arg(&[script, "2", &key, "{estafeta}:ready"]).exec(&mut connection).unwrap();
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let soon = (seconds + 2) * 1000;
    redis::cmd("ZADD").arg("{estafeta}:members").arg(soon).arg(incarnation).exec(&mut connection).unwrap();
    one.notices.wait_for("Buried { member: MemberId(99), returned: 1").await;
    let events = ring(&redis).await.events_after("", 100).await.unwrap();
    let buried = events.iter().find(|event| matches!(event.kind, EventKind::Buried { .. })).unwrap();
    assert!(buried.time_ms >= soon, "buried {} ms before its lease was over", soon - buried.time_ms);
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_calls_redis_no_more_once_the_ring_no_longer_knows_it() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.generator_handles, settings.limit) = (true, Some(1));
    settings.stop_deadline = Duration::from_secs(3);
    let one = RunningNode::start(settings, Counter(0), Hang);
    let ring = ring(&redis).await;
    eventually(&ring, "the handler hangs", |snapshot| snapshot.in_flight == 1).await;
    let stopping = tokio::spawn(one.stop());
    eventually(&ring, "the node has resigned", |snapshot| snapshot.generator.is_none()).await;
    let before = steps(&redis);
    redis::cmd("FLUSHALL").exec(&mut redis.connect()).unwrap();
    stopping.await.unwrap().unwrap();
    let asked = steps(&redis) - before;
    // A sweep now and then is fine. Without a pause there would be thousands.
    assert!(asked < 300, "{asked} steps until the deadline");
}
