//! Rings as their users see them: layouts, applications, reconnects, neighbours.

use std::time::{Duration, Instant};

use estafeta::{DeadLetterReader, Error, Ring, RingName, Selection};
use estafeta_testbed::RedisServer;

use crate::support::{Counter, Keep, RunningNode, SOON, changed, config, endpoint, ring};

#[tokio::test]
async fn a_ring_with_an_unknown_layout_is_left_alone() {
    let redis = RedisServer::start();
    redis::cmd("SET").arg("{estafeta}:schema").arg(99).exec(&mut redis.connect()).unwrap();
    let error = RunningNode::start(config(&redis), Counter(0), Keep::default()).ended().await.unwrap_err();
    assert!(matches!(&error, Error::Layout { found, .. } if found == "99"), "{error}");
    let ring = ring(&redis).await;
    for refused in [
        ring.snapshot(0).await.map(drop),
        ring.events_after("", 1).await.map(drop),
        ring.errors(0, 1).await.map(drop),
        ring.error_count().await.map(drop),
        ring.retry_errors(&Selection::All).await.map(drop),
        ring.sweep().await.map(drop),
        ring.upgrade().await.map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Layout { .. })), "{refused:?}");
    }
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, ["{estafeta}:schema"]);
    assert_eq!(ring.erase().await.unwrap(), 1, "a ring of any version can be deleted");
}

#[tokio::test]
async fn a_ring_belongs_to_the_application_of_its_first_node() {
    let redis = RedisServer::start();
    let with =
        |application: &str| changed(config(&redis), |config| config.application = application.to_owned());
    // A reader belongs to no application. It neither decides nor is refused.
    let reader = DeadLetterReader::join(with("readers")).await.unwrap();
    let node = RunningNode::start(with("orders"), Counter(0), Keep::default());
    node.notices.wait_for("BecameGenerator").await;
    let same = RunningNode::start(with("orders"), Counter(0), Keep::default());
    same.notices.wait_for("Joined").await;
    let error = RunningNode::start(with("payments"), Counter(0), Keep::default()).ended().await.unwrap_err();
    assert!(
        matches!(&error, Error::Application { found, expected, .. } if found == "orders" && expected == "payments"),
        "{error}"
    );
    assert_eq!(ring(&redis).await.application().await.unwrap().as_deref(), Some("orders"));
    reader.leave().await.unwrap();
    DeadLetterReader::join(with("readers")).await.unwrap().leave().await.unwrap();
    node.stop().await.unwrap();
    same.stop().await.unwrap();
    let late = RunningNode::start(with("payments"), Counter(0), Keep::default()).ended().await;
    assert!(matches!(late, Err(Error::Application { .. })), "it stays so when all nodes have left: {late:?}");
}

/// Status, monitors and programs keep one `Ring` for hours.
#[tokio::test]
async fn a_ring_reconnects_by_itself_and_its_clones_with_it() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    let clone = ring.clone();
    let works = async |ring: &Ring| ring.error_count().await.is_ok();
    assert!(works(&ring).await && works(&clone).await);
    redis.kill();
    eventually_async("a call fails while Redis is away", async || !works(&ring).await).await;
    let error = clone.error_count().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    redis.restart();
    eventually_async("calls work again", async || works(&ring).await && works(&clone).await).await;
    drop(ring);
    assert!(works(&clone).await, "one clone is enough to keep the connection");
}

async fn eventually_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rings_in_one_redis_do_not_see_each_other() {
    let redis = RedisServer::start();
    let names =
        ["estafeta", "shop", "shop/mails", "shop/orders"].map(|name| name.parse::<RingName>().unwrap());
    let nodes = names.clone().map(|ring| {
        RunningNode::start(changed(config(&redis), |config| config.ring = ring), Counter(0), Keep::default())
    });
    for node in &nodes {
        node.notices.wait_for("generated 1 from #3").await;
    }
    for name in &names {
        let ring = Ring::connect(endpoint(&redis), name.clone()).await.unwrap();
        let snapshot = ring.snapshot(0).await.unwrap();
        assert_eq!(snapshot.members.len(), 1, "{name}: {snapshot:?}");
        assert_eq!(ring.names().await.unwrap(), (names.to_vec(), true));
    }
    for node in nodes {
        node.stop().await.unwrap();
    }
    Ring::connect(endpoint(&redis), names[1].clone()).await.unwrap().erase().await.unwrap();
    let left = ["estafeta", "shop/mails", "shop/orders"].map(|name| name.parse().unwrap());
    assert_eq!(ring(&redis).await.names().await.unwrap().0, left, "the rings of a group stay");
}
