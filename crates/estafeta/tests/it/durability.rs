//! Steps that count as answered only when replicas or the disk have them.

use std::time::Duration;

use estafeta::{Config, DeadLetterReader, Durability, Error, Failure, Message, Node, Publisher, Ring};
use estafeta_testbed::{Fsync, RedisServer};

use crate::support::{
    Counter, Keep, LiveRing, Notices, Pair, RunningNode, SOON, TestHandler, changed, config, config_at,
    eventually, ring, tell,
};

fn with(level: Durability) -> impl Fn(Config) -> Config {
    move |settings| changed(settings, |config| config.durability = level)
}

fn counted(notices: &Notices, start: &str) -> usize {
    notices.all().iter().filter(|line| line.starts_with(start)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_reported_while_a_replica_is_frozen_and_the_office_is_kept() {
    let pair = Pair::start().await;
    let lease = Duration::from_secs(3);
    let settings = changed(with(Durability::AllReplicas)(pair.config()), |config| config.lease = lease);
    let node = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    let other = RunningNode::start(settings, Counter(0), Keep::default());
    let watcher = ring(&pair.master).await;
    let before = eventually(&watcher, "messages flow", |ring| ring.done > 5).await;
    let epoch = before.generator.unwrap().epoch;

    pair.replica.freeze();
    // Whatever the replica has confirmed, the master had before this moment. Slow nodes may report it later.
    let confirmed = watcher.snapshot(0).await.unwrap();
    let both = [&node, &other];
    for node in both {
        node.notices.wait_for("RedisLost { reason: \"only 0 of 1 replicas have it\" }").await;
    }
    tokio::time::sleep(2 * lease).await;
    let reports = |start: &str| both.iter().map(|node| counted(&node.notices, start)).sum::<usize>() as u64;
    let reported = (reports("generated"), reports("handled"));
    assert!(
        reported.0 <= confirmed.published && reported.1 <= confirmed.done,
        "nothing is reported before it is confirmed: {reported:?}, {confirmed:?}"
    );
    let meanwhile = watcher.snapshot(0).await.unwrap();
    assert_eq!(meanwhile.generator.as_ref().map(|generator| generator.epoch), Some(epoch), "{meanwhile:?}");
    assert_eq!((meanwhile.members.len(), meanwhile.buried, meanwhile.takeovers), (2, 0, 0), "{meanwhile:?}");

    pair.replica.thaw();
    let after = eventually(&watcher, "messages flow again", |ring| ring.done > meanwhile.done + 5).await;
    assert_eq!((after.buried, after.takeovers, after.lost), (0, 0, 0), "{after:?}");
    for node in [node, other] {
        node.stop().await.unwrap();
    }
}

/// With `min-replicas-to-write`, a master without its replicas answers NOREPLICAS, for longer than the leases last.
#[tokio::test(flavor = "multi_thread")]
async fn a_ring_waits_for_a_master_that_refuses_writes_without_its_replicas_and_nobody_is_buried() {
    for level in [Durability::Memory, Durability::Replicas(1)] {
        let pair = Pair::start().await;
        tell(&pair.master, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
        // The master counts a replica from its first acknowledgement on. A node that starts before that is refused.
        estafeta_testbed::eventually(SOON, "the master accepts writes", || {
            redis::cmd("SET").arg("probe").arg("").exec(&mut pair.master.connect()).ok()
        });
        let lease = Duration::from_secs(1);
        let settings = changed(with(level)(config_at(&pair.address.url())), |config| config.lease = lease);
        let live = LiveRing::start(settings, 3).await;
        pair.replica.kill();
        for node in &live.nodes {
            let lost = node.notices.wait_for("RedisLost").await;
            assert!(lost.contains("NOREPLICAS") || lost.contains("replicas have it"), "{lost}");
        }
        tokio::time::sleep(2 * lease).await;
        pair.replica.restart();
        pair.replica.follow(&pair.master);
        live.progress(20).await;
        live.end_with_all_handled_once().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_gets_its_receipt_when_enough_replicas_have_the_message() {
    let [master, replica] = [(); 2].map(|()| RedisServer::builder().tcp().with_replicas().start());
    let publisher: Publisher = Publisher::of(&with(Durability::AllReplicas)(config(&master))).await.unwrap();
    let refused = publisher.publish("without replicas").await.unwrap_err();
    assert!(matches!(&refused, Error::Unconfirmed { .. }), "{refused}");
    assert!(refused.to_string().ends_with("only 0 of 1 replicas have it"), "{refused}");
    let publisher: Publisher = Publisher::of(&with(Durability::Replicas(1))(config(&master))).await.unwrap();
    let waiting = tokio::spawn(async move { publisher.publish("patient").patient(SOON).await });
    let watcher = ring(&master).await;
    eventually(&watcher, "the message is in the master", |ring| ring.published == 2).await;
    assert!(!waiting.is_finished());
    replica.follow(&master);
    let receipt = waiting.await.unwrap().unwrap();
    assert_eq!((receipt.id, receipt.duplicate), (2, false));
    assert_eq!(watcher.snapshot(0).await.unwrap().published, 2, "repeats are recognised");
}

/// A repeat that Redis recognises writes nothing. `WAIT` alone would then confirm it at once on a new connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_on_a_new_connection_is_not_confirmed_by_an_old_write() {
    let pair = Pair::start().await;
    let publisher: Publisher = Publisher::of(&with(Durability::Replicas(1))(pair.config())).await.unwrap();
    publisher.publish("one").await.unwrap();
    pair.replica.freeze();
    let waiting = tokio::spawn(async move { publisher.publish("two").patient(SOON).await });
    let watcher = ring(&pair.master).await;
    eventually(&watcher, "the second is in the master", |ring| ring.published == 2).await;
    for _ in 0..3 {
        tell(&pair.master, &["CLIENT", "KILL", "TYPE", "normal"]);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(!waiting.is_finished(), "no replica has the message");
    pair.replica.thaw();
    assert_eq!(waiting.await.unwrap().unwrap().id, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_receipt_is_lost_when_a_replica_is_promoted() {
    let pair = Pair::start().await;
    let publisher: Publisher = Publisher::of(&with(Durability::AllReplicas)(pair.config())).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let publishing = tokio::spawn(async move {
        let (mut receipts, mut stopped) = (Vec::new(), stopped);
        while stopped.try_recv().is_err() {
            let body = receipts.len().to_string();
            receipts.push((publisher.publish(body).patient(SOON).await.unwrap().id, receipts.len()));
        }
        receipts
    });
    let old = ring(&pair.master).await;
    eventually(&old, "messages are published", |ring| ring.published > 20).await;
    // The old master goes on as if nothing had happened, until the replica is promoted and the address moves.
    tell(&pair.replica, &["REPLICAOF", "NO", "ONE"]);
    pair.address.move_to(&pair.replica);
    tokio::time::sleep(Duration::from_millis(200)).await;
    pair.master.follow(&pair.replica);
    let new = ring(&pair.replica).await;
    let so_far = new.snapshot(0).await.unwrap().published;
    eventually(&new, "messages are published at the new master", |ring| ring.published > so_far + 20).await;
    stop.send(()).unwrap();
    let receipts = publishing.await.unwrap();

    let handled = Keep::default();
    let node = RunningNode::start(
        changed(config(&pair.replica), |config| config.generator_handles = true),
        Counter(1_000_000),
        handled.clone(),
    );
    let count = receipts.len();
    eventually(&new, "all are handled", |ring| ring.done >= ring.submitted).await;
    node.stop().await.unwrap();
    let bodies = handled.0.lock().unwrap().clone();
    let mut ids: Vec<u64> = receipts.iter().map(|(id, _)| *id).collect();
    ids.dedup();
    assert_eq!(ids.len(), count, "no id was given twice");
    for (id, body) in receipts {
        assert_eq!(
            bodies.iter().filter(|found| ***found == *body.to_string().as_bytes()).count(),
            1,
            "#{id}: {body}"
        );
    }
}

/// A server that was demoted and promoted again has perhaps lost the step before its mark.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_history_has_changed_confirms_nothing_on_an_old_connection() {
    let pair = Pair::start().await;
    let publisher: Publisher = Publisher::of(&with(Durability::Replicas(1))(pair.config())).await.unwrap();
    let waiting_clients = || -> Vec<String> {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut pair.master.connect()).unwrap();
        let waiting = list.lines().filter(|line| line.contains(" cmd=wait "));
        waiting.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    publisher.publish("one").await.unwrap();
    let first = waiting_clients();
    assert_eq!(first.len(), 1);
    publisher.publish("two").await.unwrap();
    assert_eq!(waiting_clients(), first, "the history is the same");
    tell(&pair.master, &["REPLICAOF", "127.0.0.1", "1"]);
    tell(&pair.master, &["REPLICAOF", "NO", "ONE"]);
    pair.replica.follow(&pair.master);
    assert_eq!(publisher.publish("three").patient(SOON).await.unwrap().id, 3);
    // The server may still list the old connection.
    let is_new = |client: &String| !first.contains(client);
    assert!(waiting_clients().iter().any(is_new), "the step was repeated on a new connection");
}

struct FailAll;

impl TestHandler for FailAll {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        Err(Failure::fatal("on purpose"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_taken_and_resolved_only_when_replicas_have_that() {
    let pair = Pair::start().await;
    let limited = changed(pair.config(), |config| {
        (config.limit, config.generator_handles) = (Some(4), true);
    });
    let node = RunningNode::start(limited, Counter(0), FailAll);
    let watcher = ring(&pair.master).await;
    eventually(&watcher, "four errors", |ring| ring.errors_kept == 4).await;
    node.stop().await.unwrap();
    let settings = with(Durability::Replicas(1))(pair.config());
    let mut reader = DeadLetterReader::join(settings.clone()).await.unwrap();
    assert!(!reader.next().await.unwrap().is_empty());
    let outside = Ring::connect(settings.redis.clone(), settings.ring.clone()).await.unwrap();
    let outside = outside.with_durability(settings.durability);

    pair.replica.freeze();
    assert!(matches!(reader.release().await, Err(Error::Unconfirmed { .. })));
    let dropped = outside.drop_errors(&estafeta::Selection::All).await;
    assert!(matches!(dropped, Ok(0) | Err(Error::Unconfirmed { .. })), "{dropped:?}");
    pair.replica.thaw();
    reader.release().await.unwrap();
    reader.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_confirm_what_is_on_its_disk_is_refused_at_the_start() {
    let start = async |redis: &RedisServer| {
        let node = Node::with(with(Durability::Disk)(config(redis)));
        node.handle(async |_: estafeta::Job<String>| Ok(())).until(async {}).await
    };
    let memory_only = RedisServer::start();
    let refused = start(&memory_only).await.unwrap_err().to_string();
    assert!(
        refused.ends_with("durability disk: expected a server with appendonly yes, got one with no"),
        "{refused}"
    );
    let every_second = RedisServer::builder().append_only(Fsync::EverySec).start();
    let info: String = redis::cmd("INFO").arg("server").query(&mut every_second.connect()).unwrap();
    let is_old = info.contains("redis_version:7.0.");
    match start(&every_second).await {
        Err(error) if is_old => {
            let expected = "durability disk: expected Redis 7.2 or newer, or appendfsync always, got neither";
            assert!(error.to_string().ends_with(expected), "{error}");
        }
        answer => answer.unwrap(),
    }
    let always = RedisServer::builder().append_only(Fsync::Always).start();
    let publisher: Publisher = Publisher::of(&with(Durability::Disk)(config(&always))).await.unwrap();
    assert_eq!(publisher.publish("on disk").await.unwrap().id, 1);
    start(&always).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_confirmed_on_the_disk_survives_a_kill() {
    let probe = RedisServer::start();
    let has_waitaof: Vec<redis::Value> =
        redis::cmd("COMMAND").arg("INFO").arg("waitaof").query(&mut probe.connect()).unwrap();
    let has_waitaof = has_waitaof != [redis::Value::Nil];
    // Without WAITAOF, only a server that writes before it answers can confirm.
    let fsync = if has_waitaof { Fsync::EverySec } else { Fsync::Always };
    let redis = RedisServer::builder().append_only(fsync).start();
    let settings = changed(with(Durability::Disk)(config(&redis)), |config| {
        (config.limit, config.generator_handles) = (Some(20), true);
    });
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    for id in 1..=3 {
        assert_eq!(publisher.publish("on disk").await.unwrap().id, id);
    }
    let node = RunningNode::start(settings, Counter(0), Keep::default());
    eventually(&ring(&redis).await, "messages are done", |ring| ring.done == 20).await;
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut redis.connect()).unwrap();
    assert_eq!(stats.contains("cmdstat_waitaof:"), has_waitaof, "{stats}");
    let reported = counted(&node.notices, "handled");
    redis.kill();
    redis.restart();
    let after = eventually(&ring(&redis).await, "a snapshot", |_| true).await;
    assert!(after.done >= reported as u64 && after.published == 20, "{reported}: {after:?}");
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_names_more_replicas_than_there_are_is_refused() {
    let pair = Pair::start().await;
    let node = Node::with(with(Durability::Replicas(3))(pair.config()));
    let running = node.handle(async |_: estafeta::Job<String>| Ok(())).until(std::future::pending());
    let refused = tokio::time::timeout(SOON, running).await.expect("the node ends").unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    let expected = "durability replicas=3: only 1 of 3 replicas are connected";
    assert!(refused.to_string().ends_with(expected), "{refused}");
    assert_eq!(ring(&pair.master).await.snapshot(0).await.unwrap().members.len(), 0);
}

/// While sentinels promote a replica, the old master still accepts writes. The replica that it keeps is not enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_connects_after_a_replica_was_promoted_is_not_confirmed_by_the_other_one() {
    let [master, promoted, other] = [(); 3].map(|()| RedisServer::builder().tcp().with_replicas().start());
    promoted.follow(&master);
    other.follow(&master);
    let settings = with(Durability::AllReplicas)(config(&master));
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    publisher.publish("all have it").await.unwrap();
    tell(&promoted, &["REPLICAOF", "NO", "ONE"]);
    let newcomer: Publisher = Publisher::of(&settings).await.unwrap();
    let refused = newcomer.publish("only one has it").await.unwrap_err();
    assert!(matches!(refused, Error::Unconfirmed { .. }), "{refused}");
    assert!(refused.to_string().contains("only 1 of 2 replicas have it"), "{refused}");
}

/// After a failover, replicas may need a moment to connect to the new master.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_waits_a_moment_for_its_replicas() {
    let [master, replica] = [(); 2].map(|()| RedisServer::builder().tcp().with_replicas().start());
    let settings = changed(with(Durability::Replicas(1))(config(&master)), |config| {
        config.generator_handles = true;
    });
    let node = RunningNode::start(settings, Counter(0), Keep::default());
    estafeta_testbed::eventually(SOON, "the node is connected", || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut master.connect()).unwrap();
        (list.lines().filter(|line| line.contains(" cmd=info ")).count() > 0).then_some(())
    });
    replica.follow(&master);
    node.notices.wait_for("handled").await;
    node.stop().await.unwrap();
}
