//! Tests of the [`FailureDetector`]: which members it considers dead.
//!
//! It buries a member only after an absence without a break, or after the end of the member's lease. It must have seen
//! that through a trusted connection. If it runs in a member, that member's own lease must not be over.

use tokio::sync::watch;

use super::*;
use crate::config::Config;
use crate::node::state::MemberState;
use crate::node::sweeper::{Burial, FailureDetector};

const LONG_GRACE: Duration = Duration::from_millis(300);

impl TestBench {
    /// A failure detector that runs in `member`, or outside the ring, on a trusted connection.
    async fn detector(&self, member: Option<Actor>) -> FailureDetector {
        let mut config = Config::new(self.redis.url().parse().unwrap(), RingName::sample());
        config.grace = LONG_GRACE;
        let trust_delay = config.trust_delay();
        until("the connection is trusted", async || self.store.connection().is_trusted(trust_delay)).await;
        let state = member.map(|member| watch::channel(MemberState::Handler(member.identity())).1);
        FailureDetector::new(self.store.clone(), config.into(), state)
    }

    /// A member that joins with presence. The test itself opens and closes the subscription.
    pub(super) async fn join_with_presence(&self) -> Actor {
        let incarnation = Incarnation::random();
        let number = self.store.join(&introduction(incarnation, MemberKind::Node, 1, true)).await.unwrap();
        Actor { incarnation, number }
    }

    async fn wait_for_redis_time(&self, ms: u64) {
        until("Redis' clock", async || self.store.suspects(LEASE).await.unwrap().now_ms >= ms).await;
    }
}

fn numbers(burials: &[Burial]) -> Vec<MemberId> {
    burials.iter().map(|burial| burial.member).collect()
}

#[tokio::test]
async fn an_absence_with_a_break_counts_only_from_the_break_on() {
    // The detector's lease is shorter than the member's. So the deadline of a healthy member looks too far ahead to it.
    let bench = TestBench::new().await;
    let member = bench.join_with_presence().await;
    let mut detector = bench.detector(None).await;
    let channel = bench.store.keys().alive(member.incarnation);
    assert_eq!(detector.look().await.unwrap(), (vec![], true), "missed, and not for long enough");
    let missed_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
    {
        let mut connection = bench.redis.connect();
        let mut subscriber = connection.as_pubsub();
        subscriber.subscribe(&channel).unwrap();
        assert_eq!(detector.look().await.unwrap(), (vec![], false), "it is back");
    }
    bench.wait_for_redis_time(missed_at + 300).await;
    assert_eq!(detector.look().await.unwrap(), (vec![], true), "missed anew");
    let missed_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
    bench.wait_for_redis_time(missed_at + 300).await;
    assert_eq!(numbers(&detector.look().await.unwrap().0), [member.number]);
}

#[tokio::test]
async fn nothing_seen_through_an_untrusted_connection_leads_to_a_burial() {
    let bench = TestBench::new().await;
    bench.join_with_presence().await;
    let expired = bench.join(MemberKind::Node, 1).await;
    bench.expire(expired);
    let mut detector = bench.detector(None).await;
    for _ in 0..2 {
        // From now on the connection needs half a second to settle, which is longer than the grace period.
        bench.store.connection().distrust();
        assert_eq!(detector.look().await.unwrap(), (vec![], true));
        let seen_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
        bench.wait_for_redis_time(seen_at + 310).await;
    }
    assert_eq!(bench.snapshot().await.members.len(), 2, "nobody was buried");
    assert_eq!(numbers(&bench.detector(None).await.sweep(&CancellationToken::new()).await.unwrap()).len(), 2);
}

#[tokio::test]
async fn a_detector_in_a_member_whose_lease_ran_out_buries_no_member() {
    let bench = TestBench::new().await;
    let (detecting, dead) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    bench.expire(detecting);
    bench.expire(dead);
    assert_eq!(bench.detector(Some(detecting)).await.look().await.unwrap(), (vec![], false));
    bench.store.beat(detecting.incarnation, LEASE, Known::default()).await.unwrap();
    let (burials, _) = bench.detector(Some(detecting)).await.look().await.unwrap();
    assert_eq!(numbers(&burials), [dead.number]);
}

#[tokio::test]
async fn a_member_without_presence_is_never_missed() {
    let bench = TestBench::new().await;
    bench.join(MemberKind::Node, 1).await;
    let mut detector = bench.detector(None).await;
    assert_eq!(detector.look().await.unwrap(), (vec![], false));
    let seen_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
    bench.wait_for_redis_time(seen_at + 310).await;
    assert_eq!(detector.look().await.unwrap(), (vec![], false));
}

#[tokio::test]
async fn a_sweep_lasts_until_every_missed_member_is_buried_unless_it_is_cancelled() {
    let bench = TestBench::new().await;
    let member = bench.join_with_presence().await;
    let burials = bench.detector(None).await.sweep(&CancellationToken::new()).await.unwrap();
    assert_eq!(numbers(&burials), [member.number]);
    // A cancelled sweep ends without a decision.
    bench.join_with_presence().await;
    let end = CancellationToken::new();
    end.cancel();
    assert_eq!(bench.detector(None).await.sweep(&end).await.unwrap(), []);
}

/// A member that was called may be frozen. The next look calls another one.
#[tokio::test]
async fn a_call_that_was_not_followed_is_replaced_by_the_next_look() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    let (frozen, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let mut calls = bench.listen(&[frozen, other]);
    for member in [frozen, other] {
        bench.stand_in_line(member).await;
    }
    bench.publish(generator, &term, 0, &["a"]).await;
    assert_eq!(calls.next(), frozen.incarnation);
    bench.detector(None).await.look().await.unwrap();
    assert_eq!(calls.next(), other.incarnation);
    assert!(bench.line().is_empty());
}

#[tokio::test]
async fn an_absence_that_is_over_is_forgotten_even_if_another_member_is_still_missed() {
    let bench = TestBench::new().await;
    let mut members = Vec::new();
    for _ in 0..2 {
        let incarnation = Incarnation::random();
        // The members have the lease of the detector. With a longer one, a healthy member would look too far ahead.
        let lease = Duration::from_secs(2);
        let me = Introduction { lease, ..introduction(incarnation, MemberKind::Node, 1, true) };
        members.push((incarnation, bench.store.join(&me).await.unwrap()));
    }
    let [(back, _), (_, gone)] = members[..] else { panic!("two members") };
    let mut detector = bench.detector(None).await;
    let renew = async || {
        bench.store.beat(back, Duration::from_secs(2), Known::default()).await.unwrap();
    };
    renew().await;
    assert_eq!(detector.look().await.unwrap().0, [], "both are missed, and not for long enough");
    let missed_at = bench.store.suspects(LEASE).await.unwrap().now_ms;
    {
        let mut connection = bench.redis.connect();
        let mut subscriber = connection.as_pubsub();
        subscriber.subscribe(bench.store.keys().alive(back)).unwrap();
        renew().await;
        detector.look().await.unwrap();
    }
    bench.wait_for_redis_time(missed_at + 300).await;
    renew().await;
    assert_eq!(numbers(&detector.look().await.unwrap().0), [gone], "the other one is missed anew");
}

/// A clock that jumps back leaves deadlines too far ahead. The detector cuts such a deadline, unless the member's lease
/// is longer than the detector's own.
#[tokio::test]
async fn a_deadline_too_far_ahead_is_cut_unless_the_lease_of_the_member_is_that_long() {
    let bench = TestBench::new().await;
    let member = bench.join_with_presence().await;
    let mut connection = bench.redis.connect();
    let mut subscriber = connection.as_pubsub();
    subscriber.subscribe(bench.store.keys().alive(member.incarnation)).unwrap();
    let far = bench.store.suspects(LEASE).await.unwrap().now_ms + 3_600_000;
    let name = member.incarnation.to_string();
    let deadline = || -> u64 { bench.ask::<f64>(&["ZSCORE", "{estafeta}:members", &name]) as u64 };
    bench.ask::<()>(&["ZADD", "{estafeta}:members", &far.to_string(), &name]);
    bench.ask::<()>(&["HSET", &bench.store.keys().member(member.incarnation), "lease", "7200000"]);
    assert_eq!(bench.detector(None).await.look().await.unwrap(), (vec![], false));
    assert_eq!(deadline(), far, "its lease is that long");
    for lease in ["2000", "1000"] {
        bench.ask::<()>(&["ZADD", "{estafeta}:members", &far.to_string(), &name]);
        bench.ask::<()>(&["HSET", &bench.store.keys().member(member.incarnation), "lease", lease]);
        assert_eq!(bench.detector(None).await.look().await.unwrap(), (vec![], false));
        assert!(deadline() < far - 3_000_000, "a lease of {lease} ms");
    }
}
