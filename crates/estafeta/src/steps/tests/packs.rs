//! Tests of packs: many messages share one element until one of them has to move alone.

use super::*;

/// Creates a ring with a generator, a handler and `count` small messages in the queue.
async fn ring_with(bench: &TestBench, count: usize) -> (Actor, Term, Actor) {
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    fill(bench, generator, &term, 0, count).await;
    (generator, term, handler)
}

async fn fill(bench: &TestBench, generator: Actor, term: &Term, n: u64, count: usize) -> Publish {
    let messages = messages(term.epoch, bench.ledger("published") + 1, &vec!["x"; count]);
    let batch = Batch { max_waiting: 1000, limit: 0, ..batch(term.epoch, n, &messages) };
    bench.store.publish(generator.incarnation, &batch).await.unwrap()
}

/// Claims and settles up to `want` messages at a time until the queue is empty. Returns the ids of each claim.
async fn settle_all(bench: &TestBench, handler: Actor, want: usize) -> Vec<Vec<u64>> {
    let (mut cursor, mut settled, mut claims) = (0, 0, Vec::new());
    loop {
        let settlement = Settlement { cursor, settled, want, ..Settlement::default() };
        let (now, held) = bench.turn(handler, 0, settlement).await.unwrap();
        if held.is_empty() {
            return claims;
        }
        (cursor, settled) = (now, held.len());
        claims.push(held.iter().map(|message| message.id).collect());
    }
}

fn sizes(claims: &[Vec<u64>]) -> Vec<usize> {
    claims.iter().map(Vec::len).collect()
}

#[tokio::test]
async fn a_claim_takes_as_many_whole_packs_as_fit() {
    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 250).await;
    assert_eq!((bench.ready().len(), bench.snapshot().await.waiting), (3, 250));
    let claims = settle_all(&bench, handler, 220).await;
    assert_eq!(sizes(&claims), [200, 50]);
    fill(&bench, generator, &term, 1, 250).await;
    let other = bench.join(MemberKind::Node, 1).await;
    let claims = [claims, settle_all(&bench, other, 1000).await].concat();
    assert_eq!(sizes(&claims), [200, 50, 250]);
    assert_eq!(claims.concat(), (1..=500).collect::<Vec<u64>>());
    assert_eq!((bench.ledger("done"), bench.ledger("packed")), (500, 0));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_claim_of_less_than_a_pack_opens_the_pack() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 250).await;
    let first = bench.claim(handler, 0, 30).await;
    assert_eq!(first.iter().map(|message| message.id).collect::<Vec<_>>(), (1..=30).collect::<Vec<u64>>());
    assert_eq!((bench.ready().len(), bench.snapshot().await.waiting), (72, 220));
    let other = bench.join(MemberKind::Node, 1).await;
    let claims = settle_all(&bench, other, 30).await;
    assert_eq!(claims.concat(), (31..=250).collect::<Vec<u64>>());
    bench.assert_balanced().await;
}

#[tokio::test]
async fn the_rest_of_a_partly_settled_pack_returns_in_order() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 20).await;
    assert_eq!(bench.claim(handler, 0, 1000).await.len(), 20);
    assert_eq!(bench.snapshot().await.in_flight, 20);
    // The lane stops halfway, with one failure among the settled messages.
    let settlement = Settlement { settled: 8, failures: vec![(2, "no".into())], ..Settlement::default() };
    let (cursor, held) = bench.turn(handler, 0, settlement).await.unwrap();
    assert_eq!((cursor, held.len(), held[0].id), (8, 12, 9));
    assert_eq!(bench.store.errors(0, 9).await.unwrap()[0].message.id, 3);
    assert_eq!(bench.store.leave(handler.incarnation, 1).await.unwrap(), 12);
    let other = bench.join(MemberKind::Node, 1).await;
    let claims = settle_all(&bench, other, 1000).await;
    assert_eq!(sizes(&claims), [12], "their handler left and did not die");
    assert_eq!(claims.concat(), (9..=20).collect::<Vec<u64>>());
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_broken_pack_is_one_foreign_message_to_scripts_and_lanes() {
    let broken = [
        "*",
        "*1 2 4 0 ",
        "*1 2 4 2 1:a",
        "*1 2 4 1 1:ab",
        "*1 2 4 1 9:a",
        "*1 2 4 -1 1:a",
        "*1 2 4 999999999 1:a",
        "*1 2 4 2 1:a99999999999999999999:b",
        "*x 2 4 1 1:a",
        "*1 2  4 2 1:a1:b",
        "*99999999999999999999 2 4 2 1:a1:b",
    ];
    for want in [1, 3, 1000] {
        let bench = TestBench::new().await;
        let (generator, term, handler) = ring_with(&bench, 4).await;
        for element in broken {
            bench.ask::<()>(&["RPUSH", "{estafeta}:ready", element]);
        }
        fill(&bench, generator, &term, 1, 4).await;
        let ids = settle_all(&bench, handler, want).await.concat();
        let ours: Vec<u64> = ids.iter().copied().filter(|id| *id > 0).collect();
        assert_eq!(ours, (1..=8).collect::<Vec<u64>>(), "claims of {want}: {ids:?}");
        assert_eq!(ids.len() - ours.len(), broken.len(), "claims of {want}: {ids:?}");
        assert_eq!(bench.snapshot().await.waiting, 0);
    }
}

#[tokio::test]
async fn a_lost_count_loses_no_message() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 250).await;
    bench.ask::<()>(&["HDEL", "{estafeta}:ledger", "packed"]);
    assert_eq!(bench.claim(handler, 0, 2).await.len(), 200, "two elements, for all that Redis knows");
    let member = bench.store.keys().member(handler.incarnation);
    bench.ask::<()>(&["HDEL", &member, "packed:0"]);
    assert_eq!(bench.snapshot().await.in_flight, 200);
    assert_eq!(bench.claim(handler, 0, 2).await.len(), 200, "a repeated claim counts them anew");
    assert_eq!(bench.snapshot().await.in_flight, 200);
    let claims = settle_all(&bench, handler, 1000).await;
    assert_eq!(claims.concat(), (1..=250).collect::<Vec<u64>>());
    assert_eq!(bench.ledger("done"), 250);
    bench.assert_balanced().await;
}

/// If a count is wrong, a lane gets more messages than Redis knows of. It then settles as many as Redis thinks it
/// holds.
#[tokio::test]
async fn messages_that_were_never_counted_are_not_taken_for_settled() {
    for wrong in [["packed", "0"], ["loose", "5"]] {
        let bench = TestBench::new().await;
        let (.., handler) = ring_with(&bench, 100).await;
        bench.ask::<()>(&[&["HSET", "{estafeta}:ledger"], &wrong[..]].concat());
        assert_eq!(bench.claim(handler, 0, 1).await.len(), 100, "one element, for all that Redis knows");
        // There is no journal, because for a journal the script reads the messages in any case.
        let settlement = Settlement { settled: 1, ..Settlement::default() };
        let turn = bench.store.turn(handler.identity(), 0, &settlement, false).await.unwrap();
        assert!(matches!(turn, Turn::Holds { cursor: 1, held, .. } if held.len() == 99), "{wrong:?}");
        bench.store.leave(handler.incarnation, 1).await.unwrap();
        bench.assert_balanced().await;
    }
}

#[tokio::test]
async fn a_count_below_zero_does_not_let_a_lane_claim_over_what_it_holds() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 1).await;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "packed", "-1"]);
    let held = bench.claim(handler, 0, 1).await;
    let member = bench.store.keys().member(handler.incarnation);
    bench.ask::<()>(&["HSET", &member, "packed:0", "-1"]);
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "2 1 7 0 0 0 0 0 y"]);
    assert_eq!(bench.claim(handler, 0, 1).await, held, "a repeated claim");
    assert_eq!(bench.snapshot().await.in_flight, 1, "and the count is right again");
}

/// A script that may call any function of the pieces about messages.
fn script_with(own: &str) -> redis::Script {
    macro_rules! piece {
        ($name:literal) => {
            script::read(
                concat!("shared/", $name, ".lua"),
                include_str!(concat!("../shared/", $name, ".lua")),
            )
        };
    }
    let pieces = [piece!("clock"), piece!("lists"), piece!("elements"), piece!("ledger"), piece!("queue")];
    redis::Script::new(&script::assemble("", &pieces, own))
}

/// Lanes and scripts must find the same messages in any element of a list.
#[test]
fn scripts_and_lanes_parse_any_element_alike() {
    use proptest::prelude::*;
    let redis = RedisServer::start();
    let script = script_with("return packs().open(ARGV[1]) or { ARGV[1] }");
    let connection = std::cell::RefCell::new(redis.connect());
    let number = || {
        prop_oneof![
            12 => "[0-9]{1,3}",
            1 => "[0-9]{14,21}",
            1 => "0*1",
            1 => Just(String::new()),
            1 => "[-+]?[0-9]"
        ]
    };
    let header = (number(), number(), number(), prop_oneof![4 => Just("0"), 1 => Just("1"), 1 => Just("3")]);
    let body = (prop_oneof![9 => Just(None), 1 => number().prop_map(Some)], "[a:0-9 ]{0,4}");
    let element = (header, prop::collection::vec(body, 0..4), prop_oneof![9 => Just(""), 1 => Just("x")])
        .prop_map(|((id, epoch, ms, count), bodies, tail)| {
            let count = if count == "0" { bodies.len().to_string() } else { count.to_owned() };
            let mut text = format!("*{id} {epoch} {ms} {count} ");
            for (length, body) in bodies {
                text += &format!("{}:{body}", length.unwrap_or_else(|| body.len().to_string()));
            }
            text + tail
        });
    let opened = std::cell::Cell::new(0);
    let both = |element: &str| {
        let theirs: Vec<Vec<u8>> = script.arg(element).invoke(&mut *connection.borrow_mut()).unwrap();
        let mut ours = Vec::new();
        crate::pack::read(&RingName::sample(), element.to_owned().into_bytes(), &mut ours);
        // The comparison must not open what Lua left closed.
        let read = |element: Vec<u8>| Message::parse(&RingName::sample(), element.into());
        (theirs.into_iter().map(read).collect::<Vec<_>>(), ours)
    };
    // Both accept numbers below 10^15, including leading zeros.
    let edges = [
        ("*123456789012345 2 4 2 1:a1:b", 2),
        ("*1234567890123456 2 4 2 1:a1:b", 1),
        ("*999999999999997 2 4 2 1:a1:b", 2),
        ("*999999999999998 2 4 2 1:a1:b", 1),
        ("*1 999999999999999 4 2 1:a1:b", 2),
        ("*1 1000000000000000 4 2 1:a1:b", 1),
        ("*1 2 999999999999999 2 1:a1:b", 2),
        ("*1 2 1000000000000000 2 1:a1:b", 1),
        ("*1 2 4 2 0000000000000001:a1:b", 2),
        ("*1 2 4 2 1:a9:b", 1),
        ("*1 2 4 2 1:a1:bc", 1),
    ];
    for (element, count) in edges {
        let (seen, ours) = both(element);
        assert_eq!((&seen, ours.len()), (&ours, count), "{element}");
    }
    proptest!(|(element in element)| {
        let (seen, ours) = both(&element);
        prop_assert_eq!(&seen, &ours, "{}", element);
        if ours[0].id > 0 {
            opened.set(opened.get() + 1);
        }
    });
    assert!(opened.get() > 20, "only {} of them were packs", opened.get());
}

/// Scripts and lanes must agree on which elements are messages, where the headers end, and what is counted. A message
/// that a member hands back must come back with its headers and its body.
#[test]
fn scripts_and_lanes_read_any_message_alike() {
    use proptest::prelude::*;
    let redis = RedisServer::start();
    let script = script_with(
        "local message = split_message(ARGV[1]) \
         if not message then return { ARGV[1], '0', '0', '0', '0' } end \
         local counts = { text(message.id), text(message.deliveries), text(message.failures), text(message.deaths) } \
         return { join_message(message), unpack(counts) }",
    );
    let connection = std::cell::RefCell::new(redis.connect());
    let number = || {
        prop_oneof![
            30 => "[0-9]{1,3}",
            1 => "[0-9]{14,21}",
            1 => "0*1",
            1 => Just(String::new()),
            1 => "[-+]?[0-9]"
        ]
    };
    let length = prop_oneof![
        9 => Just(None),
        1 => number().prop_map(Some),
        1 => "[0-9]".prop_map(Some)
    ];
    let element = (prop::collection::vec(number(), 7), length, "[a:0-9 ]{0,5}", "[a:0-9 ]{0,5}").prop_map(
        |(numbers, length, headers, body)| {
            let length = length.unwrap_or_else(|| headers.len().to_string());
            format!("{} {length} {headers}{body}", numbers.join(" "))
        },
    );
    let both = |element: &str| {
        let theirs: Vec<String> = script.arg(element).invoke(&mut *connection.borrow_mut()).unwrap();
        let read = |element: &str| Message::parse(&RingName::sample(), element.as_bytes().to_vec().into());
        (theirs, read(element), read)
    };
    let check = |element: &str| {
        let (theirs, ours, read) = both(element);
        let counts =
            [ours.id, u64::from(ours.delivery.saturating_sub(1)), ours.failures.into(), ours.deaths.into()];
        // Lanes count up to 32 bits.
        let counted = theirs[1..].iter().map(|count| count.parse::<u64>().unwrap());
        let counted: Vec<u64> = counted
            .enumerate()
            .map(|(at, count)| match at {
                0 => count,
                1 => count.min(u64::from(u32::MAX) - 1),
                _ => count.min(u32::MAX.into()),
            })
            .collect();
        assert_eq!(counted, counts, "{element}");
        assert_eq!(read(&theirs[0]), ours, "{element}");
        ours.id > 0
    };
    let edges = [
        ("999999999999999 9 1 0 0 0 0 0 x", true),
        ("1000000000000000 9 1 0 0 0 0 0 x", false),
        ("7 999999999999999 999999999999999 999999999999999 1 1 999999999999999 0 x", true),
        ("7 1000000000000000 1 0 0 0 0 0 x", false),
        ("7 9 1000000000000000 0 0 0 0 0 x", false),
        ("7 9 1 1000000000000000 0 0 0 0 x", false),
        ("7 9 1 0 1000000000000000 0 0 0 x", false),
        ("7 9 1 0 0 1000000000000000 0 0 x", false),
        ("7 9 1 0 0 0 1000000000000000 0 x", false),
        ("7 9 1 0 0 0 0 1000000000000000 x", false),
        ("7 9 1 0 0 0 0 0 ", true),
        ("7 9 1 0 0 0 0 1 ", false),
        ("7 9 1 0 0 0 0 0", false),
        ("7 9 1 0 0 0 0 6 1:a1:b", true),
        ("7 9 1 0 0 0 0 6 1:a1:bbody", true),
        ("7 9 1 0 0 0 0 7 1:a1:b", false),
    ];
    for (element, is_message) in edges {
        assert_eq!(check(element), is_message, "{element}");
    }
    let seen = std::cell::Cell::new((0, 0));
    proptest!(|(element in element)| {
        let (messages, foreign) = seen.get();
        seen.set(if check(&element) { (messages + 1, foreign) } else { (messages, foreign + 1) });
    });
    assert!(seen.get().0 > 20 && seen.get().1 > 20, "messages and foreign elements: {:?}", seen.get());
}

/// If a reader shows an error of message 7, a retry must produce message 7 with the same body. If a reader shows a
/// foreign element, a retry must leave it where it is.
#[test]
fn scripts_and_readers_parse_any_error_alike() {
    use proptest::prelude::*;
    let redis = RedisServer::start();
    let script = script_with("return retried_message(ARGV[1]) or false");
    let connection = std::cell::RefCell::new(redis.connect());
    let number =
        || prop_oneof![24 => "[0-9]{1,9}", 1 => "[0-9]{15,21}", 1 => Just(String::new()), 1 => "[-+]?[0-9]"];
    let length =
        prop_oneof![6 => Just(None), 1 => "[0-9]{1,2}".prop_map(Some), 1 => "[0-9]{14,18}".prop_map(Some)];
    let message = (
        number(),
        number(),
        number(),
        "[0-9]{1,3} [0-9]{1,3} [0-9]{1,3} [0-9]{1,3} [0-3] ",
        "[ a-z0-9]{0,6}",
    );
    let element = (
        (prop_oneof![9 => Just("!"), 1 => Just("")], number(), number()),
        length,
        "[ a-z0-9é]{0,12}",
        prop_oneof![9 => Just(" "), 1 => Just("")],
        message,
    );
    let (retried, foreign) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    proptest!(|((header, length, reason, space, message) in element)| {
        let ((mark, failed, member), (id, epoch, published, counts, body)) = (header, message);
        let length = length.unwrap_or_else(|| reason.len().to_string());
        let message = format!("{id} {epoch} {published} {counts}{body}");
        let element = format!("{mark}{failed} {member} {length} {reason}{space}{message}");
        let theirs: Option<Vec<u8>> = script.arg(&element).invoke(&mut *connection.borrow_mut()).unwrap();
        let ours = DeadLetter::parse(&RingName::sample(), element.clone().into_bytes());
        match theirs {
            Some(message) => {
                let message = Message::parse(&RingName::sample(), message.into());
                let facts = |message: &Message| (message.id, message.epoch, message.published_ms);
                prop_assert_eq!(facts(&message), facts(&ours.message), "{}", element);
                prop_assert_eq!(message.body(), ours.message.body(), "{}", element);
                prop_assert_eq!(ours.reason.len(), length.parse().unwrap());
                let counts = (message.delivery, message.failures, message.deaths);
                prop_assert!(message.id == 0 || counts == (ours.message.delivery + 1, 0, 0), "{}", element);
                retried.set(retried.get() + 1);
            }
            None => {
                prop_assert_eq!((ours.message.id, ours.message.body()), (0, element.as_bytes()));
                foreign.set(foreign.get() + 1);
            }
        }
    });
    assert!(retried.get() > 20 && foreign.get() > 20, "{} and {}", retried.get(), foreign.get());
}

#[tokio::test]
async fn a_deleted_queue_is_not_full() {
    let bench = TestBench::new().await;
    let (generator, term, _) = ring_with(&bench, 1000).await;
    assert!(matches!(fill(&bench, generator, &term, 1, 10).await, Publish::Full { .. }));
    bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
    let answer = fill(&bench, generator, &term, 1, 10).await;
    assert!(matches!(answer, Publish::Published { .. }), "{answer:?}");
    assert_eq!(bench.snapshot().await.waiting, 10);
}

/// Two of a thousand messages are not in the queue when it is deleted: a lane holds one, and the other is an error.
#[tokio::test]
async fn a_message_that_returns_to_a_deleted_queue_is_the_only_one_counted_there() {
    for by_retry in [false, true] {
        let bench = TestBench::new().await;
        let (.., handler) = ring_with(&bench, 1000).await;
        bench.claim(handler, 0, 1).await;
        let fails =
            Settlement { settled: 1, failures: vec![(0, "no".into())], want: 1, ..Settlement::default() };
        bench.turn(handler, 0, fails).await.unwrap();
        bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
        if by_retry {
            let errors: Vec<String> = bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]);
            assert_eq!(bench.store.resolve("retry", &[errors[0].as_bytes()]).await.unwrap(), 1);
        } else {
            bench.store.leave(handler.incarnation, 1).await.unwrap();
        }
        assert_eq!(bench.snapshot().await.waiting, 1, "by retry: {by_retry}");
        assert_eq!(bench.ledger("loose"), 0, "by retry: {by_retry}");
    }
}

#[tokio::test]
async fn a_turn_reports_no_more_elements_than_there_are() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 1).await;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "packed", "999", "loose", "5"]);
    bench.ask::<()>(&["DEL", "{estafeta}:wakeup"]);
    let settlement = Settlement { want: 100, ..Settlement::default() };
    let call = turn::call(bench.store.keys(), handler.identity(), 0, 1, &settlement, false);
    let reply = bench.store.run(&turn::SCRIPT, &call).await.unwrap();
    assert_eq!(turn::read(reply).unwrap(), Some((0, 1)), "nothing was settled, and one is held");
    assert_eq!(bench.ask::<String>(&["HGET", "{estafeta}:ledger", "packed"]), "0");
    assert_eq!(bench.ask::<u64>(&["LLEN", "{estafeta}:wakeup"]), 0, "nothing is left to wake anybody for");
}

/// A lane must not block Redis by a search through a long queue.
#[tokio::test]
async fn a_claim_from_a_queue_with_a_pack_looks_at_no_more_than_100_elements() {
    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 2).await;
    for n in 1..=300 {
        fill(&bench, generator, &term, n, 1).await;
    }
    assert_eq!(sizes(&settle_all(&bench, handler, 250).await), [101, 201]);
}

#[tokio::test]
async fn a_publish_repairs_damaged_counts() {
    for damage in
        [&["HDEL", "{estafeta}:ledger", "packed"][..], &["HSET", "{estafeta}:ledger", "packed", "-5"]]
    {
        let bench = TestBench::new().await;
        let (generator, term, _) = ring_with(&bench, 1).await;
        bench.ask::<()>(damage);
        fill(&bench, generator, &term, 1, 3).await;
        assert_eq!((bench.ledger("packed"), bench.snapshot().await.waiting), (2, 4), "{damage:?}");
    }
    // An emptied queue has no loose messages.
    let bench = TestBench::new().await;
    let (generator, term, _) = ring_with(&bench, 1).await;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "loose", "5"]);
    bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
    fill(&bench, generator, &term, 1, 3).await;
    assert_eq!(bench.ledger("loose"), 0);
}

/// A message with deaths waits behind two packs, of which one is opened by the first claim.
#[tokio::test]
async fn a_claim_of_packs_ends_before_a_message_with_deaths() {
    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 20).await;
    fill(&bench, generator, &term, 1, 3).await;
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "24 9 7 1 0 1 0 0 x", "25 9 7 1 0 0 0 0 x"]);
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "alone", "1", "published", "25"]);
    assert_eq!(bench.claim(handler, 0, 5).await.len(), 5);
    let other = bench.join(MemberKind::Node, 1).await;
    assert_eq!(sizes(&settle_all(&bench, other, 1000).await), [18, 1, 1]);
    assert_eq!((bench.ledger("alone"), bench.ledger("packed")), (0, 0));
    bench.assert_balanced().await;
}

/// If the count is too high, lanes search for messages with deaths that are not there.
#[tokio::test]
async fn a_search_for_messages_with_deaths_is_short() {
    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 1).await;
    for n in 1..250 {
        fill(&bench, generator, &term, n, 1).await;
    }
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "alone", "3"]);
    assert_eq!(sizes(&settle_all(&bench, handler, 200).await), [100, 100, 50]);
    // An empty queue has none.
    fill(&bench, generator, &term, 250, 1).await;
    assert_eq!(bench.ledger("alone"), 0);

    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 1).await;
    let large = "x".repeat(1_000_000);
    let messages = messages(term.epoch, 2, &[&large[..]; 5]);
    bench.store.publish(generator.incarnation, &batch(term.epoch, 1, &messages)).await.unwrap();
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "alone", "3"]);
    assert_eq!(bench.claim(handler, 0, 6).await.len(), 4, "it stops after 2 MiB");
}

#[tokio::test]
async fn a_count_of_deaths_below_zero_is_repaired() {
    let bench = TestBench::new().await;
    let (generator, term, handler) = ring_with(&bench, 3).await;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "alone", "-2"]);
    fill(&bench, generator, &term, 1, 1).await;
    assert_eq!(bench.ask::<String>(&["HGET", "{estafeta}:ledger", "alone"]), "0");
    // A message with deaths that was never counted is still claimed alone, at the head of the queue.
    bench.ask::<()>(&["LPUSH", "{estafeta}:ready", "9 9 7 1 0 1 0 0 x"]);
    assert_eq!(bench.claim(handler, 0, 9).await.len(), 1);
    assert_eq!(bench.ask::<String>(&["HGET", "{estafeta}:ledger", "alone"]), "0");
}

/// One header names nine messages, which is more than the lane wants. The other one names none.
#[tokio::test]
async fn a_broken_pack_is_claimed_as_one_message_whatever_number_its_header_names() {
    let bench = TestBench::new().await;
    for foreign in ["*1 2 4 9 x", "*1 2 4 0 "] {
        bench.ask::<()>(&["FLUSHALL"]);
        let (.., handler) = ring_with(&bench, 4).await;
        bench.ask::<()>(&["LPUSH", "{estafeta}:ready", foreign]);
        // Together with the pack of four behind it, the claim would be too large.
        let held = bench.claim(handler, 0, 4).await;
        assert_eq!((held.len(), held[0].id, held[0].body()), (1, 0, foreign.as_bytes()));
        let member = bench.store.keys().member(handler.incarnation);
        assert_eq!(bench.ask::<u64>(&["HGET", &member, "packed:0"]), 0);
        assert_eq!(bench.ledger("packed"), 3);
    }
}

#[tokio::test]
async fn a_count_that_is_too_low_does_not_fall_below_zero() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 300).await;
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "packed", "1"]);
    assert_eq!(bench.claim(handler, 0, 3).await.len(), 3);
    assert_eq!(bench.ask::<String>(&["HGET", "{estafeta}:ledger", "packed"]), "0");
}

#[tokio::test]
async fn a_claim_that_leaves_a_part_of_a_pack_leaves_a_wakeup() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 2).await;
    bench.ask::<()>(&["DEL", "{estafeta}:wakeup"]);
    assert_eq!(bench.claim(handler, 0, 1).await.len(), 1);
    assert_eq!(bench.ask::<u64>(&["LLEN", "{estafeta}:wakeup"]), 1);
}

/// A list is removed as a whole only if the settled messages, the elements and the stored count all agree.
#[tokio::test]
async fn a_partly_settled_pack_keeps_its_rest_even_if_the_call_or_the_count_is_wrong() {
    let mistakes =
        [("the lane says that it settles all", 1, 5, "2"), ("the count says that there are two", 0, 1, "1")];
    for (mistake, elements, want, packed) in mistakes {
        let bench = TestBench::new().await;
        let (.., handler) = ring_with(&bench, 3).await;
        assert_eq!(bench.claim(handler, 0, 3).await.len(), 3);
        bench.ask::<()>(&["HSET", &bench.store.keys().member(handler.incarnation), "packed:0", packed]);
        let settlement = Settlement { settled: 2, elements, want, ..Settlement::default() };
        let turn = bench.store.turn(handler.identity(), 0, &settlement, false).await.unwrap();
        let Turn::Holds { cursor: 2, held, .. } = turn else { panic!("{mistake}") };
        assert_eq!(held.iter().map(|message| message.id).collect::<Vec<_>>(), [3], "{mistake}");
        assert_eq!(bench.ledger("done"), 2, "{mistake}");
    }
}

#[tokio::test]
async fn messages_deleted_from_the_list_of_a_lane_are_not_settled() {
    let bench = TestBench::new().await;
    let (.., handler) = ring_with(&bench, 5).await;
    assert_eq!(bench.claim(handler, 0, 5).await.len(), 5);
    bench.ask::<()>(&["DEL", &bench.store.keys().inflight(handler.incarnation, 0)]);
    for (settled, elements) in [(4, 0), (4, 1), (5, 1)] {
        let settlement = Settlement { settled, elements, ..Settlement::default() };
        let turn = bench.store.turn(handler.identity(), 0, &settlement, false).await.unwrap();
        assert!(matches!(turn, Turn::Lost), "{settled} in {elements}");
    }
    assert_eq!(bench.ledger("done"), 0);
}

#[tokio::test]
async fn damaged_counts_of_the_queue_never_give_a_lane_more_than_it_wants() {
    // The first queue has three single messages. The second has a pack of three and a single message behind it.
    for damage in
        [&["HSET", "{estafeta}:ledger", "packed", "-1"][..], &["HSET", "{estafeta}:ledger", "loose", "-3"]]
    {
        let bench = TestBench::new().await;
        let (generator, term, handler) = ring_with(&bench, 1).await;
        fill(&bench, generator, &term, 1, 1).await;
        fill(&bench, generator, &term, 2, 1).await;
        bench.ask::<()>(damage);
        assert_eq!(bench.claim(handler, 0, 2).await.len(), 2, "{damage:?}");
    }
    for damage in [&["HDEL", "{estafeta}:ledger", "loose"][..], &["HSET", "{estafeta}:ledger", "loose", "-3"]]
    {
        let bench = TestBench::new().await;
        let (generator, term, handler) = ring_with(&bench, 3).await;
        fill(&bench, generator, &term, 1, 1).await;
        bench.ask::<()>(damage);
        assert_eq!(bench.claim(handler, 0, 2).await.len(), 2, "{damage:?}");
        bench.assert_balanced().await;
    }
}

#[tokio::test]
async fn a_message_with_an_empty_body_keeps_its_id_when_it_fails_and_when_its_handler_dies() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["", ""]).await;
    assert_eq!(bench.claim(handler, 0, 2).await.len(), 2);
    let settlement = Settlement { settled: 1, failures: vec![(0, "no".into())], ..Settlement::default() };
    bench.turn(handler, 0, settlement).await.unwrap();
    let failed = bench.store.errors(0, 10).await.unwrap();
    assert_eq!(
        failed.iter().map(|error| (error.message.id, error.message.body())).collect::<Vec<_>>(),
        [(1, &b""[..])]
    );
    bench.expire(handler);
    bench.bury(handler).await;
    let heir = bench.join(MemberKind::Node, 1).await;
    let returned = bench.claim(heir, 0, 1).await;
    let seen: Vec<_> =
        returned.iter().map(|message| (message.id, message.delivery, message.body())).collect();
    assert_eq!(seen, [(2, 2, &b""[..])]);
}
