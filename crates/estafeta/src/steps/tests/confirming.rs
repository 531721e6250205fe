//! Tests of the mark that Redis confirms, and of the replicas that it remembers.

use super::confirm::{CONFIRM, Replication, call, call_with, read};
use super::*;

impl TestBench {
    async fn mark(&self) -> Replication {
        read(self.store.run(CONFIRM, &call(self.store.keys())).await.unwrap()).unwrap()
    }

    /// Writes what a mark remembers of a server with this replication id.
    fn remember(&self, id: &str, replicas: u32, online: u32, missed_since: &str) {
        let mark = format!("{id} {replicas} {online} {missed_since}");
        self.ask::<()>(&["SET", &self.store.keys().confirmed, &mark]);
    }

    fn missed_since(&self) -> String {
        let mark: String = self.ask(&["GET", &self.store.keys().confirmed]);
        mark.rsplit(' ').next().unwrap().to_owned()
    }
}

/// A step that was repeated may have written nothing, so only a mark that is written each time can be confirmed.
#[tokio::test]
async fn each_call_writes_the_mark_and_it_expires() {
    let bench = TestBench::new().await;
    let key = bench.store.keys().confirmed.clone();
    let changes = || {
        let info: redis::InfoDict = bench.ask(&["INFO", "persistence"]);
        info.get::<u64>("rdb_changes_since_last_save").unwrap()
    };
    for _ in 0..2 {
        let before = changes();
        bench.mark().await;
        assert!(changes() > before);
        let left: u64 = bench.ask(&["PTTL", &key]);
        assert!((80_000_000..=86_400_000).contains(&left), "{left}");
        bench.ask::<()>(&["PEXPIRE", &key, "40000"]);
    }
}

#[tokio::test]
async fn a_replica_that_has_left_counts_for_fifteen_seconds() {
    let bench = TestBench::new().await;
    let found = bench.mark().await;
    assert_eq!(found.replicas, 0);
    assert_eq!(bench.missed_since(), "");
    bench.remember(&found.id, 2, 2, "");
    assert_eq!(bench.mark().await.replicas, 2, "one of them may have been promoted");
    let first: u64 = bench.missed_since().parse().unwrap();
    bench.remember(&found.id, 2, 0, &(first - 14_000).to_string());
    assert_eq!(bench.mark().await.replicas, 2);
    assert_eq!(bench.missed_since(), (first - 14_000).to_string(), "the time goes on");
    bench.remember(&found.id, 3, 1, &(first - 14_000).to_string());
    assert_eq!(bench.mark().await.replicas, 3);
    assert!(bench.missed_since().parse::<u64>().unwrap() >= first, "it begins again when another one leaves");
    bench.remember(&found.id, 2, 0, &(first - 15_000).to_string());
    assert_eq!(bench.mark().await.replicas, 0, "it does not come back");
    assert_eq!(bench.missed_since(), "");
    assert_eq!(bench.mark().await.replicas, 0);
}

/// A server has the same replicas after a restart. One that was promoted has been up for long, and has others.
#[tokio::test]
async fn replicas_of_a_server_that_has_restarted_count_and_those_of_another_one_do_not() {
    let bench = TestBench::new().await;
    let missed = Duration::from_millis(1500);
    let mark = async || {
        let call = call_with(bench.store.keys(), missed);
        read(bench.store.run(CONFIRM, &call).await.unwrap()).unwrap().replicas
    };
    let uptime =
        || bench.ask::<redis::InfoDict>(&["INFO", "server"]).get::<u64>("uptime_in_seconds").unwrap();
    bench.remember("abc", 2, 2, "");
    let (counted, since_start) = (mark().await, uptime());
    assert!(counted == 2 || since_start >= 2, "{counted} replicas, {since_start} s after the start");
    until("a server that is up for longer", async || uptime() >= 2).await;
    bench.remember("abc", 2, 2, "");
    assert_eq!(mark().await, 0);
}

#[tokio::test]
async fn a_mark_of_a_foreign_client_is_forgotten() {
    let bench = TestBench::new().await;
    let found = bench.mark().await;
    for foreign in ["1", "abc many 2 ", &format!("{} 2", found.id)] {
        bench.ask::<()>(&["SET", &bench.store.keys().confirmed, foreign]);
        assert_eq!(bench.mark().await, found, "{foreign}");
    }
    bench.ask::<()>(&["DEL", &bench.store.keys().confirmed]);
    bench.ask::<()>(&["HSET", &bench.store.keys().confirmed, "replicas", "2"]);
    assert_eq!(bench.mark().await, found);
}
