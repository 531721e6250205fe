//! A check-up finds what is wrong with a real server, and leaves nothing behind.

use std::collections::BTreeSet;
use std::time::Duration;

use estafeta::{Error, Ring, ServerFinding, Severity};
use estafeta_testbed::{Builder, Fsync, RedisCluster, RedisSentinels, RedisServer, eventually};

use crate::support::MovingAddress;

const PAGE: &str = include_str!("../../../../docs/keyspace.md");

/// A server with which nothing is wrong.
fn good() -> Builder {
    RedisServer::builder().tcp().append_only(Fsync::EverySec)
}

async fn findings(url: &str) -> Vec<ServerFinding> {
    Ring::on(url, "estafeta").await.unwrap().checkup().await.unwrap()
}

/// The findings that are not good. Round trips do not count, because a busy machine makes them slow.
fn bad(findings: &[ServerFinding]) -> impl Iterator<Item = &ServerFinding> {
    let is_bad =
        |finding: &&ServerFinding| finding.severity != Severity::Good && finding.subject != "roundTrip";
    findings.iter().filter(is_bad)
}

/// The finding about a subject.
async fn finding(url: &str, subject: &str) -> ServerFinding {
    let findings = findings(url).await;
    let found = findings.iter().find(|finding| finding.subject == subject);
    found.unwrap_or_else(|| panic!("no finding about {subject}: {findings:?}")).clone()
}

/// Asserts that only this subject is worse than `Good`, and how bad it is. Returns the finding.
async fn only(server: &RedisServer, subject: &str, severity: Severity) -> ServerFinding {
    let findings = findings(&server.url()).await;
    let mut bad = bad(&findings);
    let found = bad.next().unwrap_or_else(|| panic!("nothing wrong: {findings:?}")).clone();
    assert_eq!((found.subject, found.severity), (subject, severity), "{findings:?}");
    assert!(bad.next().is_none(), "{findings:?}");
    assert!(found.remedy.is_some(), "{found:?}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_server_is_good_in_all_respects_and_keeps_nothing() {
    let redis = good().start();
    let findings = findings(&redis.url()).await;
    assert!(bad(&findings).next().is_none(), "{findings:?}");
    let subjects: Vec<_> = findings.iter().map(|finding| finding.subject).collect();
    let expected = [
        "version",
        "topology",
        "persistence",
        "eviction",
        "memory",
        "replicas",
        "minReplicas",
        "rights",
        "presence",
        "clock",
        "roundTrip",
    ];
    assert_eq!(subjects, expected);
    let mut connection = redis.connect();
    let keys: u64 = redis::cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, 0);
    let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut connection).unwrap();
    assert_eq!(channels, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_dangerous_setting_is_found() {
    let evicting = good().arg("--maxmemory-policy", "allkeys-lru").arg("--maxmemory", "100mb").start();
    only(&evicting, "eviction", Severity::Broken).await;
    let forgetful = RedisServer::builder().tcp().arg("--save", "").start();
    only(&forgetful, "persistence", Severity::Broken).await;
    let snapshots = RedisServer::builder().tcp().start();
    only(&snapshots, "persistence", Severity::Warning).await;
    let lonely = good().arg("--min-replicas-to-write", "1").start();
    let finding = findings(&lonely.url()).await;
    let broken: Vec<_> = finding.iter().filter(|finding| finding.severity == Severity::Broken).collect();
    assert_eq!(broken.iter().map(|finding| finding.subject).collect::<Vec<_>>(), ["minReplicas"]);
    let keys: u64 = redis::cmd("DBSIZE").query(&mut lonely.connect()).unwrap();
    assert_eq!(keys, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_nearly_or_quite_full_is_found() {
    let redis = good().start();
    let mut connection = redis.connect();
    // Beside this, the memory of connections does not matter.
    redis::cmd("SETRANGE").arg("ballast").arg(20_000_000).arg("x").exec(&mut connection).unwrap();
    let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query(&mut connection).unwrap();
    let used: u64 = info.get("used_memory").unwrap();
    let mut limit = |bytes: u64| {
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec(&mut connection).unwrap();
    };
    limit(used * 112 / 100);
    only(&redis, "memory", Severity::Warning).await;
    limit(used / 2);
    only(&redis, "memory", Severity::Broken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_and_its_master_are_told_apart() {
    let master = good().with_replicas().start();
    let replica = good().arg("--replicaof", &format!("127.0.0.1 {}", master.port())).start();
    eventually(Duration::from_secs(30), "the replica is online", || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut master.connect()).unwrap();
        info.contains("state=online").then_some(())
    });
    let of_master = only(&master, "minReplicas", Severity::Warning).await;
    assert!(of_master.remedy.unwrap().contains("min-replicas-to-write"));
    assert_eq!(finding(&master.url(), "topology").await.found, "a master with 1 replica");
    let found = finding(&replica.url(), "topology").await;
    assert_eq!(found.severity, Severity::Broken);
    assert_eq!(found.found, format!("a replica of 127.0.0.1:{}", master.port()));
    assert_eq!(finding(&replica.url(), "rights").await.severity, Severity::Unknown);
    assert_eq!(finding(&replica.url(), "presence").await.severity, Severity::Good);
}

/// The words of the rule on the page, for the ring of these tests.
fn rule() -> Vec<String> {
    let rule = PAGE.lines().find(|line| line.starts_with("ACL SETUSER")).unwrap();
    let rule = rule.replace("{ring}", "{estafeta}").replace("<password>", "secret");
    rule.split_whitespace().skip(2).map(str::to_owned).collect()
}

fn set_user(redis: &RedisServer, words: &[String]) {
    let mut call = redis::cmd("ACL");
    call.arg("SETUSER").arg(&words[0]).arg("reset").arg(&words[1..]);
    call.exec(&mut redis.connect()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_right_of_the_rule_is_tried_and_named_if_it_is_missing() {
    let redis = good().start();
    let url = redis.url_as("estafeta", "secret");
    let rule = rule();
    set_user(&redis, &rule);
    let found = findings(&url).await;
    let all = found.iter().find(|finding| finding.subject == "rights").unwrap();
    let tried: BTreeSet<&str> = rule.iter().filter_map(|word| word.strip_prefix('+')).collect();
    let tried: Vec<&str> = tried.into_iter().filter(|right| !right.starts_with('@')).collect();
    assert_eq!(all.found, format!("all {} commands that estafeta uses", tried.len()));
    let settings = found.iter().find(|finding| finding.subject == "persistence").unwrap();
    assert!(settings.severity == Severity::Good, "{settings:?}");
    let checkups = tried.iter().map(|right| {
        let mut less: Vec<String> =
            rule.iter().filter(|word| **word != format!("+{right}")).cloned().collect();
        less[0] = right.replace('|', "-");
        set_user(&redis, &less);
        let url = redis.url_as(&less[0], "secret");
        tokio::spawn(async move { Ring::on(&url, "estafeta").await?.checkup().await })
    });
    for (right, checkup) in tried.iter().zip(checkups.collect::<Vec<_>>()) {
        let findings = match checkup.await.unwrap() {
            // The connection itself needs this one.
            Err(Error::Refused { reason, .. }) if *right == "info" && reason.contains("'info'") => continue,
            findings => findings.unwrap(),
        };
        let rights = findings.iter().find(|finding| finding.subject == "rights").unwrap();
        assert!(rights.found.starts_with(&format!("refused: {right} (")), "{right}: {rights:?}");
        let expected = if ["scan", "unlink"].contains(right) { Severity::Warning } else { Severity::Broken };
        assert_eq!(rights.severity, expected, "{right}");
    }
    let keys: u64 = redis::cmd("DBSIZE").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_keys_or_channels_of_the_ring_is_found() {
    let redis = good().start();
    let url = redis.url_as("estafeta", "secret");
    let cases = [
        ("~{estafeta}:*", "evalsha"),
        ("&{estafeta}:alive:*", "subscribe"),
        ("&{estafeta}:wakeup:*", "publish"),
    ];
    for (pattern, refused) in cases {
        let less: Vec<String> = rule().into_iter().filter(|word| word != pattern).collect();
        set_user(&redis, &less);
        let rights = finding(&url, "rights").await;
        assert_eq!(rights.severity, Severity::Broken);
        assert!(rights.found.contains(refused), "{pattern}: {rights:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_clusters_are_recognised() {
    let sentinels = RedisSentinels::start();
    let found = finding(&sentinels.master().url(), "topology").await;
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(found.found, "a master that 3 sentinels watch");
    drop(sentinels);
    let cluster = RedisCluster::start();
    let found = findings(&cluster.owner_of("estafeta").url()).await;
    let topology = found.iter().find(|finding| finding.subject == "topology").unwrap();
    assert_eq!((topology.severity, topology.found.as_str()), (Severity::Good, "a node of a cluster"));
    let rights = found.iter().find(|finding| finding.subject == "rights").unwrap();
    assert_eq!(rights.severity, Severity::Good, "{rights:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_leads_to_two_servers_is_found() {
    let (one, other) = (good().start(), good().start());
    let address = MovingAddress::of(&one).await;
    let ring = Ring::on(&address.url(), "estafeta").await.unwrap();
    address.move_to(&other);
    let findings = ring.checkup().await.unwrap();
    let broken = findings.iter().filter(|finding| finding.severity == Severity::Broken);
    assert_eq!(broken.map(|finding| finding.subject).collect::<Vec<_>>(), ["topology", "presence"]);
}
