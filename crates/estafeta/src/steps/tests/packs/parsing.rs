//! Scripts and Rust read the same elements: lanes and readers must find in each what the scripts find.

use super::*;

/// A script that may call any function of the pieces about messages.
fn script_with(own: &str) -> redis::Script {
    macro_rules! piece {
        ($name:literal) => {
            script::read(
                concat!("shared/", $name, ".lua"),
                include_str!(concat!("../../shared/", $name, ".lua")),
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
    let edges = [
        ("!999999999999999 999999999999999 2 no 7 9 1 0 1 0 0 0 x", true),
        ("!1000000000000000 1 2 no 7 9 1 0 1 0 0 0 x", false),
        ("!1 1000000000000000 2 no 7 9 1 0 1 0 0 0 x", false),
        ("!1 1 999999999999999 no 7 9 1 0 1 0 0 0 x", false),
        ("!1 1 0  7 9 1 0 1 0 0 0 x", true),
    ];
    for (element, is_retried) in edges {
        let theirs: Option<String> = script.arg(element).invoke(&mut *connection.borrow_mut()).unwrap();
        assert_eq!(theirs.as_deref(), is_retried.then_some("7 9 1 1 0 0 0 0 x"), "{element}");
        let ours = DeadLetter::parse(&RingName::sample(), element.as_bytes().to_vec());
        assert_eq!(ours.message.id, if is_retried { 7 } else { 0 }, "{element}");
    }
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
                prop_assert_eq!(ours.reason.len(), length.parse::<usize>().unwrap());
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
