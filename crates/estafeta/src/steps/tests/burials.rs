//! Tests of `bury` and `leave`: which members go, and where the messages and errors go that they held.

use super::*;

#[tokio::test]
async fn a_burial_returns_all_messages_in_order_and_gives_up_after_the_last_death() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d", "e"]).await;
    for death in 1..=3_u64 {
        let handler = bench.join(MemberKind::Node, 4).await;
        for _ in 0..4 {
            bench.claim(handler, 1).await;
        }
        assert!(matches!(bench.bury(handler).await, Bury::Alive), "a member that looks well");
        bench.expire(handler);
        let Bury::Buried { returned, gave_up, .. } = bench.bury(handler).await else { panic!("not buried") };
        assert_eq!((returned, gave_up), if death < 3 { (4, 0) } else { (0, 4) });
        assert!(matches!(bench.bury(handler).await, Bury::Gone), "a repeat");
        bench.assert_balanced().await;
    }
    let waiting: Vec<_> =
        bench.ready().iter().map(|element| element.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(waiting, ["5"]);
    let errors = bench.store.errors(0, 10).await.unwrap();
    assert_eq!(
        errors
            .iter()
            .map(|DeadLetter { message, .. }| (
                message.id,
                message.delivery,
                message.failures,
                message.deaths
            ))
            .collect::<Vec<_>>(),
        [(1, 3, 0, 3), (2, 3, 0, 3), (3, 3, 0, 3), (4, 3, 0, 3)]
    );
    assert!(errors[0].reason.starts_with("gave up"), "{}", errors[0].reason);
    let journal: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:journal", "-", "+"]);
    assert_eq!(journal[0].1[..2], ["ids", "1 2 3 4"]);
}

#[tokio::test]
async fn a_burial_writes_to_the_journal_only_if_the_dead_member_kept_one() {
    for journal in [false, true] {
        let bench = TestBench::new().await;
        let incarnation = Incarnation::random();
        let me = Introduction { journal, ..introduction(incarnation, MemberKind::Node, 1, false) };
        let number = bench.store.join(&me).await.unwrap();
        let hand = bench.store.keys().member(incarnation);
        bench.ask::<()>(&["HSET", &hand, "1", "1 1 7 2 0 2 0 0 its last delivery"]);
        let dead = Actor { incarnation, number };
        bench.expire(dead);
        assert!(matches!(bench.bury(dead).await, Bury::Buried { gave_up: 1, .. }));
        assert_eq!(bench.ask::<u64>(&["XLEN", "{estafeta}:journal"]), u64::from(journal));
    }
}

#[tokio::test]
async fn returned_messages_are_claimed_first_and_with_one_more_delivery() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    bench.claim_for(handler, 2, 1).await;
    assert_eq!(bench.store.leave(handler.incarnation).await.unwrap(), 2);
    assert_eq!(bench.claims_of_new_members().await, [(0, 1, 2, 0), (0, 2, 2, 0), (0, 3, 1, 0)]);
}

#[tokio::test]
async fn messages_of_a_dead_member_are_claimed_first_and_each_alone() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    bench.claim_for(handler, 2, 1).await;
    bench.expire(handler);
    bench.bury(handler).await;
    assert_eq!(bench.claims_of_new_members().await, [(0, 1, 2, 1), (1, 2, 2, 1), (2, 3, 1, 0)]);
}

#[tokio::test]
async fn a_claim_ends_before_a_message_with_deaths_wherever_it_stands() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let (leaver, victim) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d"]).await;
    bench.claim(leaver, 1).await;
    bench.claim(victim, 1).await;
    bench.expire(victim);
    bench.bury(victim).await;
    bench.store.leave(leaver.incarnation).await.unwrap();
    let claims = bench.claims_of_new_members().await;
    assert_eq!(claims, [(0, 1, 2, 0), (1, 2, 2, 1), (2, 3, 1, 0), (2, 4, 1, 0)]);
}

#[tokio::test]
async fn a_message_with_deaths_keeps_them_when_its_handler_leaves() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    let victim = bench.join(MemberKind::Node, 1).await;
    bench.claim(victim, 1).await;
    bench.expire(victim);
    bench.bury(victim).await;
    for _ in 0..2 {
        let leaver = bench.join(MemberKind::Node, 1).await;
        bench.claim(leaver, 1).await;
        bench.store.leave(leaver.incarnation).await.unwrap();
    }
    assert_eq!(bench.claims_of_new_members().await, [(0, 1, 4, 1), (1, 2, 1, 0)]);
}

impl TestBench {
    /// Three new members claim up to three messages each. Returns member, id, delivery and deaths of each message.
    async fn claims_of_new_members(&self) -> Vec<(usize, u64, u32, u32)> {
        let mut seen = Vec::new();
        for next in 0..3 {
            let member = self.join(MemberKind::Node, 1).await;
            let claimed = self.claim(member, 3).await;
            let facts = |message: &Message| (next, message.id, message.delivery, message.deaths);
            seen.extend(claimed.iter().map(facts));
        }
        seen
    }
}

#[tokio::test]
async fn burying_the_generator_vacates_its_office() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(one).await;
    bench.expire(one);
    bench.bury(one).await;
    assert_eq!(bench.publish_from(one, &term, 0, 1, &["late"]).await, Publish::Fenced);
    let Beat::Stands(report) = bench.store.beat(other.incarnation, LEASE, Known::default()).await.unwrap()
    else {
        panic!("a member")
    };
    assert_eq!((report.office, report.rank), (Office::Empty, 0));
    assert_eq!(bench.lead(other).await.predecessor, Some(one.number));
    assert_eq!(bench.ledger("takeovers"), 1);
}

#[tokio::test]
async fn the_first_election_after_the_last_node_has_gone_is_no_take_over() {
    for buried in [false, true] {
        let bench = TestBench::new().await;
        let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
        let term = bench.lead(one).await;
        bench.store.resign(one.incarnation, term.epoch).await.unwrap();
        // A reader can take nothing over.
        bench.join(MemberKind::Reader, 1).await;
        // The heir was about to stop too, and did not take the office.
        for node in [one, other] {
            if buried {
                bench.expire(node);
                bench.bury(node).await;
            } else {
                bench.store.leave(node.incarnation).await.unwrap();
            }
        }
        let next = bench.join(MemberKind::Node, 1).await;
        assert_eq!(bench.lead(next).await.predecessor, None);
        assert_eq!(bench.ledger("takeovers"), 0);
    }
}

#[tokio::test]
async fn a_generator_that_has_gone_is_remembered_while_a_node_is_left() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    bench.lead(one).await;
    bench.store.leave(one.incarnation).await.unwrap();
    let third = bench.join(MemberKind::Node, 1).await;
    bench.store.leave(other.incarnation).await.unwrap();
    assert_eq!(bench.lead(third).await.predecessor, Some(one.number));
    assert_eq!(bench.ledger("takeovers"), 1);
}

#[tokio::test]
async fn a_deadline_too_far_ahead_after_a_clock_jump_is_cut_to_one_lease() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let name = one.incarnation.to_string();
    let far = "99999999999999";
    bench.ask::<()>(&["ZADD", "{estafeta}:members", far, &name]);
    let suspects = bench.store.suspects(LEASE).await.unwrap();
    // The member is not connected, so `suspects` reports it as absent. `bury` sees that it joined without presence.
    assert_eq!(suspects.list.len(), 1);
    assert!(matches!(bench.bury(one).await, Bury::Alive));
    let deadline: f64 = bench.ask(&["ZSCORE", "{estafeta}:members", &name]);
    let now = suspects.now_ms as f64;
    let after = bench.store.suspects(LEASE).await.unwrap().now_ms as f64;
    assert!((now + 60_000.0..=after + 60_000.0).contains(&deadline), "{deadline}");
}

#[tokio::test]
async fn a_member_with_presence_is_buried_only_after_an_absence_of_one_grace_period() {
    let bench = TestBench::new().await;
    let incarnation = Incarnation::random();
    bench.store.join(&introduction(incarnation, MemberKind::Node, 1, true)).await.unwrap();
    let now = bench.store.suspects(LEASE).await.unwrap().now_ms;
    for since in [0, now, now - 50] {
        let answer = bench.store.bury(incarnation, since, Duration::from_secs(5), None).await.unwrap();
        assert!(matches!(answer, Bury::Alive), "missed since {since}");
    }
    assert!(bench.store.show_presence(incarnation).await.unwrap());
    let answer = bench.store.bury(incarnation, now - 200, GRACE, None).await.unwrap();
    assert!(matches!(answer, Bury::Alive), "it is back");

    let gone = Incarnation::random();
    bench.store.join(&introduction(gone, MemberKind::Node, 1, true)).await.unwrap();
    let answer = bench.store.bury(gone, now - 200, GRACE, None).await.unwrap();
    assert!(matches!(answer, Bury::Buried { .. }), "it was missed for two graces");
}

#[tokio::test]
async fn a_generator_with_presence_is_replaced_only_after_an_absence_of_one_grace_period() {
    let bench = TestBench::new().await;
    let generator = bench.join_with_presence().await;
    bench.lead(generator).await;
    let (heir, third) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let now = bench.store.suspects(LEASE).await.unwrap().now_ms;
    let tries = async |actor: Actor, absent_since_ms, grace, interval| {
        let silence = Duration::from_millis(300);
        let candidacy = Candidacy { absent_since_ms, grace, interval, silence, ..candidacy() };
        bench.store.lead(actor.incarnation, LEASE, &candidacy).await.unwrap()
    };
    // The interval of the ticks has nothing to do with it.
    let tick = Duration::from_millis(1);
    for since in [0, now, now - 50] {
        assert!(matches!(tries(heir, since, LEASE, tick).await, Lead::Follows), "missed since {since}");
    }
    let channel = bench.store.keys().alive(generator.incarnation);
    {
        let mut connection = bench.redis.connect();
        let mut subscriber = connection.as_pubsub();
        subscriber.subscribe(&channel).unwrap();
        assert!(matches!(tries(heir, now - 200, GRACE, LEASE).await, Lead::Follows), "it is back");
    }
    let listeners = || bench.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel]).1;
    until("its connection is closed", async || listeners() == 0).await;
    let Lead::Leads(term) = tries(heir, now - 200, GRACE, LEASE).await else {
        panic!("it was missed for two graces")
    };
    assert_eq!((term.predecessor, term.silence.as_millis()), (Some(generator.number), 300));
    // The new generator could not subscribe, so its lease alone decides.
    assert!(matches!(tries(third, now - 200, GRACE, LEASE).await, Lead::Follows));
}

#[tokio::test]
async fn the_errors_that_a_dead_reader_held_return_to_the_head_of_the_errors() {
    let bench = TestBench::new().await;
    for id in 1..=4 {
        bench.ask::<()>(&["RPUSH", "{estafeta}:errors", &format!("!1 1 2 no {id} 1 1 0 0 0 0 0 body {id}")]);
    }
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "published", "4", "failed", "4"]);
    let reader = bench.join(MemberKind::Reader, 1).await;
    let take = |cursor, count, want| ShownLetters { cursor, count, want };
    let Take::Holds { held, .. } = bench.store.take(reader.identity(), &take(0, 0, 2)).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(held.len(), 2);
    bench.assert_balanced().await;
    for _ in 0..2 {
        let again = bench.store.take(reader.identity(), &take(0, 2, 1)).await.unwrap();
        assert!(matches!(again, Take::Holds { cursor: 2, held, .. } if held[0].message.id == 3));
    }
    assert_eq!(bench.ledger("taken"), 2);
    bench.expire(reader);
    bench.bury(reader).await;
    let left: Vec<_> = bench.store.errors(0, 9).await.unwrap().iter().map(|error| error.message.id).collect();
    assert_eq!(left, [3, 4]);
    assert_eq!(bench.ledger("returned"), 0, "errors are no returned messages");
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_message_that_kills_its_handlers_takes_no_other_messages_along() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["good", "poison", "good"]).await;
    let mut claimed = Vec::new();
    while bench.ledger("failed") == 0 {
        let handler = bench.join(MemberKind::Node, 1).await;
        let held = bench.claim(handler, 10).await;
        claimed.push(held.len());
        if held.iter().any(|message| message.body() == b"poison") {
            bench.expire(handler);
            bench.bury(handler).await;
        } else {
            bench.settle(handler, held.len(), &[], 0).await;
        }
    }
    assert_eq!(claimed, [3, 1, 1, 1], "all at first, then one by one");
    let errors = bench.store.errors(0, 9).await.unwrap();
    assert_eq!(errors.iter().map(|error| error.message.id).collect::<Vec<_>>(), [2]);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_member_that_leaves_turns_no_message_into_an_error() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    for _ in 0..10 {
        let handler = bench.join(MemberKind::Node, 1).await;
        assert_eq!(bench.claim(handler, 1).await.len(), 1);
        assert_eq!(bench.store.leave(handler.incarnation).await.unwrap(), 1);
    }
    assert_eq!((bench.ready().len(), bench.ledger("failed")), (1, 0));
}

#[tokio::test]
async fn a_member_whose_own_lease_ran_out_can_neither_bury_nor_take_over() {
    let bench = TestBench::new().await;
    let (old, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    bench.lead(old).await;
    bench.expire(old);
    bench.expire(other);
    let bury = async || bench.store.bury(old.incarnation, 0, GRACE, Some(other.incarnation)).await.unwrap();
    assert!(matches!(bury().await, Bury::Alive));
    let answer = bench.store.lead(other.incarnation, LEASE, &candidacy()).await.unwrap();
    assert!(matches!(answer, Lead::Follows));

    let overslept = async || match bench.store.beat(other.incarnation, LEASE, Known::default()).await.unwrap()
    {
        Beat::Stands(report) => report.overslept,
        Beat::Lost => panic!("a member"),
    };
    assert!(overslept().await);
    assert!(!overslept().await);
    assert!(matches!(bury().await, Bury::Buried { .. }));
}

#[tokio::test]
async fn a_member_that_is_missing_from_the_succession_still_returns_messages_and_not_errors() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    let (dead, leaving) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    for member in [dead, leaving] {
        assert_eq!(bench.claim(member, 1).await.len(), 1);
        bench.ask::<()>(&["ZREM", "{estafeta}:succession", &member.incarnation.to_string()]);
    }
    bench.expire(dead);
    assert!(matches!(bench.bury(dead).await, Bury::Buried { returned: 1, .. }));
    assert_eq!(bench.store.leave(leaving.incarnation).await.unwrap(), 1);
    assert_eq!((bench.ready().len(), bench.store.error_count().await.unwrap()), (2, 0));
}

#[tokio::test]
async fn the_errors_of_a_dead_reader_return_unchanged_and_in_order_even_if_one_looks_like_a_pack() {
    let bench = TestBench::new().await;
    let reader = bench.join(MemberKind::Reader, 1).await;
    let errors = [
        "!1 1 2 no 1 1 1 0 0 0 0 0 a",
        "*1 2 4 2 1:a1:b",
        "!1 1 2 no 3 1 1 0 0 0 0 0 c",
        "!1 1 2 no 4 1 1 0 0 0 0 0 d",
    ];
    bench.ask::<()>(&[&["RPUSH", "{estafeta}:errors"][..], &errors].concat());
    let take = ShownLetters { want: 3, ..ShownLetters::default() };
    let Take::Holds { held, .. } = bench.store.take(reader.identity(), &take).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(held.len(), 3);
    bench.expire(reader);
    assert!(matches!(bench.bury(reader).await, Bury::Buried { returned: 0, .. }));
    assert_eq!(bench.ask::<Vec<String>>(&["LRANGE", "{estafeta}:errors", "0", "-1"]), errors);
}

#[tokio::test]
async fn foreign_elements_of_a_dead_member_return_unchanged_and_before_its_messages() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "what is this", "and this"]);
    let handler = bench.join(MemberKind::Node, 1).await;
    assert_eq!(bench.claim_for(handler, 5, 1).await.len(), 3);
    bench.expire(handler);
    assert!(matches!(bench.bury(handler).await, Bury::Buried { returned: 3, gave_up: 0, .. }));
    let (mut foreign, ours) = (bench.ready(), format!("1 {} 7 1 0 1 0 0 a", term.epoch.0));
    assert_eq!(foreign.pop(), Some(ours));
    foreign.sort();
    assert_eq!(foreign, ["and this", "what is this"]);
}

#[tokio::test]
async fn an_office_whose_holder_is_no_longer_a_member_can_be_taken_over() {
    let bench = TestBench::new().await;
    let (gone, heir) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    bench.lead(gone).await;
    bench.ask::<()>(&["ZREM", "{estafeta}:members", &gone.incarnation.to_string()]);
    let Beat::Stands(report) = bench.store.beat(heir.incarnation, LEASE, Known::default()).await.unwrap()
    else {
        panic!("a member")
    };
    assert_eq!(report.office, Office::Held { by: gone.incarnation, health: Health::Expired });
    assert_eq!(bench.lead(heir).await.predecessor, Some(gone.number));
}

/// If one of several messages kills its members, the others must not die with it until they are errors.
#[tokio::test]
async fn a_member_holds_one_suspect_at_a_time_and_gets_what_waits_behind_the_others() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    for (n, body) in (0..).zip(["a", "b", "c", "d"]) {
        bench.publish(generator, &term, n, &[body]).await;
    }
    for _ in 0..2 {
        let victim = bench.join(MemberKind::Node, 4).await;
        let asks = Settlement { want: 3, each: 1, ..bench.settlement(victim, 0, &[]) };
        assert_eq!(bench.make(victim, &asks).await.unwrap().held().len(), 3, "one death makes no suspect");
        bench.expire(victim);
        bench.bury(victim).await;
    }
    let deaths = |message: &Message| (message.id, message.deaths);
    let (one, other) = (bench.join(MemberKind::Node, 4).await, bench.join(MemberKind::Node, 4).await);
    let asks = |has_suspect| Settlement { want: 4, each: 1, has_suspect, ..bench.settlement(one, 0, &[]) };
    let first = bench.make(one, &asks(false)).await.unwrap();
    assert_eq!(first.held().iter().map(|held| deaths(&held.message)).collect::<Vec<_>>(), [(1, 2), (4, 0)]);
    assert!(first.waits);
    let more = Settlement { has_suspect: true, ..bench.settlement(one, 0, &[]) };
    let more = bench.make(one, &Settlement { want: 4, each: 1, ..more }).await.unwrap();
    assert!(more.held().is_empty() && more.waits, "it holds a suspect");
    assert_eq!(bench.claim(other, 1).await.iter().map(deaths).collect::<Vec<_>>(), [(2, 2)]);
    bench.publish(generator, &term, 4, &["e"]).await;
    let again =
        Settlement { want: 4, each: 2, reserve: 9, has_suspect: true, ..bench.settlement(one, 0, &[]) };
    let again = bench.make(one, &again).await.unwrap();
    assert_eq!(again.held().iter().map(|held| deaths(&held.message)).collect::<Vec<_>>(), [(5, 0)]);
    bench.publish(generator, &term, 5, &["f"]).await;
    bench.publish(generator, &term, 6, &["g"]).await;
    let again = Settlement { want: 1, each: 1, has_suspect: true, ..bench.settlement(one, 0, &[]) };
    let again = bench.make(one, &again).await.unwrap();
    assert_eq!(again.held().iter().map(|held| deaths(&held.message)).collect::<Vec<_>>(), [(6, 0)]);
    let left: Vec<_> =
        bench.ready().iter().map(|element| element.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(left, ["3", "7"], "what was skipped is where it was");
    bench.assert_balanced().await;
}

/// Only readers have such a list. The kind of the member decides, not the list.
#[tokio::test]
async fn a_list_under_the_name_of_a_node_does_not_make_it_a_reader() {
    for how in ["leaves", "dies", "is upgraded"] {
        let bench = TestBench::new().await;
        let (generator, term, [handler, other]) = bench.three_nodes().await;
        bench.publish(generator, &term, 0, &["a"]).await;
        assert_eq!(bench.claim(handler, 1).await.len(), 1);
        let list = bench.store.keys().inflight(handler.incarnation);
        bench.ask::<()>(&["RPUSH", &list, "foreign"]);
        match how {
            "leaves" => assert_eq!(bench.store.leave(handler.incarnation).await.unwrap(), 1),
            "dies" => {
                bench.expire(handler);
                assert!(matches!(bench.bury(handler).await, Bury::Buried { returned: 1, .. }));
            }
            _ => {
                for member in [generator, handler, other] {
                    let hash = bench.store.keys().member(member.incarnation);
                    bench.ask::<()>(&["HSET", &hash, "layouts", "4 5"]);
                }
                assert_eq!(bench.store.upgrade_to(5).await.unwrap(), Some(4));
            }
        }
        assert_eq!((bench.ready().len(), bench.ledger("returned")), (1, 1), "{how}");
        assert_eq!(bench.ask::<u64>(&["EXISTS", "{estafeta}:errors", &list]), 0, "{how}");
    }
}
