//! A ring whose Redis is named by sentinels.

use std::collections::BTreeSet;
use std::time::Duration;

use estafeta::{Durability, Error, Ring};
use estafeta_testbed::{RedisSentinels, RedisServer};

use crate::support::{LiveRing, RunningNode, SOON, changed, config_at, eventually};

/// How many clients a server has, apart from replicas, sentinels and the one that asks.
pub fn clients(server: &RedisServer) -> usize {
    let clients: String =
        redis::cmd("CLIENT").arg("LIST").query(&mut server.connect()).expect("a list of clients");
    clients.lines().filter(|line| is_of_a_ring(line)).count()
}

/// Whether this line of a list of clients is about a node or an observer of a ring, and not about a sentinel.
fn is_of_a_ring(line: &str) -> bool {
    (line.contains("cmd=evalsha") || line.contains(" sub=1 ")) && !line.contains("name=sentinel")
}

fn role(server: &RedisServer) -> String {
    let info: String = redis::cmd("INFO").arg("replication").query(&mut server.connect()).unwrap();
    info.lines().find_map(|line| line.strip_prefix("role:")).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_goes_on_at_the_promoted_replica_after_the_master_was_killed_or_frozen() {
    let redis = RedisSentinels::start();
    let live = LiveRing::start(config_at(&redis.url()), 3).await;
    let first = redis.master();
    first.kill();
    let second = redis.master_after(first);
    let after = live.progress(50).await;
    assert_eq!(after.members.iter().filter(|member| member.state == estafeta::Health::Alive).count(), 3);
    assert!(clients(second) >= 3, "all nodes are there");

    // It comes back empty, and poses as a master until the sentinels demote it.
    first.restart();
    live.progress(50).await;
    assert_eq!(clients(first), 0, "no node trusts a server that the sentinels do not name");
    redis.wait_until_healthy();

    second.freeze();
    redis.master_after(second);
    live.progress(50).await;
    second.thaw();
    live.progress(50).await;
    assert_eq!(clients(second), 0);
    for node in live.nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_leave_an_old_master_that_still_poses_as_one_and_what_it_took_counts_as_lost() {
    let redis = RedisSentinels::start();
    let live = LiveRing::start(config_at(&redis.url()), 3).await;
    let old = redis.master();
    redis.failover();
    // Sentinels demote the old master only after ten seconds. Nodes that stayed would write to it until then.
    let posed = estafeta_testbed::eventually(SOON, "all nodes have left", || {
        let posed = role(old);
        (clients(old) == 0).then_some(posed)
    });
    assert_eq!(posed, "master", "they left before it was demoted");
    live.progress(50).await;
    // What a node generates after that is not among these ids, and the snapshot comes after them.
    let of_nodes: Vec<Vec<u64>> = live.nodes.iter().map(generated).collect();
    let after = live.snapshot().await;
    // A successor cannot know what only the old generator knew. It may give out these ids again, in another epoch.
    for ids in of_nodes {
        let unique: BTreeSet<u64> = ids.iter().copied().collect();
        assert_eq!(unique.len(), ids.len(), "no node gives out an id that it knows");
        assert!(after.published >= unique.last().copied().unwrap_or(0), "{after:?}");
    }
    for node in live.nodes {
        node.stop().await.unwrap();
    }
}

/// The id of each message that a node has reported as generated.
fn generated(node: &RunningNode) -> Vec<u64> {
    let ids = |line: &String| -> Option<std::ops::Range<u64>> {
        let (count, first) = line.strip_prefix("generated ")?.split_once(" from #")?;
        let (count, first): (u64, u64) = (count.parse().ok()?, first.parse().ok()?);
        Some(first..first + count)
    };
    node.notices.all().iter().filter_map(ids).flatten().collect()
}

/// The id of each message that a node has reported as handled.
fn handled(node: &RunningNode) -> Vec<u64> {
    let id = |line: &String| line.strip_prefix("handled #")?.split('.').next()?.parse().ok();
    node.notices.all().iter().filter_map(id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reported_message_is_lost_or_doubled_in_a_planned_failover_if_all_replicas_confirm() {
    let redis = RedisSentinels::start();
    let config = changed(config_at(&redis.url()), |config| {
        (config.durability, config.limit, config.until_done) = (Durability::AllReplicas, Some(300), true);
    });
    let live = LiveRing::start(config, 3).await;
    redis.failover();
    redis.wait_until_healthy();
    eventually(&live.ring, "everything has an outcome", |ring| ring.members.is_empty()).await;
    let unique = |ids: Vec<u64>, what: &str| -> BTreeSet<u64> {
        let unique: BTreeSet<u64> = ids.iter().copied().collect();
        assert_eq!(unique.len(), ids.len(), "{what} twice");
        unique
    };
    let generated = unique(live.nodes.iter().flat_map(generated).collect(), "generated");
    let handled = unique(live.nodes.iter().flat_map(handled).collect(), "handled");
    let missing: Vec<_> = generated.difference(&handled).collect();
    assert!(missing.is_empty(), "reported as generated and never handled: {missing:?}");
    assert!(generated.len() > 100, "{generated:?}");
    for node in live.nodes {
        node.ended().await.unwrap();
    }
}

/// Where sentinels can coordinate the switch, the old master accepts nothing that the new one does not get.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinated_failover_loses_nothing_and_nobody_is_buried() {
    let redis = RedisSentinels::start();
    let live = LiveRing::start(config_at(&redis.url()), 3).await;
    match redis.coordinated_failover() {
        Some(_) => live.progress(50).await,
        None => live.snapshot().await,
    };
    live.end_with_all_handled_once().await;
}

/// Otherwise nodes would connect anew whenever they ask another sentinel.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_sentinels_name_by_address_and_by_host_name_is_one_server() {
    let by_address = RedisSentinels::start();
    let by_name = by_address.sentinel_that_names("localhost");
    let first = by_address.sentinels()[0].port();
    let url =
        format!("redis+sentinel://127.0.0.1:{first},127.0.0.1:{}/{}", by_name.port(), by_address.name());
    let live = LiveRing::start(config_at(&url), 2).await;
    let watchers = || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut by_name.connect()).unwrap();
        list.lines().filter(|line| line.contains(" sub=1 ")).count()
    };
    // Both connections of each node are subscribed.
    let connections = || -> BTreeSet<String> {
        let list: String =
            redis::cmd("CLIENT").arg("LIST").query(&mut by_address.master().connect()).unwrap();
        let id = |line: &str| line.split(' ').next().unwrap().to_owned();
        list.lines().filter(|line| line.contains(" sub=1 ") && is_of_a_ring(line)).map(id).collect()
    };
    live.progress(10).await;
    let before = connections();
    assert_eq!(before.len(), 4);
    by_address.sentinels()[0].kill();
    // Both nodes, and the ring of the test, ask a sentinel for the master before they subscribe to it.
    estafeta_testbed::eventually(SOON, "the other sentinel is asked", || (watchers() == 3).then_some(()));
    live.progress(10).await;
    assert_eq!(connections(), before, "nobody has left the server");
    for node in live.nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_or_dead_sentinel_is_passed_over() {
    let redis = RedisSentinels::start();
    let [dead, frozen, well] = redis.sentinels() else { panic!("three sentinels") };
    dead.kill();
    frozen.freeze();
    let doors = format!("127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}", dead.port(), frozen.port(), well.port());
    let live = LiveRing::start(config_at(&format!("redis+sentinel://{doors}/{}", redis.name())), 2).await;
    frozen.thaw();
    redis.restart_sentinel(dead);
    redis.wait_until_healthy();
    // Now the sentinel fails that the nodes watch.
    well.kill();
    let old = redis.master();
    redis.failover();
    estafeta_testbed::eventually(SOON, "all nodes have left", || (clients(old) == 0).then_some(()));
    live.progress(20).await;
    for node in live.nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_sentinels_is_said_in_one_line() {
    let redis = RedisSentinels::start();
    let connect =
        async |url: String| match Ring::connect(url.parse().unwrap(), "estafeta".parse().unwrap()).await {
            Ok(_) => panic!("{url} works"),
            Err(error) => error,
        };
    let sentinel = redis.sentinels()[0].port();
    let unknown = connect(format!("redis+sentinel://127.0.0.1:{sentinel}/nobody")).await;
    assert!(unknown.to_string().ends_with("refuses: no sentinel knows a master named nobody"), "{unknown}");
    let as_server = connect(format!("redis://127.0.0.1:{sentinel}")).await;
    assert!(as_server.to_string().contains("it is a sentinel: name it in redis+sentinel://"), "{as_server}");
    let server = redis.master().port();
    let no_sentinel = connect(format!("redis+sentinel://127.0.0.1:{server}/estafeta")).await;
    assert!(
        no_sentinel.to_string().ends_with(&format!("127.0.0.1:{server} is no sentinel")),
        "{no_sentinel}"
    );
    let no_cluster = connect(format!("redis+cluster://127.0.0.1:{server}")).await;
    assert!(no_cluster.to_string().contains("it is no node of a cluster"), "{no_cluster}");
    for sentinel in redis.sentinels() {
        sentinel.kill();
    }
    let none = connect(redis.url()).await;
    assert!(matches!(none, Error::Unreachable { .. }), "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_with_a_password_are_asked_with_theirs_and_servers_with_theirs() {
    let servers = RedisServer::builder().password("of servers");
    let redis = RedisSentinels::builder().servers(servers).sentinel_password("of sentinels").start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "of sentinels\n").unwrap();
    let url = format!("{}?sentinel-password-file={}", redis.url(), file.path().display());
    let live = LiveRing::start(config_at(&url), 2).await;
    live.end_with_all_handled_once().await;
    let refused = Ring::connect(redis.url().parse().unwrap(), "estafeta".parse().unwrap()).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("the sentinel at 127.0.0.1:") && text.contains("password"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_buries_nobody_right_after_a_switch() {
    let redis = RedisSentinels::start();
    let config = changed(config_at(&redis.url()), |config| config.lease = Duration::from_secs(10));
    let mut live = LiveRing::start(config, 3).await;
    let old = redis.master();
    old.kill();
    for _ in 0..5 {
        live.add_node();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    redis.master_after(old);
    live.progress(50).await;
    let after = eventually(&live.ring, "all nodes are members", |ring| ring.members.len() == 8).await;
    assert_eq!(after.buried, 0, "{after:?}");
    for node in live.nodes {
        node.stop().await.unwrap();
    }
}
