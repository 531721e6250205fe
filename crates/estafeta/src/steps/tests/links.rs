//! Tests of connections: a blocking command occupies one, a broken one is replaced, and what a new one shows is not
//! trusted at once.

use std::time::Instant;

use futures_util::FutureExt as _;

use super::*;
use crate::node::wakeup::Wakeup;

#[tokio::test]
async fn a_connection_is_not_free_while_a_blocking_command_waits_on_it() {
    let bench = TestBench::new().await;
    let connection = &bench.store.connection();
    assert!(connection.free().is_some());
    let waiting = bench.store.await_wakeup(LEASE);
    let wake = async {
        let blocked = || -> String { bench.ask(&["INFO", "clients"]) };
        until("a command waits", async || blocked().contains("blocked_clients:1")).await;
        assert!(connection.free().is_none());
        bench.ask::<u64>(&["RPUSH", "{estafeta}:wakeup", "1"])
    };
    let (received, _) = tokio::join!(waiting, wake);
    assert!(received.unwrap());
    assert!(connection.free().is_some());
}

#[tokio::test]
async fn no_blocking_command_starts_while_a_caller_uses_a_free_connection() {
    let bench = TestBench::new().await;
    bench.ask::<u64>(&["RPUSH", "{estafeta}:wakeup", "1"]);
    let mine = bench.store.connection().free().unwrap();
    let early = tokio::time::timeout(Duration::from_millis(50), bench.store.await_wakeup(LEASE)).await;
    assert!(early.is_err(), "it received the token on a connection that is taken");
    drop(mine);
    assert!(bench.store.await_wakeup(LEASE).await.unwrap());
}

#[tokio::test]
async fn a_wait_of_less_than_a_second_ends_by_itself() {
    let bench = TestBench::new().await;
    let waiting = bench.store.await_wakeup(Duration::from_millis(50));
    assert!(!tokio::time::timeout(LEASE, waiting).await.expect("it ends").unwrap());
    assert!(bench.store.connection().free().is_some(), "Redis let go of it, too");
}

#[tokio::test]
async fn a_dropped_wait_keeps_its_connection_occupied() {
    let bench = TestBench::new().await;
    let waiting = bench.store.await_wakeup(LEASE);
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
    assert!(bench.store.connection().free().is_none(), "Redis lets it wait all the same");
}

/// A dropped wait occupies the connection for good. Another wait may already queue for it when the connection is
/// replaced.
#[tokio::test]
async fn a_wait_for_an_occupied_connection_continues_on_its_replacement() {
    let bench = TestBench::new().await;
    let (connection, keeper) =
        ManagedConnection::open(bench.redis.url().parse().unwrap(), LEASE).await.unwrap();
    let (connection, end) = (Arc::new(connection), CancellationToken::new());
    let keeping = (Arc::clone(&connection), end.clone());
    tokio::spawn(async move { keeping.0.keep(keeper, keeping.1).await });
    let listener = Store::new(connection, RingName::sample()).patient(end.clone());
    let id = connection_of(&listener).await;
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.await_wakeup(LEASE)).await.is_err());

    // One poll is enough for this wait to queue for the connection.
    let mut again = std::pin::pin!(listener.await_wakeup(LEASE));
    assert!(again.as_mut().now_or_never().is_none(), "the connection is occupied");
    bench.ask::<u64>(&["CLIENT", "KILL", "ID", &id.to_string()]);
    bench.ask::<u64>(&["RPUSH", "{estafeta}:wakeup", "1"]);
    assert!(tokio::time::timeout(LEASE, again).await.expect("it hears").unwrap());
    end.cancel();
}

/// The id that Redis gave to the connection that serves a store.
async fn connection_of(store: &Store) -> u64 {
    store.read(redis::cmd("CLIENT").arg("ID")).await.unwrap()
}

#[tokio::test]
async fn steps_use_the_shortcut_while_it_is_free_and_their_own_connection_otherwise() {
    let bench = TestBench::new().await;
    let endpoint = bench.redis.url().parse().unwrap();
    let (shortcut, _keeper) = ManagedConnection::open(endpoint, Duration::from_secs(10)).await.unwrap();
    let shortcut = Arc::new(shortcut);
    let listener = Store::new(Arc::clone(&shortcut), RingName::sample());
    let store = bench.store.with_shortcut(Arc::clone(&shortcut)).patient(CancellationToken::new());
    let (own, short) = (connection_of(&bench.store).await, connection_of(&listener).await);
    assert_ne!(own, short);
    assert_eq!(connection_of(&store).await, short);
    let waiting = listener.await_wakeup(LEASE);
    let step = async {
        until("the shortcut is taken", async || shortcut.free().is_none()).await;
        assert_eq!(connection_of(&store).await, own, "while a command waits there");
        bench.ask::<u64>(&["RPUSH", "{estafeta}:wakeup", "1"])
    };
    let (received, _) = tokio::join!(waiting, step);
    assert!(received.unwrap());
    assert_eq!(connection_of(&store).await, short);

    bench.ask::<u64>(&["CLIENT", "KILL", "ID", &short.to_string()]);
    assert_eq!(connection_of(&store).await, own);
    assert!(
        bench.store.connection().outage().borrow().is_none(),
        "an outage of another connection is not reported on this one"
    );
}

/// Starts a listener for wakeups on a separate connection. Returns the wakeup on which lanes wait, the connection of
/// the listener, and the token that stops it.
async fn listening(bench: &TestBench) -> (Wakeup, Arc<ManagedConnection>, CancellationToken) {
    let (connection, _) = ManagedConnection::open(bench.redis.url().parse().unwrap(), LEASE).await.unwrap();
    let (connection, end, wakeup) = (Arc::new(connection), CancellationToken::new(), Wakeup::new());
    let store = Store::new(Arc::clone(&connection), RingName::sample());
    tokio::spawn(wakeup.clone().listen(store, bench.store.clone(), LEASE, end.clone()));
    (wakeup, connection, end)
}

#[tokio::test]
async fn the_listener_waits_only_while_a_lane_is_idle() {
    let bench = TestBench::new().await;
    let (wakeup, connection, end) = listening(&bench).await;
    for _ in 0..2 {
        let wake = async {
            until("a command waits", async || connection.free().is_none()).await;
            bench.ask::<u64>(&["RPUSH", "{estafeta}:wakeup", "1"]);
        };
        tokio::join!(wakeup.wait(), wake);
        // The listener has done its next step once all other tasks have had their turn a few times.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(connection.free().is_some(), "it listens for lanes that are at work");
    }
    end.cancel();
}

#[tokio::test]
async fn a_wakeup_that_no_lane_wants_any_more_is_passed_on() {
    let bench = TestBench::new().await;
    let (wakeup, connection, end) = listening(&bench).await;
    let mut lane = Box::pin(wakeup.wait());
    let is_listening = async || connection.free().is_none() || futures_util::poll!(&mut lane).is_ready();
    until("a command waits", is_listening).await;
    drop(lane);
    bench.ask::<u64>(&["RPUSH", "{estafeta}:ready", "a message waits"]);
    bench.ask::<u64>(&["RPUSH", "{estafeta}:wakeup", "1"]);
    until("the token is taken", async || connection.free().is_some()).await;
    until("a new token is left", async || bench.ask::<u64>(&["LLEN", "{estafeta}:wakeup"]) == 1).await;
    end.cancel();
}

/// Opens a connection with a running keeper, as members have it. The server has been up for at least a second.
/// Redis is silent for longer than a call waits, as on a machine where many nodes start at once.
#[tokio::test]
async fn a_starting_node_asks_a_silent_redis_again_and_a_command_does_not() {
    let bench = TestBench::new().await;
    let opened = ManagedConnection::open(bench.redis.url().parse().unwrap(), Duration::from_millis(50)).await;
    let store = Store::new(Arc::new(opened.unwrap().0), bench.store.ring().clone());
    bench.ask::<()>(&["CLIENT", "PAUSE", "1000", "ALL"]);
    let ping = redis::cmd("PING");
    let error = store.send(&ping).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    store.trying_for(Duration::from_secs(30)).send(&ping).await.unwrap();
    let refused = store.trying_for(Duration::from_secs(30)).send(&redis::cmd("NONSENSE")).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}

async fn kept_connection(bench: &TestBench) -> (Arc<ManagedConnection>, CancellationToken) {
    let uptime = || -> String { bench.ask(&["INFO", "server"]) };
    until("the server is a second old", async || !uptime().contains("uptime_in_seconds:0")).await;
    let (connection, keeper) =
        ManagedConnection::open(bench.redis.url().parse().unwrap(), LEASE).await.unwrap();
    let (connection, end) = (Arc::new(connection), CancellationToken::new());
    let keeping = (Arc::clone(&connection), end.clone());
    tokio::spawn(async move { keeping.0.keep(keeper, keeping.1).await });
    (connection, end)
}

/// Breaks the session of a connection and waits until the keeper has replaced it.
async fn reconnect(bench: &TestBench, connection: &Arc<ManagedConnection>) {
    let generation = connection.session().await.generation;
    let id = connection_of(&Store::new(Arc::clone(connection), RingName::sample())).await;
    bench.ask::<u64>(&["CLIENT", "KILL", "ID", &id.to_string()]);
    until("a new connection", async || connection.session().await.generation > generation).await;
}

const SETTLING: Duration = Duration::from_millis(900);

#[tokio::test]
async fn a_replaced_session_counts_as_settled_only_after_the_settling_time() {
    let bench = TestBench::new().await;
    let (connection, end) = kept_connection(&bench).await;
    assert!(connection.is_settled(SETTLING), "the first connection to a server that has been up for longer");
    assert!(!connection.is_settled(Duration::from_secs(3600)), "and not if the server is young");
    let start = Instant::now();
    reconnect(&bench, &connection).await;
    // The settling time is over already if this machine stood still for that long.
    let is_believed = connection.is_settled(SETTLING) && start.elapsed() < SETTLING;
    assert!(!is_believed, "everybody else may still be on the way back");
    assert!(connection.is_settled(Duration::ZERO));
    end.cancel();
}

#[tokio::test]
async fn a_connection_without_a_session_is_not_settled() {
    let bench = TestBench::new().await;
    let (connection, end) = kept_connection(&bench).await;
    bench.redis.kill();
    until("the connection is lost", async || connection.current().is_none()).await;
    assert!(!connection.is_settled(Duration::ZERO));
    end.cancel();
}

#[tokio::test]
async fn an_outage_is_reported_once_until_the_last_waiting_call_is_served_and_then_unsettles() {
    let bench = TestBench::new().await;
    let (connection, end) = kept_connection(&bench).await;
    let outage = || connection.outage().borrow().as_ref().map(ToString::to_string);
    drop(connection.wait_along());
    assert!(connection.is_settled(SETTLING), "a wait without an outage means nothing");

    let (one, other) = (connection.wait_along(), connection.wait_along());
    connection.report_outage(CallError::Broken("first".into()));
    connection.report_outage(CallError::Broken("second".into()));
    let first = outage().expect("an outage");
    assert!(first.contains("first"), "{first}");
    drop(one);
    assert_eq!(outage(), Some(first), "a caller still waits");
    assert!(connection.is_settled(SETTLING));
    let start = Instant::now();
    drop(other);
    assert_eq!(outage(), None);
    // The settling time is over already if this machine stood still for that long.
    assert!(!connection.is_settled(SETTLING) || start.elapsed() >= SETTLING);
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
    }
    end.cancel();
}
