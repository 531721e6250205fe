//! Looking at a ring again and again: what a look costs, and that it misses nothing.

use super::*;
use crate::ring::Ring;

impl Bench {
    async fn ring(&self) -> Ring {
        Ring::connect(self.redis.url().parse().unwrap(), RingName::default()).await.unwrap()
    }

    /// How often hashes of members are read while one snapshot is taken.
    async fn reads_of_a_snapshot(&self, ring: &Ring) -> usize {
        self.ask::<()>(&["CONFIG", "RESETSTAT"]);
        ring.snapshot(0).await.unwrap();
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let calls = stats.split("cmdstat_hmget:calls=").nth(1).and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }
}

#[tokio::test]
async fn members_are_asked_for_their_lanes_once() {
    let bench = Bench::new().await;
    let ring = bench.ring().await;
    let mut members = Vec::new();
    for lanes in 1..=5 {
        members.push(bench.join(Kind::Member, lanes).await);
    }
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 10, "each for its lanes, then each in the script");
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 5);
    bench.join(Kind::Reader, 1).await;
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 7);
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 6);

    // Whoever is gone is forgotten, and is asked again if a late join brings it back.
    let gone = members[2];
    bench.store.leave(gone.incarnation, gone.lanes).await.unwrap();
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 5);
    bench.store.join(&introduction(gone.incarnation, Kind::Member, gone.lanes, false)).await.unwrap();
    assert_eq!(bench.reads_of_a_snapshot(&ring).await, 7);
}

#[tokio::test]
async fn a_member_that_is_not_whole_any_more_is_in_nobodys_way() {
    let bench = Bench::new().await;
    let ring = bench.ring().await;
    let (one, other) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 2).await);
    assert_eq!(ring.snapshot(0).await.unwrap().members.len(), 2);
    bench.ask::<()>(&["DEL", &bench.store.keys.member(one.incarnation)]);
    for _ in 0..2 {
        let members = ring.snapshot(0).await.unwrap().members;
        assert_eq!(members.iter().map(|member| member.id).collect::<Vec<_>>(), [other.number]);
    }
}
