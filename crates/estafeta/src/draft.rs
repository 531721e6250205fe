//! A message before it is published: what its publisher sets, and what the ring would not accept.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::body;
use crate::config::TEN_YEARS;
use crate::error::{Error, Result};
use crate::headers::Headers;
use crate::identity::Epoch;
use crate::keys::RingName;
use crate::message::{KEY, Message, SINGLE};
use crate::publisher::Publisher;
use crate::source::SourceMessage;
use crate::steps::{MessageKey, NewMessage, PublishTerms};
use crate::trace::{TRACEPARENT, TRACESTATE, TraceContext};

/// How long a key is taken by default.
const WINDOW: Duration = Duration::from_secs(24 * 3600);
/// These headers differ from call to call, even if the message is the same.
const TRACE_HEADERS: [&str; 2] = [TRACEPARENT, TRACESTATE];

/// A message before it is published: a body, and perhaps headers, a key or a single name, and a delay.
///
/// The body is written as JSON, unless it is [`Bytes`]. A `Draft<Bytes>` can also be made from text, as it is.
#[derive(Debug)]
pub struct Draft<T = Bytes> {
    pub(crate) body: Bytes,
    headers: Headers,
    key: Option<String>,
    window: Option<Duration>,
    delay: Duration,
    single: Option<String>,
    /// The first thing that was wrong with it.
    error: Option<Error>,
    kind: PhantomData<fn(&T)>,
}

impl<T> Draft<T> {
    /// Creates a message with this body.
    pub fn new(body: impl Into<Self>) -> Self {
        body.into()
    }

    fn raw(body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            headers: Headers::new(),
            key: None,
            window: None,
            delay: Duration::ZERO,
            single: None,
            error: None,
            kind: PhantomData,
        }
    }

    /// Creates a message with this value as its body, whatever the kind of the draft is.
    pub(crate) fn of_value<B: Serialize + 'static>(value: &B) -> Self {
        match body::encode(value) {
            Ok(body) => Self::raw(body),
            Err(error) => {
                let error = Error::expected("body", "a value that can be written as JSON", error);
                Self { error: Some(error), ..Self::raw(Bytes::new()) }
            }
        }
    }

    /// Changes the body.
    #[must_use]
    pub fn body(self, body: impl Into<Self>) -> Self {
        let Self { body, error, .. } = body.into();
        Self { body, error: self.error.or(error), ..self }
    }

    /// Publishes at most one message with this key in 24 hours, whatever becomes of the message. The time counts from
    /// the first publish, or from the end of its [delay](Self::delay). An equal message gets the id of the first one. A
    /// different message with the same key is refused with [`Error::KeyReused`]. Messages are equal if their bodies and
    /// headers are. The headers `traceparent` and `tracestate` do not matter, and neither does the delay.
    ///
    /// The handler gets the key from [`Job::publish_key`](crate::Job::publish_key). The ring stores it as a header, so a
    /// message with a key has at most 63 others.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        let key = key.into();
        if let Err(error) = check_key(&key) {
            self.error.get_or_insert(error);
        }
        self.key = Some(key);
        self
    }

    /// Changes how long the key is taken. The default is 24 hours. A window without a key is refused.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        if !(Duration::from_millis(1)..=TEN_YEARS).contains(&window) {
            self.error.get_or_insert(Error::expected("window", "1ms to 10 years", format!("{window:?}")));
        }
        self.window = Some(window);
        self
    }

    /// Has the message wait in Redis for this long, by Redis' clock, before it goes to the queue. It is published at once
    /// and has its id, but it does not count as waiting, so a full ring accepts it. The longest delay is ten years.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        if delay > TEN_YEARS {
            self.error.get_or_insert(Error::expected("delay", "at most 10 years", format!("{delay:?}")));
        }
        self.delay = delay;
        self
    }

    /// Lets at most one message with this name wait. While one waits and no node has claimed it, another one is a
    /// duplicate: it is not published, and its publisher gets the id of the waiting one. As soon as a node has claimed
    /// that one, the next is published. So the news that a message brings is never lost. Bodies and headers may differ,
    /// and the waiting message stays as it is.
    ///
    /// A single name has 1 to 512 bytes. It cannot be combined with a key or a delay. The handler sees it as the header
    /// `estafeta-single`.
    #[must_use]
    pub fn single(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        if let Err(error) = check_name("single", &name) {
            self.error.get_or_insert(error);
        }
        self.single = Some(name);
        self
    }

    /// Adds a header, or changes the value of the header with this name. [`Headers`] has the limits. Names that begin with
    /// `estafeta-` are refused, because they belong to the ring.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        let inserted = Headers::check_name(&name).and_then(|()| self.headers.insert(name, value));
        if let Err(error) = inserted {
            self.error.get_or_insert(error);
        }
        self
    }

    /// Adds this trace, unless the draft names one. A message with as many headers as it may have goes without it.
    pub(crate) fn carry_on(mut self, trace: &TraceContext) -> Self {
        trace.carry_on(&mut self.headers);
        self
    }

    /// The key or the single name, which decides the partition of the message.
    pub(crate) fn sticky_name(&self) -> Option<&str> {
        self.key.as_deref().or(self.single.as_deref())
    }

    /// The headers and the body of a message that is forwarded. Such a message has nothing else.
    pub(crate) fn into_forward(self) -> Result<(Headers, Bytes)> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let others = [
            (self.key.is_some(), "a key"),
            (self.window.is_some(), "a window"),
            (!self.delay.is_zero(), "a delay"),
            (self.single.is_some(), "a single name"),
        ];
        match others.iter().find(|(is_set, _)| *is_set) {
            Some((_, other)) => Err(Error::expected("forward", "only a body and headers", other)),
            None => Ok((self.headers, self.body)),
        }
    }

    /// The message as it is sent. The ring decides about id, epoch and time.
    pub(crate) fn build(self, ring: &RingName) -> Result<NewMessage> {
        let (headers, body, terms) = self.into_parts()?;
        Ok(NewMessage { message: Message::new(ring, 0, Epoch(0), 0, body).with_headers(headers), terms })
    }

    /// The message as a part of a batch.
    pub(crate) fn into_source(self) -> Result<SourceMessage> {
        if self.single.is_some() {
            return Err(Error::expected("single", "no single name in a batch", "one"));
        }
        let (headers, body, terms) = self.into_parts()?;
        Ok(SourceMessage { headers, terms, ..body.into() })
    }

    fn into_parts(self) -> Result<(Headers, Bytes, PublishTerms)> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.window.is_some() && self.key.is_none() {
            return Err(Error::expected("window", "a key beside it", "none"));
        }
        let mut headers = self.headers;
        if let Some(name) = self.single {
            if self.key.is_some() || !self.delay.is_zero() {
                let other = if self.key.is_some() { "a key" } else { "a delay" };
                return Err(Error::expected("single", "neither a key nor a delay with it", other));
            }
            headers.insert_first(SINGLE, name)?;
        }
        let window = self.window.unwrap_or(WINDOW);
        let key = self.key.map(|name| {
            let fingerprint = fingerprint(&headers, &self.body);
            MessageKey { name, window, fingerprint }
        });
        if let Some(key) = &key {
            headers.insert(KEY, &*key.name)?;
        }
        Ok((headers, self.body, PublishTerms { key, delay: self.delay }))
    }
}

impl<T: Serialize + 'static> From<&T> for Draft<T> {
    fn from(body: &T) -> Self {
        Self::of_value(body)
    }
}

impl From<Bytes> for Draft {
    fn from(body: Bytes) -> Self {
        Self::raw(body)
    }
}

impl From<&str> for Draft {
    fn from(body: &str) -> Self {
        Self::raw(body.as_bytes().to_vec())
    }
}

impl From<String> for Draft {
    fn from(body: String) -> Self {
        Self::raw(body)
    }
}

impl From<&[u8]> for Draft {
    fn from(body: &[u8]) -> Self {
        Self::raw(body.to_vec())
    }
}

impl From<Vec<u8>> for Draft {
    fn from(body: Vec<u8>) -> Self {
        Self::raw(body)
    }
}

impl<T> Clone for Draft<T> {
    fn clone(&self) -> Self {
        Self {
            body: self.body.clone(),
            headers: self.headers.clone(),
            key: self.key.clone(),
            single: self.single.clone(),
            error: self.error.clone(),
            ..*self
        }
    }
}

pub(crate) fn check_key(key: &str) -> Result<()> {
    check_name("key", key)
}

/// Checks the size of a key or of a single name.
fn check_name(what: &'static str, name: &str) -> Result<()> {
    if (1..=Publisher::MAX_KEY).contains(&name.len()) {
        return Ok(());
    }
    let (expected, got) = (format!("1 to {} bytes", Publisher::MAX_KEY), format!("{} bytes", name.len()));
    Err(Error::expected(what, expected, got))
}

/// Equal for messages that may pass for the same one, in whatever order their headers were added.
fn fingerprint(headers: &Headers, body: &[u8]) -> String {
    let mut sha = sha1_smol::Sha1::new();
    let sorted: BTreeMap<&str, &str> =
        headers.iter().filter(|(name, _)| !TRACE_HEADERS.contains(name)).collect();
    for text in sorted.iter().flat_map(|(name, value)| [name, value]) {
        sha.update(format!("{}:{text}", text.len()).as_bytes());
    }
    sha.update(b"\n");
    sha.update(body);
    sha.digest().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(draft: Draft) -> String {
        let key = draft.key("k").build(&RingName::sample()).unwrap().terms.key;
        key.unwrap().fingerprint
    }

    #[test]
    fn messages_are_equal_if_bodies_and_headers_are_in_whatever_order() {
        let one = print(Draft::new("x").header("a", "1").header("b", "2"));
        assert_eq!(one, print(Draft::new("x").header("b", "2").header("a", "1")));
        assert_eq!(one, print(Draft::new("x").header("traceparent", "t").header("b", "2").header("a", "1")));
        let second = Duration::from_secs(1);
        assert_eq!(one, print(Draft::new("x").header("a", "1").header("b", "2").delay(second)));
        let others = [
            Draft::new("y").header("a", "1").header("b", "2"),
            Draft::new("x").header("a", "1"),
            Draft::new("x").header("a", "2").header("b", "1"),
            Draft::new("x").header("a1", "").header("b", "2"),
        ];
        for other in others {
            assert_ne!(one, print(other.clone()), "{other:?}");
        }
    }

    #[test]
    fn a_draft_remembers_the_first_thing_that_is_wrong() {
        let refused = [
            (Draft::new("x").key(""), "key: expected 1 to 512 bytes, got '0 bytes'"),
            (Draft::new("x").key("k".repeat(513)), "key: expected 1 to 512 bytes, got '513 bytes'"),
            (Draft::new("x").header("a b", "").key(""), "header name: expected 1 to 64 visible ASCII"),
            (
                Draft::new("x").header("estafeta-carry", ""),
                "header name: expected none that begins with estafeta-",
            ),
            (Draft::new("x").window(Duration::ZERO), "window: expected 1ms to 10 years"),
            (Draft::new("x").window(TEN_YEARS), "window: expected a key beside it, got 'none'"),
            (
                Draft::new("x").delay(TEN_YEARS + Duration::from_nanos(1)),
                "delay: expected at most 10 years, got",
            ),
            (Draft::new("x").delay(Duration::MAX), "delay: expected at most 10 years, got"),
            (Draft::new("x").single(""), "single: expected 1 to 512 bytes, got '0 bytes'"),
            (Draft::new("x").single("s".repeat(513)), "single: expected 1 to 512 bytes, got '513 bytes'"),
            (
                Draft::new("x").key("k").single("s"),
                "single: expected neither a key nor a delay with it, got 'a key'",
            ),
            (
                Draft::new("x").single("s").delay(Duration::from_nanos(1)),
                "single: expected neither a key nor a delay with it, got 'a delay'",
            ),
        ];
        for (draft, error) in refused {
            let found = draft.build(&RingName::sample()).unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
        Draft::new("x").key("k".repeat(512)).delay(TEN_YEARS).build(&RingName::sample()).unwrap();
        Draft::new("x").single("s".repeat(512)).delay(Duration::ZERO).build(&RingName::sample()).unwrap();
    }

    #[test]
    fn a_forward_has_headers_and_a_body_and_nothing_else() {
        let (headers, body) = Draft::new("x").header("a", "1").into_forward().unwrap();
        assert_eq!((headers.iter().collect::<Vec<_>>(), &body[..]), (vec![("a", "1")], &b"x"[..]));
        let refused = [
            (Draft::new("x").key("k"), "forward: expected only a body and headers, got 'a key'"),
            (Draft::new("x").window(TEN_YEARS), "forward: expected only a body and headers, got 'a window'"),
            (
                Draft::new("x").delay(Duration::from_nanos(1)),
                "forward: expected only a body and headers, got 'a delay'",
            ),
            (Draft::new("x").single("s"), "forward: expected only a body and headers, got 'a single name'"),
            (
                Draft::new("x").header("estafeta-carry", ""),
                "header name: expected none that begins with estafeta-",
            ),
        ];
        for (draft, error) in refused {
            let found = draft.into_forward().unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
    }

    #[test]
    fn a_draft_carries_a_traceparent_on_unless_it_has_one_or_has_no_room() {
        let theirs = Message::sample("r", 1, "").with_header("traceparent", "theirs");
        let trace = TraceContext::of(&theirs).unwrap();
        let traceparent = |draft: Draft| {
            let message = draft.carry_on(&trace).build(&RingName::sample()).unwrap().message;
            message.headers().get("traceparent").map(ToOwned::to_owned)
        };
        assert_eq!(traceparent(Draft::new("x")).as_deref(), Some("theirs"));
        assert_eq!(traceparent(Draft::new("x").header("traceparent", "ours")).as_deref(), Some("ours"));
        let full = (0..64).fold(Draft::new("x"), |draft, name| draft.header(name.to_string(), ""));
        assert_eq!(traceparent(full), None);
    }

    #[test]
    fn a_key_is_a_header_of_the_message_and_no_part_of_its_fingerprint() {
        let build = |draft: Draft| draft.build(&RingName::sample()).unwrap();
        let sent = build(Draft::new("x").header("a", "1").key("k"));
        assert_eq!(sent.message.publish_key(), Some("k"));
        let another = build(Draft::new("x").key("another").header("a", "1"));
        assert_eq!(sent.terms.key.unwrap().fingerprint, another.terms.key.unwrap().fingerprint);
        assert_eq!(build(Draft::new("x")).message.publish_key(), None);
        let with =
            |count: u32| (0..count).fold(Draft::new("x"), |draft, name| draft.header(name.to_string(), ""));
        build(with(63).key("k"));
        let refused = with(64).key("k").build(&RingName::sample()).unwrap_err().to_string();
        assert_eq!(refused, "headers: expected at most 64, got 'more'");
    }

    /// The scripts look for it only there.
    #[test]
    fn a_single_name_is_the_first_header_whatever_else_is_set() {
        let draft = Draft::new("x").header("a", "1").single("s").header("b", "2");
        let message = draft.build(&RingName::sample()).unwrap().message;
        let headers: Vec<_> = message.headers().iter().collect();
        assert_eq!(headers, [(SINGLE, "s"), ("a", "1"), ("b", "2")]);
    }
}
