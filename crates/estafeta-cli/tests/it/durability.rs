//! `--durability`: what is printed while replicas are missing, and what `status` shows.

use estafeta_testbed::RedisServer;

use crate::support::{ProgramRing, SOON};

#[test]
fn status_shows_the_level_that_nodes_ask_for_and_whether_it_is_reached() {
    let ring = ProgramRing::on(RedisServer::builder().tcp().start());
    let nodes = ring.nodes(2, &["--interval", "10ms", "--durability", "replicas=all"]);
    let why = "only 0 of 1 replicas are connected";
    let status = ring.eventually(SOON, "both are members", |status| status["members"][1].is_object());
    assert_eq!(status["durability"], serde_json::json!([{"level": "replicas=all", "shortfall": why}]));
    assert_eq!(status["members"][0]["durability"], "replicas=all");
    let text = ring.success(&["status"]);
    assert!(text.contains(&format!("durability replicas=all: not reached, {why}\n")), "{text}");

    let replica = RedisServer::builder().tcp().start();
    replica.follow(&ring.redis);
    ring.eventually(SOON, "messages are handled", |status| status["done"].as_u64() > Some(3));
    let text = ring.success(&["status"]);
    assert!(text.contains("durability replicas=all: reached\n"), "{text}");
    drop(nodes);
}

#[test]
fn a_publish_and_a_drop_that_no_replica_has_fail_with_the_reason() {
    let ring = ProgramRing::new();
    let output = ring.command(&["publish", "--durability", "replicas=1", "body"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(75), "{stderr}");
    assert!(stderr.ends_with("has it, but does not confirm it: only 0 of 1 replicas have it\n"), "{stderr}");
    assert!(output.stdout.is_empty(), "a receipt is a promise");
    ring.redis_cli(&["RPUSH", "{estafeta}:errors", "!1 1 2 no 9 1 1 0 0 0 0 0 body"]);
    let output = ring.command(&["errors", "drop", "9", "--durability", "replicas=1"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_cancel_that_no_replica_has_fails_with_the_reason() {
    let ring = ProgramRing::new();
    let published = ring.success(&["publish", "--delay", "1h", "body"]);
    let output = ring.command(&["cancel", "1", "--durability", "replicas=1"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(75), "{published} {stderr}");
    assert!(stderr.contains("does not confirm it: only 0 of 1 replicas have it"), "{stderr}");
    assert!(output.stdout.is_empty(), "a report is a promise");
}

#[test]
fn a_level_that_does_not_exist_or_cannot_be_had_is_refused_in_one_line() {
    let ring = ProgramRing::new();
    for args in [
        &["run"][..],
        &["publish", "x"],
        &["cancel", "1"],
        &["getErrors"],
        &["errors", "drop", "1"],
        &["web"],
    ] {
        for level in ["safe", "replicas=0", "replicas=many"] {
            let output = ring.command(&[args, &["--durability", level]].concat());
            let stderr = String::from_utf8(output.stderr).unwrap();
            let code = if ["publish", "cancel"].contains(&args[0]) { 64 } else { 2 };
            assert_eq!(output.status.code(), Some(code), "{args:?} {level}: {stderr}");
            assert!(stderr.contains("durability: expected ") && stderr.lines().count() == 1, "{stderr}");
        }
    }
    let output = ring.command(&["run", "--durability", "disk"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("durability disk: expected a server with appendonly yes"), "{stderr}");
}
