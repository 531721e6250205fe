//! A connection on which Redis lets a command wait.

use super::*;

#[tokio::test]
async fn a_connection_is_free_for_nobody_while_redis_lets_a_command_wait_on_it() {
    let bench = Bench::new().await;
    let link = &bench.store.link;
    assert!(link.free().is_some());
    let waiting = bench.store.hear_bell(LEASE);
    let ring = async {
        let blocked = || -> String { bench.ask(&["INFO", "clients"]) };
        while !blocked().contains("blocked_clients:1") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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
    let mine = bench.store.link.free().unwrap();
    let early = tokio::time::timeout(Duration::from_millis(50), bench.store.hear_bell(LEASE)).await;
    assert!(early.is_err(), "it heard the bell on a connection that is taken");
    drop(mine);
    assert!(bench.store.hear_bell(LEASE).await.unwrap());
}

#[tokio::test]
async fn a_wait_that_is_given_up_keeps_its_connection() {
    let bench = Bench::new().await;
    let waiting = bench.store.hear_bell(LEASE);
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
    assert!(bench.store.link.free().is_none(), "Redis lets it wait all the same");
}

/// Where a wait was given up another one may be at the door already when the connection is replaced.
#[tokio::test]
async fn whoever_waits_for_a_connection_that_is_taken_for_good_gets_the_next_one() {
    let bench = Bench::new().await;
    let (link, keeper) = Link::open(bench.redis.url().parse().unwrap(), LEASE).await.unwrap();
    let (link, end) = (Arc::new(link), CancellationToken::new());
    let keeping = (Arc::clone(&link), end.clone());
    tokio::spawn(async move { keeping.0.keep(keeper, keeping.1).await });
    let listener = Store::new(link, RingName::default()).patient(end.clone());
    let id = connection_of(&listener).await;
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.hear_bell(LEASE)).await.is_err());

    let again = tokio::spawn(async move { listener.hear_bell(LEASE).await });
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
    let (ear, _keeper) = Link::open(endpoint, Duration::from_secs(10)).await.unwrap();
    let ear = Arc::new(ear);
    let listener = Store::new(Arc::clone(&ear), RingName::default());
    let store = bench.store.with_shortcut(Arc::clone(&ear)).patient(CancellationToken::new());
    let (own, short) = (connection_of(&bench.store).await, connection_of(&listener).await);
    assert_ne!(own, short);
    assert_eq!(connection_of(&store).await, short);
    let waiting = listener.hear_bell(LEASE);
    let step = async {
        while ear.free().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(connection_of(&store).await, own, "while somebody waits there");
        bench.ask::<u64>(&["RPUSH", "{estafeta}:bell", "1"])
    };
    let (heard, _) = tokio::join!(waiting, step);
    assert!(heard.unwrap());
    assert_eq!(connection_of(&store).await, short);

    bench.ask::<u64>(&["CLIENT", "KILL", "ID", &short.to_string()]);
    assert_eq!(connection_of(&store).await, own);
    assert!(bench.store.link.trouble().borrow().is_none(), "the trouble of another connection is not ours");
}
