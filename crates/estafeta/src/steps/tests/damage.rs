//! Tests with deleted or overwritten fields: a step is applied as a whole or not at all, and its answer can be read. A
//! member whose hash was deleted is lost.

use std::collections::BTreeMap;

use super::*;

impl TestBench {
    fn hash_of(&self, actor: Actor) -> String {
        self.store.keys().member(actor.incarnation)
    }

    fn forget(&self, actor: Actor) {
        self.ask::<()>(&["DEL", &self.hash_of(actor)]);
    }

    /// Restores everything but one field, which is deleted or gets another value. Returns everything as it is then. This
    /// is one round trip, because a test calls it thousands of times.
    fn restore_damaged(
        &self,
        whole: &[(String, Vec<u8>)],
        key: &str,
        field: &str,
        value: Option<&str>,
    ) -> Vec<(String, Vec<u8>)> {
        let mut pipe = restoration(whole);
        match value {
            None => pipe.cmd("HDEL").arg(key).arg(field).ignore(),
            Some(value) => pipe.cmd("HSET").arg(key).arg(field).arg(value).ignore(),
        };
        let (damaged,): (Vec<u8>,) =
            pipe.cmd("DUMP").arg(key).query(&mut *self.connection.borrow_mut()).unwrap();
        let mut everything = whole.to_vec();
        for (_, dump) in everything.iter_mut().filter(|(name, _)| name == key) {
            dump.clone_from(&damaged);
        }
        everything
    }

    pub(super) fn last_event(&self) -> Vec<String> {
        let mut last: Vec<(String, Vec<String>)> =
            self.ask(&["XREVRANGE", "{estafeta}:events", "+", "-", "COUNT", "1"]);
        last.remove(0).1
    }
}

/// A ring in which every step has something to do.
struct PreparedRing {
    leader: Actor,
    heir: Actor,
    dead: Actor,
    reader: Actor,
    term: Term,
    /// Knowledge of more messages than were published.
    known: Known,
}

const ERROR: &str = "!1 1 2 no 9 1 1 0 0 0 0 0 body";

const STEPS: [&str; 44] = [
    "join",
    "turn",
    "turn that postpones",
    "turn that moves",
    "turn after a pause",
    "turn with effects",
    "turn that begins a single",
    "wake",
    "pause",
    "resume",
    "limit",
    "turn at a limit",
    "bury at a limit",
    "take",
    "publish",
    "publish after a pause",
    "submit after a pause",
    "publish without interval",
    "publish again",
    "publish that moves",
    "submit",
    "submit for later",
    "submit a single",
    "cancel",
    "lead again",
    "renew",
    "take over",
    "take the vacant office",
    "resign",
    "report",
    "complain",
    "publish with keys and delays",
    "beat of the leader",
    "beat of the heir",
    "beat with latencies",
    "beat that counts a loss",
    "leave of the leader",
    "leave of the reader",
    "bury",
    "bury, giving up",
    "bury the leader",
    "retry",
    "drop",
    "sample",
];

impl PreparedRing {
    /// Creates a ring that is ready for this step.
    async fn before(step: &str, bench: &TestBench) -> Self {
        bench.ask::<()>(&["FLUSHALL"]);
        let (leader, heir) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
        let (dead, reader) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Reader, 1).await);
        let term = bench.lead(leader).await;
        bench.publish(leader, &term, 0, &["a", "b", "c", "d"]).await;
        // The leader never claims.
        for actor in [heir, dead] {
            assert_eq!(bench.claim(actor, 1).await.len(), 1);
        }
        bench.ask::<()>(&["RPUSH", "{estafeta}:errors", ERROR, ERROR]);
        bench
            .store
            .take(reader.identity(), &ShownLetters { want: 1, ..ShownLetters::default() })
            .await
            .unwrap();
        bench.expire(dead);
        for count in [
            "done",
            "failed",
            "retried",
            "taken",
            "dropped",
            "cancelled",
            "returned",
            "lost",
            "buried",
            "takeovers",
            "retries",
            "snoozes",
            "source-failed",
        ] {
            bench.ask::<()>(&["HINCRBY", "{estafeta}:ledger", count, "0"]);
        }
        match step {
            "take over" | "bury the leader" => bench.expire(leader),
            "bury, giving up" => bench.ask::<()>(&["HSET", &bench.hash_of(dead), "max-deaths", "1"]),
            // Otherwise the step would write the schema as it was before.
            "join" => bench.ask::<()>(&["DEL", "{estafeta}:schema"]),
            "turn that postpones" | "turn that moves" | "wake" => {
                let name = "000000000000008";
                bench.ask::<()>(&["HSET", "{estafeta}:delayed", name, "8 1 7 1 1 0 0 0 x"]);
                bench.ask::<()>(&["ZADD", "{estafeta}:later", "1", name]);
                bench.ask::<()>(&["HSET", "{estafeta}:ledger", "soonest", "1"]);
                bench.ask::<()>(&["HSET", "{estafeta}:ledger", "idle", &format!("{} ", heir.incarnation)]);
            }
            "turn that begins a single" | "submit a single" => {
                bench.store.submit(&submission(1, &[single("e", "n")])).await.map(drop).unwrap();
            }
            "cancel" => {
                bench.store.submit(&submission(1, &[delayed("e", None, 9_999_999)])).await.map(drop).unwrap();
            }
            "turn after a pause" | "publish after a pause" | "submit after a pause" | "resume" => {
                let end = if step == "resume" { NEVER } else { 1 };
                bench.ask::<()>(&[
                    "HSET",
                    "{estafeta}:ledger",
                    "brakes",
                    &format!("{end} {end} 0 0 0 0 0 0"),
                ]);
                bench.ask::<()>(&["HSET", "{estafeta}:ledger", "idle", &format!("{} ", heir.incarnation)]);
            }
            "turn at a limit" | "bury at a limit" => {
                bench.ask::<()>(&["HSET", "{estafeta}:ledger", "brakes", "0 0 2 2 50 1000 5000 1"]);
            }
            "take the vacant office" => bench.store.resign(leader.incarnation, term.epoch).await.unwrap(),
            _ => {}
        }
        let known = bench.known(term.epoch, 9);
        Self { leader, heir, dead, reader, term, known }
    }

    async fn make(&self, step: &str, bench: &TestBench) -> Result<()> {
        let (store, me, heir) = (&bench.store, self.leader.incarnation, self.heir.incarnation);
        let shown = ShownLetters { count: 1, want: 1, ..ShownLetters::default() };
        let failing = bench.settlement(self.heir, 1, &[(0, "x")]);
        let postponing = bench.hand(self.heir).settlement(|_| Fate::Retries(1000));
        let moving = Settlement { want: 1, ..bench.settlement(self.heir, 0, &[]) };
        let forward = Effect::forward(RingName::sample(), "f");
        let effects = vec![Effect::Add { key: "n".into(), n: 1 }, forward];
        let affecting = Settlement {
            application: Some("tests".into()),
            ..bench.hand(self.heir).settlement(|_| Fate::Affects(effects.clone()))
        };
        let beginning = Settlement { want: 9, each: 9, ..moving.clone() };
        let next = messages(self.term.epoch, 5, &["e"]);
        let publish = batch(self.term.epoch, 1, &next);
        let renewal = Candidacy { replaces: Some(self.term.epoch), known: self.known, ..candidacy() };
        match step {
            "join" => {
                let another = introduction(Incarnation::random(), MemberKind::Node, 1, false);
                store.join(&another).await.map(drop)
            }
            "limit" => {
                let change = LimitChange { in_flight: Some(Some(5)), rate: Some(Some(Rate::per_second(5))) };
                store.limit(&change).await
            }
            "turn" | "turn at a limit" => store.turn(self.heir.identity(), &failing, true).await.map(drop),
            "turn that postpones" => store.turn(self.heir.identity(), &postponing, true).await.map(drop),
            "turn that moves" | "turn after a pause" => {
                store.turn(self.heir.identity(), &moving, true).await.map(drop)
            }
            "turn with effects" => store.turn(self.heir.identity(), &affecting, true).await.map(drop),
            "turn that begins a single" => store.turn(self.heir.identity(), &beginning, true).await.map(drop),
            "submit a single" => store.submit(&submission(2, &[single("f", "m")])).await.map(drop),
            "wake" => store.wake().await,
            "pause" => store.pause(Activity::Both, None).await,
            "resume" => store.resume(Activity::Both).await,
            "take" => store.take(self.reader.identity(), &shown).await.map(drop),
            "publish" | "publish after a pause" => store.publish(me, &publish).await.map(drop),
            "publish without interval" => {
                store.publish(me, &Dispatch { interval: Duration::ZERO, ..publish }).await.map(drop)
            }
            "publish again" => store.publish(me, &Dispatch { n: 0, ..publish }).await.map(drop),
            "publish that moves" => {
                let ticks = [("nightly".to_owned(), 7)];
                let plan = Plan::from([("nightly".to_owned(), "{}".to_owned())]);
                let (entry, plan) = (Some("nightly"), Some(&plan));
                let moving = Dispatch { checkpoint: Some(b"here"), ticks: &ticks, entry, plan, ..publish };
                store.publish(me, &moving).await.map(drop)
            }
            "submit" | "submit after a pause" => {
                store.submit(&submission(1, &[draft("e", Some("k"))])).await.map(drop)
            }
            "submit for later" => store.submit(&submission(1, &[delayed("e", None, 1000)])).await.map(drop),
            "cancel" => store.cancel(&cancellation(2, MessageRef::Id(5))).await.map(drop),
            "lead again" => store.lead(me, LEASE, &candidacy()).await.map(drop),
            "renew" => store.lead(me, LEASE, &renewal).await.map(drop),
            "take over" | "take the vacant office" => store.lead(heir, LEASE, &candidacy()).await.map(drop),
            "resign" => store.resign(me, self.term.epoch).await,
            "report" => store.report(me, &failure(self.term.epoch, 1, 5)).await.map(drop),
            "complain" => store.complain(me, LEASE, "no disk").await,
            "publish with keys and delays" => {
                let terms = [delayed("e", Some("k"), 1000).terms];
                let messages = publish.messages;
                store.publish(me, &Dispatch { terms: &terms, messages, ..publish }).await.map(drop)
            }
            "beat of the leader" => store.beat(me, LEASE, Known::default()).await.map(drop),
            "beat of the heir" => store.beat(heir, LEASE, Known::default()).await.map(drop),
            "beat with latencies" => {
                let mut group = LatencyGroup { n: 1, ..LatencyGroup::default() };
                group.wait.record(Duration::from_millis(3));
                store.beat_with(heir, LEASE, Known::default(), &group).await.map(drop)
            }
            "sample" => {
                let (me, epoch) = (self.leader.identity(), Some(self.term.epoch));
                store.sample(me, epoch, Duration::ZERO).await.map(drop)
            }
            "beat that counts a loss" => store.beat(heir, LEASE, self.known).await.map(drop),
            "leave of the leader" => store.leave(me).await.map(drop),
            "leave of the reader" => store.leave(self.reader.incarnation).await.map(drop),
            "bury" | "bury, giving up" | "bury at a limit" => {
                store.bury(self.dead.incarnation, 0, GRACE, None).await.map(drop)
            }
            "bury the leader" => store.bury(me, 0, GRACE, None).await.map(drop),
            "retry" => store.resolve("retry", &[(0, ERROR.as_bytes())]).await.map(drop),
            "drop" => store.resolve("drop", &[(0, ERROR.as_bytes())]).await.map(drop),
            _ => unreachable!("{step}"),
        }
    }

    /// Every hash with numbers that Redis or Lua calculate with.
    fn hashes(&self, bench: &TestBench) -> Vec<String> {
        let members = [self.leader, self.heir, self.dead, self.reader].map(|actor| bench.hash_of(actor));
        std::iter::once(bench.store.keys().ledger.clone()).chain(members).collect()
    }
}

/// Values that Redis does not accept as counts, although Lua accepts most of them as numbers. `None` means a deleted
/// field.
const DAMAGES: [Option<&str>; 8] = [
    None,
    Some(""),
    Some("many"),
    Some("007"),
    Some(" 5"),
    Some("1e3"),
    Some("99999999999999999999"),
    Some("-5"),
];

#[tokio::test]
async fn a_step_that_a_damaged_field_stops_writes_nothing() {
    let bench = TestBench::new().await;
    let mut wrong = Vec::new();
    let mut refused = BTreeMap::<_, usize>::new();
    for step in STEPS {
        let ring = PreparedRing::before(step, &bench).await;
        let whole = bench.everything();
        ring.make(step, &bench).await.unwrap();
        // Repeats write nothing, and a beat may write the same millisecond again.
        let may_be_idle = step.ends_with("again") || step.starts_with("beat");
        assert!(may_be_idle || bench.everything() != whole, "{step} has nothing to do");
        for key in ring.hashes(&bench) {
            // A step that does not notice another type reads none of the fields.
            bench.restore(&whole);
            bench.plant_foreign(&key, "hash");
            if ring.make(step, &bench).await.is_ok() {
                continue;
            }
            bench.restore(&whole);
            let fields: Vec<String> = bench.ask(&["HKEYS", &key]);
            for (field, damage) in fields.iter().flat_map(|field| DAMAGES.map(|damage| (field, damage))) {
                let before = bench.restore_damaged(&whole, &key, field, damage);
                let Err(error) = ring.make(step, &bench).await else { continue };
                *refused.entry(step).or_default() += 1;
                if bench.everything() != before || matches!(error, Error::Answer(_)) {
                    wrong.push(format!("{step}, {field} of {key} is {damage:?}: {error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {refused:?}:\n{}", wrong.len(), wrong.join("\n"));
    for step in [
        "join",
        "turn",
        "turn that postpones",
        "turn that moves",
        "turn after a pause",
        "turn with effects",
        "turn that begins a single",
        "wake",
        "limit",
        "turn at a limit",
        "take",
        "publish",
        "submit",
        "submit a single",
        "submit for later",
        "cancel",
        "bury",
        "leave of the leader",
        "retry",
        "drop",
        "sample",
    ] {
        assert!(refused.get(step).is_some_and(|times| *times >= 6), "{step} was hardly refused: {refused:?}");
    }
    // These two need only one count, and the three worst damages of it stop them.
    assert_eq!(["pause", "resume"].map(|step| refused[step]), [3, 3]);
}

/// Beyond 15 digits the next epoch would not be greater than the last one.
#[tokio::test]
async fn an_epoch_that_is_not_a_number_stops_lead_before_it_writes() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    // A negative epoch counts as none.
    let damages = DAMAGES.iter().flatten().filter(|damage| !damage.starts_with('-'));
    for epoch in damages.chain(&["inf", "9007199254740993"]) {
        bench.ask::<()>(&["SET", "{estafeta}:epoch", epoch]);
        let before = bench.everything();
        let outcome = bench.store.lead(one.incarnation, LEASE, &candidacy()).await.map(drop);
        assert!(outcome.is_err(), "{epoch:?}");
        assert_eq!(bench.everything(), before, "{epoch:?}");
    }
}

#[tokio::test]
async fn a_member_whose_hash_was_deleted_is_lost() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    bench.forget(one);
    let before = bench.everything();
    assert!(matches!(bench.store.lead(one.incarnation, LEASE, &candidacy()).await.unwrap(), Lead::Lost));
    assert!(matches!(bench.store.beat(one.incarnation, LEASE, Known::default()).await.unwrap(), Beat::Lost));
    assert_eq!(bench.everything(), before);
}

/// The hash holds the hand as well, so there is nothing to hand back.
#[tokio::test]
async fn a_member_whose_hash_was_deleted_can_leave() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    bench.lead(one).await;
    bench.forget(one);
    assert_eq!(bench.store.leave(one.incarnation).await.unwrap(), 0);
    assert_eq!(bench.last_event()[..4], ["kind", "left", "member", "0"]);
    assert_eq!(bench.ask::<u64>(&["ZCARD", "{estafeta}:members"]), 0);
    assert_eq!(bench.ask::<Option<String>>(&["HGET", "{estafeta}:ledger", "member"]), None);
}

#[tokio::test]
async fn the_errors_of_a_reader_whose_hash_was_deleted_stay_errors() {
    let bench = TestBench::new().await;
    for buried in [false, true] {
        bench.ask::<()>(&["FLUSHALL"]);
        bench.ask::<()>(&["RPUSH", "{estafeta}:errors", ERROR]);
        let reader = bench.join(MemberKind::Reader, 1).await;
        let shown = ShownLetters { want: 1, ..ShownLetters::default() };
        bench.store.take(reader.identity(), &shown).await.unwrap();
        bench.forget(reader);
        bench.expire(reader);
        if buried {
            bench.bury(reader).await;
        } else {
            bench.store.leave(reader.incarnation).await.unwrap();
        }
        let errors: Vec<String> = bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]);
        assert_eq!((errors, bench.ready()), (vec![ERROR.to_owned()], vec![]), "buried: {buried}");
    }
}

/// If the member is alive, it gets `lost` and joins again.
#[tokio::test]
async fn a_member_whose_hash_was_deleted_is_buried_only_when_its_lease_is_over() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    bench.forget(one);
    assert!(matches!(bench.bury(one).await, Bury::Alive));
    bench.expire(one);
    assert!(matches!(bench.bury(one).await, Bury::Buried { number: MemberId(0), .. }));
}

/// Deletes one field after another, and makes steps that can do without it.
#[tokio::test]
async fn a_missing_field_does_not_stop_a_step_that_can_do_without_it() {
    let bench = TestBench::new().await;
    let ring = PreparedRing::before("bury", &bench).await;
    let whole = bench.everything();
    let office_as_the_heir_sees_it = async || {
        let Beat::Stands(report) =
            bench.store.beat(ring.heir.incarnation, LEASE, Known::default()).await.unwrap()
        else {
            panic!("a member")
        };
        (report.office, report.rank)
    };
    let leader = Office::Held { by: ring.leader.incarnation, health: Health::Alive };
    assert_eq!(office_as_the_heir_sees_it().await, (leader, 0));

    // Without the lease of the leader, any deadline looks too far ahead. That is no reason to take over.
    bench.ask::<()>(&["HDEL", "{estafeta}:ledger", "lease"]);
    let leader = Office::Held { by: ring.leader.incarnation, health: Health::Ahead };
    assert_eq!(office_as_the_heir_sees_it().await, (leader, 0));
    let answer = bench.store.lead(ring.heir.incarnation, LEASE, &candidacy()).await.unwrap();
    assert!(matches!(answer, Lead::Follows));

    // The leader has no place in the line of succession.
    bench.restore(&whole);
    bench.ask::<()>(&["ZREM", "{estafeta}:succession", &ring.leader.incarnation.to_string()]);
    assert_eq!(office_as_the_heir_sees_it().await.1, 0);

    // All others leave the line of succession. The leader is still the one from which the next member takes over.
    for member in [ring.heir, ring.dead] {
        bench.store.leave(member.incarnation).await.unwrap();
    }
    assert_eq!(bench.ledger("last"), ring.leader.number.0);

    // The leader has no number when it resigns.
    bench.restore(&whole);
    bench.ask::<()>(&["HDEL", "{estafeta}:ledger", "number"]);
    bench.store.resign(ring.leader.incarnation, ring.term.epoch).await.unwrap();
    assert_eq!(bench.ask::<String>(&["HGET", "{estafeta}:ledger", "last"]), "0");

    // The dead member has no limit of deaths, so its messages go back after any number of them.
    bench.restore(&whole);
    bench.ask::<()>(&["HDEL", &bench.hash_of(ring.dead), "max-deaths"]);
    assert!(matches!(bench.bury(ring.dead).await, Bury::Buried { returned: 1, gave_up: 0, .. }));
}

#[tokio::test]
async fn a_member_that_is_missing_from_the_member_list_is_lost_even_if_its_hash_is_left() {
    let bench = TestBench::new().await;
    let ring = PreparedRing::before("bury", &bench).await;
    bench.ask::<()>(&["DEL", "{estafeta}:members"]);
    let before = bench.everything();
    let want = ShownLetters { want: 1, ..ShownLetters::default() };
    assert!(matches!(
        bench.store.beat(ring.heir.incarnation, LEASE, Known::default()).await.unwrap(),
        Beat::Lost
    ));
    let lead = bench.store.lead(ring.heir.incarnation, LEASE, &candidacy()).await.unwrap();
    assert!(matches!(lead, Lead::Lost));
    assert!(matches!(bench.store.take(ring.reader.identity(), &want).await.unwrap(), Take::Lost));
    assert!(matches!(bench.bury(ring.dead).await, Bury::Gone));
    assert_eq!(bench.everything(), before);
}

/// A node leaves when its beat is lost. Only its own hash still shows what it holds.
#[tokio::test]
async fn a_member_that_is_missing_from_the_member_list_hands_back_what_it_holds() {
    let bench = TestBench::new().await;
    let ring = PreparedRing::before("bury", &bench).await;
    for member in [ring.heir, ring.reader] {
        bench.ask::<()>(&["ZREM", "{estafeta}:members", &member.incarnation.to_string()]);
    }
    assert_eq!(bench.store.leave(ring.heir.incarnation).await.unwrap(), 1);
    assert_eq!(bench.ready()[0], format!("1 {} 7 1 0 0 0 0 a", ring.term.epoch.0));
    bench.store.leave(ring.reader.incarnation).await.unwrap();
    assert_eq!(bench.ask::<u64>(&["LLEN", "{estafeta}:errors"]), 2);
    for member in [ring.heir, ring.reader] {
        let left: u64 =
            bench.ask(&["EXISTS", &bench.hash_of(member), &bench.store.keys().inflight(member.incarnation)]);
        assert_eq!(left, 0);
        assert_eq!(bench.store.leave(member.incarnation).await.unwrap(), 0, "nothing is left");
    }
}

#[tokio::test]
async fn counts_of_more_than_fifteen_digits_are_refused() {
    let bench = TestBench::new().await;
    let ring = PreparedRing::before("publish", &bench).await;
    for (count, is_counted) in [("999999999999998", true), ("1000000000000000", false)] {
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", "returned", count]);
        assert_eq!(bench.store.leave(ring.reader.incarnation).await.is_ok(), is_counted, "{count}");
        bench.store.join(&introduction(ring.reader.incarnation, MemberKind::Reader, 1, false)).await.unwrap();
    }
    // This step overwrites the count, and checks it in another way.
    for (digits, is_counted) in [("999999999999999", true), ("1000000000000000", false)] {
        for count in [digits.to_owned(), format!("-{digits}")] {
            bench.ask::<()>(&["HSET", "{estafeta}:ledger", "done", &count]);
            let turn =
                bench.store.turn(ring.heir.identity(), &bench.settlement(ring.heir, 0, &[]), true).await;
            assert_eq!(turn.is_ok(), is_counted, "{count}");
        }
    }
}
