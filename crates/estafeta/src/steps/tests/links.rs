//! Tests of connections: a broken one is replaced, what a new one shows is not trusted at once, and calls arrive after
//! every reconnect.

use std::time::Instant;

use super::*;

/// The id that Redis gave to the connection that serves a store.
async fn connection_of(store: &Store) -> u64 {
    store.read(redis::cmd("CLIENT").arg("ID")).await.unwrap()
}

/// Redis is silent for longer than a call waits, as on a machine where many nodes start at once.
#[tokio::test]
async fn a_starting_node_asks_a_silent_redis_again_and_a_command_does_not() {
    let bench = TestBench::new().await;
    let opened = ManagedConnection::open(topology(&bench.redis), Duration::from_millis(50)).await;
    let store = Store::new(Arc::new(opened.unwrap().0), bench.store.ring().clone());
    bench.ask::<()>(&["CLIENT", "PAUSE", "1000", "ALL"]);
    let ping = redis::cmd("PING");
    let error = store.send(&ping).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    store.trying_for(Duration::from_secs(30)).send(&ping).await.unwrap();
    let refused = store.trying_for(Duration::from_secs(30)).send(&redis::cmd("NONSENSE")).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}

/// Opens a connection with a running keeper, as members have it. The server has been up for at least a second.
async fn kept_connection(bench: &TestBench) -> (Arc<ManagedConnection>, CancellationToken) {
    let uptime = || -> String { bench.ask(&["INFO", "server"]) };
    until("the server is a second old", async || !uptime().contains("uptime_in_seconds:0")).await;
    let (connection, keeper) = ManagedConnection::open(topology(&bench.redis), LEASE).await.unwrap();
    let (connection, end) = (Arc::new(connection), CancellationToken::new());
    let keeping = (Arc::clone(&connection), end.clone());
    tokio::spawn(async move { keeping.0.keep(keeper, keeping.1).await });
    (connection, end)
}

/// Breaks the session of a connection and waits until the keeper has replaced it.
async fn reconnect(bench: &TestBench, connection: &Arc<ManagedConnection>) {
    let generation = connection.session(None).await.generation;
    let id = connection_of(&Store::new(Arc::clone(connection), RingName::sample())).await;
    bench.ask::<u64>(&["CLIENT", "KILL", "ID", &id.to_string()]);
    until("a new connection", async || connection.session(None).await.generation > generation).await;
}

const SETTLING: Duration = Duration::from_millis(900);

#[tokio::test]
async fn a_replaced_session_is_trusted_only_after_the_trust_delay() {
    let bench = TestBench::new().await;
    let (connection, end) = kept_connection(&bench).await;
    assert!(connection.is_trusted(SETTLING), "the first connection to a server that has been up for longer");
    assert!(!connection.is_trusted(Duration::from_secs(3600)), "and not if the server is young");
    let start = Instant::now();
    reconnect(&bench, &connection).await;
    // The trust delay is over already if this machine stood still for that long.
    let is_believed = connection.is_trusted(SETTLING) && start.elapsed() < SETTLING;
    assert!(!is_believed, "everybody else may still be on the way back");
    assert!(connection.is_trusted(Duration::ZERO));
    end.cancel();
}

/// Its members are new there, although the server is old.
#[tokio::test]
async fn a_server_that_was_promoted_is_not_trusted_at_once() {
    let bench = TestBench::new().await;
    bench.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    bench.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    let (connection, end) = kept_connection(&bench).await;
    let since = connection.session(None).await.since;
    // The trust delay is over already if this machine stood still for that long.
    assert!(!connection.is_trusted(SETTLING) || since.elapsed() >= SETTLING);
    assert!(connection.is_trusted(Duration::ZERO));
    end.cancel();
}

#[tokio::test]
async fn when_one_connection_finds_its_server_demoted_both_are_replaced() {
    let bench = TestBench::new().await;
    let (topology, end) = (topology(&bench.redis), CancellationToken::new());
    let mut both = Vec::new();
    for _ in 0..2 {
        let (connection, keeper) = ManagedConnection::open(Arc::clone(&topology), LEASE).await.unwrap();
        let connection = Arc::new(connection);
        let (keeping, stop) = (Arc::clone(&connection), end.clone());
        tokio::spawn(async move { keeping.keep(keeper, stop).await });
        both.push(connection);
    }
    bench.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let store = Store::new(Arc::clone(&both[0]), RingName::sample());
    let refused = store.send(redis::cmd("SET").arg("key").arg("value")).await.unwrap_err();
    assert!(refused.to_string().contains("READONLY"), "{refused}");
    for connection in &both {
        until("a new session", async || connection.session(None).await.generation > 1).await;
    }
    bench.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    store.send(redis::cmd("SET").arg("key").arg("value")).await.unwrap();
    end.cancel();
}

#[tokio::test]
async fn a_connection_without_a_session_is_not_trusted() {
    let bench = TestBench::new().await;
    let (connection, end) = kept_connection(&bench).await;
    bench.redis.kill();
    until("the connection is lost", async || connection.current().is_none()).await;
    assert!(!connection.is_trusted(Duration::ZERO));
    end.cancel();
}

#[tokio::test]
async fn an_outage_is_reported_once_until_the_last_waiting_call_is_served_and_then_ends_trust() {
    let bench = TestBench::new().await;
    let (connection, end) = kept_connection(&bench).await;
    let outage = || connection.outage().borrow().as_ref().map(ToString::to_string);
    drop(connection.wait_along());
    assert!(connection.is_trusted(SETTLING), "a wait without an outage means nothing");

    let (one, other) = (connection.wait_along(), connection.wait_along());
    connection.report_outage(CallError::Broken("first".into()));
    connection.report_outage(CallError::Broken("second".into()));
    let first = outage().expect("an outage");
    assert!(first.contains("first"), "{first}");
    drop(one);
    assert_eq!(outage(), Some(first), "a caller still waits");
    assert!(connection.is_trusted(SETTLING));
    let start = Instant::now();
    drop(other);
    assert_eq!(outage(), None);
    // The trust delay is over already if this machine stood still for that long.
    assert!(!connection.is_trusted(SETTLING) || start.elapsed() >= SETTLING);
    end.cancel();
}

#[tokio::test]
async fn presence_and_calls_use_the_channel_of_the_present_life_after_every_reconnect() {
    let bench = TestBench::new().await;
    let (connection, end) = kept_connection(&bench).await;
    let store = Store::new(Arc::clone(&connection), RingName::sample());
    let (former, present) = (Incarnation::random(), Incarnation::random());
    let subscribers = |who: Incarnation| -> u64 {
        let channel = bench.store.keys().alive(who);
        bench.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel]).1
    };
    assert!(store.show_presence(former).await.unwrap());
    assert_eq!((subscribers(former), subscribers(present)), (1, 0));
    assert!(store.show_presence(present).await.unwrap());
    for _ in 0..2 {
        assert_eq!((subscribers(former), subscribers(present)), (0, 1));
        bench.ask::<u64>(&["PUBLISH", &bench.store.keys().alive(present), "office"]);
        tokio::time::timeout(LEASE, connection.called()).await.expect("it hears the call");
        reconnect(&bench, &connection).await;
        tokio::time::timeout(LEASE, connection.called()).await.expect("a call may have been lost meanwhile");
    }
    end.cancel();
}
