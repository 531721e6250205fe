//! A ring in a Redis Cluster, while its slot moves between the nodes.

use std::time::Duration;

use estafeta::{Error, Health, Ring};
use estafeta_testbed::{RedisCluster, RedisServer};

use crate::support::{Counter, Keep, LiveRing, RunningNode, SOON, changed, config_at, eventually};

const RING: &str = "estafeta";

/// The number of members that show their presence at a server.
fn presences(server: &RedisServer) -> usize {
    let mut asking = redis::cmd("PUBSUB");
    let channels: Vec<String> =
        asking.arg("CHANNELS").arg("{estafeta}:alive:*").query(&mut server.connect()).unwrap();
    channels.len()
}

/// Waits until so many members show their presence at a server. Messages may flow before the last one is there.
fn all_present(count: usize, server: &RedisServer) {
    let what = "all members show their presence";
    estafeta_testbed::eventually(SOON, what, || (presences(server) == count).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_failover_loses_nothing_and_nobody_is_buried() {
    let redis = RedisCluster::start();
    let live = LiveRing::start(config_at(&redis.url()), 3).await;
    for _ in 0..2 {
        let new = redis.failover(RING);
        live.progress(50).await;
        all_present(3, new);
        redis.wait_until_healthy();
    }
    live.end_with_all_handled_once().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_migrates_for_longer_than_a_lease_loses_nothing_and_nobody_is_buried() {
    let redis = RedisCluster::start();
    let lease = Duration::from_secs(1);
    let live = LiveRing::start(changed(config_at(&redis.url()), |config| config.lease = lease), 3).await;
    redis.migrate(RING);
    live.progress(50).await;
    let target = redis.other_masters(RING)[0];
    let migration = redis.begin_migration(RING, target);
    // Now keys of the ring are at both nodes, and neither can run a step.
    while migration.move_keys(1) == 0 {}
    tokio::time::sleep(lease * 2).await;
    migration.finish();
    live.progress(50).await;
    all_present(3, target);
    live.end_with_all_handled_once().await;
}

/// A server that can move a slot as a whole serves the ring until the end of the migration.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_moved_as_a_whole_loses_nothing_and_nobody_is_buried() {
    let redis = RedisCluster::start();
    let live = LiveRing::start(config_at(&redis.url()), 3).await;
    for _ in 0..2 {
        let new = redis.migrate_at_once(RING);
        live.progress(50).await;
        all_present(3, new);
        redis.wait_until_healthy();
    }
    live.end_with_all_handled_once().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn newcomers_bury_nobody_while_the_owner_is_killed_or_frozen() {
    let redis = RedisCluster::start();
    let config = changed(config_at(&redis.url()), |config| config.lease = Duration::from_secs(10));
    let mut live = LiveRing::start(config, 3).await;
    for freeze in [false, true] {
        let old = redis.owner_of(RING);
        if freeze {
            old.freeze()
        } else {
            old.kill()
        }
        for _ in 0..3 {
            live.add_node();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        redis.owner_after(RING, old);
        live.progress(50).await;
        if freeze {
            old.thaw()
        } else {
            old.restart()
        }
        redis.wait_until_healthy();
    }
    let all = |ring: &estafeta::Snapshot| {
        ring.members.iter().filter(|member| member.state == Health::Alive).count() == 9
    };
    let after = eventually(&live.ring, "all nodes are members", all).await;
    assert_eq!(after.buried, 0, "{after:?}");
    for node in live.nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_members_show_their_presence_at_the_new_owner_and_nobody_is_buried() {
    let redis = RedisCluster::start();
    let config = changed(config_at(&redis.url()), |config| config.limit = Some(1));
    let nodes = [0, 1, 2].map(|_| RunningNode::start(config.clone(), Counter(0), Keep::default()));
    let ring = Ring::connect(config.redis.clone(), config.ring.clone()).await.unwrap();
    let idle = |ring: &estafeta::Snapshot| ring.members.len() == 3 && ring.done == 1;
    eventually(&ring, "three idle members", idle).await;
    for migrate in [false, true] {
        let new = if migrate { redis.migrate(RING) } else { redis.failover(RING) };
        all_present(3, new);
        // Longer than any member takes to believe what it sees at a new server.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = eventually(&ring, "a snapshot", |_| true).await;
        assert_eq!((after.members.len(), after.buried), (3, 0), "{after:?}");
        redis.wait_until_healthy();
    }
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_door_leads_to_the_owner_and_a_plain_url_does_too() {
    let redis = RedisCluster::start();
    let owner = redis.owner_of(RING);
    let (other, replica) = (redis.other_masters(RING)[0], redis.replica_of(owner));
    let dead = redis.replica_of(other);
    dead.kill();
    let frozen = redis.replica_of(redis.other_masters(RING)[1]);
    frozen.freeze();
    let door = |server: &RedisServer| format!("127.0.0.1:{}", server.port());
    let urls = [
        format!("redis+cluster://{}", door(owner)),
        format!("redis+cluster://{}", door(other)),
        format!("redis+cluster://{}", door(replica)),
        format!("redis+cluster://{},{},{}", door(dead), door(frozen), door(other)),
        format!("redis://{}", door(owner)),
        format!("redis://{}", door(other)),
        format!("redis://{}", door(replica)),
    ];
    let rings: Vec<Ring> = {
        let mut rings = Vec::new();
        for url in &urls {
            rings.push(Ring::connect(url.parse().unwrap(), RING.parse().unwrap()).await.expect(url));
        }
        rings
    };
    let live = LiveRing::start(config_at(&urls[5]), 2).await;
    for (ring, url) in rings.iter().zip(&urls) {
        assert_eq!(ring.snapshot(0).await.expect(url).members.len(), 2, "{url}");
    }
    frozen.thaw();
    redis.failover(RING);
    for (ring, url) in rings.iter().zip(&urls) {
        assert_eq!(ring.snapshot(0).await.expect(url).members.len(), 2, "{url}");
    }
    live.progress(20).await;
    live.end_with_all_handled_once().await;

    let none =
        Ring::connect(format!("redis+cluster://{}", door(dead)).parse().unwrap(), RING.parse().unwrap());
    let none = none.await.unwrap_err();
    assert!(matches!(none, Error::Unreachable { .. }), "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rings_of_all_masters_are_listed() {
    let redis = RedisCluster::start();
    let mut names: Vec<String> = ["one", "two", "three", "four", "five"].map(ToOwned::to_owned).to_vec();
    let mut owners = Vec::new();
    for name in &names {
        let config = changed(config_at(&redis.url()), |config| config.ring = name.parse().unwrap());
        let publisher: estafeta::Publisher = estafeta::Publisher::of(&config).await.unwrap();
        publisher.publish("hello").await.unwrap();
        owners.push(redis.owner_of(name).port());
    }
    owners.sort_unstable();
    owners.dedup();
    assert!(owners.len() > 1, "the rings are on several masters");
    let ring = Ring::connect(redis.url().parse().unwrap(), RING.parse().unwrap()).await.unwrap();
    let (found, complete) = ring.names().await.unwrap();
    names.sort_unstable();
    assert_eq!((found.iter().map(ToString::to_string).collect(), complete), (names, true));
}
