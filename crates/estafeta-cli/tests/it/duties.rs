//! What one node does: everything with `--generator-handles`, or only a part of the work.

use std::io::Write as _;

use estafeta_testbed::{Process, Signal};
use serde_json::Value;

use crate::support::{ProgramRing, SOON};

/// The duties and the rank of each member, in the order in which they joined.
fn duties(status: &Value) -> Vec<(&str, Option<u64>)> {
    let members = status["members"].as_array().unwrap();
    members.iter().map(|member| (member["duties"].as_str().unwrap(), member["rank"].as_u64())).collect()
}

#[test]
fn a_node_alone_does_all_the_work_only_if_its_generator_handles() {
    let ring = ProgramRing::new();
    let args = ["--interval", "1ms", "--error-rate", "0", "--limit", "20"];
    let idle = ring.node(&args);
    let status = ring.eventually(SOON, "all are published", |status| status["published"] == 20);
    assert_eq!((&status["done"], &status["waiting"]), (&0.into(), &20.into()), "{status}");
    idle.signal(Signal::SIGTERM);
    assert!(idle.wait(SOON).success());
    let alone = ring.node(&[&args[..], &["--generator-handles", "--until-done"]].concat());
    assert!(alone.wait(SOON).success());
    let status = ring.status();
    assert_eq!((&status["done"], &status["waiting"]), (&20.into(), &0.into()), "{status}");
}

#[test]
fn nodes_that_never_generate_and_nodes_that_never_handle_share_the_work() {
    let ring = ProgramRing::new();
    let _handler = ring.node(&["--never-generate"]);
    ring.eventually(SOON, "the handler", |status| duties(status) == [("handle", None)]);
    let args = ["--interval", "10ms", "--error-rate", "0"];
    let _generator = ring.node(&[&args[..], &["--never-handle", "--generator-handles"]].concat());
    let status = ring.eventually(SOON, "messages are done", |status| status["done"].as_u64() > Some(10));
    assert_eq!(duties(&status), [("handle", None), ("generate", None)], "{status}");
    assert_eq!(status["generator"]["member"], 2, "{status}");
    assert_eq!(status["members"][1]["processed"], 0, "{status}");
}

/// Arguments of nodes that hold a message most of the time, and get all their messages from publishers.
const SLOW_CONSUMERS: [&str; 6] =
    ["--never-generate", "--error-rate", "0", "--journal", "--work-per-char", "50ms"];

/// Publishes this many messages from outside the ring.
fn publish(ring: &ProgramRing, count: usize) {
    let (publisher, mut stdin) = ring.start_fed(&["publish", "--lines"]);
    stdin.write_all("0123456789\n".repeat(count).as_bytes()).unwrap();
    drop(stdin);
    let output = publisher.output(SOON);
    assert!(output.status.success(), "{output:?}");
}

/// Three nodes that never generate and have such a lease, with messages from a publisher. The first of them is frozen
/// with a message in hand.
fn consumers_of_which_one_is_frozen(ring: &ProgramRing, lease: &str) -> Vec<Process> {
    let nodes = ring.nodes(3, &[&SLOW_CONSUMERS[..], &["--lease", lease]].concat());
    publish(ring, 20);
    ring.freeze_with_a_message(&nodes[0]);
    nodes
}

/// Why the ring buried the only member that it buried.
fn why_buried(ring: &ProgramRing) -> String {
    let status = ring.status();
    let events = status["events"].as_array().unwrap();
    let buried: Vec<&Value> = events.iter().filter(|event| event["kind"] == "buried").collect();
    assert_eq!(buried.len(), 1, "{status}");
    buried[0]["why"].as_str().unwrap().to_owned()
}

/// Asserts that all messages were handled exactly once although no member was ever generator.
fn assert_all_done_without_a_generator(ring: &ProgramRing) {
    let status = ring.eventually(SOON, "all are done", |status| status["done"] == 20);
    assert_eq!((&status["generator"], &status["buried"]), (&Value::Null, &1.into()), "{status}");
    assert!(status["returned"].as_u64() > Some(0), "{status}");
    ring.assert_each_once(20);
}

#[test]
fn a_ring_without_a_generator_buries_a_killed_node_long_before_its_lease_ends() {
    let ring = ProgramRing::new();
    let nodes = consumers_of_which_one_is_frozen(&ring, "10s");
    nodes[0].signal(Signal::SIGKILL);
    assert_all_done_without_a_generator(&ring);
    assert_eq!(why_buried(&ring), "absent");
}

/// The lease is longer than the sweep of a node that joins, which would bury the frozen node as well.
#[test]
fn a_ring_without_a_generator_buries_a_frozen_node_when_its_lease_ends() {
    let ring = ProgramRing::new();
    let nodes = consumers_of_which_one_is_frozen(&ring, "2s");
    assert_all_done_without_a_generator(&ring);
    assert_eq!(why_buried(&ring), "expired");
    nodes[0].thaw();
    nodes[0].wait_for_line(SOON, |line| line.starts_with("joined as member 4"));
}

/// No other member can take the office of the killed node, so nobody succeeds it. Its messages still go back.
#[test]
fn nodes_that_never_generate_bury_the_only_node_that_could() {
    let ring = ProgramRing::new();
    let work = ["--error-rate", "0", "--journal", "--work-per-char", "50ms", "--lease", "10s"];
    let both = ring.node(&[&work[..], &["--generator-handles", "--interval", "1h"]].concat());
    publish(&ring, 20);
    let _handlers = ring.nodes(2, &[&work[..], &["--never-generate"]].concat());
    ring.freeze_with_a_message(&both);
    both.signal(Signal::SIGKILL);
    let status = ring.eventually(SOON, "it is buried", |status| status["buried"] == 1);
    assert_eq!(status["generator"], Value::Null, "{status}");
    let status = ring.eventually(SOON, "all are done", |status| status["done"] == 21);
    assert!(status["returned"].as_u64() > Some(0), "{status}");
    assert_eq!(why_buried(&ring), "absent");
    ring.assert_each_once(21);
}
