//! What one node does: everything with `--generator-handles`, or only a part of the work.

use estafeta_testbed::Signal;
use serde_json::Value;

use crate::support::{SOON, TestRing};

/// The duties and the rank of each member, in the order in which they joined.
fn duties(status: &Value) -> Vec<(&str, Option<u64>)> {
    let members = status["members"].as_array().unwrap();
    members.iter().map(|member| (member["duties"].as_str().unwrap(), member["rank"].as_u64())).collect()
}

#[test]
fn a_node_alone_does_all_the_work_only_if_its_generator_handles() {
    let ring = TestRing::new();
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
    let ring = TestRing::new();
    let _handler = ring.node(&["--never-generate"]);
    ring.eventually(SOON, "the handler", |status| duties(status) == [("handle", None)]);
    let args = ["--interval", "10ms", "--error-rate", "0"];
    let _generator = ring.node(&[&args[..], &["--never-handle", "--generator-handles"]].concat());
    let status = ring.eventually(SOON, "messages are done", |status| status["done"].as_u64() > Some(10));
    assert_eq!(duties(&status), [("handle", None), ("generate", None)], "{status}");
    assert_eq!(status["generator"]["member"], 2, "{status}");
    assert_eq!(status["members"][1]["processed"], 0, "{status}");
}
