//! A message that is the end of whoever handles it. Handlers are processes of their own here, for they do not survive it:
//! this test binary starts itself again with [`a_copy`].

use std::time::Duration;

use estafeta::{Config, Endpoint, Failure, Handler, Message, Node, Ring, RingName};
use estafeta_testbed::{Process, RedisServer};
use nix::sys::resource::{Resource, setrlimit};

use crate::support::{Bodies, Counter, Keep, Running, SOON, config, eventually, ring};

const URL: &str = "POISON_TEST_URL";
const EFFECT: &str = "POISON_TEST_EFFECT";

const MESSAGES: u64 = 20;
const POISONED: u64 = 5;
const MAX_ATTEMPTS: u32 = 3;

/// What the poison does.
struct Weak(String);

impl Handler for Weak {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        if message.body() != b"poison" {
            return Ok(());
        }
        match self.0.as_str() {
            "abort" => std::process::abort(),
            "hoard" => {
                let mut hoard = Vec::new();
                loop {
                    hoard.push(vec![0_u8; 256 << 20]);
                }
            }
            "block" => loop {
                std::thread::sleep(SOON);
            },
            _ => Ok(()),
        }
    }
}

fn settings(redis: Endpoint) -> Config {
    let mut settings = Config::new(redis, RingName::default());
    settings.journal = true;
    settings.max_attempts = MAX_ATTEMPTS;
    settings.limit = Some(MESSAGES);
    settings
}

/// The body of a copy that other tests start as a process. Among the other tests it has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy() {
    let (Ok(url), Ok(effect)) = (std::env::var(URL), std::env::var(EFFECT)) else { return };
    // Far above what a copy needs, and soon reached by one that never has enough.
    setrlimit(Resource::RLIMIT_AS, 8 << 30, 8 << 30).unwrap();
    let member = Node::new(settings(url.parse().unwrap()), Counter(0), Weak(effect), ());
    member.run(std::future::pending()).await.unwrap();
}

fn start_copy(redis: &RedisServer, effect: &str) -> Process {
    let program = std::env::current_exe().unwrap();
    let envs = [(URL, redis.url()), (EFFECT, effect.to_owned())];
    Process::spawn(&program, ["--exact", "poison::a_copy", "--nocapture"], envs)
}

/// A generator that stays in office, and a queue with one poisoned message.
async fn poisoned_ring(redis: &RedisServer) -> (Running, Ring) {
    let mut bodies = vec![b"harmless".to_vec(); MESSAGES as usize];
    bodies[POISONED as usize - 1] = b"poison".to_vec();
    let mut settings = settings(config(redis).redis);
    settings.interval = Duration::from_millis(1);
    settings.lease = Duration::from_secs(60);
    let generator = Running::start(settings, Bodies(bodies), Keep::default());
    generator.ears.hear("LimitReached").await;
    (generator, ring(redis).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_kills_its_handlers_becomes_an_error_and_takes_no_other_along() {
    for effect in ["abort", "hoard"] {
        let redis = RedisServer::start();
        let (generator, ring) = poisoned_ring(&redis).await;
        for _ in 0..MAX_ATTEMPTS {
            assert!(!start_copy(&redis, effect).wait(SOON).success());
        }
        let last = start_copy(&redis, effect);
        let settled = |done: u64, errors: u64| done == MESSAGES - 1 && errors == 1;
        eventually(&ring, "all are settled", |now| settled(now.done, now.errors_kept)).await;
        let errors = ring.errors(0, 10).await.unwrap();
        assert_eq!((errors[0].id, errors[0].attempt), (POISONED, MAX_ATTEMPTS));
        assert_eq!(errors[0].reason, "gave up: every copy that handled it died or hung");
        assert!(last.is_running(), "it is nobody's end any more");
        generator.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_blocks_its_handler_holds_up_nobody_else_and_comes_back_when_that_one_is_killed() {
    let redis = RedisServer::start();
    let (generator, ring) = poisoned_ring(&redis).await;
    let blocked = start_copy(&redis, "block");
    let mut connection = redis.connect();
    eventually(&ring, "the poison is in hand", |_| {
        let lists: Vec<String> =
            redis::cmd("KEYS").arg("{estafeta}:inflight:*").query(&mut connection).unwrap();
        lists.iter().any(|list| {
            let held: Vec<String> =
                redis::cmd("LRANGE").arg(list).arg(0).arg(-1).query(&mut connection).unwrap();
            held.iter().any(|element| element.contains("poison"))
        })
    })
    .await;
    let others = start_copy(&redis, "nothing");
    eventually(&ring, "all but those that the blocked one claimed", |now| {
        now.waiting == 0 && now.in_flight > 0 && now.done + now.in_flight == MESSAGES
    })
    .await;
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.buried), (3, 0), "a blocked handler is no dead copy");
    blocked.kill();
    eventually(&ring, "all are settled", |now| now.done == MESSAGES).await;
    assert!(others.is_running());
    generator.stop().await.unwrap();
}
