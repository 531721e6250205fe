//! Connections: one on which Redis lets a command wait, one that is replaced, and what may be believed through it.

use std::time::Instant;

use super::*;
use crate::node::wakeup::Wakeup;

#[tokio::test]
async fn a_connection_is_free_for_nobody_while_redis_lets_a_command_wait_on_it() {
    let bench = Bench::new().await;
    let link = &bench.store.connection();
    assert!(link.free().is_some());
    let waiting = bench.store.await_wakeup(LEASE);
    let ring = async {
        let blocked = || -> String { bench.ask(&["INFO", "clients"]) };
        until("a command waits", async || blocked().contains("blocked_clients:1")).await;
        assert!(link.free().is_none());
        bench.ask::<u64>(&["RPUSH", "{estafeta}:bell", "1"])
    };
    let (heard, _) = tokio::join!(waiting, ring);
    assert!(heard.unwrap());
    assert!(link.free().is_some());
}

#[tokio::test]
async fn nothing_waits_on_a_connection_that_somebody_has_to_himself() {
    let bench = Bench::new().await;
    bench.ask::<u64>(&["RPUSH", "{estafeta}:bell", "1"]);
    let mine = bench.store.connection().free().unwrap();
    let early = tokio::time::timeout(Duration::from_millis(50), bench.store.await_wakeup(LEASE)).await;
    assert!(early.is_err(), "it heard the bell on a connection that is taken");
    drop(mine);
    assert!(bench.store.await_wakeup(LEASE).await.unwrap());
}

#[tokio::test]
async fn a_wait_of_less_than_a_second_ends_by_itself() {
    let bench = Bench::new().await;
    let waiting = bench.store.await_wakeup(Duration::from_millis(50));
    assert!(!tokio::time::timeout(LEASE, waiting).await.expect("it ends").unwrap());
    assert!(bench.store.connection().free().is_some(), "Redis let go of it, too");
}

#[tokio::test]
async fn a_wait_that_is_given_up_keeps_its_connection() {
    let bench = Bench::new().await;
    let waiting = bench.store.await_wakeup(LEASE);
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
    assert!(bench.store.connection().free().is_none(), "Redis lets it wait all the same");
}

/// Where a wait was given up another one may be at the door already when the connection is replaced.
#[tokio::test]
async fn whoever_waits_for_a_connection_that_is_taken_for_good_gets_the_next_one() {
    let bench = Bench::new().await;
    let (link, keeper) = ManagedConnection::open(bench.redis.url().parse().unwrap(), LEASE).await.unwrap();
    let (link, end) = (Arc::new(link), CancellationToken::new());
    let keeping = (Arc::clone(&link), end.clone());
    tokio::spawn(async move { keeping.0.keep(keeper, keeping.1).await });
    let listener = Store::new(link, RingName::default()).patient(end.clone());
    let id = connection_of(&listener).await;
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.await_wakeup(LEASE)).await.is_err());

    let again = tokio::spawn(async move { listener.await_wakeup(LEASE).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    bench.ask::<u64>(&["CLIENT", "KILL", "ID", &id.to_string()]);
    bench.ask::<u64>(&["RPUSH", "{estafeta}:bell", "1"]);
    assert!(tokio::time::timeout(LEASE, again).await.expect("it hears").unwrap().unwrap());
    end.cancel();
}

/// The number that Redis gives the connection by which a store is served.
async fn connection_of(store: &Store) -> u64 {
    store.read(redis::cmd("CLIENT").arg("ID")).await.unwrap()
}

#[tokio::test]
async fn steps_go_by_the_shortcut_while_it_is_free_and_are_none_the_worse_when_it_breaks() {
    let bench = Bench::new().await;
    let endpoint = bench.redis.url().parse().unwrap();
    let (ear, _keeper) = ManagedConnection::open(endpoint, Duration::from_secs(10)).await.unwrap();
    let ear = Arc::new(ear);
    let listener = Store::new(Arc::clone(&ear), RingName::default());
    let store = bench.store.with_shortcut(Arc::clone(&ear)).patient(CancellationToken::new());
    let (own, short) = (connection_of(&bench.store).await, connection_of(&listener).await);
    assert_ne!(own, short);
    assert_eq!(connection_of(&store).await, short);
    let waiting = listener.await_wakeup(LEASE);
    let step = async {
        until("the shortcut is taken", async || ear.free().is_none()).await;
        assert_eq!(connection_of(&store).await, own, "while somebody waits there");
        bench.ask::<u64>(&["RPUSH", "{estafeta}:bell", "1"])
    };
    let (heard, _) = tokio::join!(waiting, step);
    assert!(heard.unwrap());
    assert_eq!(connection_of(&store).await, short);

    bench.ask::<u64>(&["CLIENT", "KILL", "ID", &short.to_string()]);
    assert_eq!(connection_of(&store).await, own);
    assert!(
        bench.store.connection().trouble().borrow().is_none(),
        "the trouble of another connection is not ours"
    );
}

/// Lanes that wait for the bell on a connection of their own, and the listener there.
async fn listening(bench: &Bench) -> (Wakeup, Arc<ManagedConnection>, CancellationToken) {
    let (ear, _) = ManagedConnection::open(bench.redis.url().parse().unwrap(), LEASE).await.unwrap();
    let (ear, end, bell) = (Arc::new(ear), CancellationToken::new(), Wakeup::new());
    let store = Store::new(Arc::clone(&ear), RingName::default());
    tokio::spawn(bell.clone().listen(store, bench.store.clone(), LEASE, end.clone()));
    (bell, ear, end)
}

#[tokio::test]
async fn nobody_listens_while_no_lane_is_idle() {
    let bench = Bench::new().await;
    let (bell, ear, end) = listening(&bench).await;
    for _ in 0..2 {
        let ring = async {
            until("somebody listens", async || ear.free().is_none()).await;
            bench.ask::<u64>(&["RPUSH", "{estafeta}:bell", "1"]);
        };
        tokio::join!(bell.wait(), ring);
        // Whatever the listener does next, it has done when all other tasks have had their turn a few times.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(ear.free().is_some(), "it listens for lanes that are at work");
    }
    end.cancel();
}

#[tokio::test]
async fn a_ring_that_no_lane_wants_any_more_is_passed_on() {
    let bench = Bench::new().await;
    let (bell, ear, end) = listening(&bench).await;
    let mut lane = Box::pin(bell.wait());
    let is_heard = async || ear.free().is_none() || futures_util::poll!(&mut lane).is_ready();
    until("somebody listens", is_heard).await;
    drop(lane);
    bench.ask::<u64>(&["RPUSH", "{estafeta}:ready", "a message waits"]);
    bench.ask::<u64>(&["RPUSH", "{estafeta}:bell", "1"]);
    until("the ring is heard", async || ear.free().is_some()).await;
    until("the bell rings again", async || bench.ask::<u64>(&["LLEN", "{estafeta}:bell"]) == 1).await;
    end.cancel();
}

/// A link that is kept, as members have it, on a server that has been up for longer than a second.
async fn kept_link(bench: &Bench) -> (Arc<ManagedConnection>, CancellationToken) {
    let uptime = || -> String { bench.ask(&["INFO", "server"]) };
    until("the server is a second old", async || !uptime().contains("uptime_in_seconds:0")).await;
    let (link, keeper) = ManagedConnection::open(bench.redis.url().parse().unwrap(), LEASE).await.unwrap();
    let (link, end) = (Arc::new(link), CancellationToken::new());
    let keeping = (Arc::clone(&link), end.clone());
    tokio::spawn(async move { keeping.0.keep(keeper, keeping.1).await });
    (link, end)
}

/// Breaks the connection of a link, and waits until it has another one.
async fn reconnect(bench: &Bench, link: &Arc<ManagedConnection>) {
    let generation = link.session().await.generation;
    let id = connection_of(&Store::new(Arc::clone(link), RingName::default())).await;
    bench.ask::<u64>(&["CLIENT", "KILL", "ID", &id.to_string()]);
    until("a new connection", async || link.session().await.generation > generation).await;
}

const SETTLING: Duration = Duration::from_millis(900);

#[tokio::test]
async fn what_is_seen_through_a_new_connection_is_believed_only_after_a_while() {
    let bench = Bench::new().await;
    let (link, end) = kept_link(&bench).await;
    assert!(link.is_settled(SETTLING), "the first connection to a server that has been up for longer");
    assert!(!link.is_settled(Duration::from_secs(3600)), "and not if the server is young");
    let start = Instant::now();
    reconnect(&bench, &link).await;
    // Unless this machine stood still for that long.
    let is_believed = link.is_settled(SETTLING) && start.elapsed() < SETTLING;
    assert!(!is_believed, "everybody else may still be on the way back");
    assert!(link.is_settled(Duration::ZERO));
    end.cancel();
}

#[tokio::test]
async fn nothing_is_believed_while_there_is_no_connection() {
    let bench = Bench::new().await;
    let (link, end) = kept_link(&bench).await;
    bench.redis.kill();
    until("the connection is lost", async || link.current().is_none()).await;
    assert!(!link.is_settled(Duration::ZERO));
    end.cancel();
}

#[tokio::test]
async fn a_trouble_is_told_once_until_the_last_one_that_waits_is_served_and_then_nothing_is_believed_for_a_while()
 {
    let bench = Bench::new().await;
    let (link, end) = kept_link(&bench).await;
    let told = || link.trouble().borrow().clone();
    drop(link.wait_along());
    assert!(link.is_settled(SETTLING), "a wait without any trouble means nothing");

    let (one, other) = (link.wait_along(), link.wait_along());
    link.report_trouble(&CallError::Broken("first".into()));
    link.report_trouble(&CallError::Broken("second".into()));
    let first = told().expect("a trouble");
    assert!(first.contains("first"), "{first}");
    drop(one);
    assert_eq!(told(), Some(first), "somebody still waits");
    assert!(link.is_settled(SETTLING));
    let start = Instant::now();
    drop(other);
    assert_eq!(told(), None);
    // Unless this machine stood still for that long.
    assert!(!link.is_settled(SETTLING) || start.elapsed() >= SETTLING);
    end.cancel();
}

#[tokio::test]
async fn a_member_is_seen_and_called_on_the_channel_of_its_present_life_after_every_reconnect() {
    let bench = Bench::new().await;
    let (link, end) = kept_link(&bench).await;
    let store = Store::new(Arc::clone(&link), RingName::default());
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
        tokio::time::timeout(LEASE, link.called()).await.expect("it hears the call");
        reconnect(&bench, &link).await;
    }
    end.cancel();
}
