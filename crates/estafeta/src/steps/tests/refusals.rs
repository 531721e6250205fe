//! Tests with foreign data in the keys of a ring: a step is applied as a whole or not at all.

use super::*;

#[tokio::test]
async fn a_join_that_finds_a_key_of_another_type_names_it_and_writes_nothing() {
    let keys = Keys::new(&RingName::sample());
    let bench = TestBench::new().await;
    for (key, expected) in keys.fixed() {
        bench.ask::<()>(&["FLUSHALL"]);
        bench.plant_foreign(key, expected);
        let before = bench.everything();
        let incarnation = Incarnation::random();
        let stranger = introduction(incarnation, MemberKind::Node, 1, false);
        let error = bench.store.join(&stranger).await.map(drop).unwrap_err();
        let named = matches!(&error, Error::ForeignKey { key: found, .. } if found == key);
        assert!(named, "{key}: {error}");
        assert_eq!(bench.everything(), before, "{key}");
    }
}

/// Redis does not roll back a script, so a step that fails halfway could lose a message. The test replaces one key
/// after another under a running ring, and makes every step with each.
#[tokio::test]
async fn a_step_that_fails_on_a_key_of_another_type_writes_nothing() {
    let keys = Keys::new(&RingName::sample());
    let bench = TestBench::new().await;
    let mut failed = [0; 24];
    for (key, expected) in keys.fixed() {
        for (step, times) in failed.iter_mut().enumerate() {
            bench.ask::<()>(&["FLUSHALL"]);
            let (leader, dead) =
                (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
            let handler = bench.join(MemberKind::Node, 1).await;
            let term = bench.lead(leader).await;
            bench.publish(leader, &term, 0, &["a", "b", "c"]).await;
            for actor in [handler, dead] {
                assert_eq!(bench.claim(actor, 1).await.len(), 1);
            }
            bench.expire(dead);
            let reader = bench.join(MemberKind::Reader, 1).await;
            let element = b"!1 1 2 no 9 1 1 0 0 0 0 0 body".as_slice();
            bench.ask::<()>(&["RPUSH", "{estafeta}:errors", "!1 1 2 no 9 1 1 0 0 0 0 0 body"]);
            let take = ShownLetters { want: 1, ..ShownLetters::default() };
            if step == 12 {
                let late = [delayed("d", Some("k"), 9_999_999)];
                bench.store.submit(&submission(1, &late)).await.unwrap();
            }
            if step == 14 {
                bench.store.submit(&submission(1, &[single("d", "n")])).await.unwrap();
            }
            bench.plant_foreign(key, expected);

            let (mut before, me) = (bench.everything(), leader.incarnation);
            let settlement = Settlement { want: 1, ..bench.settlement(handler, 1, &[(0, "x")]) };
            let next = messages(term.epoch, 4, &["d"]);
            let forward = Effect::forward(RingName::sample(), "f");
            let affecting = Settlement {
                application: Some("tests".into()),
                ..bench.hand(handler).settlement(|_| Fate::Affects(vec![forward.clone()]))
            };
            let outcome = match step {
                0 => bench.store.turn(handler.identity(), &settlement, true).await.map(drop),
                1 => bench.store.publish(me, &batch(term.epoch, 1, &next)).await.map(drop),
                2 => bench
                    .store
                    .lead(me, LEASE, &Candidacy { replaces: Some(term.epoch), ..candidacy() })
                    .await
                    .map(drop),
                3 => bench.store.leave(me).await.map(drop),
                4 => bench.store.bury(dead.incarnation, 0, GRACE, None).await.map(drop),
                5 => bench.store.resign(me, term.epoch).await,
                6 => bench.store.resolve("retry", &[(0, element)]).await.map(drop),
                7 => bench.store.take(reader.identity(), &take).await.map(drop),
                8 => bench.store.beat(me, LEASE, Known::default()).await.map(drop),
                9 => bench.store.submit(&submission(1, &[draft("d", Some("k"))])).await.map(drop),
                11 => bench.store.submit(&submission(1, &[delayed("d", None, 9)])).await.map(drop),
                12 => bench.store.cancel(&cancellation(2, MessageRef::Key("k"))).await.map(drop),
                16 => bench.store.turn(handler.identity(), &affecting, true).await.map(drop),
                13 => {
                    let ticks = [("nightly".to_owned(), 7)];
                    let moving =
                        Dispatch { checkpoint: Some(b"here"), ticks: &ticks, ..batch(term.epoch, 1, &next) };
                    bench.store.publish(me, &moving).await.map(drop)
                }
                14 => {
                    let claims = Settlement { want: 9, each: 9, ..bench.settlement(handler, 0, &[]) };
                    bench.store.turn(handler.identity(), &claims, true).await.map(drop)
                }
                15 => bench.store.submit(&submission(1, &[single("d", "n")])).await.map(drop),
                10 => bench.store.report(me, &failure(term.epoch, 1, 5)).await.map(drop),
                17 => bench.store.pause(Activity::Both, None).await,
                20 => {
                    let plan = Plan::from([("nightly".to_owned(), "{}".to_owned())]);
                    let ticks = [("nightly".to_owned(), 7)];
                    let (entry, plan) = (Some("nightly"), Some(&plan));
                    let moving = Dispatch { ticks: &ticks, entry, plan, ..batch(term.epoch, 1, &next) };
                    bench.store.publish(me, &moving).await.map(drop)
                }
                21 => {
                    // This message is open, and done.
                    let hand = bench.store.keys().member(handler.incarnation);
                    let open = "1 1 7 0 0 0 0 18 14:estafeta-entry1:nbody";
                    bench.ask::<()>(&["HSET", &hand, "1", open]);
                    before = bench.everything();
                    let ends = vec!["1".to_owned()];
                    let ending = Settlement { ends, ..bench.settlement(handler, 1, &[]) };
                    bench.store.turn(handler.identity(), &ending, true).await.map(drop)
                }
                22 => bench.store.sample(leader.identity(), Some(term.epoch), LEASE).await.map(drop),
                23 => {
                    let mut group = LatencyGroup { n: 1, ..LatencyGroup::default() };
                    group.wait.record(LEASE);
                    bench.store.beat_with(me, LEASE, Known::default(), &group).await.map(drop)
                }
                18 => {
                    let change = LimitChange { in_flight: Some(Some(5)), ..LimitChange::default() };
                    bench.store.limit(&change).await
                }
                _ => {
                    // This burial returns one message and gives up another one, which is open.
                    let hand = bench.store.keys().member(dead.incarnation);
                    let spent = "99 1 7 2 0 2 0 18 14:estafeta-entry1:nits last delivery";
                    bench.ask::<()>(&["HSET", &hand, "9", spent]);
                    before = bench.everything();
                    bench.store.bury(dead.incarnation, 0, GRACE, None).await.map(drop)
                }
            };
            if outcome.is_err() {
                *times += 1;
                assert_eq!(bench.everything(), before, "step {step} with {key} gone bad");
            }
        }
    }
    assert!(failed[0] >= 4, "a turn meets ready, errors, ledger and journal: {failed:?}");
    assert!(failed[13] >= failed[1] + 2, "a publish that moves meets ticks and checkpoint: {failed:?}");
    assert!(failed[20] >= failed[13] + 2, "that of a schedule also meets its two keys: {failed:?}");
    assert!(failed[19] > failed[4], "a burial that gives up an open message meets its key: {failed:?}");
    assert!(
        failed[21] >= 4,
        "a turn that ends an open message meets ready, ledger, journal, open: {failed:?}"
    );
    assert!(failed[22] >= 8, "a sample meets members, ready, later, ledger and its keys: {failed:?}");
    assert_eq!(failed[23], failed[8], "latencies stop no beat: {failed:?}");
    let all: usize = failed.iter().sum();
    assert!(all > 30, "only {all} steps failed, are the keys still the right ones? {failed:?}");
}

#[tokio::test]
async fn counts_that_are_not_numbers_stop_a_step_before_it_writes() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.claim(handler, 1).await;
    for field in ["done", "failed", "returned", "buried", "published"] {
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", field, "abc"]);
    }
    bench.expire(generator);
    let before = bench.everything();
    let settlement = bench.settlement(handler, 1, &[]);
    assert!(bench.store.turn(handler.identity(), &settlement, false).await.is_err());
    assert!(bench.store.leave(handler.incarnation).await.is_err());
    assert!(bench.store.bury(generator.incarnation, 0, GRACE, None).await.is_err());
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn foreign_and_half_deleted_members_disturb_neither_snapshots_nor_burials() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    bench.ask::<()>(&["ZADD", "{estafeta}:members", "0", "bob", "0", "00000000000000aa"]);
    let snapshot = bench.snapshot().await;
    assert_eq!(snapshot.members.len(), 1, "{snapshot:?}");
    let suspects = bench.store.suspects(LEASE).await.unwrap().list;
    let half = "00000000000000aa".parse().unwrap();
    assert!(
        suspects.contains(&(half, Health::Expired)) && suspects.len() == 2,
        "{suspects:?} {:?}",
        one.incarnation
    );
    let answer = bench.store.bury(half, 0, GRACE, None).await.unwrap();
    assert!(matches!(answer, Bury::Buried { returned: 0, .. }));
}

/// SORT accepts a set as well as a list, so a claim has to check the types of `ready` and `errors` itself.
#[tokio::test]
async fn nothing_is_claimed_from_a_set_in_place_of_a_list() {
    let bench = TestBench::new().await;
    let (handler, reader) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Reader, 1).await);
    for key in ["{estafeta}:ready", "{estafeta}:errors"] {
        bench.ask::<()>(&["SADD", key, "1 1 1 0 0 0 0 0 a", "2 1 1 0 0 0 0 0 b", "3 1 1 0 0 0 0 0 c"]);
    }
    let (before, claim) = (bench.everything(), Settlement { want: 2, ..Settlement::default() });
    assert!(bench.store.turn(handler.identity(), &claim, false).await.is_err());
    assert!(
        bench
            .store
            .take(reader.identity(), &ShownLetters { want: 2, ..ShownLetters::default() })
            .await
            .is_err()
    );
    assert_eq!(bench.everything(), before);
}

/// The errors contain the words `drop` and `retry`, a foreign element, and one error twice.
#[tokio::test]
async fn each_element_resolves_one_error_and_a_foreign_one_can_be_dropped_but_not_retried() {
    let bench = TestBench::new().await;
    const ERROR: &str = "!1 1 2 no 7 1 1 0 0 0 0 0 body";
    bench.ask::<()>(&["RPUSH", "{estafeta}:errors", "drop", ERROR, "retry", ERROR, "what is this"]);
    let left = || -> Vec<String> { bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]) };
    assert_eq!(bench.store.resolve("retry", &[(1, ERROR.as_bytes())]).await.unwrap(), 1);
    assert_eq!(left(), ["drop", "retry", ERROR, "what is this"]);
    assert_eq!(bench.store.resolve("retry", &[(3, b"what is this"), (1, b"retry")]).await.unwrap(), 0);
    assert_eq!(left(), ["drop", "retry", ERROR, "what is this"], "nobody knows what to retry");
    assert_eq!(bench.store.resolve("drop", &[(3, b"what is this"), (9, b"not there")]).await.unwrap(), 1);
    assert_eq!(left(), ["drop", "retry", ERROR]);
    assert_eq!(bench.ready(), ["7 1 1 1 0 0 0 0 body"]);
    assert_eq!(["retried", "dropped", "taken"].map(|count| bench.ledger(count)), [1, 1, 1]);
    let before = bench.everything();
    for verb in ["retry", "drop"] {
        assert_eq!(bench.store.resolve(verb, &[(2, b"!1 1 2 no 7 1 1 0 0 0 0 0 such")]).await.unwrap(), 0);
    }
    assert_eq!(bench.store.resolve("drop", &[(1, ERROR.as_bytes())]).await.unwrap(), 0, "it is not there");
    assert_eq!(bench.everything(), before, "what did nothing writes nothing");
}

#[tokio::test]
async fn errors_that_have_moved_are_found_nearby_and_others_stay() {
    let bench = TestBench::new().await;
    let error = |id: u64| format!("!1 1 2 no {id} 1 1 0 0 0 0 0 body");
    let push = |command: &str, ids: std::ops::RangeInclusive<u64>| {
        for id in ids {
            bench.ask::<()>(&[command, "{estafeta}:errors", &error(id)]);
        }
    };
    let left = || -> Vec<u64> {
        let errors: Vec<String> = bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]);
        errors.iter().map(|error| error.split(' ').nth(4).unwrap().parse().unwrap()).collect()
    };
    push("RPUSH", 1..=20);
    let (nine, ten, twelve) = (error(9), error(10), error(12));
    let seen = || vec![(8, nine.as_bytes()), (9, ten.as_bytes()), (11, twelve.as_bytes())];
    // A reader takes three.
    bench.ask::<()>(&["LTRIM", "{estafeta}:errors", "3", "-1"]);
    assert_eq!(bench.store.resolve("drop", &seen()).await.unwrap(), 0);
    assert_eq!(bench.store.resolve_nearby("drop", seen(), 3).await.unwrap(), 3);
    assert_eq!(left(), [4, 5, 6, 7, 8, 11, 13, 14, 15, 16, 17, 18, 19, 20]);
    push("LPUSH", 21..=24);
    let (eleven, twenty) = (error(11), error(20));
    // One of these is in its place, and one was never there.
    let seen = vec![(5, eleven.as_bytes()), (7, nine.as_bytes()), (17, twenty.as_bytes())];
    assert_eq!(bench.store.resolve_nearby("retry", seen, 4).await.unwrap(), 2);
    assert_eq!(left(), [24, 23, 22, 21, 4, 5, 6, 7, 8, 13, 14, 15, 16, 17, 18, 19]);
    assert_eq!(["retried", "dropped", "taken"].map(|count| bench.ledger(count)), [2, 3, 3]);
}

#[tokio::test]
async fn a_foreign_value_in_place_of_the_errors_stops_only_settles_with_failures() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    bench.claim(handler, 2).await;
    bench.plant_foreign("{estafeta}:errors", "list");
    let (before, fails) = (bench.everything(), bench.settlement(handler, 1, &[(0, "no")]));
    assert!(bench.store.turn(handler.identity(), &fails, true).await.is_err());
    assert_eq!(bench.everything(), before);
    let settlement = bench.settlement(handler, 1, &[]);
    assert!(bench.store.turn(handler.identity(), &settlement, true).await.is_ok());
    assert_eq!(bench.ledger("done"), 1);
}

/// Otherwise an operator would learn of the foreign key only when a limit or a pause changes.
#[tokio::test]
async fn foreign_events_stop_even_a_limit_or_a_pause_that_is_repeated() {
    let bench = TestBench::new().await;
    bench.join(MemberKind::Node, 1).await;
    let change = LimitChange { in_flight: Some(Some(5)), rate: Some(Some(Rate::per_second(5))) };
    bench.store.limit(&change).await.unwrap();
    bench.store.pause(Activity::Both, None).await.unwrap();
    bench.plant_foreign("{estafeta}:events", "stream");
    let before = bench.everything();
    assert!(bench.store.limit(&change).await.is_err());
    assert!(bench.store.pause(Activity::Both, None).await.is_err());
    assert_eq!(bench.everything(), before);
}
