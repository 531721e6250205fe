//! Tests of the step `checkpoint`: who may change it, and when.

use super::*;

#[tokio::test]
async fn a_checkpoint_is_set_and_removed_only_while_nobody_is_in_office() {
    let bench = TestBench::new().await;
    let stored = || bench.ask::<Option<String>>(&["GET", "{estafeta}:checkpoint"]);
    let missing = bench.store.set_checkpoint(Some(b"1")).await.unwrap_err().to_string();
    assert_eq!(missing, "ring: expected a ring that exists, got 'estafeta'");
    assert_eq!(stored(), None);
    let (generator, term, _) = bench.three_nodes().await;
    for refused in [Some(&b"1"[..]), None] {
        let error = bench.store.set_checkpoint(refused).await.unwrap_err().to_string();
        assert_eq!(error, "ring estafeta has a generator, member 1: stop all nodes that may generate first");
    }
    assert_eq!(stored(), None);
    bench.store.resign(generator.incarnation, term.epoch).await.unwrap();
    for _ in 0..2 {
        bench.store.set_checkpoint(Some(b"17")).await.unwrap();
        assert_eq!(stored().as_deref(), Some("17"));
    }
    let largest = vec![b'x'; 64 * 1024];
    bench.store.set_checkpoint(Some(&largest)).await.unwrap();
    let large = bench.store.set_checkpoint(Some(&[&largest[..], b"x"].concat())).await.unwrap_err();
    assert_eq!(large.to_string(), "checkpoint: expected at most 65536 bytes, got '65537'");
    assert_eq!(stored().map(|stored| stored.len()), Some(64 * 1024));
    for _ in 0..2 {
        bench.store.set_checkpoint(None).await.unwrap();
        assert_eq!(stored(), None);
    }
    bench.ask::<()>(&["HSET", "{estafeta}:checkpoint", "a", "b"]);
    bench.store.set_checkpoint(Some(b"1")).await.unwrap_err();
    assert_eq!(bench.ask::<String>(&["TYPE", "{estafeta}:checkpoint"]), "hash", "it stays as it is");
}
