//! What every ring promises, on every kind of server: a single one, sentinels, and a cluster. All programs run as a user
//! with the documented rights.
//!
//! `make matrix` runs this module on several server programs. `ESTAFETA_TEST_REDIS` names one of them.

use std::collections::BTreeSet;
use std::thread;

use estafeta_testbed::{
    Builder, Fsync, Output, Process, RedisCluster, RedisSentinels, RedisServer, Signal, eventually,
};
use serde_json::Value;

use crate::support::{SOON, reports, run, start};

const KEYSPACE: &str = include_str!("../../../../docs/keyspace.md");
const USER: &str = "contract";
const PASSWORD: &str = "s3cret";

/// Options of the servers: they keep their data, and know the user with the documented rights on all rings of this module.
fn servers() -> Builder {
    let rule = KEYSPACE.lines().find_map(|line| line.strip_prefix("ACL SETUSER estafeta on ><password> "));
    let rule = rule.expect("the page has a rule").replace("{ring}", "{contract-*}");
    RedisServer::builder().tcp().append_only(Fsync::EverySec).user(USER, PASSWORD, &rule)
}

#[test]
fn the_contract_holds_on_a_single_server() {
    let redis = servers().start();
    assert_contract(&redis.url_as(USER, PASSWORD));
}

#[test]
fn the_contract_holds_with_sentinels() {
    let redis = RedisSentinels::builder().servers(servers()).start();
    assert_contract(&redis.url_as(USER, PASSWORD));
}

#[test]
fn the_contract_holds_in_a_cluster() {
    let redis = RedisCluster::builder().servers(servers()).start();
    assert_contract(&redis.url_as(USER, PASSWORD));
}

#[test]
fn a_server_is_used_or_refused_by_its_version() {
    let redis = RedisServer::builder().tcp().append_only(Fsync::EverySec).start();
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query(&mut redis.connect()).unwrap();
    let version: String = info.get("redis_version").unwrap();
    let output = run(&["doctor", "--json"], &[("REDIS_URL", &redis.url())]);
    let is_old = version.split('.').next().unwrap().parse::<u32>().unwrap() < 7;
    assert_eq!(output.status.code(), Some(if is_old { 3 } else { 0 }), "{version}: {output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let refusal = format!("expected Redis 7.0 or newer, got {version}\n");
    assert_eq!(stderr.ends_with(&refusal), is_old, "{stderr}");
}

/// Checks each part of the contract in a separate ring, all at the same time.
fn assert_contract(url: &str) {
    type Part = fn(&ContractRing);
    let parts: [(&str, Part); 6] = [
        ("take-over", a_killed_generator_is_replaced_and_each_message_has_one_outcome),
        ("errors", errors_are_taken_out_once),
        ("fence", a_frozen_generator_publishes_nothing_more),
        ("redelivery", what_a_dead_node_held_is_handled_by_another),
        ("retries", a_message_that_failed_is_tried_again),
        ("feed", a_feed_continues_where_its_predecessor_stopped),
    ];
    thread::scope(|scope| {
        let check = |(name, part): (&str, Part)| {
            let ring = ContractRing { url: url.to_owned(), name: format!("contract-{name}") };
            let thread = thread::Builder::new().name(format!("contract: {name}"));
            thread.spawn_scoped(scope, move || part(&ring)).unwrap()
        };
        let running: Vec<_> = parts.into_iter().map(check).collect();
        let failed = running.into_iter().filter_map(|part| part.join().err()).count();
        assert_eq!(failed, 0, "parts of the contract failed; their panics are above");
    });
}

/// The program on one ring.
struct ContractRing {
    url: String,
    name: String,
}

impl ContractRing {
    fn start(&self, args: &[&str]) -> Process {
        start(args, &[("REDIS_URL", &self.url), ("ESTAFETA_RING", &self.name)])
    }

    fn node(&self, args: &[&str]) -> Process {
        let node = self.start(&[&["run", "--json", "--journal", "--lease", "2s"], args].concat());
        node.wait_for_line(SOON, |line| line.contains("createdTaskId"));
        node
    }

    fn output(&self, args: &[&str]) -> Output {
        self.start(args).output(SOON)
    }

    fn success(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits for a state of the ring. Its balance must add up each time, or `status` fails.
    fn until(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, what, || {
            let status: Value = serde_json::from_str(&self.success(&["status", "--json"])).unwrap();
            fits(&status).then_some(status)
        })
    }

    /// Stops the nodes, and asserts that no message has two outcomes. Returns the ids of those that have one.
    fn settled(&self, nodes: &[&Process]) -> BTreeSet<u64> {
        for node in nodes {
            node.signal(Signal::SIGTERM);
        }
        for node in nodes {
            assert!(node.wait(SOON).success(), "{:?}", node.stderr_lines());
        }
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let journal = runtime.block_on(async {
            estafeta::Ring::on(&self.url, &self.name).await.unwrap().journal().await.unwrap()
        });
        let mut ids = BTreeSet::new();
        for id in journal.iter().flat_map(|entry| &entry.ids) {
            assert!(ids.insert(*id), "#{id} was settled twice");
        }
        ids
    }
}

fn a_killed_generator_is_replaced_and_each_message_has_one_outcome(ring: &ContractRing) {
    let nodes = [(); 3].map(|()| ring.node(&["--interval", "20ms", "--error-rate", "0"]));
    let status = ring.until("messages are handled", |status| status["done"].as_u64() > Some(10));
    let pid = status["generator"]["pid"].as_u64().unwrap();
    let (killed, left): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| u64::from(node.pid()) == pid);
    killed[0].kill();
    let taken_over = |status: &Value| status["takeovers"] == 1 && status["buried"] == 1;
    let done = ring.until("another node generates", taken_over)["done"].as_u64();
    ring.until("messages are handled again", |status| status["done"].as_u64() > done.map(|done| done + 10));
    let settled = ring.settled(&left);
    let status = ring.until("the ring is at rest", |status| status["inFlight"] == 0);
    assert_eq!(status["done"], settled.len());
    assert_eq!(status["lost"], 0);
}

fn errors_are_taken_out_once(ring: &ContractRing) {
    let args = ["--interval", "5ms", "--limit", "40", "--error-rate", "1"];
    let (one, other) = (ring.node(&args), ring.node(&args));
    ring.until("all messages failed", |status| status["errorsKept"] == 40);
    let readers = [(); 2].map(|()| ring.start(&["getErrors", "--json"]));
    let mut ids: Vec<u64> = Vec::new();
    for reader in readers {
        let output = reader.output(SOON);
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap();
        ids.extend(lines.lines().map(id));
    }
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(1..=40), "{ids:?}");
    ring.until("all errors are taken", |status| status["errorsTaken"] == 40 && status["errorsKept"] == 0);
    assert_eq!(ring.settled(&[&one, &other]).len(), 40);
}

fn a_frozen_generator_publishes_nothing_more(ring: &ContractRing) {
    let nodes = [(); 2].map(|()| ring.node(&["--interval", "10ms", "--error-rate", "0"]));
    let status = ring.until("messages are handled", |status| status["done"].as_u64() > Some(10));
    let (pid, epoch) = (status["generator"]["pid"].as_u64().unwrap(), &status["generator"]["epoch"]);
    let frozen = nodes.iter().find(|node| u64::from(node.pid()) == pid).unwrap();
    frozen.freeze();
    let succeeded = |status: &Value| !status["generator"].is_null() && status["generator"]["epoch"] != *epoch;
    let successor = ring.until("a successor", succeeded)["generator"]["epoch"].as_u64().unwrap();
    frozen.thaw();
    // It learns that its term is over, or that it was buried meanwhile.
    frozen.wait_for_line(SOON, |line| line.contains("becameHandler") || line.contains("declaredDead"));
    ring.until("more is published", |status| status["published"].as_u64() > Some(40));
    ring.settled(&[&nodes[0], &nodes[1]]);
    // Everything of the old term was published before the first message of the successor.
    let generated = nodes.iter().flat_map(reports).filter(|report| report["msg"] == "generatedMessage");
    let (old, new): (Vec<Value>, Vec<Value>) =
        generated.partition(|report| report["epoch"].as_u64().unwrap() < successor);
    let ids = |reports: &[Value]| -> Vec<u64> {
        reports.iter().map(|report| report["id"].as_u64().unwrap()).collect()
    };
    let (last, first) = (ids(&old).into_iter().max(), ids(&new).into_iter().min());
    assert!(last < first, "published #{last:?} after the take-over at #{first:?}");
}

fn what_a_dead_node_held_is_handled_by_another(ring: &ContractRing) {
    ring.success(&["publish", "slow"]);
    let first = ring.node(&["--handle", "sleep 100"]);
    ring.until("the message is in flight", |status| status["inFlight"] == 1);
    first.kill();
    let second = ring.node(&["--handle", "true"]);
    second.wait_for_line(SOON, |line| {
        line.contains(r#""handledMessage","id":1,"#) && line.contains(r#""delivery":2"#)
    });
    assert_eq!(ring.settled(&[&second]), BTreeSet::from([1]));
}

fn a_message_that_failed_is_tried_again(ring: &ContractRing) {
    ring.success(&["publish", "reluctant"]);
    let handler = r#"sh -c 'test "$ESTAFETA_MESSAGE_ATTEMPT" -ge 3'"#;
    let node = ring.node(&["--handle", handler, "--retry", "5,10ms,50ms"]);
    let status = ring.until("the message is done", |status| status["done"] == 1);
    assert_eq!(status["retries"], 2);
    assert_eq!(ring.settled(&[&node]), BTreeSet::from([1]));
}

/// Publishes the numbers 1 to 200 in batches of ten. The checkpoint is the last number.
const COUNT: &str = r#"
import json, sys, time
at = json.loads(sys.stdin.readline())["checkpoint"] or 0
while at < 200:
    for number in range(at + 1, at + 11): print(json.dumps({"body": str(number)}))
    at += 10
    print(json.dumps({"checkpoint": at}), flush=True)
    time.sleep(0.02)
"#;

fn a_feed_continues_where_its_predecessor_stopped(ring: &ContractRing) {
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("count.py"), COUNT).unwrap();
    let feed = format!("python3 {}", path("count.py"));
    // One write per line, because two nodes append to the file.
    let handler = format!("sh -c 'echo $(cat) >> {}'", path("bodies"));
    let args = ["--feed", feed.as_str(), "--handle", handler.as_str()];
    let nodes = [ring.node(&args), ring.node(&args)];
    let status = ring.until("some numbers are published", |status| status["published"].as_u64() > Some(30));
    let pid = status["generator"]["pid"].as_u64().unwrap();
    let (killed, left): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| u64::from(node.pid()) == pid);
    killed[0].kill();
    ring.until("all numbers are handled", |status| status["done"] == 200);
    assert_eq!(ring.settled(&left).len(), 200);
    let bodies = std::fs::read_to_string(path("bodies")).unwrap();
    // The handler of the killed node may have run for a message that was handled again. It got an empty body if its node
    // was killed before it had written one.
    let bodies = bodies.lines().filter(|line| !line.is_empty());
    let numbers: BTreeSet<u64> = bodies.map(|line| line.parse().unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=200), "{numbers:?}");
}
