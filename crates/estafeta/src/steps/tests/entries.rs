//! Tests of open messages: an entry is open until each of its messages has an outcome, whatever that is. Also of the plan.

use super::*;

/// A ring with a generator, and a member that handles.
struct ScheduledRing {
    bench: TestBench,
    generator: Actor,
    handler: Actor,
    term: Term,
}

impl ScheduledRing {
    async fn new() -> Self {
        let bench = TestBench::new().await;
        let (generator, handler) =
            (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
        let term = bench.lead(generator).await;
        Self { bench, generator, handler, term }
    }

    /// Publishes a tick of an entry with these messages.
    async fn tick(&self, n: u64, first: u64, entry: &str, bodies: &[&str]) -> Publish {
        let messages = entry_messages(self.term.epoch, first, entry, bodies);
        let dispatch = self.dispatch(n, first, &messages);
        self.bench
            .store
            .publish(self.generator.incarnation, &Dispatch { entry: Some(entry), ..dispatch })
            .await
            .unwrap()
    }

    fn dispatch<'a>(&self, n: u64, first: u64, messages: &'a [Message]) -> Dispatch<'a> {
        Dispatch { first_id: first, intervals: 1, ..batch(self.term.epoch, n, messages) }
    }

    /// Makes a turn in which the handler lets go of all it holds in this way.
    async fn let_go(&self, fate: Fate) {
        let settlement = self.bench.hand(self.handler).settlement(|_| fate.clone());
        self.bench.make(self.handler, &settlement).await.expect("a member");
    }

    /// The open messages and their entries.
    fn open(&self) -> Vec<(u64, String)> {
        let mut open: Vec<(u64, String)> = self.bench.ask(&["HGETALL", "{estafeta}:open"]);
        open.sort();
        open
    }

    fn plan(&self) -> Plan {
        self.bench.ask(&["HGETALL", "{estafeta}:schedule"])
    }
}

fn open_in(entry: &str, ids: impl IntoIterator<Item = u64>) -> Vec<(u64, String)> {
    ids.into_iter().map(|id| (id, entry.to_owned())).collect()
}

#[tokio::test]
async fn each_message_of_a_tick_is_open_until_it_is_done() {
    let ring = ScheduledRing::new().await;
    ring.tick(0, 1, "nightly", &["a", "b"]).await;
    ring.tick(1, 3, "0 1", &["c"]).await;
    assert_eq!(ring.bench.ready().len(), 3, "none of them is in a pack");
    let of_both = [open_in("nightly", [1, 2]), open_in("0 1", [3])].concat();
    assert_eq!(ring.open(), of_both);
    ring.bench.claim(ring.handler, 3).await;
    assert_eq!(ring.open(), of_both, "a claim is no outcome");
    ring.bench.settle(ring.handler, 1, &[], 0).await;
    assert_eq!(ring.open(), of_both[1..]);
    ring.bench.settle(ring.handler, 2, &[], 0).await;
    assert_eq!(ring.open(), []);
    ring.bench.assert_balanced().await;
}

#[tokio::test]
async fn whatever_its_outcome_is_an_open_message_ends_with_it_and_never_before() {
    let bad = vec![Effect::Add { key: "n".into(), n: 1 }];
    let good = vec![Effect::Add { key: "good".into(), n: 1 }];
    for way in ["done", "done with effects", "failed", "with bad effects", "given up"] {
        let ring = ScheduledRing::new().await;
        let (bench, handler) = (&ring.bench, ring.handler);
        bench.ask::<()>(&["SET", "{estafeta}:u:n", "many"]);
        ring.tick(0, 1, "nightly", &["a"]).await;
        let headers = b"14:estafeta-entry7:nightly14:estafeta-carry1:x".to_vec();
        for fate in [Fate::Returns, Fate::Retries(0), Fate::Snoozes(0, Vec::new()), Fate::Snoozes(0, headers)]
        {
            assert_eq!(bench.claim(handler, 1).await.len(), 1);
            ring.let_go(fate.clone()).await;
            assert_eq!(ring.open(), open_in("nightly", [1]), "{fate:?}");
        }
        bench.claim(handler, 1).await;
        match way {
            "done" => ring.let_go(Fate::Done).await,
            "done with effects" => ring.let_go(Fate::Affects(good.clone())).await,
            "failed" => ring.let_go(Fate::Fails("no".into())).await,
            "with bad effects" => ring.let_go(Fate::Affects(bad.clone())).await,
            _ => {
                bench.store.leave(handler.incarnation).await.map(drop).unwrap();
                for deaths in 1..=3 {
                    assert_eq!(ring.open(), open_in("nightly", [1]), "{deaths} deaths");
                    let victim = bench.join(MemberKind::Node, 1).await;
                    assert_eq!(bench.claim(victim, 1).await.len(), 1);
                    bench.expire(victim);
                    bench.bury(victim).await;
                }
            }
        }
        assert_eq!(ring.open(), [], "{way}");
        let counts = if way.starts_with("done") { [1, 0] } else { [0, 1] };
        assert_eq!(["done", "failed"].map(|count| bench.ledger(count)), counts, "{way}");
        bench.assert_balanced().await;
    }
}

#[tokio::test]
async fn an_error_that_is_retried_is_not_open_again_and_ends_nothing() {
    let ring = ScheduledRing::new().await;
    let bench = &ring.bench;
    ring.tick(0, 1, "nightly", &["a", "b"]).await;
    bench.claim(ring.handler, 2).await;
    bench.settle(ring.handler, 1, &[(0, "no")], 0).await;
    let errors: Vec<Vec<u8>> = bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]);
    assert_eq!(bench.store.resolve("retry", &[(0, errors[0].as_slice())]).await.unwrap(), 1);
    assert_eq!(ring.open(), open_in("nightly", [2]));
    bench.claim(ring.handler, 1).await;
    assert_eq!(bench.held(ring.handler), [2, 1]);
    let retried = bench.hand(ring.handler).settlement(|at| if at == 1 { Fate::Done } else { Fate::Stays });
    bench.make(ring.handler, &retried).await.unwrap();
    assert_eq!(ring.open(), open_in("nightly", [2]), "the other message is still open");
}

#[tokio::test]
async fn a_repeated_and_a_lost_turn_end_no_open_message() {
    let ring = ScheduledRing::new().await;
    let (bench, handler) = (&ring.bench, ring.handler);
    ring.tick(0, 1, "nightly", &["a"]).await;
    bench.claim(handler, 1).await;
    let settlement = bench.settlement(handler, 1, &[]);
    assert_eq!(settlement.ends, ["1"]);
    let lost = Settlement { cursor: 7, ..settlement.clone() };
    assert!(bench.turn(handler, &lost).await.is_none());
    assert_eq!(ring.open(), open_in("nightly", [1]));
    // The answer of the first try is lost. Before it is repeated, the generator opens the entry again.
    bench.turn(handler, &settlement).await.unwrap();
    assert_eq!(ring.open(), []);
    ring.tick(1, 2, "nightly", &["b"]).await;
    bench.make(handler, &settlement).await.unwrap();
    assert_eq!(ring.open(), open_in("nightly", [2]));
}

#[tokio::test]
async fn a_refused_publish_opens_nothing_and_a_repeat_opens_nothing_again() {
    let ring = ScheduledRing::new().await;
    let bench = &ring.bench;
    ring.tick(0, 1, "nightly", &["a"]).await;
    bench.claim(ring.handler, 1).await;
    bench.settle(ring.handler, 1, &[], 0).await;
    let before = bench.everything();
    assert!(matches!(ring.tick(0, 1, "nightly", &["a"]).await, Publish::Published { first_id: 1, .. }));
    assert!(matches!(ring.tick(1, 2, "nightly", &["x"; 11]).await, Publish::Full { .. }));
    assert_eq!(ring.tick(1, 9, "nightly", &["x"]).await, Publish::Behind);
    assert_eq!(bench.everything(), before);
    bench.expire(ring.generator);
    bench.lead(ring.handler).await;
    assert_eq!(ring.tick(1, 2, "nightly", &["x"]).await, Publish::Fenced);
    assert_eq!(ring.open(), []);
}

#[tokio::test]
async fn messages_that_are_numbered_anew_are_open_under_their_ids() {
    let ring = ScheduledRing::new().await;
    ring.bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "50"]);
    for _ in 0..2 {
        ring.tick(0, 1, "nightly", &["a", "b"]).await;
        assert_eq!(ring.open(), open_in("nightly", [51, 52]));
    }
}

/// A foreign client may remove messages. Their ids must not stay for ever.
#[tokio::test]
async fn a_tick_forgets_the_open_messages_that_its_entry_has_left_behind() {
    let ring = ScheduledRing::new().await;
    ring.tick(0, 1, "nightly", &["a", "b"]).await;
    ring.tick(1, 3, "other", &["c"]).await;
    ring.bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
    ring.tick(2, 4, "nightly", &["d"]).await;
    assert_eq!(ring.open(), [open_in("other", [3]), open_in("nightly", [4])].concat());
    // A tick without messages forgets them as well.
    ring.tick(3, 5, "nightly", &[]).await;
    assert_eq!(ring.open(), open_in("other", [3]));
}

#[tokio::test]
async fn entries_may_have_the_names_of_ids() {
    let ring = ScheduledRing::new().await;
    for (n, first, entry) in [(0, 1, "3"), (1, 2, "2"), (2, 3, "x"), (3, 4, "3")] {
        ring.tick(n, first, entry, &["a"]).await;
    }
    let open = [open_in("2", [2]), open_in("x", [3]), open_in("3", [4])].concat();
    assert_eq!(ring.open(), open, "only the first message of the entry is left over");
}

#[tokio::test]
async fn a_thousand_messages_of_any_entry_are_open_at_once() {
    let ring = ScheduledRing::new().await;
    let (bench, name) = (&ring.bench, "14:estafeta-entry й".repeat(25));
    let messages = entry_messages(ring.term.epoch, 1, &name, &["x"; 1000]);
    let dispatch = Dispatch { max_waiting: 1000, limit: 0, ..ring.dispatch(0, 1, &messages) };
    let tick = Dispatch { entry: Some(&name), ..dispatch };
    bench.store.publish(ring.generator.incarnation, &tick).await.map(drop).unwrap();
    assert_eq!(ring.open(), open_in(&name, 1..=1000));
    while bench.snapshot().await.waiting > 0 {
        bench.claim(ring.handler, 1000).await;
    }
    let failures: Vec<(usize, &str)> = (0..1000).step_by(3).map(|at| (at, "no")).collect();
    bench.settle(ring.handler, 1000, &failures, 0).await;
    assert_eq!(ring.open(), []);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_plan_replaces_the_former_one_and_takes_no_tick_of_the_interval() {
    let ring = ScheduledRing::new().await;
    let (bench, me) = (&ring.bench, ring.generator.incarnation);
    let plan = |names: &[&str]| -> Plan {
        names.iter().map(|name| ((*name).to_owned(), format!("of {name}"))).collect()
    };
    let store = async |n: u64, plan: &Plan| {
        let dispatch = Dispatch { plan: Some(plan), intervals: 0, ..ring.dispatch(n, 1, &[]) };
        bench.store.publish(me, &dispatch).await.unwrap()
    };
    // The tick is long overdue, and stays so.
    let due = ring.term.due_ms - 1_000_000;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "due", &due.to_string()]);
    let [both, one] = [plan(&["a", "1 2"]), plan(&["b"])];
    assert!(matches!(store(0, &both).await, Publish::Published { due_ms, .. } if due_ms == due));
    assert_eq!(ring.plan(), both);
    assert!(matches!(store(1, &one).await, Publish::Published { due_ms, .. } if due_ms == due));
    assert_eq!(ring.plan(), one);
    // A repeat and a late call of an earlier term change nothing.
    store(0, &both).await;
    assert_eq!(ring.plan(), one);
    let none = messages(ring.term.epoch, 1, &[]);
    bench.store.publish(me, &ring.dispatch(2, 1, &none)).await.map(drop).unwrap();
    assert_eq!(ring.plan(), one, "a publish without a plan leaves it");
    store(3, &Plan::new()).await;
    assert_eq!(ring.plan(), Plan::new());
    bench.expire(ring.generator);
    bench.lead(ring.handler).await;
    assert_eq!(store(4, &both).await, Publish::Fenced);
    assert_eq!(ring.plan(), Plan::new());
    assert_eq!((bench.ledger("published"), bench.ready().len()), (0, 0));
}
