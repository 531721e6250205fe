//! Tests of `report`: a generator whose source fails again and again gives way to others.

use super::*;

impl TestBench {
    async fn report(&self, actor: Actor, term: &Term, n: u64, in_a_row: u64) -> Reported {
        self.store.report(actor.incarnation, &failure(term.epoch, n, in_a_row)).await.unwrap()
    }

    /// The numbers of the members in the line of succession.
    fn succession(&self, actors: &[Actor]) -> Vec<u64> {
        let line: Vec<String> = self.ask(&["ZRANGE", "{estafeta}:succession", "0", "-1"]);
        let number = |name: &String| {
            actors
                .iter()
                .find(|actor| actor.incarnation.to_string() == *name)
                .expect("a known actor")
                .number
                .0
        };
        line.iter().map(number).collect()
    }
}

#[tokio::test]
async fn a_failure_is_recorded_once_however_often_it_is_reported() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    for n in [1, 1, 2, 1, 2] {
        assert_eq!(bench.report(one, &term, n, n).await, Reported::Noted);
    }
    let events = bench.snapshot().await;
    assert_eq!((bench.ledger("source-failed"), events.source_failed), (2, 2));
    let kinds: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:events", "-", "+"]);
    let failed = kinds.iter().filter(|(_, fields)| fields[1] == "source-failed").count();
    assert_eq!(failed, 2, "{kinds:?}");
}

#[tokio::test]
async fn only_the_generator_of_this_epoch_reports() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(one).await;
    let before = bench.everything();
    assert_eq!(bench.report(other, &term, 1, 5).await, Reported::Over);
    let former = Term { epoch: Epoch(term.epoch.0 - 1), ..term.clone() };
    assert_eq!(bench.report(one, &former, 1, 5).await, Reported::Over);
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn after_five_failures_in_a_row_the_generator_is_the_last_in_line() {
    let bench = TestBench::new().await;
    let mut actors = Vec::new();
    for _ in 0..3 {
        actors.push(bench.join(MemberKind::Node, 1).await);
    }
    let term = bench.lead(actors[0]).await;
    assert_eq!(bench.report(actors[0], &term, 1, 4).await, Reported::Noted);
    assert_eq!(bench.succession(&actors), [1, 2, 3]);
    assert_eq!(bench.report(actors[0], &term, 2, 5).await, Reported::Over);
    assert_eq!(bench.succession(&actors), [2, 3, 1]);
    // A repeat finds that the term is over.
    assert_eq!(bench.report(actors[0], &term, 2, 5).await, Reported::Over);
    assert_eq!(bench.ledger("source-failed"), 2);
    actors.push(bench.join(MemberKind::Node, 1).await);
    assert_eq!(bench.succession(&actors), [2, 3, 1, 4], "who joins later stands behind it");
}

#[tokio::test]
async fn a_generator_that_gave_way_leads_again_only_after_others_had_their_chance() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(one).await;
    assert_eq!(bench.report(one, &term, 1, 5).await, Reported::Over);
    let before = bench.everything();
    let tries = async |actor: Actor| bench.store.lead(actor.incarnation, LEASE, &candidacy()).await.unwrap();
    assert!(matches!(tries(one).await, Lead::Follows));
    assert_eq!(bench.everything(), before);

    // Nobody has taken the office for a lease, or the clock jumped back.
    let now: (u64, u64) = bench.ask(&["TIME"]);
    let now = now.0 * 1000 + now.1 / 1000;
    for vacated in [now - 60_001, now + 60_001] {
        bench.restore(&before);
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", "vacated", &vacated.to_string()]);
        assert!(matches!(tries(one).await, Lead::Leads(_)), "{vacated}");
    }

    // The other one has had its chance.
    bench.restore(&before);
    let term = bench.lead(other).await;
    bench.store.resign(other.incarnation, term.epoch).await.unwrap();
    assert!(matches!(tries(one).await, Lead::Leads(_)));

    // The other one has gone.
    bench.restore(&before);
    bench.store.leave(other.incarnation).await.unwrap();
    assert!(matches!(tries(one).await, Lead::Leads(_)));
}

#[tokio::test]
async fn a_generator_without_heirs_keeps_the_office() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    bench.join(MemberKind::Reader, 1).await;
    let term = bench.lead(one).await;
    for n in 1..=40 {
        assert_eq!(bench.report(one, &term, n, n).await, Reported::Noted);
    }
    assert_eq!(bench.ledger("source-failed"), 40);
    let events: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:events", "-", "+"]);
    let failed = events.iter().filter(|(_, fields)| fields[1] == "source-failed");
    let in_a_row: Vec<&str> = failed.map(|(_, fields)| fields[5].as_str()).collect();
    assert_eq!(in_a_row, ["1", "2", "3", "4", "5", "10", "20", "30", "40"]);
}

#[tokio::test]
async fn a_source_that_fails_now_and_then_gets_an_event_for_every_tenth_failure() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    let events = || -> Vec<String> {
        let events: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:events", "-", "+"]);
        let failed = events.into_iter().filter(|(_, fields)| fields[1] == "source-failed");
        failed.map(|(_, fields)| fields[5].clone()).collect()
    };
    for n in 1..=42 {
        assert_eq!(bench.report(one, &term, n, 1).await, Reported::Noted);
    }
    assert_eq!(events(), ["1"; 9], "1 to 5, 10, 20, 30 and 40");
    for n in 43..=62 {
        assert_eq!(bench.report(one, &term, n, n - 42).await, Reported::Noted);
    }
    assert_eq!(
        events()[9..],
        ["5", "10", "20"],
        "the fifth failure in a row is the one that costs the office"
    );
    let renewal = Candidacy { replaces: Some(term.epoch), ..candidacy() };
    let renewed = bench.store.lead(one.incarnation, LEASE, &renewal).await;
    let Lead::Leads(term) = renewed.unwrap() else { panic!("it leads") };
    assert_eq!(bench.report(one, &term, 1, 21).await, Reported::Noted);
    assert_eq!(events().len(), 12, "a new term does not begin the row anew");
}
