//! Publishes messages from any process: a web server, a script, a program that is no node of the ring.
//!
//! The ring numbers the messages and remembers the last call of each publisher. A call whose reply was lost is
//! therefore repeated without harm. The memory belongs to an *identity*, which has one call in flight at a time. A
//! [`Publisher`] draws as many identities as it has calls in flight. A call that its caller drops takes its identity
//! along, because nobody knows whether it arrived.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::headers::Headers;
use crate::identity::{Epoch, Incarnation};
use crate::keys::RingName;
use crate::message::Message;
use crate::redis::{Endpoint, ManagedConnection, Store};
use crate::steps::{Cancellation, MessageKey, MessageRef, NewMessage, Submission, Submit};

/// How long a call waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a key is taken by default.
const WINDOW: Duration = Duration::from_secs(24 * 3600);
/// The longest window and the longest delay. Redis stores their ends in milliseconds.
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The longest pause before a publish tries again.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// These headers differ from call to call, even if the message is the same.
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Publishes messages in a ring without being a node of it. Clones share one connection, which reconnects by itself.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use estafeta::Publisher;
///
/// let orders = Publisher::connect("redis://127.0.0.1:6379".parse()?, "orders".parse()?).await?;
/// let receipt = orders.publish("two pizzas").key("order-17").header("shop", "berlin").await?;
/// // A second click: the same id, and nothing is published.
/// let again = orders.publish("two pizzas").key("order-17").header("shop", "berlin").await?;
/// assert!(again.duplicate && again.id == receipt.id);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Publisher {
    store: Store,
    application: String,
    max_waiting: u64,
    max_body: usize,
    /// The identities without a call in flight.
    idle: Arc<Mutex<Vec<PublisherIdentity>>>,
    /// Ends the task that reconnects, once the last clone is gone.
    _open: Arc<DropGuard>,
}

/// One identity of a publisher. It has at most one call in flight.
struct PublisherIdentity {
    incarnation: Incarnation,
    /// The number of its last call.
    sequence: u64,
}

/// What the ring answered to a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The message's number in the ring. For a duplicate, that of the first message with the same key.
    pub id: u64,
    /// Whether an equal message was published before with the same key, so that this one was not.
    pub duplicate: bool,
}

impl Publisher {
    /// The most messages that one call publishes.
    pub const MAX_MESSAGES: usize = 1000;
    /// The most bytes of several messages in one call, bodies and headers together.
    pub const MAX_BYTES: usize = 16 * 1024 * 1024;
    /// The longest key in bytes.
    pub const MAX_KEY: usize = 512;

    /// Connects to Redis, and reconnects on the current tokio runtime whenever the connection breaks. The ring need not
    /// exist yet. Its application is the ring's name, as in [`Config::new`].
    pub async fn connect(endpoint: Endpoint, ring: RingName) -> Result<Self> {
        Self::of(&Config::new(endpoint, ring)).await
    }

    /// Connects like [`connect`](Self::connect), with the Redis, the ring, the application, `max_waiting` and `max_body`
    /// of these settings.
    pub async fn of(config: &Config) -> Result<Self> {
        config.validate()?;
        Self::open(config.clone(), config.application.clone()).await
    }

    /// Connects like [`of`](Self::of), and publishes in the ring even if it belongs to another application.
    pub async fn of_any_application(config: &Config) -> Result<Self> {
        config.validate()?;
        Self::open(config.clone(), String::new()).await
    }

    async fn open(config: Config, application: String) -> Result<Self> {
        let (connection, keeper) = ManagedConnection::open(config.redis, PATIENCE).await?;
        let (connection, closed) = (Arc::new(connection), CancellationToken::new());
        let store = Store::new(Arc::clone(&connection), config.ring);
        let open = Arc::new(closed.clone().drop_guard());
        tokio::spawn(async move { connection.keep(keeper, closed).await });
        let (max_waiting, max_body) = (config.max_waiting, config.max_body);
        Ok(Self { store, application, max_waiting, max_body, idle: Arc::default(), _open: open })
    }

    /// Publishes one message. Await the result to send it.
    pub fn publish(&self, message: impl Into<Draft>) -> Publishing<'_> {
        Publishing { publisher: self, draft: message.into(), patience: Duration::ZERO }
    }

    /// Publishes up to 1,000 messages, all of them or none. Await the result to send them. There is one receipt per
    /// message, in their order.
    ///
    /// ```no_run
    /// # async fn example(orders: estafeta::Publisher) -> Result<(), estafeta::Error> {
    /// use estafeta::Draft;
    ///
    /// orders.publish_all(["one", "two", "three"]).await?;
    /// let lines = [("17", "two pizzas"), ("18", "a salad")];
    /// let receipts = orders.publish_all(lines.map(|(id, line)| Draft::new(line).key(id))).await?;
    /// assert_eq!(receipts.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish_all<D: Into<Draft>>(&self, messages: impl IntoIterator<Item = D>) -> PublishingAll<'_> {
        // One message too many is enough to refuse them, however many there are.
        let most = Self::MAX_MESSAGES + 1;
        let drafts = messages.into_iter().take(most).map(Into::into).collect();
        PublishingAll { publisher: self, drafts, patience: Duration::ZERO }
    }

    /// Cancels a message that was published with a [delay](Draft::delay). Returns whether it was still delayed. If it was,
    /// no handler has seen it, and none will. The key of the message stays taken.
    pub async fn cancel(&self, id: u64) -> Result<bool> {
        self.take_back(MessageRef::Id(id)).await
    }

    /// Cancels like [`cancel`](Self::cancel), but names the message by the key with which it was published. If it is
    /// cancelled, the key is free again.
    ///
    /// ```no_run
    /// # async fn example(mails: estafeta::Publisher) -> Result<(), estafeta::Error> {
    /// let day = std::time::Duration::from_secs(24 * 3600);
    /// mails.publish("pay your order 17").key("reminder-17").delay(day).await?;
    /// // The customer has paid.
    /// if !mails.cancel_key("reminder-17").await? {
    ///     println!("the reminder is on its way, or was sent");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel_key(&self, key: &str) -> Result<bool> {
        check_key(key)?;
        self.take_back(MessageRef::Key(key)).await
    }

    async fn take_back(&self, which: MessageRef<'_>) -> Result<bool> {
        let identity = self.draw_identity();
        let cancellation = Cancellation {
            application: &self.application,
            publisher: identity.incarnation,
            sequence: identity.sequence,
            which,
        };
        let outcome = self.store.trying_for(PATIENCE).cancel(&cancellation).await;
        self.idle.lock().expect("no panic while held").push(identity);
        outcome
    }

    async fn send(&self, drafts: Vec<Draft>, patience: Duration) -> Result<Vec<Receipt>> {
        let messages = self.check(drafts)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + patience;
        let identity = self.draw_identity();
        let submission = Submission {
            application: &self.application,
            publisher: identity.incarnation,
            // All tries have the same number. An earlier one may still be on its way.
            sequence: identity.sequence,
            max_waiting: self.max_waiting,
            messages: &messages,
        };
        let mut pause = Duration::from_millis(5);
        let outcome = loop {
            let outcome = self.try_once(&submission).await;
            let left = deadline.saturating_duration_since(Instant::now());
            let may_pass = matches!(outcome, Err(Error::Full { .. } | Error::Unreachable { .. }));
            if !may_pass || left.is_zero() {
                break outcome;
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        self.idle.lock().expect("no panic while held").push(identity);
        outcome
    }

    async fn try_once(&self, submission: &Submission<'_>) -> Result<Vec<Receipt>> {
        match self.store.trying_for(PATIENCE).submit(submission).await? {
            Submit::Submitted(ids) => {
                let receipt = |it: &crate::steps::Submitted| Receipt { id: it.id, duplicate: it.duplicate };
                Ok(ids.iter().map(receipt).collect())
            }
            Submit::Reused(position) => {
                let key = submission.messages.get(position).and_then(|new| new.key.as_ref());
                Err(Error::KeyReused { key: key.map(|key| key.name.clone()).unwrap_or_default() })
            }
            Submit::Full => {
                Err(Error::Full { ring: self.store.ring().to_string(), max_waiting: self.max_waiting })
            }
        }
    }

    /// Refuses what the ring would not accept, before anything is sent.
    fn check(&self, drafts: Vec<Draft>) -> Result<Vec<NewMessage>> {
        if drafts.len() > Self::MAX_MESSAGES {
            let expected = format!("at most {} in one call", Self::MAX_MESSAGES);
            return Err(Error::expected("messages", expected, "more"));
        }
        let count = drafts.len();
        let (mut messages, mut bytes) = (Vec::with_capacity(count), 0);
        for draft in drafts {
            let (size, limit) = (draft.body.len(), self.max_body);
            if size > limit {
                return Err(Error::BodyTooLarge { size, limit });
            }
            let new = draft.build(self.store.ring())?;
            bytes += size + new.message.headers().bytes();
            messages.push(new);
        }
        if count > 1 && bytes > Self::MAX_BYTES {
            let expected = format!("at most {} bytes in one call", Self::MAX_BYTES);
            return Err(Error::expected("messages", expected, format!("{bytes} bytes")));
        }
        Ok(messages)
    }

    /// An identity for one call, with the number of that call.
    fn draw_identity(&self) -> PublisherIdentity {
        let idle = self.idle.lock().expect("no panic while held").pop();
        let new = || PublisherIdentity { incarnation: Incarnation::random(), sequence: 0 };
        let mut identity = idle.unwrap_or_else(new);
        identity.sequence += 1;
        identity
    }
}

/// A message before it is published: a body, and perhaps headers, a key and a delay.
#[derive(Clone, Debug)]
pub struct Draft {
    body: Bytes,
    headers: Headers,
    key: Option<String>,
    window: Duration,
    delay: Duration,
    /// The first thing that was wrong with it.
    error: Option<Error>,
}

impl Draft {
    /// Creates a message with this body, any bytes.
    pub fn new(body: impl Into<Bytes>) -> Self {
        let (body, headers) = (body.into(), Headers::new());
        Self { body, headers, key: None, window: WINDOW, delay: Duration::ZERO, error: None }
    }

    /// Changes the body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Publishes at most one message with this key in 24 hours, counted from the first publish, whatever becomes of the
    /// message. An equal message gets the id of the first one. Another message with the same key is
    /// [`Error::KeyReused`]. Messages are equal if their bodies and headers are. The headers `traceparent` and
    /// `tracestate` do not matter, and neither does the delay.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        let key = key.into();
        if let Err(error) = check_key(&key) {
            self.error.get_or_insert(error);
        }
        self.key = Some(key);
        self
    }

    /// Changes how long the key is taken. The default is 24 hours.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        if !(Duration::from_millis(1)..=TEN_YEARS).contains(&window) {
            self.error.get_or_insert(Error::expected("window", "1ms to 10 years", format!("{window:?}")));
        }
        self.window = window;
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

    /// Adds a header, or changes the value of the header with this name. [`Headers`] has the limits.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Err(error) = self.headers.insert(name, value) {
            self.error.get_or_insert(error);
        }
        self
    }

    /// The message as it is sent. The ring decides about id, epoch and time.
    fn build(self, ring: &RingName) -> Result<NewMessage> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let fingerprint = self.key.as_ref().map(|_| fingerprint(&self.headers, &self.body));
        let key = self.key.zip(fingerprint);
        let key = key.map(|(name, fingerprint)| MessageKey { name, window: self.window, fingerprint });
        let message = Message::new(ring, 0, Epoch(0), 0, self.body).with_headers(self.headers);
        Ok(NewMessage { message, key, delay: self.delay })
    }
}

fn check_key(key: &str) -> Result<()> {
    if (1..=Publisher::MAX_KEY).contains(&key.len()) {
        return Ok(());
    }
    let (expected, got) = (format!("1 to {} bytes", Publisher::MAX_KEY), format!("{} bytes", key.len()));
    Err(Error::expected("key", expected, got))
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

impl From<&str> for Draft {
    fn from(body: &str) -> Self {
        Self::new(body.as_bytes().to_vec())
    }
}

impl From<String> for Draft {
    fn from(body: String) -> Self {
        Self::new(body.into_bytes())
    }
}

impl From<&[u8]> for Draft {
    fn from(body: &[u8]) -> Self {
        Self::new(body.to_vec())
    }
}

impl From<Vec<u8>> for Draft {
    fn from(body: Vec<u8>) -> Self {
        Self::new(body)
    }
}

/// A publish of one message. Await it to send the message.
#[must_use = "a message is published when its publish is awaited"]
pub struct Publishing<'a> {
    publisher: &'a Publisher,
    draft: Draft,
    patience: Duration,
}

impl Publishing<'_> {
    /// See [`Draft::key`].
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { draft: self.draft.key(key), ..self }
    }

    /// See [`Draft::window`].
    pub fn window(self, window: Duration) -> Self {
        Self { draft: self.draft.window(window), ..self }
    }

    /// See [`Draft::delay`].
    pub fn delay(self, delay: Duration) -> Self {
        Self { draft: self.draft.delay(delay), ..self }
    }

    /// See [`Draft::header`].
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { draft: self.draft.header(name, value), ..self }
    }

    /// Tries again for this long while the ring is full or Redis cannot be reached. Without it, such an error is
    /// returned at once.
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

impl<'a> IntoFuture for Publishing<'a> {
    type Output = Result<Receipt>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let receipts = self.publisher.send(vec![self.draft], self.patience).await?;
            let missing = || Error::Answer("submit returned no id".to_owned());
            receipts.first().copied().ok_or_else(missing)
        })
    }
}

/// A publish of several messages. Await it to send them.
#[must_use = "messages are published when their publish is awaited"]
pub struct PublishingAll<'a> {
    publisher: &'a Publisher,
    drafts: Vec<Draft>,
    patience: Duration,
}

impl PublishingAll<'_> {
    /// See [`Publishing::patient`].
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

impl<'a> IntoFuture for PublishingAll<'a> {
    type Output = Result<Vec<Receipt>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.publisher.send(self.drafts, self.patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(draft: Draft) -> String {
        let key = draft.key("k").build(&RingName::sample()).unwrap().key;
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
            (Draft::new("x").window(Duration::ZERO), "window: expected 1ms to 10 years"),
            (
                Draft::new("x").delay(TEN_YEARS + Duration::from_nanos(1)),
                "delay: expected at most 10 years, got",
            ),
            (Draft::new("x").delay(Duration::MAX), "delay: expected at most 10 years, got"),
        ];
        for (draft, error) in refused {
            let found = draft.build(&RingName::sample()).unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
        Draft::new("x").key("k".repeat(512)).delay(TEN_YEARS).build(&RingName::sample()).unwrap();
    }
}
