//! The format of messages and dead letters in Redis: numbers in readable ASCII, then bytes as they are.
//!
//! A waiting message is `id epoch published-ms deliveries failures deaths snoozes header-bytes headers body`. Each
//! number is followed by a space. The headers take `header-bytes` bytes, and the body is the rest. `deliveries` counts
//! the deliveries that are over. The generator writes the numbers itself, because it usually knows the next id, and
//! building strings in Lua would cost more than everything else. A dead letter is
//! `!failed-ms member reason-bytes reason message`. The counts of its message include the failure or the death that made
//! it a dead letter. One element may hold several messages, see [`pack`](crate::pack).

use bytes::Bytes;

use crate::error::Result;
use crate::headers::Headers;
use crate::identity::{Epoch, MemberId};
use crate::keys::RingName;
use crate::trace::TRACEPARENT;

/// The header in which a snoozed message carries a text to its next delivery.
pub(crate) const CARRY: &str = "estafeta-carry";
/// The header of a message that a schedule made: the tick in milliseconds.
pub(crate) const TICK: &str = "estafeta-tick";
/// The header of a message whose schedule entry skips ticks until it has an outcome: the name of the entry. The scripts
/// read it, so it must be the first one.
pub(crate) const ENTRY: &str = "estafeta-entry";
/// The header of a message that was published with a single name. The scripts read it, so it must be the first one.
pub(crate) const SINGLE: &str = "estafeta-single";
/// The header of a message that was published with a key.
pub(crate) const KEY: &str = "estafeta-key";

/// One message, as a ring delivers it. A handler gets it as a [`Job`](crate::Job). [`key`](Self::key) is the same for all deliveries of a message, so work
/// outside Redis can use it to be idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message's number in the ring: 1, 2, 3 ... Only messages that Redis lost leave gaps.
    pub id: u64,
    /// The term in which it was published. For a message of a [`Publisher`](crate::Publisher), Redis' time in
    /// milliseconds at which it was published.
    pub epoch: Epoch,
    /// When it was made, in milliseconds of Redis' clock. If it had to wait for room, it was published later.
    pub published_ms: u64,
    /// 1 for the first delivery, plus one each time the message went back to the queue.
    pub delivery: u32,
    /// How often its handler failed.
    pub failures: u32,
    /// How many nodes died while they held the message.
    pub deaths: u32,
    /// How often its handler snoozed it.
    pub snoozes: u32,
    ring: RingName,
    headers: Headers,
    body: Bytes,
}

impl Message {
    /// The body, any bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn body_bytes(&self) -> &Bytes {
        &self.body
    }

    /// The ring that it comes from.
    pub fn ring(&self) -> &RingName {
        &self.ring
    }

    /// The body as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.body())
    }

    /// The headers. A block of headers that this version cannot read counts as none.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    pub(crate) fn headers_mut(&mut self) -> &mut Headers {
        &mut self.headers
    }

    /// What the last snooze of this message [carried](crate::Outcome::carry), if any did.
    pub fn carry(&self) -> Option<&str> {
        self.headers.get(CARRY)
    }

    /// The [key](crate::Draft::key) with which it was published, if it has one. It is not the [name](Self::key) of the
    /// message.
    pub fn publish_key(&self) -> Option<&str> {
        self.headers.get(KEY)
    }

    /// The header that names the trace to which this message belongs.
    pub(crate) fn traceparent(&self) -> Option<&str> {
        self.headers.get(TRACEPARENT)
    }

    /// Which attempt this is: 1, plus one for each failure.
    pub(crate) fn attempt(&self) -> u32 {
        self.failures.saturating_add(1)
    }

    /// The time for which a schedule made this message, in milliseconds.
    pub(crate) fn tick_ms(&self) -> Option<u64> {
        self.headers.get(TICK)?.parse().ok()
    }

    /// Whether its schedule entry is open as long as it has no outcome.
    pub(crate) fn is_of_open_entry(&self) -> bool {
        self.headers.get(ENTRY).is_some()
    }

    /// The block of headers with this text to carry. It is empty if there is none, and the headers stay as they are.
    pub(crate) fn headers_with_carry(&self, carry: Option<String>) -> Result<Vec<u8>> {
        let mut block = Vec::new();
        if let Some(carry) = carry {
            let mut headers = self.headers.clone();
            headers.insert(CARRY, carry)?;
            headers.write(&mut block);
        }
        Ok(block)
    }

    /// The idempotency key: ring, epoch and id, such as `orders/1794865241094/17`. All deliveries of a message have the
    /// same key, even after a retry of its dead letter. Another message has another key.
    ///
    /// The id alone would not do. A ring that was wiped starts again with id 1. If Redis lost the newest messages and no
    /// living member remembers them, their ids are given out again. Such a message has another epoch, because a new epoch
    /// is higher than all that Redis remembers and not below Redis' clock.
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.ring, self.epoch, self.id)
    }

    /// A message as a ring would deliver it, for tests of handlers. Its other fields are those of a first delivery.
    ///
    /// # Panics
    ///
    /// If no ring can have this name.
    pub fn sample(ring: &str, id: u64, body: impl Into<Vec<u8>>) -> Self {
        let ring = ring.parse().unwrap_or_else(|error| panic!("{error}"));
        Self::new(&ring, id, Epoch(1), 0, body.into())
    }

    /// Returns the same message with a header of the ring.
    ///
    /// # Panics
    ///
    /// If the header is too large.
    pub(crate) fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.insert(name, value).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Returns the same message with these headers, for tests of handlers.
    pub fn with_headers(self, headers: Headers) -> Self {
        Self { headers, ..self }
    }

    /// Creates a message that was not delivered before.
    pub(crate) fn new(
        ring: &RingName,
        id: u64,
        epoch: Epoch,
        published_ms: u64,
        body: impl Into<Bytes>,
    ) -> Self {
        let (ring, headers, body) = (ring.clone(), Headers::new(), body.into());
        Self { id, epoch, published_ms, delivery: 1, failures: 0, deaths: 0, snoozes: 0, ring, headers, body }
    }

    /// Returns the same message with a body of at most `limit` bytes. If the body is cut, a header keeps its size.
    pub(crate) fn cut(mut self, limit: usize) -> Self {
        let size = self.body.len();
        if size > limit {
            // A copy, so that the rest of the body is freed.
            self.body = Bytes::copy_from_slice(&self.body[..limit]);
            if self.headers.insert(OVERSIZED, size.to_string()).is_err() {
                // No handler gets the message, so this header matters more than the others.
                self.headers = Headers::new();
                return self.with_header(OVERSIZED, size.to_string());
            }
        }
        self
    }

    /// Returns the same message with a mark that it has the key of another message. It is published without its key.
    pub(crate) fn reused(self) -> Self {
        let (mut headers, mut few) = (Headers::new(), Headers::new());
        let mut fit = true;
        for (name, value) in self.headers.iter() {
            let name = if name == KEY { REUSED } else { name };
            fit &= headers.insert(name, value).is_ok();
            if name == REUSED || name == ENTRY {
                fit &= few.insert(name, value).is_ok();
            }
        }
        // No handler gets the message, so this header and that of its entry matter more than the others.
        self.with_headers(if fit { headers } else { few })
    }

    /// Why no handler can handle this message: its body was too large, or another message has its key.
    pub(crate) fn unfit(&self) -> Option<String> {
        if let Some(size) = self.headers.get(OVERSIZED) {
            return Some(format!("body: expected at most {} bytes, got {size}", self.body.len()));
        }
        let key = self.headers.get(REUSED)?;
        Some(format!("key: expected one that no other message has, got '{key}'"))
    }

    /// Writes the element that Redis stores for a message that was not delivered before.
    pub(crate) fn write(&self, element: &mut Vec<u8>) {
        for number in [self.id, self.epoch.0, self.published_ms] {
            write_number(element, number, b' ');
        }
        self.write_rest(element);
    }

    /// Writes what follows the time of the publish in such an element.
    pub(crate) fn write_rest(&self, element: &mut Vec<u8>) {
        for number in [0, 0, 0, 0, self.headers.bytes() as u64] {
            write_number(element, number, b' ');
        }
        self.headers.write(element);
        element.extend_from_slice(&self.body);
    }

    /// Reads an element. Foreign data becomes message 0 with the element as its body.
    pub(crate) fn parse(ring: &RingName, element: Bytes) -> Self {
        Self::read(ring, &element)
            .unwrap_or_else(|| Self { delivery: 0, ..Self::new(ring, 0, Epoch(0), 0, element) })
    }

    fn read(ring: &RingName, element: &Bytes) -> Option<Self> {
        let mut numbers = Numbers { bytes: element, at: 0 };
        let (id, epoch, published_ms) = (numbers.next()?, Epoch(numbers.next()?), numbers.next()?);
        let (deliveries, failures, deaths) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (snoozes, header_bytes) = (numbers.next()?, usize::try_from(numbers.next()?).ok()?);
        let body_at = numbers.at.checked_add(header_bytes).filter(|at| *at <= element.len())?;
        let headers = Headers::parse(&element[numbers.at..body_at]).unwrap_or_default();
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Some(Self {
            delivery: count(deliveries.saturating_add(1)),
            failures: count(failures),
            deaths: count(deaths),
            snoozes: count(snoozes),
            headers,
            ..Self::new(ring, id, epoch, published_ms, element.slice(body_at..))
        })
    }
}

/// The header of a message whose body was cut: the size that the body had. The generator sets it, and no handler gets
/// the message.
const OVERSIZED: &str = "estafeta-oversized";
/// The header of a message of a generator that had the key of another message: the key. No handler gets the message.
const REUSED: &str = "estafeta-reused";

/// Writes a number and what follows it.
pub(crate) fn write_number(element: &mut Vec<u8>, number: u64, end: u8) {
    element.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    element.push(end);
}

/// A message that failed and waits in Redis for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message. Its id is 0 for foreign data found in our lists.
    pub message: Message,
    /// When it failed, in milliseconds of Redis' clock.
    pub failed_ms: u64,
    /// The member that handled it.
    pub member: MemberId,
    /// Why it failed.
    pub reason: String,
    element: Bytes,
}

impl DeadLetter {
    /// Reads a dead letter of a ring as Redis stores it. Foreign data becomes dead letter 0 with the element as its body.
    pub fn parse(ring: &RingName, element: impl Into<Bytes>) -> Self {
        let element = element.into();
        Self::read(ring, &element).unwrap_or_else(|| Self {
            message: Message { delivery: 0, ..Message::new(ring, 0, Epoch(0), 0, element.clone()) },
            failed_ms: 0,
            member: MemberId(0),
            reason: "not an error of estafeta".into(),
            element,
        })
    }

    fn read(ring: &RingName, element: &Bytes) -> Option<Self> {
        element.strip_prefix(b"!")?;
        let mut numbers = Numbers { bytes: element, at: 1 };
        let (failed_ms, member) = (numbers.next()?, MemberId(numbers.next()?));
        let length = usize::try_from(numbers.next()?).ok()?;
        let end = numbers.at.checked_add(length)?;
        let reason = String::from_utf8_lossy(element.get(numbers.at..end)?).into_owned();
        if element.get(end) != Some(&b' ') {
            return None;
        }
        let message = Message::parse(ring, element.slice(end + 1..));
        Some(Self { message, failed_ms, member, reason, element: element.clone() })
    }

    /// The element as Redis stores it.
    pub(crate) fn element(&self) -> &[u8] {
        &self.element
    }
}

/// The largest number in an element: 15 digits. The scripts do not count exactly beyond that.
pub(crate) const MOST_NUMBER: u64 = 999_999_999_999_999;

/// Reads numbers that are each followed by one byte, as the scripts do.
pub(crate) struct Numbers<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl Numbers<'_> {
    /// Reads a number and the space after it.
    pub fn next(&mut self) -> Option<u64> {
        self.next_before(b' ')
    }

    pub fn next_before(&mut self, end: u8) -> Option<u64> {
        let start = self.at;
        let mut value = 0_u64;
        loop {
            match *self.bytes.get(self.at)? {
                digit @ b'0'..=b'9' => {
                    value = value * 10 + u64::from(digit - b'0');
                    if value > MOST_NUMBER {
                        return None;
                    }
                }
                byte if byte == end && self.at > start => {
                    self.at += 1;
                    return Some(value);
                }
                _ => return None,
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring() -> RingName {
        RingName::sample()
    }

    fn headers() -> impl Strategy<Value = Headers> {
        prop::collection::vec(("[!-~]{1,9}", ".{0,20}"), 0..4).prop_map(|list| {
            let mut headers = Headers::new();
            list.into_iter().for_each(|(name, value)| headers.insert(name, value).unwrap());
            headers
        })
    }

    proptest! {
        #[test]
        fn any_headers_and_body_come_back_as_they_were(
            id in 1..=MOST_NUMBER,
            epoch in 0..=MOST_NUMBER,
            ms in 0..=MOST_NUMBER,
            headers in headers(),
            body: Vec<u8>,
        ) {
            let sent = Message::new(&ring(), id, Epoch(epoch), ms, body.clone()).with_headers(headers.clone());
            let mut element = Vec::new();
            sent.write(&mut element);
            let read = Message::parse(&ring(), element.into());
            prop_assert_eq!(&read, &sent);
            prop_assert_eq!((read.body(), read.headers()), (&body[..], &headers));
        }

        #[test]
        fn any_reason_and_body_come_back_as_they_were(reason: String, body: Vec<u8>) {
            let mut element = format!("!200 3 {} {reason} 7 9 100 1 2 3 4 6 1:a1:b", reason.len()).into_bytes();
            element.extend(&body);
            let failed = DeadLetter::parse(&ring(), element);
            prop_assert_eq!((failed.failed_ms, failed.member), (200, MemberId(3)));
            prop_assert_eq!(&failed.reason, &reason);
            let (counts, headers) = ((2, 2, 3), vec![("a", "b")]);
            prop_assert_eq!((failed.message.delivery, failed.message.failures, failed.message.deaths), counts);
            prop_assert_eq!(failed.message.headers().iter().collect::<Vec<_>>(), headers);
            prop_assert_eq!((failed.message.id, failed.message.body()), (7, &body[..]));
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Message::parse(&ring(), bytes.clone().into());
            let failed = DeadLetter::parse(&ring(), bytes.clone());
            prop_assert_eq!(failed.element(), &bytes[..]);
        }
    }

    #[test]
    fn a_number_that_lies_about_its_reason_is_foreign() {
        for length in ["999999999999999", "9999999999999999999999"] {
            let lie = format!("!200 3 {length} x 7 9 100 0 0 0 0 0 y").into_bytes();
            let failed = DeadLetter::parse(&ring(), lie.clone());
            assert_eq!((failed.message.id, failed.message.body()), (0, &lie[..]));
        }
    }

    #[test]
    fn headers_that_are_longer_than_the_element_are_foreign() {
        let parse = |element| Message::parse(&ring(), Bytes::from_static(element));
        let message = parse(b"7 9 100 0 0 0 0 3 ab");
        assert_eq!((message.id, message.body()), (0, &b"7 9 100 0 0 0 0 3 ab"[..]));
        let message = parse(b"7 9 100 0 0 0 0 2 ab");
        assert_eq!((message.id, message.body()), (7, &b""[..]));
    }

    #[test]
    fn headers_that_cannot_be_read_are_skipped() {
        let message = Message::parse(&ring(), Bytes::from_static(b"7 9 100 0 0 0 0 5 1:a1:bcd"));
        assert_eq!((message.id, message.body(), message.headers()), (7, &b"bcd"[..], &Headers::new()));
    }

    #[test]
    fn counts_beyond_their_type_stay_at_its_end() {
        let message =
            Message::parse(&ring(), Bytes::from_static(b"7 9 100 4294967295 9999999999 9999999999 0 0 x"));
        assert_eq!((message.delivery, message.failures, message.deaths), (u32::MAX, u32::MAX, u32::MAX));
    }

    #[test]
    fn a_key_is_the_same_for_all_deliveries_and_for_no_other_message() {
        let parse = |element: &'static [u8]| Message::parse(&ring(), Bytes::from_static(element)).key();
        let key = parse(b"7 9 100 0 0 0 0 0 x");
        assert_eq!(key, "estafeta/9/7");
        assert_eq!(parse(b"7 9 100 3 1 2 4 6 1:a1:by"), key);
        assert_ne!(parse(b"7 10 100 0 0 0 0 0 x"), key, "the id was given out again");
        assert_ne!(parse(b"8 9 100 0 0 0 0 0 x"), key);
        assert_eq!(Message::sample("orders", 17, "x").key(), "orders/1/17");
    }

    #[test]
    fn only_a_body_over_the_limit_is_cut_and_the_message_says_so() {
        let fits = Message::sample("orders", 1, "abc").cut(3);
        assert_eq!((fits.body(), fits.unfit()), (&b"abc"[..], None));
        let cut = Message::sample("orders", 1, "abcd").cut(3);
        let reason = "body: expected at most 3 bytes, got 4";
        assert_eq!((cut.body(), cut.unfit().as_deref()), (&b"abc"[..], Some(reason)));
        let full = (0..64).fold(Headers::new(), |mut headers, name| {
            headers.insert(name.to_string(), "").unwrap();
            headers
        });
        let crowded = Message::sample("orders", 1, "abcd").with_headers(full).cut(3);
        assert_eq!((crowded.unfit().as_deref(), crowded.headers().len()), (Some(reason), 1));
        let mut element = Vec::new();
        cut.write(&mut element);
        assert_eq!(
            Message::parse(&"orders".parse().unwrap(), element.into()).unfit().as_deref(),
            Some(reason)
        );
    }

    #[test]
    #[should_panic(expected = "ring name: expected 1 to 100 letters")]
    fn a_sample_of_an_impossible_ring_panics() {
        Message::sample("{x}", 1, "");
    }
}
