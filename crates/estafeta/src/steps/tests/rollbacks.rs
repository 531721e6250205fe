//! Tests of what `lead` and `beat` do when Redis has lost acknowledged writes. The tests take back what was published,
//! as the promotion of a lagging replica would.

use super::*;

impl TestBench {
    /// Publishes three messages and then takes two of them back. Returns the node in office and its term.
    async fn that_lost_two(&self) -> (Actor, Term) {
        let one = self.join(MemberKind::Node, 1).await;
        let term = self.lead(one).await;
        for n in 0..3 {
            self.publish(one, &term, n, &["x"]).await;
        }
        self.ask::<()>(&["LTRIM", "{estafeta}:ready", "0", "0"]);
        self.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "1"]);
        (one, term)
    }

    async fn lead_with(&self, actor: Actor, known: Known, replaces: Option<Epoch>) -> Term {
        let candidacy = Candidacy { known, replaces, ..candidacy() };
        match self.store.lead(actor.incarnation, LEASE, &candidacy).await.unwrap() {
            Lead::Leads(term) => term,
            Lead::Follows | Lead::Lost => panic!("it does not lead"),
        }
    }

    pub(super) async fn beat(&self, actor: Actor, known: Known) -> BeatReport {
        match self.store.beat(actor.incarnation, LEASE, known).await.unwrap() {
            Beat::Stands(report) => report,
            Beat::Lost => panic!("no member"),
        }
    }

    /// Knowledge of this ring.
    pub(super) fn known(&self, epoch: Epoch, published: u64) -> Known {
        Known { born: self.ledger("born"), epoch, published }
    }

    /// Returns the counts of published and lost messages.
    async fn losses(&self) -> (u64, u64) {
        self.assert_balanced().await;
        (self.ledger("published"), self.ledger("lost"))
    }
}

#[tokio::test]
async fn lost_messages_are_counted_and_their_ids_never_come_again() {
    let bench = TestBench::new().await;
    let (one, term) = bench.that_lost_two().await;
    let known = bench.known(term.epoch, 3);
    let next = bench.lead_with(one, known, Some(term.epoch)).await;
    assert_eq!((next.published, bench.losses().await), (3, (3, 2)));
    let answer = bench.publish_from(one, &next, 0, 2, &["y"]).await;
    assert!(matches!(answer, Publish::Published { first_id: 4, .. }), "{answer:?}");
    let event = ["kind", "rolled-back", "member", "1", "known", "3", "found", "1"];
    let events: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:events", "-", "+"]);
    assert!(events.iter().any(|(_, fields)| *fields == event), "{events:?}");
    assert_eq!(bench.beat(one, known).await.outstanding, 2, "lost messages need no outcome");
}

#[tokio::test]
async fn a_renewal_that_is_repeated_begins_one_term() {
    let bench = TestBench::new().await;
    let (one, term) = bench.that_lost_two().await;
    let known = bench.known(term.epoch, 3);
    let next = bench.lead_with(one, known, Some(term.epoch)).await;
    assert!(next.epoch > term.epoch);
    let again = bench.lead_with(one, known, Some(term.epoch)).await;
    assert_eq!((again.epoch, bench.losses().await), (next.epoch, (3, 2)));
}

#[tokio::test]
async fn an_epoch_that_redis_forgot_does_not_come_again() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let far = Epoch(u64::pow(10, 14));
    let term = bench.lead_with(one, bench.known(far, 0), None).await;
    assert_eq!(term.epoch, Epoch(far.0 + 1));
}

/// A node that knows less takes office after the roll-back and publishes as many messages as were lost. Only a member
/// that remembers the earlier term can notice that.
#[tokio::test]
async fn a_loss_behind_equal_counts_is_noticed_by_a_member_that_remembers() {
    let bench = TestBench::new().await;
    let (old, term) = bench.that_lost_two().await;
    let (new, witness) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    bench.expire(old);
    let next = bench.lead(new).await;
    for n in 0..2 {
        bench.publish(new, &next, n, &["y"]).await;
    }
    assert_eq!(bench.losses().await, (3, 0), "the counts look as they did before");

    let known = bench.known(term.epoch, 3);
    for _ in 0..2 {
        assert_eq!(bench.beat(witness, known).await.published, 5);
        assert_eq!(bench.losses().await, (5, 2), "counted once");
    }
    let answer = bench.publish_from(new, &next, 2, 4, &["z"]).await;
    assert!(matches!(answer, Publish::Published { first_id: 6, .. }), "{answer:?}");
}

#[tokio::test]
async fn a_candidate_compares_what_it_knows_of_an_earlier_term_with_the_start_of_the_latest() {
    let bench = TestBench::new().await;
    let (old, term) = bench.that_lost_two().await;
    let (new, witness) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    bench.expire(old);
    let next = bench.lead(new).await;
    bench.publish(new, &next, 0, &["y"]).await;
    bench.expire(new);
    bench.lead_with(witness, bench.known(term.epoch, 3), None).await;
    assert_eq!(bench.losses().await, (4, 2));
}

/// Only publishers outside the ring have published, so there is no epoch yet. A ring may also have lost the time at which
/// it began.
#[tokio::test]
async fn messages_that_are_lost_before_the_first_term_are_counted() {
    let bench = TestBench::new().await;
    for has_begun in [true, false] {
        bench.ask::<()>(&["FLUSHALL"]);
        let one = bench.join(MemberKind::Node, 1).await;
        for sequence in 1..=3 {
            bench.store.submit(&submission(sequence, &[draft("x", None)])).await.unwrap();
        }
        if !has_begun {
            bench.ask::<()>(&["HDEL", "{estafeta}:ledger", "born"]);
        }
        let known = bench.known(Epoch(0), 3);
        bench.ask::<()>(&["LTRIM", "{estafeta}:ready", "0", "0"]);
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "1"]);
        bench.lead_with(one, known, None).await;
        assert_eq!(bench.losses().await, (3, 2), "has begun: {has_begun}");
    }
}

/// Both what one member knows of this term and what another one knows of the term before it is lost.
#[tokio::test]
async fn a_loss_of_this_term_does_not_hide_one_of_an_earlier_term() {
    let bench = TestBench::new().await;
    let (_, term) = bench.that_lost_two().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    bench.beat(one, bench.known(term.epoch, 3)).await;
    assert_eq!(bench.losses().await, (3, 2));
    bench.beat(other, bench.known(Epoch(term.epoch.0 - 1), 2)).await;
    assert_eq!(bench.losses().await, (5, 4));
}

/// What a member knows of an earlier term cannot be compared with the count of this one.
#[tokio::test]
async fn nothing_counts_as_lost_if_it_is_not_known_how_the_term_began() {
    let bench = TestBench::new().await;
    let (_, term) = bench.that_lost_two().await;
    let witness = bench.join(MemberKind::Node, 1).await;
    bench.ask::<()>(&["HDEL", "{estafeta}:ledger", "base"]);
    bench.beat(witness, bench.known(Epoch(term.epoch.0 - 1), 3)).await;
    assert_eq!(bench.ledger("lost"), 0);
}

#[tokio::test]
async fn members_that_know_no_more_than_redis_lose_nothing() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(one).await;
    bench.publish(one, &term, 0, &["a", "b"]).await;
    let known = bench.known(term.epoch, 2);
    for knows in [Known::default(), known, bench.known(term.epoch, 1)] {
        assert_eq!(bench.beat(other, knows).await.published, 2);
    }
    bench.expire(one);
    let next = bench.lead_with(other, known, None).await;
    bench.publish(other, &next, 0, &["c"]).await;
    bench.beat(other, known).await;
    assert_eq!(bench.losses().await, (3, 0));
}

/// Redis returns to a term that was over, while its generator still runs. Another node knows the later term.
#[tokio::test]
async fn a_return_to_an_earlier_term_is_noticed_by_a_member_that_knows_the_later_one() {
    let bench = TestBench::new().await;
    let (one, term) = bench.that_lost_two().await;
    let witness = bench.join(MemberKind::Node, 1).await;
    let known = bench.known(Epoch(term.epoch.0 + 9), 3);
    for _ in 0..2 {
        assert_eq!(bench.beat(witness, known).await.published, 3);
        assert_eq!(bench.losses().await, (3, 2), "counted once");
    }
    let answer = bench.publish_from(one, &term, 3, 2, &["y"]).await;
    assert!(matches!(answer, Publish::Published { first_id: 4, .. }), "{answer:?}");
}

#[tokio::test]
async fn the_generator_counts_a_loss_only_when_it_takes_a_new_epoch() {
    let bench = TestBench::new().await;
    let (one, term) = bench.that_lost_two().await;
    let report = bench.beat(one, bench.known(term.epoch, 3)).await;
    assert_eq!((report.published, bench.losses().await), (1, (1, 0)));
}

/// A ring that was deleted on purpose begins anew. Nodes that remember the former one have lost nothing, whichever of them
/// takes office first.
#[tokio::test]
async fn a_ring_that_begins_anew_has_lost_nothing() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    bench.publish(one, &term, 0, &["a", "b"]).await;
    let known = bench.known(term.epoch, 2);
    bench.store.erase().await.unwrap();

    let (again, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    assert_ne!(bench.ledger("born"), known.born, "rings that began in the same millisecond");
    let next = bench.lead_with(again, known, None).await;
    assert_eq!(bench.beat(other, known).await.published, 0);
    bench.expire(again);
    let last = bench.lead_with(other, known, None).await;
    assert_eq!((next.published, last.published, bench.losses().await), (0, 0, (0, 0)));
    assert!(term.epoch < next.epoch && next.epoch < last.epoch);
}

/// The events that report a wipe.
impl TestBench {
    fn wipes(&self) -> Vec<Vec<String>> {
        let events: Vec<(String, Vec<String>)> = self.ask(&["XRANGE", "{estafeta}:events", "-", "+"]);
        events.into_iter().map(|(_, fields)| fields).filter(|fields| fields[1] == "wiped").collect()
    }
}

#[tokio::test]
async fn a_ring_that_was_wiped_under_its_nodes_reports_that_once() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    for n in 0..3 {
        bench.publish(one, &term, n, &["x"]).await;
    }
    let known = bench.known(term.epoch, 3);
    bench.beat(one, known).await;
    assert_eq!(bench.wipes(), [[""; 0]; 0], "it knows this ring");
    // The next ring begins at another time.
    until("a millisecond has passed", async || bench.ask::<(u64, u64)>(&["TIME"]).0 * 1000 > known.born)
        .await;
    bench.ask::<()>(&["FLUSHALL"]);
    let (stranger, one, other) = (
        bench.join(MemberKind::Node, 1).await,
        bench.join(MemberKind::Node, 1).await,
        bench.join(MemberKind::Node, 1).await,
    );
    bench.beat(stranger, Known::default()).await;
    assert_eq!(bench.wipes(), [[""; 0]; 0], "it knew no ring");
    for node in [one, other, one, stranger] {
        let known = if node.number == stranger.number { Known::default() } else { known };
        bench.beat(node, known).await;
        assert_eq!(bench.wipes(), [["kind", "wiped", "member", "2", "known", "3"]]);
    }
    assert_eq!((bench.ledger("former"), bench.losses().await), (known.born, (0, 0)));
}
