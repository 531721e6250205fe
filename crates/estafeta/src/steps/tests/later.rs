//! Tests of messages that wait for a time: retries and snoozes, what moves them to the queue, and who learns the time.

mod cancelling;
mod delays;
mod moves;

use super::*;

const HOUR: u64 = 3_600_000;

impl TestBench {
    /// A generator that has published these bodies, and a member that has claimed them for one lane.
    async fn claimed(&self, bodies: &[&str]) -> (Actor, Term, [Actor; 2]) {
        let (generator, term, handlers) = self.three_nodes().await;
        self.publish(generator, &term, 0, bodies).await;
        assert_eq!(self.claim(handlers[0], bodies.len()).await.len(), bodies.len());
        (generator, term, handlers)
    }

    /// Lets go of each message in a hand as `fate` says, and wants nothing more.
    async fn let_go(&self, actor: Actor, fate: impl Fn(usize) -> Fate) -> Applied {
        let settlement = self.hand(actor).settlement(fate);
        self.make(actor, &settlement).await.expect("a member")
    }

    /// The ids of delayed messages, in the order in which they are due, and how far off each is by Redis' clock.
    fn later(&self) -> Vec<(u64, i64)> {
        let now: (i64, i64) = self.ask(&["TIME"]);
        let times: Vec<(u64, i64)> = self.ask(&["ZRANGE", "{estafeta}:later", "0", "-1", "WITHSCORES"]);
        times.into_iter().map(|(id, due)| (id, due - now.0 * 1000 - now.1 / 1000)).collect()
    }

    /// Publishes these messages from outside the ring. Returns their ids.
    async fn submit_all(&self, sequence: u64, messages: &[NewMessage]) -> Vec<u64> {
        match self.store.submit(&submission(sequence, messages)).await.unwrap() {
            Submit::Submitted(ids) => ids.iter().map(|it| it.id).collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn cancel(&self, sequence: u64, which: MessageRef<'_>) -> bool {
        self.store.cancel(&cancellation(sequence, which)).await.unwrap()
    }

    fn delayed(&self, id: u64) -> String {
        self.ask(&["HGET", "{estafeta}:delayed", &format!("{id:015}")])
    }

    /// Makes every delayed message due. Their order stays.
    fn pass(&self) {
        let names: Vec<String> = self.ask(&["ZRANGE", "{estafeta}:later", "0", "-1"]);
        for (at, name) in (1..).zip(&names) {
            self.ask::<()>(&["ZADD", "{estafeta}:later", &at.to_string(), name]);
        }
        self.ask::<()>(&["HSET", "{estafeta}:ledger", "soonest", "1"]);
    }

    fn soonest(&self) -> u64 {
        self.ledger("soonest")
    }

    fn ids_waiting(&self) -> Vec<u64> {
        self.ready().iter().map(|element| element.split(' ').next().unwrap().parse().unwrap()).collect()
    }

    /// Puts `count` messages into `later` that are due.
    fn fill_later(&self, count: u64) {
        let mut pipe = redis::pipe();
        for id in 1..=count {
            let element = format!("{id} 1 7 1 1 0 0 0 x");
            pipe.cmd("HSET").arg("{estafeta}:delayed").arg(format!("{id:015}")).arg(element).ignore();
            pipe.cmd("ZADD")
                .arg("{estafeta}:later")
                .arg(1 + (id - 1) / 120)
                .arg(format!("{id:015}"))
                .ignore();
        }
        pipe.cmd("HSET").arg("{estafeta}:ledger").arg("soonest").arg(1).arg("published").arg(count).ignore();
        pipe.exec(&mut *self.connection.borrow_mut()).unwrap();
    }
}

fn facts(message: &Message) -> [u32; 4] {
    [message.delivery, message.failures, message.deaths, message.snoozes]
}

#[tokio::test]
async fn a_retry_counts_one_failure_and_one_delivery_and_comes_back_at_its_time() {
    let bench = TestBench::new().await;
    let (.., [handler, other]) = bench.claimed(&["a", "b"]).await;
    bench.let_go(handler, |at| if at == 0 { Fate::Retries(HOUR) } else { Fate::Done }).await;
    let [(1, wait)] = bench.later()[..] else { panic!("{:?}", bench.later()) };
    assert!((HOUR as i64 - 60_000..=HOUR as i64).contains(&wait), "{wait}");
    assert!(bench.delayed(1).contains(" 7 1 1 0 0 0 a"), "{}", bench.delayed(1));
    let snapshot = bench.snapshot().await;
    assert_eq!((snapshot.later, snapshot.done, snapshot.in_flight, snapshot.waiting), (1, 1, 0, 0));
    assert_eq!((snapshot.retries, snapshot.snoozes, snapshot.errors_kept), (1, 0, 0));
    assert_eq!(snapshot.members[1].processed, 1, "the retry has no outcome yet");
    assert!(snapshot.balanced);
    assert_eq!(bench.claim(other, 1).await, [], "it is not due");
    bench.pass();
    let again = bench.claim(other, 1).await;
    assert_eq!((again[0].id, facts(&again[0]), again[0].text().as_ref()), (1, [2, 1, 0, 0], "a"));
    assert_eq!((bench.later(), bench.soonest()), (vec![], 0));
    assert_eq!(bench.ask::<u64>(&["EXISTS", "{estafeta}:delayed"]), 0);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_death_without_a_burial_counts_one_death_and_one_delivery_and_comes_back_at_its_time() {
    let bench = TestBench::new().await;
    let (.., [handler, other]) = bench.claimed(&["a", "b"]).await;
    bench
        .let_go(handler, |at| if at == 0 { Fate::Dies(HOUR) } else { Fate::Snoozes(HOUR, Vec::new()) })
        .await;
    let [(1, _), (2, _)] = bench.later()[..] else { panic!("{:?}", bench.later()) };
    let snapshot = bench.snapshot().await;
    assert_eq!((snapshot.later, snapshot.retries, snapshot.snoozes, snapshot.errors_kept), (2, 1, 1, 0));
    bench.pass();
    let died = bench.claim(other, 2).await;
    assert_eq!((died.len(), died[0].id, facts(&died[0])), (1, 1, [2, 0, 1, 0]), "it travels alone");
    let snoozed = bench.claim(other, 1).await;
    assert_eq!((snoozed[0].id, facts(&snoozed[0])), (2, [2, 0, 0, 1]));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_snooze_counts_no_failure_and_may_replace_the_headers() {
    let bench = TestBench::new().await;
    let (.., [handler, _]) = bench.claimed(&["1 2 3"]).await;
    let carried = b"14:estafeta-carry4:1 2 ".to_vec();
    // The second snooze leaves the headers as they are, and the third one replaces them.
    let headers = [carried.clone(), Vec::new(), b"14:estafeta-carry0:".to_vec()];
    for (snoozes, (headers, carry)) in (1..).zip(headers.into_iter().zip(["1 2 ", "1 2 ", ""])) {
        bench.let_go(handler, |_| Fate::Snoozes(HOUR, headers.clone())).await;
        bench.pass();
        let again = bench.claim(handler, 1).await.remove(0);
        assert_eq!((facts(&again), again.text().as_ref()), ([snoozes + 1, 0, 0, snoozes], "1 2 3"));
        assert_eq!((again.carry(), again.headers().len()), (Some(carry), 1));
    }
    assert_eq!(["retries", "snoozes"].map(|count| bench.ledger(count)), [0, 3]);
    // A failure leaves the headers and the number of snoozes alone.
    bench.let_go(handler, |_| Fate::Fails("no".into())).await;
    let error: Vec<Vec<u8>> = bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]);
    let error = DeadLetter::parse(&RingName::sample(), error[0].clone());
    assert_eq!((facts(&error.message), error.message.carry()), ([4, 1, 0, 3], Some("")));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn messages_of_a_pack_are_postponed_one_by_one_and_the_journal_lists_only_outcomes() {
    let bench = TestBench::new().await;
    let (.., [handler, _]) = bench.claimed(&["a", "b", "c", "d", "e"]).await;
    // One message stays, so only a part of the pack leaves.
    let fate = |at| match at {
        0 => Fate::Retries(2 * HOUR),
        1 => Fate::Done,
        2 => Fate::Snoozes(HOUR, Vec::new()),
        3 => Fate::Fails("no".into()),
        _ => Fate::Stays,
    };
    bench.let_go(handler, fate).await;
    assert_eq!(bench.later().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3, 1], "by their times");
    assert_eq!(bench.held(handler), [5]);
    bench.let_go(handler, |_| Fate::Retries(0)).await;
    let journal: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:journal", "-", "+"]);
    let entries: Vec<_> = journal.iter().map(|(_, fields)| &fields[..4]).collect();
    assert_eq!(entries, [["ids", "2 4", "errors", "4"]]);
    assert_eq!(bench.ids_waiting(), [5], "it waits for no time");
    assert_eq!(["done", "failed", "retries", "snoozes"].map(|count| bench.ledger(count)), [1, 1, 2, 1]);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_turn_that_is_repeated_postpones_once() {
    let bench = TestBench::new().await;
    let (.., [handler, other]) = bench.claimed(&["a", "b"]).await;
    let settlement = bench
        .hand(handler)
        .settlement(|at| if at == 0 { Fate::Retries(HOUR) } else { Fate::Snoozes(0, vec![]) });
    for _ in 0..3 {
        assert_eq!(bench.turn(handler, &settlement).await.unwrap().cursor, 2);
    }
    assert_eq!((bench.later().len(), bench.ids_waiting()), (1, vec![2]));
    assert_eq!(["retries", "snoozes"].map(|count| bench.ledger(count)), [1, 1]);
    bench.make(handler, &settlement).await.unwrap();
    // The reply to the turn that moved and claimed the message is lost as well.
    bench.pass();
    let asks = Settlement { want: 2, each: 2, ..bench.settlement(other, 0, &[]) };
    let first = bench.turn(other, &asks).await.unwrap();
    assert_eq!(first.messages().iter().map(|message| message.id).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(bench.turn(other, &asks).await.unwrap(), first);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn due_messages_go_to_the_tail_by_time_and_id_before_those_that_wait_for_no_time() {
    let bench = TestBench::new().await;
    let bodies = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    let (generator, term, [handler, other]) = bench.claimed(&bodies).await;
    // Message 10 has the same time as message 9, and 2 an earlier one.
    let fate = |at| match at {
        0 => Fate::Returns,
        1 => Fate::Retries(HOUR),
        8 | 9 => Fate::Retries(2 * HOUR),
        2 => Fate::Retries(3 * HOUR),
        _ => Fate::Stays,
    };
    bench.let_go(handler, fate).await;
    assert_eq!(bench.later().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 9, 10, 3]);
    bench.publish(generator, &term, 1, &["11"]).await;
    bench.pass();
    bench.let_go(handler, |at| if at == 0 { Fate::Retries(0) } else { Fate::Stays }).await;
    assert_eq!(bench.ids_waiting(), [1, 11, 2, 9, 10, 3, 4]);
    assert_eq!(bench.claim(other, 20).await.len(), 7);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn one_turn_moves_a_hundred_messages_and_says_that_more_are_due() {
    let bench = TestBench::new().await;
    let (.., [handler, idle]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[handler, idle]);
    bench.stand_in_line(idle).await;
    bench.fill_later(250);
    let mut claimed = Vec::new();
    for (left, waits) in [(150, true), (50, true), (0, false)] {
        let asks = Settlement { want: 300, each: 300, listens: true, ..bench.settlement(handler, 0, &[]) };
        let applied = bench.make(handler, &asks).await.unwrap();
        claimed.extend(applied.messages().iter().map(|message| message.id));
        assert_eq!((bench.later().len(), applied.waits), (left, waits));
        assert_eq!(bench.line().contains(&handler.incarnation.to_string()), !waits);
    }
    assert_eq!(claimed, (1..=250).collect::<Vec<_>>(), "by their times and ids");
    assert_eq!(calls.all(), [idle.incarnation], "it may help");
    bench.assert_balanced().await;
}

#[tokio::test]
async fn one_turn_moves_no_more_bytes_than_a_claim_takes() {
    let bench = TestBench::new().await;
    let handler = bench.join(MemberKind::Node, 1).await;
    bench.fill_later(30);
    for id in 1..=30 {
        let element = format!("{id} 1 7 1 1 0 0 0 {}", "x".repeat(1_000_000));
        bench.ask::<()>(&["HSET", "{estafeta}:delayed", &format!("{id:015}"), &element]);
    }
    let mut turns = 0;
    while bench.soonest() > 0 {
        let before = bench.later().len();
        bench.claim(handler, 0).await;
        assert!((1..=8).contains(&(before - bench.later().len())), "the first few, then one at a time");
        turns += 1;
    }
    assert!(turns >= 4, "{turns}");
    assert_eq!(bench.ids_waiting(), (1..=30).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_first_in_line_learns_of_an_earlier_time_and_of_nothing_else() {
    let bench = TestBench::new().await;
    let (.., [handler, idle]) = bench.claimed(&["a", "b", "c"]).await;
    let mut calls = bench.listen(&[handler, idle]);
    bench.stand_in_line(idle).await;
    let nearly = |announced: Vec<(Incarnation, u64)>, ms: u64| {
        let [(who, wait)] = announced[..] else { panic!("{announced:?}") };
        assert_eq!(who, idle.incarnation);
        assert!((ms - 60_000..=ms).contains(&wait), "{wait} instead of {ms}");
    };
    let only = |at: usize, fate: Fate| move |index| if index == at { fate.clone() } else { Fate::Stays };
    bench.let_go(handler, only(0, Fate::Retries(2 * HOUR))).await;
    nearly(calls.announced(), 2 * HOUR);
    bench.let_go(handler, only(0, Fate::Snoozes(3 * HOUR, Vec::new()))).await;
    assert_eq!(calls.announced(), [], "that is later than the first one");
    bench.let_go(handler, only(0, Fate::Retries(HOUR))).await;
    nearly(calls.announced(), HOUR);
    assert_eq!(bench.line(), bench.names(&[idle]), "it is still idle");
}

#[tokio::test]
async fn a_member_that_is_first_in_line_learns_the_time_from_its_own_turns() {
    let bench = TestBench::new().await;
    let (.., [handler, other]) = bench.claimed(&["a"]).await;
    let mut calls = bench.listen(&[handler, other]);
    bench.let_go(handler, |_| Fate::Retries(HOUR)).await;
    assert_eq!(calls.announced(), [], "nobody is idle");
    let asks = |actor| Settlement { want: 1, each: 1, listens: true, ..bench.settlement(actor, 0, &[]) };
    for _ in 0..2 {
        let due = bench.make(handler, &asks(handler)).await.unwrap().due.expect("it is the first");
        assert!((HOUR - 60_000..=HOUR).contains(&(due.as_millis() as u64)), "{due:?}");
    }
    assert_eq!(bench.make(other, &asks(other)).await.unwrap().due, None, "it is the second");
    // The first one has no free lane any more.
    assert_eq!(bench.claim(handler, 0).await, []);
    assert_eq!(calls.announced().iter().map(|(who, _)| *who).collect::<Vec<_>>(), [other.incarnation]);
}

#[tokio::test]
async fn the_next_in_line_learns_the_time_when_the_first_one_is_called_or_goes() {
    for how in ["called", "buried", "leaves", "deaf"] {
        let bench = TestBench::new().await;
        let (generator, term, [first, second]) = bench.claimed(&["a"]).await;
        bench.let_go(first, |_| Fate::Retries(HOUR)).await;
        bench.stand_in_line(first).await;
        bench.stand_in_line(second).await;
        let listeners = [second, first];
        let mut calls = bench.listen(if how == "deaf" { &listeners[..1] } else { &listeners });
        match how {
            "called" => {
                bench.publish(generator, &term, 1, &["b"]).await;
                assert_eq!(calls.all(), [first.incarnation]);
            }
            "buried" => {
                bench.expire(first);
                bench.bury(first).await;
            }
            "leaves" => drop(bench.store.leave(first.incarnation).await.unwrap()),
            _ => {
                let late = bench.join(MemberKind::Node, 1).await;
                bench.publish(generator, &term, 1, &["b"]).await;
                assert_eq!(calls.all(), [second.incarnation], "the first one does not listen");
                bench.claim(late, 1).await;
                bench.stand_in_line(second).await;
                bench.let_go(late, |_| Fate::Retries(HOUR / 2)).await;
            }
        }
        let announced: Vec<_> = calls.announced().iter().map(|(who, _)| *who).collect();
        assert_eq!(announced, [second.incarnation], "{how}");
        bench.assert_balanced().await;
    }
}

/// The first in line knows the time, but is frozen and does not come.
#[tokio::test]
async fn a_sweep_calls_an_idle_member_if_a_delayed_message_is_overdue() {
    let bench = TestBench::new().await;
    let (.., [first, second]) = bench.claimed(&["a"]).await;
    let mut calls = bench.listen(&[first, second]);
    bench.let_go(first, |_| Fate::Retries(HOUR)).await;
    bench.stand_in_line(first).await;
    bench.stand_in_line(second).await;
    assert!(!bench.store.suspects(LEASE).await.unwrap().needs_wakeup);
    bench.store.wake().await.unwrap();
    assert_eq!(calls.all(), [], "nothing is due");
    bench.pass();
    assert!(bench.store.suspects(LEASE).await.unwrap().needs_wakeup);
    bench.store.wake().await.unwrap();
    assert_eq!(calls.all(), [first.incarnation]);
    assert_eq!(calls.announced(), [(second.incarnation, 0)], "it is the first now");
    assert_eq!(bench.stand_in_line(second).await.len(), 1);
    assert!(!bench.store.suspects(LEASE).await.unwrap().needs_wakeup);
}

#[tokio::test]
async fn what_waits_for_a_time_belongs_to_no_member() {
    for dies in [true, false] {
        let bench = TestBench::new().await;
        let (generator, _, [handler, heir]) = bench.claimed(&["a", "b"]).await;
        bench.let_go(handler, |at| if at == 0 { Fate::Retries(HOUR) } else { Fate::Stays }).await;
        for actor in [generator, handler] {
            if dies {
                bench.expire(actor);
                bench.bury(actor).await;
            } else {
                bench.store.leave(actor.incarnation).await.unwrap();
            }
        }
        assert_eq!((bench.later().len(), bench.ids_waiting()), (1, vec![2]));
        bench.assert_balanced().await;
        bench.lead(heir).await;
        let late = bench.join(MemberKind::Node, 1).await;
        bench.pass();
        let claimed = bench.claim(late, 5).await;
        let deaths = u32::from(dies);
        assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>()[..1], [2]);
        assert_eq!((facts(&claimed[0])[2], bench.later()), (deaths, vec![]));
        bench.assert_balanced().await;
    }
}

#[tokio::test]
async fn foreign_values_stop_a_turn_that_needs_them_and_no_other() {
    for (key, kind) in [("{estafeta}:later", "zset"), ("{estafeta}:delayed", "hash")] {
        let bench = TestBench::new().await;
        let (.., [handler, _]) = bench.claimed(&["a", "b", "c"]).await;
        bench.plant_foreign(key, kind);
        bench.let_go(handler, |at| if at == 0 { Fate::Done } else { Fate::Stays }).await;
        let before = bench.everything();
        for fate in [Fate::Retries(HOUR), Fate::Snoozes(0, Vec::new())] {
            let settlement = bench.hand(handler).settlement(|_| fate.clone());
            assert!(bench.store.turn(handler.identity(), &settlement, true).await.is_err(), "{key}");
            assert_eq!(bench.everything(), before);
        }
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", "soonest", "1"]);
        if kind == "hash" {
            bench.ask::<()>(&["ZADD", "{estafeta}:later", "1", "000000000000009"]);
        }
        let (before, settlement) = (bench.everything(), bench.settlement(handler, 1, &[]));
        assert!(bench.store.turn(handler.identity(), &settlement, true).await.is_err(), "{key}");
        assert_eq!(bench.everything(), before);
    }
}

#[tokio::test]
async fn a_message_whose_id_waits_already_becomes_an_error() {
    let bench = TestBench::new().await;
    let (.., [handler, _]) = bench.claimed(&["a"]).await;
    // An intruder pushes messages with the same ids, and one that cannot be read.
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "1 1 7 0 0 0 0 0 b", "2 1 7 0 0 0 0 0 c", "what"]);
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "2 1 7 0 0 0 0 0 d"]);
    bench.let_go(handler, |_| Fate::Retries(HOUR)).await;
    for _ in 0..4 {
        bench.settle(handler, 0, &[], 4).await;
    }
    assert_eq!(bench.held(handler), [1, 2, 0, 2]);
    bench.let_go(handler, |_| Fate::Retries(HOUR)).await;
    assert!(bench.delayed(1).ends_with(" a") && bench.delayed(2).ends_with(" c"));
    let errors: Vec<Vec<u8>> = bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]);
    let errors: Vec<_> =
        errors.into_iter().map(|error| DeadLetter::parse(&RingName::sample(), error)).collect();
    let mut shown: Vec<_> =
        errors.iter().map(|error| (error.message.text(), error.reason.as_str())).collect();
    shown.sort_unstable();
    let twice = "another message with this id waits for its time";
    let foreign = "not a message of estafeta: foreign data in the queue";
    assert_eq!(shown, [("b".into(), twice), ("d".into(), twice), ("what".into(), foreign)]);
    assert_eq!((bench.ledger("failed"), bench.ledger("retries"), bench.later().len()), (3, 2, 2));
}

#[tokio::test]
async fn a_time_without_a_message_is_dropped_and_the_others_move() {
    let bench = TestBench::new().await;
    let handler = bench.join(MemberKind::Node, 1).await;
    bench.fill_later(3);
    bench.ask::<()>(&["HDEL", "{estafeta}:delayed", "000000000000002"]);
    let ids: Vec<_> = bench.claim(handler, 9).await.iter().map(|message| message.id).collect();
    assert_eq!((ids, bench.later(), bench.soonest()), (vec![1, 3], vec![], 0));
}

/// How often each command was run since the server started.
fn commands(bench: &TestBench) -> HashMap<String, u64> {
    let stats: String = bench.ask(&["INFO", "commandstats"]);
    let read = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    stats.lines().filter_map(read).collect()
}

#[tokio::test]
async fn a_turn_of_a_ring_without_delayed_messages_costs_nothing_more() {
    let bench = TestBench::new().await;
    let (.., [handler, _]) = bench.claimed(&["a", "b", "c"]).await;
    bench.settle(handler, 1, &[], 1).await;
    let before = commands(&bench);
    bench.stand_in_line(handler).await;
    let settlement = bench.settlement(handler, 2, &[]);
    bench.store.turn(handler.identity(), &settlement, false).await.unwrap();
    let after = commands(&bench);
    let mut new: Vec<_> = after
        .into_iter()
        .map(|(name, count)| (count - before.get(&name).copied().unwrap_or(0), name))
        .filter(|(count, name)| *count > 0 && name != "info" && name != "ping")
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    new.sort();
    // Two turns read the member, the ledger and the queue, and write the member and the ledger. The first one keeps a
    // journal, and the second one settles.
    assert_eq!(new, ["1 hdel", "1 xlen", "2 evalsha", "2 llen", "4 hmget", "4 hset"]);
}
