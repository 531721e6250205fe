//! Tests of claims, returns and the line of idle members: who is called, who is passed over, and what a node gets.

use super::*;

/// The calls that members get, in their order.
pub(super) struct Calls {
    connection: redis::Connection,
    prefix: String,
    announced: Vec<(Incarnation, u64)>,
}

impl Calls {
    /// The member that is called next.
    pub fn next(&mut self) -> Incarnation {
        self.until_sentinel(false).remove(0)
    }

    /// The members to which the ring announced a time since the last look, and that time in milliseconds from then. No
    /// member was called meanwhile.
    pub fn announced(&mut self) -> Vec<(Incarnation, u64)> {
        assert_eq!(self.all(), [], "a member was called");
        std::mem::take(&mut self.announced)
    }

    /// All members that were called since the last look.
    pub fn all(&mut self) -> Vec<Incarnation> {
        self.until_sentinel(true)
    }

    fn until_sentinel(&mut self, all: bool) -> Vec<Incarnation> {
        if all {
            let ping = redis::cmd("PING");
            self.connection.send_packed_command(&ping.get_packed_command()).unwrap();
        }
        let mut called = Vec::new();
        loop {
            let reply = self.connection.recv_response().unwrap();
            let words = Vec::<String>::from_redis_value(reply).unwrap();
            match words[0].as_str() {
                "message" => {
                    let who = words[1].strip_prefix(&self.prefix).unwrap().parse().unwrap();
                    if let Some(ms) = words[2].strip_prefix("due ") {
                        self.announced.push((who, ms.parse().unwrap()));
                        continue;
                    }
                    assert_eq!(words[2], "work");
                    called.push(who);
                    if !all {
                        return called;
                    }
                }
                _ => return called,
            }
        }
    }
}

impl TestBench {
    /// Subscribes to the wakeup channels of these members.
    pub(super) fn listen(&self, members: &[Actor]) -> Calls {
        let mut connection = self.redis.connect();
        connection.set_read_timeout(Some(LEASE)).unwrap();
        for member in members {
            let mut call = redis::cmd("SUBSCRIBE");
            call.arg(self.store.keys().wakeup(member.incarnation));
            connection.send_packed_command(&call.get_packed_command()).unwrap();
            connection.recv_response().unwrap();
        }
        Calls { connection, prefix: self.store.keys().wakeups.clone(), announced: Vec::new() }
    }

    /// Makes a turn of a member that listens and has one free lane.
    pub(super) async fn stand_in_line(&self, actor: Actor) -> Vec<Message> {
        let asks = Settlement { want: 1, each: 1, listens: true, ..self.settlement(actor, 0, &[]) };
        self.make(actor, &asks).await.unwrap().messages()
    }

    /// The ids of each entry of the journal.
    fn journal(&self) -> Vec<String> {
        let entries: Vec<(String, Vec<String>)> = self.ask(&["XRANGE", "{estafeta}:journal", "-", "+"]);
        entries.into_iter().map(|(_, fields)| fields[1].clone()).collect()
    }

    pub(super) async fn three_nodes(&self) -> (Actor, Term, [Actor; 2]) {
        let generator = self.join(MemberKind::Node, 1).await;
        let others = [self.join(MemberKind::Node, 1).await, self.join(MemberKind::Node, 1).await];
        (generator, self.lead(generator).await, others)
    }

    pub(super) fn names(&self, actors: &[Actor]) -> Vec<String> {
        actors.iter().map(|actor| actor.incarnation.to_string()).collect()
    }
}

#[tokio::test]
async fn a_member_stands_in_line_only_if_it_listens_and_found_the_queue_empty() {
    let bench = TestBench::new().await;
    let (generator, term, [one, other]) = bench.three_nodes().await;
    let asks = |want, listens| Settlement { want, each: 1, listens, ..Settlement::default() };
    bench.turn(one, &asks(1, false)).await.unwrap();
    bench.turn(one, &asks(0, true)).await.unwrap();
    assert!(bench.line().is_empty(), "it does not listen, or it has no free lane");
    for _ in 0..2 {
        bench.turn(one, &asks(1, true)).await.unwrap();
        bench.turn(other, &asks(1, true)).await.unwrap();
        assert_eq!(bench.line(), bench.names(&[one, other]), "each once");
    }
    bench.turn(one, &asks(0, true)).await.unwrap();
    assert_eq!(bench.line(), bench.names(&[other]), "all its lanes are busy");
    // A member that gets as much as it wants, or leaves something for others, is not idle.
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    bench.stand_in_line(one).await;
    assert!(bench.line().is_empty());
    let more = Settlement { want: 5, each: 1, listens: true, ..bench.settlement(one, 0, &[]) };
    let applied = bench.make(one, &more).await.unwrap();
    assert_eq!((applied.held().len(), applied.waits), (2, false));
    assert_eq!(bench.line(), bench.names(&[one]), "it wanted five and got two");
}

#[tokio::test]
async fn the_longest_idle_member_is_called_once_and_calls_the_next_one_if_more_waits() {
    let bench = TestBench::new().await;
    let (generator, term, [one, other]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[one, other]);
    bench.stand_in_line(one).await;
    bench.stand_in_line(other).await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    bench.publish(generator, &term, 1, &["c"]).await;
    assert_eq!(calls.all(), [one.incarnation], "messages waited already");
    assert_eq!(bench.line(), bench.names(&[other]));
    assert_eq!(bench.stand_in_line(one).await.len(), 1);
    assert_eq!(calls.all(), [other.incarnation]);
    assert!(bench.line().is_empty());
    assert_eq!(bench.stand_in_line(other).await.len(), 1);
    assert_eq!(calls.all(), []);
}

#[tokio::test]
async fn a_member_without_a_subscriber_is_passed_over() {
    let bench = TestBench::new().await;
    let (generator, term, [deaf, other]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[other]);
    bench.stand_in_line(deaf).await;
    bench.stand_in_line(other).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    assert_eq!(calls.all(), [other.incarnation]);
    assert!(bench.line().is_empty());
}

#[tokio::test]
async fn a_member_that_goes_is_out_of_the_line_and_what_it_held_calls_the_next_one() {
    for dies in [true, false] {
        let bench = TestBench::new().await;
        let (generator, term, [goes, other]) = bench.three_nodes().await;
        bench.publish(generator, &term, 0, &["a"]).await;
        bench.stand_in_line(goes).await;
        bench.stand_in_line(goes).await;
        bench.stand_in_line(other).await;
        assert_eq!(bench.line(), bench.names(&[goes, other]));
        let mut calls = bench.listen(&[goes, other]);
        if dies {
            bench.expire(goes);
            bench.bury(goes).await;
        } else {
            bench.store.leave(goes.incarnation).await.unwrap();
        }
        assert_eq!(calls.all(), [other.incarnation], "dies: {dies}");
        assert!(bench.line().is_empty());
    }
}

#[tokio::test]
async fn retried_errors_and_a_sweep_call_an_idle_member() {
    let bench = TestBench::new().await;
    let (.., [one, other]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[one, other]);
    bench.stand_in_line(one).await;
    bench.stand_in_line(other).await;
    assert!(!bench.store.suspects(LEASE).await.unwrap().needs_wakeup, "nothing waits");
    bench.store.wake().await.unwrap();
    assert_eq!(calls.all(), [], "nothing waits");
    let error = "!1 1 2 no 9 1 1 0 0 0 0 0 body";
    bench.ask::<()>(&["RPUSH", "{estafeta}:errors", error]);
    bench.store.resolve("retry", &[(0, error.as_bytes())]).await.unwrap();
    assert_eq!(calls.all(), [one.incarnation]);
    // The member that was called does not come.
    assert!(bench.store.suspects(LEASE).await.unwrap().needs_wakeup);
    bench.store.wake().await.unwrap();
    assert_eq!(calls.all(), [other.incarnation]);
    assert!(!bench.store.suspects(LEASE).await.unwrap().needs_wakeup, "nobody is idle");
}

#[tokio::test]
async fn a_generator_that_was_idle_leaves_the_line_and_passes_its_call_on() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let mut calls = bench.listen(&[one, other]);
    bench.stand_in_line(one).await;
    bench.stand_in_line(other).await;
    let term = bench.lead(one).await;
    bench.publish(one, &term, 0, &["a"]).await;
    assert_eq!(calls.all(), [one.incarnation]);
    assert_eq!(bench.stand_in_line(one).await, [], "the generator never claims");
    assert_eq!(calls.all(), [other.incarnation]);
    assert_eq!(bench.stand_in_line(other).await.len(), 1);
    assert_eq!(bench.stand_in_line(one).await, []);
    assert!(bench.line().is_empty(), "the generator is not idle");
}

#[tokio::test]
async fn claims_are_shown_again_until_they_were_seen() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, _]) = bench.three_nodes().await;
    for (n, body) in (0..).zip(["a", "b", "c", "d"]) {
        bench.publish(generator, &term, n, &[body]).await;
    }
    let asks = Settlement { want: 2, each: 1, ..Settlement::default() };
    let first = bench.turn(handler, &asks).await.unwrap();
    assert_eq!((first.names(), first.claimed, first.waits), (vec!["1", "2"], 2, true));
    for _ in 0..2 {
        assert_eq!(bench.turn(handler, &asks).await.unwrap(), first, "and nothing new");
    }
    // The member settles what it had before, and did not hear of its last claims.
    bench.make(handler, &asks).await.unwrap();
    let settles = Settlement { want: 2, each: 1, ..bench.settlement(handler, 1, &[]) };
    let second = bench.turn(handler, &settles).await.unwrap();
    assert_eq!((second.names(), second.cursor, second.waits), (vec!["3", "4"], 1, false));
    assert_eq!(bench.turn(handler, &settles).await.unwrap(), second);
    assert_eq!((bench.ledger("done"), bench.snapshot().await.in_flight), (1, 3));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn messages_are_settled_in_any_order() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d", "e"]).await;
    bench.claim_for(handler, 5, 1).await;
    for (gone, left) in [(3, vec![1, 2, 3, 5]), (0, vec![2, 3, 5]), (2, vec![2, 3])] {
        let settlement =
            bench.hand(handler).settlement(|at| if at == gone { Fate::Done } else { Fate::Stays });
        assert_eq!(bench.turn(handler, &settlement).await.unwrap().claims, []);
        bench.make(handler, &settlement).await.unwrap();
        assert_eq!(bench.held(handler), left);
    }
    assert_eq!((bench.ledger("done"), bench.snapshot().await.in_flight), (3, 2));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn returned_messages_stand_first_in_their_order_and_count_as_neither_delivered_nor_processed() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, other]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.publish(generator, &term, 1, &["b", "c", "d"]).await;
    bench.publish(generator, &term, 2, &["e"]).await;
    assert_eq!(bench.claim_for(handler, 1, 4).await.len(), 4);
    let before = bench.ready();
    // One lane has started the first message. The pack goes back whole.
    let settlement = bench.hand(handler).settlement(|at| if at == 0 { Fate::Done } else { Fate::Returns });
    assert_eq!((settlement.count, settlement.returns.len()), (4, 1));
    for _ in 0..2 {
        assert!(bench.turn(handler, &settlement).await.unwrap().waits);
    }
    bench.make(handler, &settlement).await.unwrap();
    assert_eq!(bench.ready()[1..], before);
    let seen = &bench.snapshot().await.members[1];
    assert_eq!((seen.processed, seen.in_flight, bench.ledger("done")), (1, 0, 1));
    assert_eq!(bench.ledger("returned"), 0, "their holder neither died nor left");
    assert_eq!(bench.journal(), ["1"], "what returns has no outcome");
    bench.assert_balanced().await;
    let claimed = bench.claim(other, 9).await;
    let facts: Vec<_> = claimed.iter().map(|message| (message.id, message.delivery)).collect();
    assert_eq!(facts, [(2, 1), (3, 1), (4, 1), (5, 1)]);
}

#[tokio::test]
async fn parts_and_whole_elements_go_back_in_the_order_in_which_they_were_claimed() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, other]) = bench.three_nodes().await;
    for (n, bodies) in (0..).zip([&["a", "b", "c"][..], &["d"], &["e", "f"], &["g"]]) {
        bench.publish(generator, &term, n, bodies).await;
    }
    assert_eq!(bench.claim(handler, 7).await.len(), 7);
    let mut settlement =
        bench.hand(handler).settlement(|at| if at == 0 { Fate::Done } else { Fate::Returns });
    settlement.returns.reverse();
    assert_eq!((settlement.returns.len(), settlement.parts.len()), (3, 1));
    bench.make(handler, &settlement).await.unwrap();
    let ids: Vec<u64> = bench.claim(other, 9).await.iter().map(|message| message.id).collect();
    assert_eq!(ids, [2, 3, 4, 5, 6, 7]);
    assert_eq!(bench.journal(), ["1"]);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_reserve_is_claimed_only_if_more_than_four_times_as_much_waits() {
    for (waiting, expected) in [(20, 2), (21, 5)] {
        let bench = TestBench::new().await;
        let (generator, term, [handler, _]) = bench.three_nodes().await;
        for n in 0..waiting {
            let messages = messages(term.epoch, n + 1, &["x"]);
            let batch = Dispatch { max_waiting: 100, ..batch(term.epoch, n, &messages) };
            bench.store.publish(generator.incarnation, &batch).await.unwrap();
        }
        let asks = Settlement { want: 2, each: 1, reserve: 3, ..Settlement::default() };
        assert_eq!(bench.turn(handler, &asks).await.unwrap().claims.len(), expected, "{waiting} wait");
    }
}

#[tokio::test]
async fn a_message_with_deaths_is_never_in_a_reserve_and_brings_none_along() {
    for each in [1, 5] {
        let bench = TestBench::new().await;
        let (generator, term, [busy, free]) = bench.three_nodes().await;
        for n in 0..60 {
            let messages = messages(term.epoch, n + 1, &["x"]);
            let batch = Dispatch { max_waiting: 100, ..batch(term.epoch, n, &messages) };
            bench.store.publish(generator.incarnation, &batch).await.unwrap();
        }
        bench.ask::<()>(&["LSET", "{estafeta}:ready", "1", "2 9 7 1 0 1 0 0 x"]);
        let ids = async |actor, want| -> Vec<u64> {
            let asks = Settlement { want, each, reserve: 3, ..Settlement::default() };
            let applied = bench.turn(actor, &asks).await.unwrap();
            applied.messages().iter().map(|message| message.id).collect()
        };
        assert_eq!(ids(busy, 0).await, [1], "the reserve ends before it");
        assert_eq!(ids(free, each).await, [2], "a lane that wants {each}");
    }
}

/// Redis checks the right to a channel only when a script uses it, and the step has written by then.
#[tokio::test]
async fn a_step_of_a_user_without_channels_is_applied_as_a_whole_and_leaves_the_line_as_it_is() {
    let bench = TestBench::new().await;
    let (_, _, [one, two]) = bench.three_nodes().await;
    let mut calls = bench.listen(&[one, two]);
    bench.stand_in_line(one).await;
    bench.stand_in_line(two).await;
    bench.ask::<()>(&["ACL", "SETUSER", "poor", "on", ">pw", "~*", "resetchannels", "+@all"]);
    let url = format!("{}?user=poor&pass=pw", bench.redis.url());
    let poor = Arc::new(Topology::new(url.parse().unwrap(), bench.store.ring()));
    let (connection, _keeper) = ManagedConnection::open(poor, LEASE).await.unwrap();
    let poor = Store::new(Arc::new(connection), bench.store.ring().clone());
    for sequence in 1..=2 {
        let submitted = poor.submit(&submission(sequence, &[draft("x", None)])).await.unwrap();
        let Submit::Submitted(ids) = submitted else { panic!("{submitted:?}") };
        assert_eq!(ids[0].id, sequence);
    }
    let delayed = delayed("later", None, millis(LEASE));
    poor.submit(&submission(3, &[delayed])).await.unwrap();
    bench.assert_balanced().await;
    assert_eq!((calls.all(), bench.line()), (vec![], bench.names(&[one, two])), "nobody was called");
    bench.store.wake().await.unwrap();
    assert_eq!((calls.all(), bench.line()), (vec![one.incarnation], bench.names(&[two])), "a sweep does it");
}
