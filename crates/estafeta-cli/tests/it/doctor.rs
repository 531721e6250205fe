//! `estafeta doctor`: what it prints, how it ends, and that it leaves a ring alone. The library tests each finding.

use estafeta_testbed::{Fsync, RedisServer};
use serde_json::Value;

use crate::support::{ProgramRing, SOON, run};

#[test]
fn a_good_redis_is_called_good() {
    let ring = ProgramRing::on(RedisServer::builder().tcp().append_only(Fsync::Always).start());
    let text = ring.success(&["doctor"]);
    assert!(text.starts_with(&format!("ring estafeta at {}/0\n", ring.redis.url())), "{text}");
    // A busy machine may make round trips slow, which is a warning.
    assert!(text.lines().last().unwrap().starts_with("a ring keeps its promises on this Redis"), "{text}");
    assert!(text.contains("\ngood     min replicas  not set: "), "{text}");
    assert!(text.contains("\ngood     rights        all "), "{text}");
}

#[test]
fn a_broken_promise_is_an_exit_code_of_1_with_its_remedy() {
    let redis = RedisServer::builder().tcp().append_only(Fsync::Always).start();
    let ring = ProgramRing::on(redis);
    ring.redis_cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    ring.redis_cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let output = ring.command(&["doctor"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nbroken   eviction      maxmemory-policy allkeys-lru: "), "{text}");
    assert!(text.contains("\n                       -> set maxmemory-policy noeviction\n"), "{text}");
    assert!(text.contains("\na ring cannot keep its promises on this Redis: 1 broken, "), "{text}");
    let output = ring.command(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["severity"], "broken");
}

#[test]
fn a_ring_at_work_is_not_disturbed() {
    let ring = ProgramRing::on(RedisServer::builder().tcp().append_only(Fsync::EverySec).start());
    let nodes = ring.nodes(2, &["--interval", "10ms"]);
    ring.eventually(SOON, "messages were handled", |status| status["done"].as_u64() > Some(10));
    let before = ring.status();
    ring.success(&["doctor"]);
    let after = ring.status();
    for count in ["buried", "takeovers", "lost"] {
        assert_eq!(before[count], after[count], "{count}");
    }
    assert_eq!(after["members"].as_array().unwrap().len(), nodes.len());
    let probes: Vec<String> =
        redis::from_redis_value(ring.redis_cli(&["KEYS", "{estafeta}:probe:*"])).unwrap();
    assert_eq!(probes, [""; 0]);
}

#[test]
fn a_user_with_few_rights_learns_which_are_missing() {
    let rules = "~{orders}:* &* +@all -config -hset -xadd";
    let redis = RedisServer::builder().tcp().append_only(Fsync::Always).user("app", "pw", rules).start();
    let output = run(&["doctor", "--ring", "orders"], &[("REDIS_URL", &redis.url_as("app", "pw"))]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nbroken   rights        refused: hset xadd ("), "{text}");
    assert!(!text.contains("pw"), "{text}");
    // The keys of another ring are out of reach.
    let output = run(&["doctor", "--ring", "mails"], &[("REDIS_URL", &redis.url_as("app", "pw"))]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
