//! The format of messages and dead letters in Redis: a header in readable ASCII, a space, then the unchanged body.
//!
//! A waiting message is `id epoch attempt published-ms body`. The generator writes the header itself. No other node is
//! in office, so the generator knows the next id. Building strings in Lua would cost more than everything else. A dead
//! letter is `id epoch attempt published-ms failed-ms member reason-bytes reason body`. One element may hold several
//! messages, see [`pack`](crate::pack).

use bytes::{Buf as _, Bytes};

use crate::identity::{Epoch, MemberId};

/// One message, as a handler receives it. `id` is the same for all deliveries of a message, so work outside Redis can
/// use it to be idempotent. `attempt` shows whether an earlier delivery may have begun the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message's number in the ring: 1, 2, 3 ... Only messages that Redis lost leave gaps.
    pub id: u64,
    /// The term in which it was published.
    pub epoch: Epoch,
    /// 1 for the first delivery, plus one for each node that died holding the message.
    pub attempt: u32,
    /// When it was published, in milliseconds of Redis' clock.
    pub published_ms: u64,
    body: Bytes,
}

impl Message {
    /// The body, any bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The body as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.body())
    }

    /// A message as a ring would deliver it, for tests of handlers. Its other fields are those of a first delivery.
    pub fn sample(id: u64, body: impl Into<Vec<u8>>) -> Self {
        Self::new(id, Epoch(1), 0, body.into())
    }

    /// Creates a message that was not delivered before.
    pub(crate) fn new(id: u64, epoch: Epoch, published_ms: u64, body: impl Into<Bytes>) -> Self {
        Self { id, epoch, attempt: 1, published_ms, body: body.into() }
    }

    /// Returns the same message with another id.
    pub(crate) fn renumbered(&self, id: u64) -> Self {
        Self { id, ..self.clone() }
    }

    /// Writes the element that Redis stores.
    pub(crate) fn write(&self, element: &mut Vec<u8>) {
        write_numbers(element, &[self.id, self.epoch.0, self.attempt.into(), self.published_ms]);
        element.extend_from_slice(&self.body);
    }

    /// Reads an element. Foreign data becomes message 0 with the element as its body.
    pub(crate) fn parse(mut element: Bytes) -> Self {
        let mut header = Header::of(&element);
        let fields = (header.number(), header.number(), header.number(), header.number());
        let (Some(id), Some(epoch), Some(attempt), Some(published_ms)) = fields else {
            return Self { id: 0, epoch: Epoch(0), attempt: 0, published_ms: 0, body: element };
        };
        let body_at = header.at;
        element.advance(body_at);
        Self { id, epoch: Epoch(epoch), attempt: attempt as u32, published_ms, body: element }
    }
}

/// Writes numbers in the format of a header, each followed by a space.
pub(crate) fn write_numbers(element: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        element.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes());
        element.push(b' ');
    }
}

/// A message that failed and waits in Redis for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message's number in the ring, or 0 for foreign data found in our lists.
    pub id: u64,
    /// The term in which it was published.
    pub epoch: Epoch,
    /// The delivery that failed.
    pub attempt: u32,
    /// When it was published, in milliseconds of Redis' clock.
    pub published_ms: u64,
    /// When it failed, in milliseconds of Redis' clock.
    pub failed_ms: u64,
    /// The member that handled it.
    pub member: MemberId,
    /// Why it failed.
    pub reason: String,
    element: Vec<u8>,
    body_at: usize,
}

impl DeadLetter {
    /// The body, any bytes.
    pub fn body(&self) -> &[u8] {
        &self.element[self.body_at..]
    }

    /// Reads a dead letter as Redis stores it. Foreign data becomes dead letter 0 with the element as its body.
    pub fn parse(element: Vec<u8>) -> Self {
        let foreign = || Self {
            id: 0,
            epoch: Epoch(0),
            attempt: 0,
            published_ms: 0,
            failed_ms: 0,
            member: MemberId(0),
            reason: "not an error of estafeta".into(),
            element: Vec::new(),
            body_at: 0,
        };
        let mut failed = Self::read(&element).unwrap_or_else(foreign);
        failed.element = element;
        failed
    }

    fn read(element: &[u8]) -> Option<Self> {
        let mut header = Header::of(element);
        let id = header.number()?;
        let epoch = Epoch(header.number()?);
        let attempt = header.number()? as u32;
        let published_ms = header.number()?;
        let failed_ms = header.number()?;
        let member = MemberId(header.number()?);
        let length = header.number()? as usize;
        let reason = element.get(header.at..header.at.checked_add(length)?)?;
        let body_at = header.at + length + 1;
        (element.get(body_at - 1) == Some(&b' ')).then(|| Self {
            id,
            epoch,
            attempt,
            published_ms,
            failed_ms,
            member,
            reason: String::from_utf8_lossy(reason).into_owned(),
            element: Vec::new(),
            body_at,
        })
    }

    /// The element as Redis stores it.
    pub(crate) fn element(&self) -> &[u8] {
        &self.element
    }
}

/// Reads numbers that are each followed by one space.
pub(crate) struct Header<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Header<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn number(&mut self) -> Option<u64> {
        self.number_before(b' ')
    }

    pub fn number_before(&mut self, end: u8) -> Option<u64> {
        let start = self.at;
        let mut value = 0_u64;
        loop {
            match *self.bytes.get(self.at)? {
                digit @ b'0'..=b'9' => {
                    value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
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

    proptest! {
        #[test]
        fn any_body_comes_back_as_it_was(id in 1_u64.., epoch: u64, ms: u64, body: Vec<u8>) {
            let sent = Message::new(id, Epoch(epoch), ms, body.clone());
            let mut element = Vec::new();
            sent.write(&mut element);
            let read = Message::parse(element.into());
            prop_assert_eq!(&read, &sent);
            prop_assert_eq!(read.body(), &body[..]);
        }

        #[test]
        fn any_reason_and_body_come_back_as_they_were(reason: String, body: Vec<u8>) {
            let mut element = format!("7 9 2 100 200 3 {} {reason} ", reason.len()).into_bytes();
            element.extend(&body);
            let failed = DeadLetter::parse(element);
            prop_assert_eq!((failed.id, failed.member), (7, MemberId(3)));
            prop_assert_eq!(&failed.reason, &reason);
            prop_assert_eq!(failed.body(), &body[..]);
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Message::parse(bytes.clone().into());
            let failed = DeadLetter::parse(bytes.clone());
            prop_assert_eq!(failed.element(), &bytes[..]);
        }
    }

    #[test]
    fn a_header_that_lies_about_its_reason_is_foreign() {
        let failed = DeadLetter::parse(b"7 9 2 100 200 3 999999999999999999 x y".to_vec());
        assert_eq!(failed.id, 0);
        assert_eq!(failed.body(), b"7 9 2 100 200 3 999999999999999999 x y");
    }
}
