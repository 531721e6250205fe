//! Publishers outside the ring: ids, keys, lost replies, full rings and refusals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use estafeta::{Config, Draft, Error, Headers, Publisher};
use estafeta_testbed::{Fsync, RedisServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Counter, Keep, RunningNode, changed, config, endpoint, eventually, ring, steps};

async fn publisher(redis: &RedisServer) -> Publisher {
    Publisher::of(&Config::new(endpoint(redis), "estafeta".parse().unwrap())).await.unwrap()
}

fn dump(redis: &RedisServer) -> BTreeSet<String> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    keys.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_and_the_generator_share_the_ids() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.limit, settings.journal) = (Duration::from_millis(1), Some(600), true);
    let generator = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    generator.notices.wait_for("generated").await;
    let handled = Keep::default();
    let handler = RunningNode::start(settings, Counter(0), handled.clone());
    let tasks = (0..8).map(|task| {
        let redis_url = endpoint(&redis);
        tokio::spawn(async move {
            let publisher: Publisher =
                Publisher::of(&Config::new(redis_url, "estafeta".parse().unwrap())).await.unwrap();
            let mut ids = Vec::new();
            for n in 0..20 {
                let one = publisher.publish(format!("one {task}.{n}"));
                let some = publisher.publish_all([format!("some {task}.{n}"), format!("more {task}.{n}")]);
                let (one, some) = tokio::join!(one.into_future(), some.into_future());
                ids.push(one.unwrap().id);
                ids.extend(some.unwrap().iter().map(|receipt| receipt.id));
            }
            ids
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut ids = Vec::new();
    for task in tasks {
        ids.extend(task.await.unwrap());
    }
    assert_eq!(ids.len(), 8 * 60);
    generator.notices.wait_for("LimitReached").await;
    let ring = ring(&redis).await;
    let seen = eventually(&ring, "all is handled", |seen| seen.done == seen.published).await;
    assert!(seen.published >= 600, "{seen:?}");
    // The notices of the generator name the ids that its messages have.
    for line in generator.notices.all() {
        if let Some(rest) = line.strip_prefix("generated ") {
            let numbers: Vec<u64> = rest.split([' ', '#']).filter_map(|number| number.parse().ok()).collect();
            ids.extend(numbers[1]..numbers[1] + numbers[0]);
        }
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=seen.published).collect::<Vec<u64>>());
    let mut outcomes: Vec<u64> = Vec::new();
    for entry in ring.journal().await.unwrap() {
        outcomes.extend(entry.ids);
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, ids, "one outcome each");
    generator.stop().await.unwrap();
    handler.stop().await.unwrap();
}

/// The generator makes nothing for an hour, so only the publisher can wake the handler.
#[tokio::test(flavor = "multi_thread")]
async fn a_publish_wakes_an_idle_node_and_its_headers_arrive() {
    struct Shows(tokio::sync::mpsc::UnboundedSender<(Vec<u8>, Headers)>);
    impl crate::support::TestHandler for Shows {
        async fn handle(&self, message: &estafeta::Message) -> Result<(), estafeta::Failure> {
            self.0.send((message.body().to_vec(), message.headers().clone())).unwrap();
            Ok(())
        }
    }
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::from_secs(3600);
    let (sender, mut shown) = tokio::sync::mpsc::unbounded_channel();
    let nodes = [0, 1].map(|_| RunningNode::start(settings.clone(), Counter(0), Shows(sender.clone())));
    shown.recv().await.expect("the first message of the generator");
    let orders = publisher(&redis).await;
    orders.publish(&b"\xff\0"[..]).header("shop", "berlin").await.unwrap();
    let (body, headers) = tokio::time::timeout(crate::support::SOON, shown.recv()).await.unwrap().unwrap();
    assert_eq!((&body[..], headers.get("shop"), headers.len()), (&b"\xff\0"[..], Some("berlin"), 1));
    for node in nodes {
        node.stop().await.unwrap();
    }
}

/// Nobody else makes a step when the message is due, so the idle nodes must know the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_reaches_idle_nodes_at_its_time() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::from_secs(3600);
    let handled = Keep::default();
    let nodes = [0, 1].map(|_| RunningNode::start(settings.clone(), Counter(0), handled.clone()));
    let ring = ring(&redis).await;
    eventually(&ring, "the first message of the generator is handled", |seen| seen.done == 1).await;
    let (orders, delay) = (publisher(&redis).await, Duration::from_millis(700));
    let start = Instant::now();
    let receipts = orders.publish_all(["later", "now"].map(|body| match body {
        "later" => Draft::new(body).delay(delay),
        _ => Draft::new(body),
    }));
    assert_eq!(receipts.await.unwrap().iter().map(|receipt| receipt.id).collect::<Vec<_>>(), [2, 3]);
    eventually(&ring, "one is handled, the other waits", |seen| (seen.done, seen.later) == (2, 1)).await;
    eventually(&ring, "both are handled", |seen| seen.done == 3).await;
    // Redis' clock is read before and after the delay, each time rounded to a millisecond.
    assert!(start.elapsed() >= delay - Duration::from_millis(1), "{:?}", start.elapsed());
    for node in nodes {
        node.stop().await.unwrap();
    }
    let refused = orders.publish("x").delay(Duration::MAX).await.unwrap_err();
    assert!(refused.to_string().starts_with("delay: expected at most 10 years, got"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_message_reaches_no_handler() {
    let redis = RedisServer::start();
    let orders = publisher(&redis).await;
    let hour = Duration::from_secs(3600);
    let one = orders.publish("one").delay(hour).await.unwrap();
    orders.publish("two").key("k").delay(hour).await.unwrap();
    orders.publish("three").await.unwrap();
    assert!(orders.cancel(one.id).await.unwrap() && orders.cancel_key("k").await.unwrap());
    assert!(!orders.cancel(one.id).await.unwrap() && !orders.cancel_key("k").await.unwrap());
    assert!(!orders.cancel(3).await.unwrap(), "it waits in the queue");
    let refused = orders.cancel_key("").await.unwrap_err();
    assert_eq!(refused.to_string(), "key: expected 1 to 512 bytes, got '0 bytes'");
    assert!(!orders.publish("another two").key("k").await.unwrap().duplicate, "the key is free");
    // A node that runs until all is done waits for no cancelled message.
    let mut settings = config(&redis);
    (settings.limit, settings.until_done, settings.generator_handles) = (Some(4), true, true);
    let node = RunningNode::start(settings, Counter(0), Keep::default());
    node.ended().await.unwrap();
    let seen = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((seen.published, seen.done, seen.cancelled, seen.later), (4, 2, 2, 0));
    assert!(seen.balanced);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_whose_reply_was_lost_has_the_right_answer() {
    let redis = RedisServer::builder().tcp().start();
    let (port, cuts) = proxy(redis.port()).await;
    let endpoint = format!("redis://127.0.0.1:{port}").parse().unwrap();
    let orders: Publisher = Publisher::of(&Config::new(endpoint, "estafeta".parse().unwrap())).await.unwrap();
    let hour = Duration::from_secs(3600);
    for n in 1..=5 {
        let receipt = orders.publish("x").delay(hour).await.unwrap();
        // The script is loaded by the first cancel, whose reply is not lost.
        cuts.store(n > 1, Ordering::SeqCst);
        assert!(orders.cancel(receipt.id).await.unwrap(), "{n}");
        assert!(!cuts.load(Ordering::SeqCst), "no reply was lost");
    }
    assert_eq!(ring(&redis).await.snapshot(0).await.unwrap().cancelled, 5);
}

/// A proxy that can cut its connections after Redis has answered, before the answer is passed on.
async fn proxy(to: u16) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, cuts) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
    let shared = Arc::clone(&cuts);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, cuts) = (TcpStream::connect(("127.0.0.1", to)).await.unwrap(), Arc::clone(&shared));
            tokio::spawn(async move {
                let ((mut from, mut back), (mut answers, mut there)) =
                    (client.into_split(), server.into_split());
                let forth = tokio::spawn(async move { tokio::io::copy(&mut from, &mut there).await });
                let mut buffer = vec![0; 65536];
                while let Ok(read @ 1..) = answers.read(&mut buffer).await {
                    if cuts.swap(false, Ordering::SeqCst) || back.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
                forth.abort();
            });
        }
    });
    (port, cuts)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_whose_reply_was_lost_is_applied_once() {
    let redis = RedisServer::builder().tcp().start();
    let (port, cuts) = proxy(redis.port()).await;
    let url = format!("redis://127.0.0.1:{port}").parse().unwrap();
    let orders: Publisher = Publisher::of(&Config::new(url, "estafeta".parse().unwrap())).await.unwrap();
    let mut ids = vec![orders.publish("first").await.unwrap().id];
    for round in 0..20 {
        cuts.store(true, Ordering::SeqCst);
        if round % 2 == 0 {
            ids.push(orders.publish("one").patient(crate::support::SOON).await.unwrap().id);
        } else {
            let three = orders.publish_all(["a", "b", "c"]).patient(crate::support::SOON);
            ids.extend(three.await.unwrap().iter().map(|receipt| receipt.id));
        }
        assert!(!cuts.load(Ordering::SeqCst), "no reply was lost");
    }
    assert_eq!(ids, (1..=41).collect::<Vec<u64>>());
    let seen = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((seen.published, seen.waiting), (41, 41));
}

#[tokio::test]
async fn a_key_names_one_message() {
    let redis = RedisServer::start();
    let (one, other) = (publisher(&redis).await, publisher(&redis).await);
    let first = one.publish("two pizzas").key("order-17").header("traceparent", "1").await.unwrap();
    let again = other.publish("two pizzas").key("order-17").header("traceparent", "2").await.unwrap();
    assert_eq!((first.id, first.duplicate, again.id, again.duplicate), (1, false, 1, true));
    let refused = other.publish("three pizzas").key("order-17").await;
    assert!(matches!(&refused, Err(Error::KeyReused { key }) if key == "order-17"), "{refused:?}");
    let batch = ["18", "19", "17"].map(|order| Draft::new("a salad").key(format!("order-{order}")));
    let refused = other.publish_all(batch).await;
    assert!(matches!(&refused, Err(Error::KeyReused { key }) if key == "order-17"), "{refused:?}");
    assert_eq!(ring(&redis).await.snapshot(0).await.unwrap().published, 1, "nothing of the batch");
    let short = one.publish("x").key("short").window(Duration::from_millis(1)).await.unwrap();
    let mut next = short;
    while next.duplicate || next.id == short.id {
        next = one.publish("y").key("short").await.unwrap_or(short);
    }
    assert_eq!(next.id, 3);
}

#[tokio::test]
async fn a_full_ring_is_an_error_at_once_unless_the_caller_is_patient() {
    let redis = RedisServer::start();
    let orders: Publisher =
        Publisher::of(&changed(config(&redis), |config| config.max_waiting = 3)).await.unwrap();
    orders.publish_all(["a", "b", "c"]).await.unwrap();
    let full = orders.publish("d").await;
    assert!(matches!(&full, Err(Error::Full { max_waiting: 3, .. })), "{full:?}");
    let brief = orders.publish("d").patient(Duration::from_millis(20)).await;
    assert!(matches!(&brief, Err(Error::Full { .. })), "{brief:?}");
    let before = steps(&redis);
    let patient = orders.publish("d").patient(crate::support::SOON).into_future();
    let room = async {
        // It has tried at least twice.
        while steps(&redis) < before + 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        redis::cmd("DEL").arg("{estafeta}:ready").exec(&mut redis.connect()).unwrap();
    };
    let (receipt, ()) = tokio::join!(patient, room);
    assert_eq!(receipt.unwrap().id, 4);
}

#[tokio::test]
async fn what_no_ring_accepts_is_refused_before_anything_is_sent() {
    let redis = RedisServer::start();
    let orders: Publisher =
        Publisher::of(&changed(config(&redis), |config| config.max_body = 10)).await.unwrap();
    let before = (steps(&redis), dump(&redis));
    let large = orders.publish("x".repeat(11)).await;
    assert!(matches!(large, Err(Error::BodyTooLarge { size: 11, limit: 10 })), "{large:?}");
    let refused = [
        orders.publish("x").key("").await.map(drop),
        orders.publish("x").key("k".repeat(513)).await.map(drop),
        orders.publish("x").header("a b", "").await.map(drop),
        orders.publish("x").header("a", "v".repeat(5000)).await.map(drop),
        orders.publish("x").key("k").window(Duration::ZERO).await.map(drop),
        orders.publish_all(vec!["x"; 1001]).await.map(drop),
        orders.publish_all(["x".to_owned(), "y".repeat(11)]).await.map(drop),
    ];
    for (case, refused) in refused.iter().enumerate() {
        assert!(
            matches!(refused, Err(Error::Expected { .. } | Error::BodyTooLarge { .. })),
            "case {case}: {refused:?}"
        );
    }
    assert_eq!(orders.publish_all(Vec::<String>::new()).await.unwrap(), []);
    assert_eq!((steps(&redis), dump(&redis)), before);
    assert_eq!(orders.publish_all(vec!["x"; 1000]).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn a_ring_of_another_application_is_refused_unless_any_will_do() {
    let redis = RedisServer::start();
    let shop = changed(config(&redis), |config| config.application = "shop".into());
    Publisher::of(&shop).await.unwrap().publish("x").await.unwrap();
    let refused = publisher(&redis).await.publish("y").await;
    assert!(matches!(&refused, Err(Error::Application { found, .. }) if found == "shop"), "{refused:?}");
    assert_eq!(
        refused.unwrap_err().to_string(),
        "ring estafeta belongs to the application 'shop', and this program is 'estafeta': set the application 'shop' \
         (Config::application), or choose another ring"
    );
    let any = Publisher::of_any_application(&config(&redis)).await.unwrap();
    assert_eq!(any.publish("z").await.unwrap().id, 2);
}

#[tokio::test]
async fn a_publisher_reconnects_by_itself() {
    let redis = RedisServer::builder().append_only(Fsync::Always).start();
    let orders = publisher(&redis).await;
    orders.publish("x").await.unwrap();
    redis.kill();
    let error = orders.publish("y").key("y").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    redis.restart();
    assert_eq!(orders.publish("y").key("y").patient(crate::support::SOON).await.unwrap().id, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_outlasts_a_restart_of_redis_and_gives_up_after_five_seconds() {
    let redis = RedisServer::builder().append_only(Fsync::Always).start();
    let publisher = publisher(&redis).await;
    publisher.publish("before").await.unwrap();
    redis.kill();
    let publish = tokio::spawn({
        let publisher = publisher.clone();
        async move { publisher.publish("meanwhile").await }
    });
    tokio::time::sleep(Duration::from_millis(1500)).await;
    tokio::task::block_in_place(|| redis.restart());
    assert_eq!(publish.await.unwrap().unwrap().id, 2);
    redis.kill();
    let start = Instant::now();
    let error = publisher.publish("never").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let took = start.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(9)).contains(&took), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_about_a_damaged_value_names_its_key() {
    let redis = RedisServer::start();
    let publisher = publisher(&redis).await;
    publisher.publish("x").await.unwrap();
    let mut connection = redis.connect();
    redis::cmd("SET").arg("{estafeta}:key:k").arg("foreign").exec(&mut connection).unwrap();
    let error = publisher.publish("x").key("k").await.unwrap_err().to_string();
    assert!(error.ends_with(" refuses: {estafeta}:key:k: the value is not of this ring"), "{error}");
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg("x").exec(&mut connection).unwrap();
    let error = publisher.publish("x").await.unwrap_err().to_string();
    assert!(error.ends_with(" refuses: {estafeta}:ledger: a count is not a number"), "{error}");
}

/// A server that is busy with a script answers every call with an error, until the script ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_patient_publisher_waits_until_redis_serves_it_again() {
    let redis = RedisServer::start();
    let orders = publisher(&redis).await;
    orders.publish("x").await.unwrap();
    let mut admin = redis.connect();
    redis::cmd("CONFIG").arg(&["SET", "busy-reply-threshold", "10"]).exec(&mut admin).unwrap();
    let mut busy = redis.connect();
    let script = std::thread::spawn(move || {
        let ended = redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut busy);
        ended.unwrap_err()
    });
    let is_busy = || redis::cmd("PING").exec(&mut redis.connect()).is_err();
    while !is_busy() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = orders.publish("y").await.unwrap_err();
    assert!(matches!(&refused, Error::Refused { reason, .. } if reason.starts_with("BUSY")), "{refused}");
    let patient = orders.clone();
    let waiting = tokio::spawn(async move { patient.publish("z").patient(crate::support::SOON).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    redis::cmd("SCRIPT").arg("KILL").exec(&mut admin).unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().id, 2);
    script.join().unwrap();
}
