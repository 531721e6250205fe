//! A message that kills or blocks every process that handles it.
//!
//! The handlers do not survive this, so they run in child processes: this test binary starts itself again with
//! [`run_a_node_for_the_other_tests`]. The generator runs inside the test and keeps the office. Each time a handler
//! dies, its message goes back with one more delivery. After too many deaths it becomes an error, and the next handler
//! is safe.

use std::time::Duration;

use estafeta::{Config, Endpoint, Failure, Handler, Message, Node, Ring};
use estafeta_testbed::{Process, RedisServer};
use nix::sys::resource::{Resource, setrlimit};

use crate::support::{Counter, Keep, ListedBodies, Running, SOON, config, eventually, ring};

const URL: &str = "POISON_TEST_URL";
const EFFECT: &str = "POISON_TEST_EFFECT";

const MESSAGES: u64 = 20;
const POISONED: u64 = 5;
const MAX_DEATHS: u32 = 3;

/// Suffers this effect when it handles the poisoned message.
struct Victim(String);

impl Handler for Victim {
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
    let mut settings = Config::new(redis, "estafeta".parse().unwrap());
    settings.generator_handles = false;
    settings.journal = true;
    settings.max_deaths = MAX_DEATHS;
    settings.limit = Some(MESSAGES);
    settings
}

/// Runs a node, in a child process that another test starts. As one of the tests it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn run_a_node_for_the_other_tests() {
    let (Ok(url), Ok(effect)) = (std::env::var(URL), std::env::var(EFFECT)) else { return };
    // Far more than a node needs. A node that hoards memory reaches it soon.
    setrlimit(Resource::RLIMIT_AS, 8 << 30, 8 << 30).unwrap();
    let node = Node::new(settings(url.parse().unwrap()), Counter(0), Victim(effect), ());
    node.run(std::future::pending()).await.unwrap();
}

fn start_node(redis: &RedisServer, effect: &str) -> Process {
    let program = std::env::current_exe().unwrap();
    let envs = [(URL, redis.url()), (EFFECT, effect.to_owned())];
    Process::spawn(&program, ["--exact", "poison::run_a_node_for_the_other_tests", "--nocapture"], envs)
}

/// A generator that stays in office, and a queue with one poisoned message.
async fn poisoned_ring(redis: &RedisServer) -> (Running, Ring) {
    let mut bodies = vec![b"harmless".to_vec(); MESSAGES as usize];
    bodies[POISONED as usize - 1] = b"poison".to_vec();
    let mut settings = settings(config(redis).redis);
    settings.interval = Duration::from_millis(1);
    settings.lease = Duration::from_secs(60);
    let generator = Running::start(settings, ListedBodies(bodies), Keep::default());
    generator.notices.wait_for("LimitReached").await;
    (generator, ring(redis).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_its_handlers_becomes_an_error_and_all_others_are_done() {
    for effect in ["abort", "hoard"] {
        let redis = RedisServer::start();
        let (generator, ring) = poisoned_ring(&redis).await;
        for _ in 0..MAX_DEATHS {
            assert!(!start_node(&redis, effect).wait(SOON).success());
        }
        let last = start_node(&redis, effect);
        let settled = |done: u64, errors: u64| done == MESSAGES - 1 && errors == 1;
        eventually(&ring, "all are settled", |now| settled(now.done, now.errors_kept)).await;
        let errors = ring.errors(0, 10).await.unwrap();
        let message = &errors[0].message;
        assert_eq!((message.id, message.delivery, message.deaths), (POISONED, MAX_DEATHS, MAX_DEATHS));
        assert_eq!(errors[0].reason, "gave up: every node that handled it died or hung");
        assert!(last.is_running(), "it is nobody's end any more");
        generator.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_blocks_its_handler_delays_no_other_node_and_goes_back_after_a_kill() {
    let redis = RedisServer::start();
    let (generator, ring) = poisoned_ring(&redis).await;
    let blocked = start_node(&redis, "block");
    let mut connection = redis.connect();
    eventually(&ring, "the poison is in hand", |_| {
        let members: Vec<String> =
            redis::cmd("KEYS").arg("{estafeta}:member:*").query(&mut connection).unwrap();
        members.iter().any(|member| {
            let fields: Vec<String> = redis::cmd("HVALS").arg(member).query(&mut connection).unwrap();
            fields.iter().any(|field| field.contains("poison"))
        })
    })
    .await;
    let others = start_node(&redis, "nothing");
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
