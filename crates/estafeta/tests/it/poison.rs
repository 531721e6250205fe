//! A message that kills or blocks every process that handles it.
//!
//! The handlers do not survive this, so they run in child processes: this test binary starts itself again with
//! [`run_a_node_for_the_other_tests`]. The generator runs inside the test and keeps the office. Each time a handler
//! dies, its message goes back with one more delivery. After too many deaths it becomes an error, and the next handler
//! is safe.

use std::time::Duration;

use estafeta::{Config, Endpoint, Failure, Message, Ring};
use estafeta_testbed::{Process, RedisServer};
use nix::sys::resource::{Resource, setrlimit};

use crate::support::{Counter, Keep, ListedBodies, RunningNode, SOON, TestHandler, config, eventually, ring};

const URL: &str = "POISON_TEST_URL";
const EFFECT: &str = "POISON_TEST_EFFECT";

const MESSAGES: u64 = 20;
const POISONED: u64 = 5;
const MAX_DEATHS: u32 = 3;

/// Suffers this effect when it handles the poisoned message.
struct Victim(String);

impl TestHandler for Victim {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        if message.body() != b"poison" {
            // Long enough to be in hand when a neighbour kills the node.
            tokio::time::sleep(Duration::from_millis(if self.0 == "slowly abort" { 200 } else { 0 })).await;
            return Ok(());
        }
        match self.0.as_str() {
            "abort" => std::process::abort(),
            "slowly abort" => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                std::process::abort()
            }
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
    let mut settings = settings(url.parse().unwrap());
    if effect == "slowly abort" {
        settings.concurrency = 4;
    }
    RunningNode::for_ever(settings, Counter(0), Victim(effect)).await;
}

fn start_node(redis: &RedisServer, effect: &str) -> Process {
    let program = std::env::current_exe().unwrap();
    let envs = [(URL, redis.url()), (EFFECT, effect.to_owned())];
    Process::spawn(&program, ["--exact", "poison::run_a_node_for_the_other_tests", "--nocapture"], envs)
}

/// A generator that stays in office, and a queue with one poisoned message.
async fn poisoned_ring(redis: &RedisServer) -> (RunningNode, Ring) {
    let mut bodies = vec![b"harmless".to_vec(); MESSAGES as usize];
    bodies[POISONED as usize - 1] = b"poison".to_vec();
    let mut settings = settings(config(redis).redis);
    settings.interval = Duration::from_millis(1);
    settings.lease = Duration::from_secs(60);
    let generator = RunningNode::start(settings, ListedBodies(bodies), Keep::default());
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

/// Its neighbours die with it, and would come back with it again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_nodes_with_several_lanes_does_not_ruin_its_neighbours() {
    let redis = RedisServer::start();
    let (generator, ring) = poisoned_ring(&redis).await;
    for _ in 0..MAX_DEATHS {
        assert!(!start_node(&redis, "slowly abort").wait(SOON).success());
    }
    let last = start_node(&redis, "slowly abort");
    eventually(&ring, "all are settled", |now| now.done + now.errors_kept == MESSAGES).await;
    let errors = ring.errors(0, 10).await.unwrap();
    assert_eq!(errors.iter().map(|error| error.message.id).collect::<Vec<_>>(), [POISONED]);
    assert!(last.is_running());
    generator.stop().await.unwrap();
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

/// A member that died cannot mend what a foreign client has done to its keys. The others must not suffer from it.
#[tokio::test(flavor = "multi_thread")]
async fn members_with_damaged_keys_end_no_node_and_keep_no_dead_member_from_being_buried() {
    let redis = RedisServer::start();
    let (generator, ring) = poisoned_ring(&redis).await;
    let dead = start_node(&redis, "block");
    eventually(&ring, "it holds messages", |now| now.in_flight > 0).await;
    let mut connection = redis.connect();
    let damage: [&[&str]; 6] = [
        &["HSET", "member:00000000000000aa", "number", "91", "kind", "node", "lanes", "x", "lease", "2000"],
        &["SET", "member:00000000000000bb", "foreign"],
        &["HSET", "member:00000000000000cc", "number", "93", "kind", "node", "lanes", "1", "lease", "2000"],
        &["SET", "inflight:00000000000000cc", "foreign"],
        &["ZADD", "members", "1", "00000000000000aa", "2", "00000000000000bb"],
        &["ZADD", "members", "3", "00000000000000cc"],
    ];
    for words in damage {
        let mut command = redis::cmd(words[0]);
        command.arg(format!("{{estafeta}}:{}", words[1])).arg(&words[2..]).exec(&mut connection).unwrap();
    }
    dead.kill();
    let mut settings = settings(config(&redis).redis);
    settings.never_generate = true;
    let others = [(); 2].map(|()| RunningNode::start(settings.clone(), Counter(0), Keep::default()));
    let mut ledger = |field: &str| -> u64 {
        let count = redis::cmd("HGET").arg("{estafeta}:ledger").arg(field).query(&mut connection).unwrap();
        Option::unwrap_or_default(count)
    };
    estafeta_testbed::eventually(SOON, "the dead member and the one without lanes are buried", || {
        (ledger("buried") == 2 && ledger("done") == MESSAGES).then_some(())
    });
    let left: Vec<String> = redis::cmd("ZRANGE")
        .arg("{estafeta}:members")
        .arg("2")
        .arg("3")
        .arg("BYSCORE")
        .query(&mut connection)
        .unwrap();
    assert_eq!(
        left,
        ["00000000000000bb", "00000000000000cc"],
        "what cannot be read stays for a person to look at"
    );
    // A foreign value that is gone hides its member no longer.
    redis::cmd("DEL").arg("{estafeta}:inflight:00000000000000cc").exec(&mut connection).unwrap();
    estafeta_testbed::eventually(SOON, "the mended member is buried", || {
        let buried: u64 =
            redis::cmd("HGET").arg("{estafeta}:ledger").arg("buried").query(&mut connection).unwrap();
        (buried == 3).then_some(())
    });
    for other in others {
        other.stop().await.unwrap();
    }
    generator.stop().await.unwrap();
}
