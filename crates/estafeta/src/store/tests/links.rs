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
