//! Many messages in one element of a list.
//!
//! Most of a message's cost in Redis is the cost of an element. Redis reads it off the wire and makes a Lua string of
//! it. It puts the element into a list, takes it out again and writes it to a client. Messages of one publish differ
//! only in their bodies and in their ids, which are consecutive. So they travel as a *pack*:
//! `*id epoch published-ms count` and a space, then `bytes:body` for each message. A hundred small messages then cost
//! little more than one.
//!
//! A pack lives as long as its messages share their fate: waiting, claimed together, handled together. If a node wants
//! fewer messages, the scripts divide the pack into smaller ones. If a node lets go of only some of its messages, or
//! dies or leaves, the scripts open the pack and continue with single messages. So a message that was delivered before
//! is never in a pack. Neither is a message with headers, or one that was published alone, as with every tick at an
//! ordinary interval.

use bytes::Bytes;

use crate::identity::Epoch;
use crate::keys::RingName;
use crate::message::{MOST_NUMBER, Message, Numbers, write_number};

/// The maximum number of messages and bytes in one pack. To open a pack, Lua processes all of it, so it should not be
/// large. A larger pack gains nothing.
pub(crate) const MOST: usize = 100;
/// The number of messages in a pack for slow handlers. A node claims few messages for them, and Lua need not divide such a
/// pack.
pub(crate) const FEW: usize = 8;
const MOST_BYTES: usize = 16 * 1024;
/// The approximate maximum size of the numbers of a message or a pack.
const NUMBERS: usize = 64;

/// Returns the elements that store these messages, up to `most` in each.
pub(crate) fn elements(messages: &[Message], most: usize) -> Vec<Vec<u8>> {
    let mut elements = Vec::with_capacity(messages.len() / most + 1);
    let mut rest = messages;
    while !rest.is_empty() {
        let (alike, others) = rest.split_at(fitting(rest, most));
        elements.push(element(alike));
        rest = others;
    }
    elements
}

/// Returns the elements that store these messages, without ids, epochs and times, which a script adds. Each comes with
/// the number of its messages.
pub(crate) fn new_elements(messages: &[&Message]) -> Vec<(usize, Vec<u8>)> {
    let mut elements = Vec::with_capacity(messages.len() / MOST + 1);
    let mut rest = messages;
    while !rest.is_empty() {
        let (mut bytes, mut count) = (0, 0);
        while count < rest.len().min(MOST) && (count == 0 || rest[0].headers().is_empty()) {
            bytes += rest[count].body().len();
            if count > 0 && (bytes > MOST_BYTES || !rest[count].headers().is_empty()) {
                break;
            }
            count += 1;
        }
        let (alike, others) = rest.split_at(count);
        let mut element = Vec::with_capacity(NUMBERS + bytes + 8 * count);
        match alike {
            [alone] => alone.write_rest(&mut element),
            _ => write_bodies(alike.iter().copied(), count, &mut element),
        }
        elements.push((count, element));
        rest = others;
    }
    elements
}

/// Returns how many messages, from the first, fit into one element of up to `most`.
fn fitting(messages: &[Message], most: usize) -> usize {
    let first = &messages[0];
    let mut bytes = 0;
    let fits = |(message, id): &(&Message, u64)| {
        bytes += message.body().len();
        let shared = (message.id, message.epoch, message.published_ms);
        shared == (*id, first.epoch, first.published_ms)
            && message.headers().is_empty()
            && bytes <= MOST_BYTES
    };
    messages.iter().zip(first.id..).take(most).take_while(fits).count().max(1)
}

fn element(group: &[Message]) -> Vec<u8> {
    let bytes: usize = group.iter().map(|message| message.body().len() + 8).sum();
    let mut element = Vec::with_capacity(NUMBERS + bytes);
    let first = &group[0];
    if group.len() == 1 {
        first.write(&mut element);
        return element;
    }
    element.push(b'*');
    for number in [first.id, first.epoch.0, first.published_ms] {
        write_number(&mut element, number, b' ');
    }
    write_bodies(group.iter(), group.len(), &mut element);
    element
}

/// Writes what follows the time of the publish in a pack.
fn write_bodies<'a>(group: impl Iterator<Item = &'a Message>, count: usize, element: &mut Vec<u8>) {
    write_number(element, count as u64, b' ');
    for message in group {
        write_number(element, message.body().len() as u64, b':');
        element.extend_from_slice(message.body());
    }
}

/// Adds the messages of an element. Foreign data becomes a single message 0, and the scripts treat it in the same way.
pub(crate) fn read(ring: &RingName, element: Vec<u8>, messages: &mut Vec<Message>) {
    let element = Bytes::from(element);
    let before = messages.len();
    if element.first() != Some(&b'*') || open(ring, &element, messages).is_none() {
        messages.truncate(before);
        messages.push(Message::parse(ring, element));
    }
}

fn open(ring: &RingName, pack: &Bytes, messages: &mut Vec<Message>) -> Option<()> {
    let mut numbers = Numbers { bytes: pack, at: 1 };
    let (first, epoch) = (numbers.next()?, Epoch(numbers.next()?));
    let (published_ms, count) = (numbers.next()?, numbers.next()?);
    if count == 0 || count > MOST as u64 || first + count > MOST_NUMBER {
        return None;
    }
    for id in first..first + count {
        let length = usize::try_from(numbers.next_before(b':')?).ok()?;
        let end = numbers.at.checked_add(length).filter(|end| *end <= pack.len())?;
        messages.push(Message::new(ring, id, epoch, published_ms, pack.slice(numbers.at..end)));
        numbers.at = end;
    }
    (numbers.at == pack.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Headers;
    use proptest::prelude::*;

    fn read_all(elements: Vec<Vec<u8>>) -> Vec<Message> {
        let mut messages = Vec::new();
        elements.into_iter().for_each(|element| read(&RingName::sample(), element, &mut messages));
        messages
    }

    fn numbered(bodies: Vec<Vec<u8>>, first: u64) -> Vec<Message> {
        let message = |(body, id)| Message::new(&RingName::sample(), id, Epoch(9), 100, body);
        bodies.into_iter().zip(first..).map(message).collect()
    }

    fn headers() -> Headers {
        let mut headers = Headers::new();
        headers.insert("name", "value").unwrap();
        headers
    }

    proptest! {
        #[test]
        fn any_messages_come_back_as_they_were(
            bodies: Vec<Vec<u8>>,
            first in 1..999_999_999_999_u64,
            differences: Vec<(bool, bool)>,
        ) {
            let mut messages = numbered(bodies, first);
            for (message, (later, with_headers)) in messages.iter_mut().zip(differences) {
                message.published_ms += u64::from(later);
                if with_headers {
                    *message = message.clone().with_headers(headers());
                }
            }
            prop_assert_eq!(read_all(elements(&messages, MOST)), messages);
        }

        #[test]
        fn foreign_bytes_are_one_message_and_never_panic(rest: Vec<u8>, packed: bool) {
            let element = if packed { [b"*1 2 4 2 ", &rest[..]].concat() } else { [b"*", &rest[..]].concat() };
            let read = read_all(vec![element.clone()]);
            prop_assert!(read.len() == 1 && (read[0].id, read[0].body()) == (0, &element[..]) || read.len() == 2);
        }
    }

    #[test]
    fn a_message_alone_is_no_pack() {
        assert_eq!(elements(&numbered(vec![b"*body".to_vec()], 7), MOST), [b"7 9 100 0 0 0 0 0 *body"]);
    }

    #[test]
    fn packs_are_as_large_as_they_may_be() {
        let counts = |bytes: usize, count: usize, most: usize| -> Vec<usize> {
            let elements = elements(&numbered(vec![vec![b'x'; bytes]; count], 1), most);
            elements.into_iter().map(|element| read_all(vec![element]).len()).collect()
        };
        assert_eq!(counts(64, 250, MOST), [100, 100, 50]);
        assert_eq!(counts(64, 20, FEW), [8, 8, 4]);
        assert_eq!(counts(5_000, 7, MOST), [3, 3, 1]);
        assert_eq!(counts(20_000, 2, MOST), [1, 1]);
    }

    #[test]
    fn only_what_has_all_in_common_shares_a_pack() {
        let changes: [fn(&mut Message); 4] = [
            |message| message.published_ms = 101,
            |message| *message = message.clone().with_headers(headers()),
            |message| message.epoch = Epoch(8),
            |message| message.id = 9,
        ];
        for change in changes {
            let mut messages = numbered(vec![b"x".to_vec(); 2], 1);
            assert_eq!(elements(&messages, MOST).len(), 1);
            change(&mut messages[1]);
            assert_eq!(elements(&messages, MOST).len(), 2, "{messages:?}");
            assert_eq!(read_all(elements(&messages, MOST)), messages);
        }
    }

    /// A script adds ids, epochs and times. The elements are the same as those of a node that knows all of them.
    #[test]
    fn new_elements_are_elements_without_ids_epochs_and_times() {
        let with_headers = |mut message: Message| {
            if message.id % 50 == 9 {
                message = message.with_headers(headers());
            }
            message
        };
        for (bytes, count) in [(0, 1), (3, 2), (64, 250), (5_000, 7), (20_000, 3)] {
            let messages: Vec<Message> =
                numbered(vec![vec![b'x'; bytes]; count], 1).into_iter().map(with_headers).collect();
            let unnumbered = new_elements(&messages.iter().collect::<Vec<_>>());
            let mut id = 1;
            let complete = unnumbered.into_iter().map(|(count, rest)| {
                let star = if count > 1 { "*" } else { "" };
                let element = [format!("{star}{id} 9 100 ").as_bytes(), &rest].concat();
                id += count;
                element
            });
            assert_eq!(complete.collect::<Vec<_>>(), elements(&messages, MOST), "{count} of {bytes} bytes");
        }
    }

    #[test]
    fn a_message_with_headers_is_never_in_a_pack() {
        for with_headers in [[true, false], [false, true], [true, true]] {
            let mut messages = numbered(vec![b"x".to_vec(); 2], 1);
            for (message, _) in
                messages.iter_mut().zip(with_headers).filter(|(_, with_headers)| *with_headers)
            {
                *message = message.clone().with_headers(headers());
            }
            assert_eq!(elements(&messages, MOST).len(), 2, "{with_headers:?}");
            assert_eq!(read_all(elements(&messages, MOST)), messages);
        }
    }
}
