//! Whom a judge believes to be dead: only whom it missed without a break, through a connection that has settled, and only
//! as the member that it is.

use tokio::sync::watch;

use super::*;
use crate::config::Config;
use crate::node::state::MemberState;
use crate::node::sweeper::{Burial, FailureDetector};

const LONG_GRACE: Duration = Duration::from_millis(300);

impl Bench {
    /// A judge that is this member, if any, and whose connection has settled.
    async fn judge(&self, member: Option<Actor>) -> FailureDetector {
        let mut config = Config::new(self.redis.url().parse().unwrap(), RingName::default());
        config.grace = LONG_GRACE;
        let settling = config.settling();
        until("the connection has settled", async || self.store.connection().is_settled(settling)).await;
        let standing = member.map(|member| watch::channel(MemberState::Handler(member.identity())).1);
        FailureDetector::new(self.store.clone(), config.into(), standing)
    }

    /// A member that says that it shows its presence, and whose connection is in the hands of the test.
    async fn join_with_presence(&self) -> Actor {
        let incarnation = Incarnation::random();
        let number = self.store.join(&introduction(incarnation, Kind::Member, 1, true)).await.unwrap();
        Actor { incarnation, number, lanes: 1 }
    }

    async fn wait_for_redis_time(&self, ms: u64) {
        until("Redis' clock", async || self.store.suspects(LEASE).await.unwrap().now_ms >= ms).await;
    }
}

fn numbers(burials: &[Burial]) -> Vec<MemberId> {
    burials.iter().map(|burial| burial.member).collect()
}

#[tokio::test]
async fn an_absence_with_a_break_counts_from_the_break() {
    // The judge's lease is shorter than the member's, to which a member that is well looks too far ahead.
    let bench = Bench::new().await;
    let member = bench.join_with_presence().await;
    let mut judge = bench.judge(None).await;
    let channel = bench.store.keys().alive(member.incarnation);
    assert_eq!(judge.look().await.unwrap(), (vec![], true), "missed, and not for long enough");
    let missed_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
    {
        let mut connection = bench.redis.connect();
        let mut subscriber = connection.as_pubsub();
        subscriber.subscribe(&channel).unwrap();
        assert_eq!(judge.look().await.unwrap(), (vec![], false), "it is back");
    }
    bench.wait_for_redis_time(missed_at + 300).await;
    assert_eq!(judge.look().await.unwrap(), (vec![], true), "missed anew");
    let missed_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
    bench.wait_for_redis_time(missed_at + 300).await;
    assert_eq!(numbers(&judge.look().await.unwrap().0), [member.number]);
}

#[tokio::test]
async fn what_an_unsettled_connection_sees_is_no_evidence() {
    let bench = Bench::new().await;
    bench.join_with_presence().await;
    let expired = bench.join(Kind::Member, 1).await;
    bench.expire(expired);
    let mut judge = bench.judge(None).await;
    for _ in 0..2 {
        // From here on it takes half a second to settle, longer than the grace.
        bench.store.connection().unsettle();
        assert_eq!(judge.look().await.unwrap(), (vec![], true));
        let seen_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
        bench.wait_for_redis_time(seen_at + 310).await;
    }
    assert_eq!(bench.snapshot().await.members.len(), 2, "nobody was buried");
    assert_eq!(numbers(&bench.judge(None).await.sweep(&CancellationToken::new()).await.unwrap()).len(), 2);
}

#[tokio::test]
async fn a_judge_that_overslept_its_own_lease_buries_nobody() {
    let bench = Bench::new().await;
    let (judge, dead) = (bench.join(Kind::Member, 1).await, bench.join(Kind::Member, 1).await);
    bench.expire(judge);
    bench.expire(dead);
    assert_eq!(bench.judge(Some(judge)).await.look().await.unwrap(), (vec![], false));
    bench.store.beat(judge.incarnation, LEASE).await.unwrap();
    let (burials, _) = bench.judge(Some(judge)).await.look().await.unwrap();
    assert_eq!(numbers(&burials), [dead.number]);
}

#[tokio::test]
async fn a_member_without_presence_is_never_missed() {
    let bench = Bench::new().await;
    bench.join(Kind::Member, 1).await;
    let mut judge = bench.judge(None).await;
    assert_eq!(judge.look().await.unwrap(), (vec![], false));
    let seen_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
    bench.wait_for_redis_time(seen_at + 310).await;
    assert_eq!(judge.look().await.unwrap(), (vec![], false));
}

#[tokio::test]
async fn a_sweep_lasts_until_everybody_who_is_missed_is_back_or_buried() {
    let bench = Bench::new().await;
    let member = bench.join_with_presence().await;
    let burials = bench.judge(None).await.sweep(&CancellationToken::new()).await.unwrap();
    assert_eq!(numbers(&burials), [member.number]);
    // Told to end, it ends without a verdict.
    bench.join_with_presence().await;
    let end = CancellationToken::new();
    end.cancel();
    assert_eq!(bench.judge(None).await.sweep(&end).await.unwrap(), []);
}

#[tokio::test]
async fn a_bell_that_somebody_swallowed_is_rung_by_the_next_look() {
    let bench = Bench::new().await;
    let generator = bench.join(Kind::Member, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    let rung = || -> u64 { bench.ask(&["LLEN", "{estafeta}:bell"]) };
    bench.ask::<()>(&["DEL", "{estafeta}:bell"]);
    bench.judge(None).await.look().await.unwrap();
    assert_eq!(rung(), 1);
}

#[tokio::test]
async fn an_absence_that_is_over_is_forgotten_even_if_another_member_is_still_missed() {
    let bench = Bench::new().await;
    let mut members = Vec::new();
    for _ in 0..2 {
        let incarnation = Incarnation::random();
        // The lease of the detector itself, or a member that is well would look too far ahead.
        let lease = Duration::from_secs(2);
        let me = Introduction { lease, ..introduction(incarnation, Kind::Member, 1, true) };
        members.push((incarnation, bench.store.join(&me).await.unwrap()));
    }
    let [(back, _), (_, gone)] = members[..] else { panic!("two members") };
    let mut judge = bench.judge(None).await;
    let renew = async || {
        bench.store.beat(back, Duration::from_secs(2)).await.unwrap();
    };
    renew().await;
    assert_eq!(judge.look().await.unwrap().0, [], "both are missed, and not for long enough");
    let missed_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
    {
        let mut connection = bench.redis.connect();
        let mut subscriber = connection.as_pubsub();
        subscriber.subscribe(bench.store.keys().alive(back)).unwrap();
        renew().await;
        judge.look().await.unwrap();
    }
    bench.wait_for_redis_time(missed_at + 300).await;
    renew().await;
    assert_eq!(numbers(&judge.look().await.unwrap().0), [gone], "the other one is missed anew");
}

/// A clock that jumps back leaves deadlines too far off. A judge cuts them, unless the member's lease is longer than its own.
#[tokio::test]
async fn a_lease_that_runs_too_long_is_cut() {
    let bench = Bench::new().await;
    let member = bench.join_with_presence().await;
    let mut connection = bench.redis.connect();
    let mut subscriber = connection.as_pubsub();
    subscriber.subscribe(bench.store.keys().alive(member.incarnation)).unwrap();
    let far = bench.store.suspects(LEASE).await.unwrap().now_ms + 3_600_000;
    let name = member.incarnation.to_string();
    let deadline = || -> u64 { bench.ask::<f64>(&["ZSCORE", "{estafeta}:members", &name]) as u64 };
    bench.ask::<()>(&["ZADD", "{estafeta}:members", &far.to_string(), &name]);
    bench.ask::<()>(&["HSET", &bench.store.keys().member(member.incarnation), "lease", "7200000"]);
    assert_eq!(bench.judge(None).await.look().await.unwrap(), (vec![], false));
    assert_eq!(deadline(), far, "its lease is that long");
    for lease in ["2000", "1000"] {
        bench.ask::<()>(&["ZADD", "{estafeta}:members", &far.to_string(), &name]);
        bench.ask::<()>(&["HSET", &bench.store.keys().member(member.incarnation), "lease", lease]);
        assert_eq!(bench.judge(None).await.look().await.unwrap(), (vec![], false));
        assert!(deadline() < far - 3_000_000, "a lease of {lease} ms");
    }
}
