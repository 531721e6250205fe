use redis::{Commands, RedisResult};

use super::*;
use crate::TlsFiles;

fn set(server: &RedisServer, value: &str) -> RedisResult<()> {
    server.connect().set("{ring}:key", value)
}

fn get(server: &RedisServer) -> RedisResult<String> {
    server.connect().get("{ring}:key")
}

#[test]
fn a_planned_failover_keeps_the_data_and_moves_the_owner() {
    let redis = RedisCluster::start();
    let old = redis.owner_of("ring");
    set(old, "value").unwrap();
    let new = redis.failover("ring");
    assert_eq!(get(new).unwrap(), "value");
    redis.wait_until_healthy();
    assert_eq!(redis.owner_of("ring").port(), new.port());
    assert_eq!(redis.replica_of(new).port(), old.port());
    assert_eq!(get(old).unwrap_err().code(), Some("MOVED"));
}

#[test]
fn a_killed_or_frozen_owner_is_replaced() {
    let redis = RedisCluster::start();
    let first = redis.owner_of("ring");
    set(first, "value").unwrap();
    first.kill();
    let second = redis.owner_after("ring", first);
    first.restart();
    redis.wait_until_healthy();
    second.freeze();
    let third = redis.owner_after("ring", second);
    second.thaw();
    redis.wait_until_healthy();
    assert_eq!(third.port(), first.port());
    assert_eq!(get(third).unwrap(), "value");
}

#[test]
fn a_slot_moves_key_by_key() {
    let redis = RedisCluster::start();
    let source = redis.owner_of("ring");
    set(source, "value").unwrap();
    let () = source.connect().set("{ring}:other", "value").unwrap();
    let migration = redis.begin_migration("ring", redis.other_masters("ring")[0]);
    let target = migration.target();
    assert_eq!(migration.move_keys(1), 1);
    let both: RedisResult<Vec<String>> = source.connect().mget(&["{ring}:key", "{ring}:other"]);
    assert_eq!(both.unwrap_err().code(), Some("TRYAGAIN"));
    migration.finish();
    assert_eq!(redis.owner_of("ring").port(), target.port());
    assert_eq!(get(target).unwrap(), "value");
    assert_eq!(get(source).unwrap_err().code(), Some("MOVED"));
    redis.wait_until_healthy();
}

#[test]
fn a_slot_moves_as_a_whole_where_the_server_can_do_that() {
    let redis = RedisCluster::start();
    let source = redis.owner_of("ring");
    set(source, "value").unwrap();
    let target = redis.migrate_at_once("ring");
    assert_eq!(redis.owner_of("ring").port(), target.port());
    assert_eq!(get(target).unwrap(), "value");
    redis.wait_until_healthy();
}

#[test]
fn passwords_and_tls_hold_everywhere() {
    let files = TlsFiles::new();
    let redis =
        RedisCluster::builder().servers(RedisServer::builder().tls(&files).password("secret")).start();
    assert!(redis.url().starts_with("rediss+cluster://:secret@localhost:"), "{}", redis.url());
    let old = redis.owner_of("ring");
    set(old, "value").unwrap();
    let new = redis.migrate("ring");
    assert_eq!(get(new).unwrap(), "value");
    let moved = get(old).unwrap_err().to_string();
    assert!(moved.contains(&format!("localhost:{}", new.port())), "{moved}");
    new.kill();
    redis.owner_after("ring", new);
}
