//! A server is demoted to a replica under clients that stay connected to it, as after a failover behind one address.

use std::time::Duration;

use estafeta::{DeadLetterReader, Publisher, Ring};

use crate::support::{
    Counter, Keep, ListedBodies, MovingAddress, Pair, RunningNode, SOON, TestHandler, changed, eventually,
    ring, tell,
};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_leave_a_server_that_was_demoted_and_come_back_when_it_is_promoted_again() {
    let mut pair = Pair::start().await;
    let settings = pair.config();
    let nodes = [0, 1, 2].map(|_| RunningNode::start(settings.clone(), Counter(0), Keep::default()));
    eventually(&ring(&pair.master).await, "three members", |ring| ring.members.len() == 3).await;
    for _ in 0..2 {
        let before = ring(&pair.master).await.snapshot(0).await.unwrap();
        pair.switch();
        std::mem::swap(&mut pair.master, &mut pair.replica);
        let after = eventually(&ring(&pair.master).await, "messages at the new master", |ring| {
            ring.done > before.done + 20
        })
        .await;
        assert_eq!((after.members.len(), after.buried, after.lost), (3, 0, 0), "{after:?}");
    }
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_handler_shows_its_presence_at_the_new_server() {
    let pair = Pair::start().await;
    let idle = changed(pair.config(), |config| {
        (config.never_generate, config.lease) = (true, Duration::from_secs(60));
    });
    let nodes = [0, 1].map(|_| RunningNode::start(idle.clone(), Counter(0), Keep::default()));
    eventually(&ring(&pair.master).await, "two members", |ring| ring.members.len() == 2).await;
    pair.switch();
    let presences = || {
        let mut connection = pair.replica.connect();
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("CHANNELS").arg("{estafeta}:alive:*").query(&mut connection).unwrap();
        channels.len()
    };
    estafeta_testbed::eventually(SOON, "both show their presence", || (presences() == 2).then_some(()));
    let after = ring(&pair.replica).await.snapshot(0).await.unwrap();
    assert_eq!((after.members.len(), after.buried), (2, 0), "{after:?}");
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_server_is_demoted_before_it_has_joined_goes_on_at_the_next_one() {
    let pair = Pair::start().await;
    pair.address.move_to(&pair.replica);
    let node = RunningNode::start(pair.config(), Counter(0), Keep::default());
    estafeta_testbed::eventually(SOON, "the replica refuses the node", || {
        let info: String = redis::cmd("INFO").arg("errorstats").query(&mut pair.replica.connect()).unwrap();
        info.contains("errorstat_READONLY").then_some(())
    });
    pair.address.move_to(&pair.master);
    eventually(&ring(&pair.master).await, "a member", |ring| ring.members.len() == 1).await;
    node.stop().await.unwrap();
}

/// Fails every message for good.
struct Refuse;

impl TestHandler for Refuse {
    async fn handle(&self, _: &estafeta::Message) -> Result<(), estafeta::Failure> {
        Err(estafeta::Failure::fatal("on purpose"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_readers_and_rings_work_at_the_new_server() {
    let pair = Pair::start().await;
    let settings = changed(pair.config(), |config| config.limit = Some(5));
    let node = RunningNode::start(settings.clone(), ListedBodies(vec![b"x".to_vec()]), Refuse);
    let other = RunningNode::start(settings.clone(), ListedBodies(vec![b"x".to_vec()]), Refuse);
    let outside = Ring::connect(settings.redis.clone(), settings.ring.clone()).await.unwrap();
    eventually(&outside, "five errors", |ring| ring.errors_kept == 5).await;
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    publisher.publish("one").await.unwrap();
    let mut reader = DeadLetterReader::join(settings.clone()).await.unwrap();
    let shown = reader.next().await.unwrap().len() as u64;
    assert!(shown > 0);

    pair.switch();
    assert_eq!(publisher.publish("two").await.unwrap().id, 7);
    reader.release().await.unwrap();
    outside.limit_in_flight(Some(100)).await.unwrap();
    let after = eventually(&ring(&pair.replica).await, "all have outcomes", |ring| {
        ring.errors_kept + ring.errors_taken == 7
    })
    .await;
    assert_eq!((after.errors_taken, after.in_flight_limit), (shown, Some(100)), "{after:?}");
    reader.leave().await.unwrap();
    for node in [node, other] {
        node.stop().await.unwrap();
    }
}

/// The generator is cut off together with the old master. Only the handler knows what it claimed since its last beat.
#[tokio::test(flavor = "multi_thread")]
async fn a_successor_never_gives_out_the_id_of_a_message_that_it_has_handled() {
    let pair = Pair::start().await;
    let of_generator = MovingAddress::of(&pair.master).await;
    let config = changed(pair.config(), |config| {
        // The handler learns the number of published messages from a beat once per second.
        (config.interval, config.look) = (Duration::from_millis(2), Duration::from_secs(1));
    });
    let cut_off = changed(config.clone(), |config| config.redis = of_generator.url().parse().unwrap());
    let old = RunningNode::start(cut_off, Counter(0), Keep::default());
    old.notices.wait_for("generated").await;
    let heir = RunningNode::start(config, Counter(0), Keep::default());
    heir.notices.wait_for("handled").await;
    eventually(&ring(&pair.replica).await, "a member known to the replica", |ring| ring.members.len() == 2)
        .await;
    tell(&pair.replica, &["REPLICAOF", "NO", "ONE"]);
    let had = ring(&pair.replica).await.snapshot(0).await.unwrap().published;
    eventually(&ring(&pair.master).await, "more messages", |ring| ring.done > had + 700).await;
    pair.address.move_to(&pair.replica);
    pair.master.follow(&pair.replica);

    heir.notices.wait_for("BecameGenerator").await;
    heir.notices.wait_for("generated").await;
    let lines = heir.notices.all();
    let id = |line: &String, start: &str| -> Option<u64> {
        line.starts_with(start).then(|| line.split(['#', '.']).nth(1)?.parse().ok()).flatten()
    };
    let handled = lines.iter().filter_map(|line| id(line, "handled")).max().unwrap();
    let generated = lines.iter().filter_map(|line| id(line, "generated")).min().unwrap();
    assert!(handled > had && generated > handled, "#{generated} was given out after #{handled} was handled");
    let after = ring(&pair.replica).await.snapshot(0).await.unwrap();
    assert!(after.lost >= handled - had, "{after:?}");
    heir.stop().await.unwrap();
    old.stop().await.unwrap();
}
