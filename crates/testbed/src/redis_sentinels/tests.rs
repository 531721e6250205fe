use redis::{Commands, RedisResult};

use super::*;
use crate::TlsFiles;

fn set(server: &RedisServer, value: &str) -> RedisResult<()> {
    server.connect().set("key", value)
}

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let redis = RedisSentinels::start();
    let old = redis.master();
    assert_eq!(redis.replicas().len(), 2);
    set(old, "before").unwrap();
    old.kill();
    let new = redis.master_after(old);
    set(new, "after").unwrap();
    old.restart();
    redis.wait_until_healthy();
    assert_eq!(redis.master().port(), new.port());
    assert_eq!(set(old, "refused").unwrap_err().code(), Some("READONLY"));
}

#[test]
fn a_planned_failover_leaves_the_old_master_running() {
    let redis = RedisSentinels::builder().name("orders").start();
    assert!(redis.url().ends_with("/orders"), "{}", redis.url());
    let old = redis.master();
    let new = redis.failover();
    assert_ne!(old.port(), new.port());
    assert!(old.can_answer());
    redis.wait_until_healthy();
    assert!(redis.replicas().iter().any(|replica| replica.port() == old.port()));
}

#[test]
fn a_frozen_master_is_replaced_and_two_sentinels_suffice() {
    let redis = RedisSentinels::start();
    redis.sentinels()[0].freeze();
    let old = redis.master();
    old.freeze();
    let new = redis.master_after(old);
    set(new, "after").unwrap();
    old.thaw();
    redis.sentinels()[0].thaw();
    redis.wait_until_healthy();
}

#[test]
fn passwords_and_tls_hold_everywhere() {
    let files = TlsFiles::new();
    let server = RedisServer::builder().tls(&files).password("of servers").user("app", "pw", "~* +@all");
    let redis = RedisSentinels::builder().servers(server).sentinel_password("of sentinels").start();
    let doors: Vec<_> =
        redis.sentinels().iter().map(|sentinel| format!("localhost:{}", sentinel.port())).collect();
    let doors = doors.join(",");
    assert_eq!(redis.url(), format!("rediss+sentinel://:of%20servers@{doors}/estafeta"));
    assert_eq!(redis.url_as("app", "pw"), format!("rediss+sentinel://app:pw@{doors}/estafeta"));
    let named: (String, u16) =
        ask(&redis.sentinels()[0], &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "estafeta"]).unwrap();
    assert_eq!(named, ("localhost".to_owned(), redis.master().port()));
    let old = redis.master();
    old.kill();
    redis.master_after(old);
}

/// A sentinel that was frozen distrusts its clock.
#[test]
fn sentinels_in_tilt_are_waited_for() {
    let redis = RedisSentinels::start();
    redis.sentinels().iter().for_each(RedisServer::freeze);
    std::thread::sleep(Duration::from_secs(3));
    redis.sentinels().iter().for_each(RedisServer::thaw);
    eventually(HEALTHY, "TILT", || redis.sentinels().iter().all(in_tilt).then_some(()));
    assert!(redis.named_master().is_none(), "none of them may be trusted");
    let old = redis.master();
    assert_ne!(redis.failover().port(), old.port());
}
