//! Effects: what handlers write in the step that settles their messages. Sums agree exactly, whatever dies meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use estafeta::testing::{JobOutcome, TestRing};
use estafeta::{Config, Draft, Failure, Job, Message, Outcome, Ring, RingName};
use estafeta_testbed::{Process, RedisServer};

use crate::support::{Counter, Keep, RunningNode, TestHandler, config, endpoint, eventually, ring};

const URL: &str = "EFFECTS_TEST_URL";
/// How many messages the tests with faults publish.
const MESSAGES: u64 = 3000;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Answers as its function decides.
#[derive(Clone)]
struct EffectHandler(fn(&Message) -> Result<Outcome, Failure>);

impl TestHandler<Outcome> for EffectHandler {
    async fn handle(&self, message: &Message) -> Result<Outcome, Failure> {
        (self.0)(message)
    }
}

fn next_ring() -> RingName {
    "estafeta/next".parse().unwrap()
}

/// One effect of each kind. Some messages fail or sleep first, and have effects only when they are done.
fn count(message: &Message) -> Result<Outcome, Failure> {
    let id = message.id;
    if id.is_multiple_of(7) && message.failures == 0 {
        return Err(Failure::retry_after(Duration::from_millis(5), "once"));
    }
    if id.is_multiple_of(11) && message.snoozes == 0 {
        return Ok(Outcome::snooze(Duration::from_millis(5)));
    }
    if id.is_multiple_of(13) {
        return Err(Failure::fatal("no good"));
    }
    let text = id.to_string();
    Ok(Outcome::done()
        .add("sum", i64::try_from(id).unwrap())
        .add("count", 1)
        .append("log", [("id", text.clone())], None)
        .set(format!("seen:{id}"), message.key(), None)
        .result(text.clone(), DAY)
        .forward(&next_ring(), text))
}

/// What a ring of `MESSAGES` messages has written when all of them have their outcome.
async fn assert_each_once(redis: &RedisServer) {
    let mut connection = redis.connect();
    let done: BTreeSet<u64> = (1..=MESSAGES).filter(|id| !id.is_multiple_of(13)).collect();
    let mut get = |key: &str| -> u64 { redis::cmd("GET").arg(key).query(&mut connection).unwrap() };
    assert_eq!(get("{estafeta}:u:count"), done.len() as u64);
    assert_eq!(get("{estafeta}:u:sum"), done.iter().sum::<u64>());
    let each_once = |what: &str, ids: Vec<u64>| {
        assert_eq!(ids.len(), done.len(), "{what}");
        assert_eq!(ids.into_iter().collect::<BTreeSet<u64>>(), done, "{what}");
    };
    let log: Vec<(String, (String, u64))> =
        redis::cmd("XRANGE").arg("{estafeta}:u:log").arg("-").arg("+").query(&mut connection).unwrap();
    each_once("stream", log.into_iter().map(|(_, (_, id))| id).collect());
    let seen: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:u:seen:*").query(&mut connection).unwrap();
    each_once("keys", seen.iter().map(|key| key.rsplit(':').next().unwrap().parse().unwrap()).collect());
    let forwarded: Vec<String> =
        redis::cmd("LRANGE").arg("{estafeta}/next:ready").arg(0).arg(-1).query(&mut connection).unwrap();
    let body = |element: &String| element.rsplit(' ').next().unwrap().parse().unwrap();
    each_once("forwards", forwarded.iter().map(body).collect());
    let numbers: BTreeSet<u64> =
        forwarded.iter().map(|element| element.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (1..=done.len() as u64).collect(), "ids without gaps");
    let ring = ring(redis).await;
    each_once("results", ring.result_ids().await.unwrap());
    let last = ring.result(*done.last().unwrap()).await.unwrap().unwrap();
    assert_eq!(last.value, done.last().unwrap().to_string().into_bytes());
    let next = Ring::connect(endpoint(redis), next_ring()).await.unwrap();
    let seen = next.snapshot(0).await.unwrap();
    assert!(seen.balanced && seen.submitted == done.len() as u64, "{seen:?}");
}

fn settings(redis: &RedisServer) -> Config {
    let mut settings = config(redis);
    (settings.interval, settings.limit) = (Duration::from_millis(1), Some(MESSAGES));
    (settings.concurrency, settings.max_deaths, settings.generator_handles) = (3, 1000, true);
    settings.lease = Duration::from_millis(400);
    settings
}

/// Runs a node in a child process that another test starts. As one of the tests it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn run_a_counting_node_for_the_other_tests() {
    let Ok(url) = std::env::var(URL) else { return };
    let mut settings = Config::new(url.parse().unwrap(), "estafeta".parse().unwrap());
    (settings.interval, settings.limit) = (Duration::from_millis(1), Some(MESSAGES));
    (settings.concurrency, settings.max_deaths) = (3, 1000);
    settings.lease = Duration::from_millis(400);
    RunningNode::for_ever(settings, Counter(0), EffectHandler(count)).await;
}

fn start_node(redis: &RedisServer) -> Process {
    let program = std::env::current_exe().unwrap();
    let test = "effects::run_a_counting_node_for_the_other_tests";
    Process::spawn(&program, ["--exact", test, "--nocapture"], [(URL, redis.url())])
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_agree_exactly_although_nodes_are_killed_and_frozen() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let mut nodes: Vec<Process> = (0..3).map(|_| start_node(&redis)).collect();
    for round in 1..=8 {
        eventually(&ring, "it goes on", |snapshot| snapshot.done >= MESSAGES * round / 12).await;
        let victim = nodes.remove(0);
        if round % 3 == 0 {
            victim.freeze();
            let former = ring.snapshot(0).await.unwrap().buried;
            eventually(&ring, "it is declared dead", |snapshot| snapshot.buried > former).await;
            victim.thaw();
            nodes.push(victim);
        } else {
            victim.kill();
            nodes.push(start_node(&redis));
        }
    }
    let kept = MESSAGES / 13;
    let end = eventually(&ring, "all are done", |snapshot| snapshot.done + kept == MESSAGES).await;
    assert_eq!((end.errors_kept, end.later), (kept, 0), "{end:?}");
    assert!(end.buried >= 8, "{end:?}");
    assert_each_once(&redis).await;
}

/// Every cut may lose an answer, so that the turn is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn sums_agree_exactly_although_connections_are_cut() {
    let redis = RedisServer::start();
    let nodes: Vec<_> =
        (0..3).map(|_| RunningNode::start(settings(&redis), Counter(0), EffectHandler(count))).collect();
    for round in 1..=40 {
        // Each cut hits the connection of the test as well.
        let ring = ring(&redis).await;
        eventually(&ring, "it goes on", |snapshot| snapshot.done >= MESSAGES * round / 50).await;
        let mut cut = redis::cmd("CLIENT");
        cut.arg("KILL").arg("TYPE").arg("NORMAL").arg("SKIPME").arg("yes");
        cut.exec(&mut redis.connect()).unwrap();
    }
    let ring = ring(&redis).await;
    eventually(&ring, "all are done", |snapshot| snapshot.done + MESSAGES / 13 == MESSAGES).await;
    for node in nodes {
        node.stop().await.unwrap();
    }
    assert_each_once(&redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_of_two_rings_hands_each_message_on_once() {
    let redis = RedisServer::start();
    let mut orders = Config::new(endpoint(&redis), "shop/orders".parse().unwrap());
    (orders.interval, orders.limit) = (Duration::from_millis(1), Some(200));
    let mut mails = Config::new(endpoint(&redis), "shop/mails".parse().unwrap());
    mails.never_generate = true;
    let sent = Keep::default();
    let mailer = RunningNode::start(mails, Counter(0), sent.clone());
    mailer.notices.wait_for("Joined").await;
    let forward = |message: &Message| {
        let mails = "shop/mails".parse().unwrap();
        let outcome = Outcome::done().forward(&mails, format!("to {}", message.id));
        outcome.forward_json(&mails, &format!("copy {}", message.id))
    };
    let shop = RunningNode::start(orders, Counter(0), EffectHandler(forward));
    let mailed = Ring::connect(endpoint(&redis), "shop/mails".parse().unwrap()).await.unwrap();
    eventually(&mailed, "all mails are sent", |snapshot| snapshot.done == 400).await;
    shop.stop().await.unwrap();
    mailer.stop().await.unwrap();
    let bodies = sent.0.lock().unwrap().clone();
    let distinct: BTreeSet<_> = bodies.iter().cloned().collect();
    assert_eq!((bodies.len(), distinct.len()), (400, 400));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_effect_makes_a_dead_letter_that_its_node_reports() {
    let redis = RedisServer::start();
    redis::cmd("SET").arg("{estafeta}:u:text").arg("x").exec(&mut redis.connect()).unwrap();
    let mut settings = config(&redis);
    (settings.limit, settings.generator_handles) = (Some(8), true);
    let script = EffectHandler(|message| {
        let good = Outcome::done().add("good", 1);
        Ok(match message.id {
            1 => good.add("text", 1),
            2 => good.set("a b", "x", None),
            3 => (0..16).fold(good, |outcome, n| outcome.add(format!("k{n}"), 1)),
            4 => good.set("large", vec![0; 300_000], None),
            5 => good.forward(&"elsewhere".parse().unwrap(), "x"),
            6 => Outcome::snooze(Duration::from_millis(1)).add("good", 1),
            7 => good.result("fine", DAY),
            _ => good,
        })
    });
    let node = RunningNode::start(settings, Counter(0), script);
    let reasons = [
        "failed #1.1: add {estafeta}:u:text: expected a whole number of at most 15 digits, got another text",
        "failed #2.1: set: expected a key of 1 to 200 visible ASCII characters, got 'a b'",
        "failed #3.1: effects: expected at most 16 besides forwards, got 17",
        "failed #4.1: effects: expected at most 262144 bytes, got 300009",
        "failed #5.1: forward to elsewhere: expected a ring of the same group as estafeta",
        "failed #6.1: effects: expected a message that is done, got a snooze",
        "handled #7.1",
        "handled #8.1",
    ];
    for reason in reasons {
        node.notices.wait_for(reason).await;
    }
    let ring = ring(&redis).await;
    let seen = ring.snapshot(0).await.unwrap();
    assert_eq!((seen.done, seen.errors_kept), (2, 6), "{seen:?}");
    assert!(seen.balanced);
    let good: u64 = redis::cmd("GET").arg("{estafeta}:u:good").query(&mut redis.connect()).unwrap();
    assert_eq!(good, 2);
    let result = ring.result(7).await.unwrap().unwrap();
    assert_eq!((result.id, &result.value[..]), (7, &b"fine"[..]));
    assert!(result.epoch.0 > 0 && result.done_ms > 0);
    assert_eq!(ring.result(8).await.unwrap(), None);
    assert_eq!(ring.result_ids().await.unwrap(), [7]);
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_effects_are_spread_over_several_turns() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.limit, settings.interval, settings.generator_handles) = (Some(60), Duration::ZERO, true);
    settings.concurrency = 4;
    let script = EffectHandler(|message| {
        Ok(Outcome::done().add("count", 1).set(format!("large:{}", message.id), vec![b'x'; 200_000], None))
    });
    let node = RunningNode::start(settings, Counter(0), script);
    let ring = ring(&redis).await;
    eventually(&ring, "all are done", |snapshot| snapshot.done == 60).await;
    node.stop().await.unwrap();
    let mut connection = redis.connect();
    assert_eq!(redis::cmd("GET").arg("{estafeta}:u:count").query::<u64>(&mut connection).unwrap(), 60);
    let large: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:u:large:*").query(&mut connection).unwrap();
    assert_eq!(large.len(), 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_without_the_right_to_the_other_ring_makes_a_dead_letter_and_holds_up_nothing() {
    let redis = RedisServer::start();
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "poor", "on", ">pw", "~{estafeta}:*", "&{estafeta}:*", "+@all"]);
    user.exec(&mut redis.connect()).unwrap();
    let mut settings = config(&redis);
    settings.redis = format!("{}?user=poor&pass=pw", redis.url()).parse().unwrap();
    (settings.generator_handles, settings.limit) = (true, Some(4));
    let forward = |message: &Message| {
        let done = Outcome::done().add("count", 1);
        Ok(if message.id == 2 { done.forward(&next_ring(), "x") } else { done })
    };
    let node = RunningNode::start(settings, Counter(0), EffectHandler(forward));
    let ring = ring(&redis).await;
    eventually(&ring, "all are settled", |now| now.done == 3 && now.errors_kept == 1).await;
    let errors = ring.errors(0, 1).await.unwrap();
    assert_eq!(errors[0].message.id, 2);
    assert!(errors[0].reason.starts_with("forward: Redis refuses it: NOPERM"), "{}", errors[0].reason);
    node.notices.wait_for("failed #2.1: forward: Redis refuses it: NOPERM").await;
    let count: u64 = redis::cmd("GET").arg("{estafeta}:u:count").query(&mut redis.connect()).unwrap();
    assert_eq!(count, 3, "the message that failed has no effect");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_forward_may_have_headers_of_its_own_and_they_win() {
    let orders = TestRing::start().await.unwrap();
    let mails = orders.beside("test/mails").await.unwrap();
    let to = mails.ring().name();
    orders.publish(&1).header("traceparent", "t").header("shop", "berlin").await.unwrap();
    orders.publish(&2).await.unwrap();
    let forward = async |job: Job<u64>| {
        let draft = |text: &str| Draft::new(text).header("order", job.body.to_string());
        Outcome::done()
            .forward(to, "\"plain\"")
            .forward_with(to, draft("\"own\""))?
            .forward_with(to, Draft::<String>::new(&"traced".to_owned()).header("traceparent", "other"))
    };
    let outcomes = orders.drain(forward).await.unwrap();
    assert!(outcomes.iter().all(|handled| handled.outcome == JobOutcome::Done), "{outcomes:?}");
    let seen = async |job: Job<String>| {
        let headers: Vec<_> = job.headers().iter().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(Outcome::done().result(format!("{} {}", job.body, headers.join(" ")), DAY))
    };
    mails.drain(seen).await.unwrap();
    let mut found = Vec::new();
    for id in 1..=6 {
        let result = mails.ring().result(id).await.unwrap().unwrap();
        found.push(String::from_utf8(result.value).unwrap());
    }
    let expected = [
        "plain traceparent=t",
        "own order=1 traceparent=t",
        "traced traceparent=other",
        "plain ",
        "own order=2",
        "traced traceparent=other",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_draft_that_cannot_be_forwarded_makes_a_dead_letter_at_once() {
    let ring = TestRing::start().await.unwrap();
    ring.publish(&1).await.unwrap();
    let to = ring.ring().name();
    let forward = async |_: Job<u64>| Outcome::done().forward_with(to, Draft::new("x").key("k"));
    let handled = ring.work_one(forward).await.unwrap().unwrap();
    let reason = "forward: expected only a body and headers, got 'a key'".to_owned();
    assert_eq!(handled.outcome, JobOutcome::DeadLetter { reason });
}
