//! Publishes messages from any process: a web server, a script, a program that is no node of the ring.
//!
//! The ring numbers the messages and remembers the last call of each publisher. A call whose reply was lost is
//! therefore repeated without harm. The memory belongs to an *identity*, which has one call in flight at a time. A
//! [`Publisher`] draws as many identities as it has calls in flight. If a caller drops a call, the publisher never uses
//! that identity again, because it does not know whether the call arrived.

mod destination;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tracing::Instrument as _;

use crate::config::Config;
use crate::draft::{Draft, check_key};
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::keys::RingName;
use crate::steps::{Cancellation, MessageRef, NewMessage, Submission, Submit};
use crate::trace;
use destination::{Destination, Destinations};

/// How long a call waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// For how long a publish that may have arrived is repeated. The ring recognises a repeat for ten minutes.
const REPEATS: Duration = Duration::from_secs(8 * 60);
/// The longest pause before a publish tries again.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Publishes messages in a ring without being a node of it. Clones share one connection, which reconnects by itself.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use estafeta::Publisher;
///
/// #[derive(serde::Serialize)]
/// struct Order {
///     id: u64,
///     pizzas: u32,
/// }
///
/// let orders: Publisher<Order> = Publisher::on("redis://127.0.0.1:6379", "orders").await?;
/// let order = Order { id: 17, pizzas: 2 };
/// let receipt = orders.publish(&order).key(order.id.to_string()).header("shop", "berlin").await?;
/// // A second click: the same id, and nothing is published.
/// let again = orders.publish(&order).key(order.id.to_string()).header("shop", "berlin").await?;
/// assert!(again.duplicate && again.id == receipt.id);
/// # Ok(())
/// # }
/// ```
///
/// Bodies are written as JSON. A `Publisher<Bytes>` publishes bytes and text as they are.
pub struct Publisher<T = Bytes> {
    ring: RingName,
    application: String,
    max_waiting: u64,
    max_body: usize,
    destinations: Arc<Destinations>,
    /// The only partition that it uses. None if it uses all.
    only: Option<u32>,
    body: PhantomData<fn(&T)>,
}

impl<T> Clone for Publisher<T> {
    fn clone(&self) -> Self {
        Self {
            ring: self.ring.clone(),
            application: self.application.clone(),
            destinations: Arc::clone(&self.destinations),
            ..*self
        }
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("ring", &self.ring).finish_non_exhaustive()
    }
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
    /// The message's number in the ring. For a duplicate, that of the first message with the same key or single name.
    pub id: u64,
    /// Whether this message was not published: an equal one has its key, or another one with its single name waits.
    pub duplicate: bool,
    /// The [partition](crate::Node::partitions) that has the message. 0 in a ring that is not divided.
    pub partition: u32,
}

impl Publisher {
    /// The most messages that one call publishes.
    pub const MAX_MESSAGES: usize = 1000;
    /// The most bytes of several messages in one call, bodies and headers together.
    pub const MAX_BYTES: usize = 16 * 1024 * 1024;
    /// The longest key in bytes.
    pub const MAX_KEY: usize = 512;
}

impl<T> Publisher<T> {
    /// Connects to Redis, and reconnects on the current tokio runtime whenever the connection breaks. The ring need not
    /// exist yet. Its application is the ring's name, as in [`Config::new`].
    ///
    /// If the ring has [partitions](crate::Node::partitions), the publisher finds out how many, and connects to each of
    /// them. A message with a key or a single name goes to the partition of that name. All other messages of a call go
    /// to one partition, and the calls go to the partitions in turn.
    ///
    /// Fails with [`Error::Unreachable`] if Redis is down at this moment. It does not try again.
    pub async fn on(redis: &str, ring: &str) -> Result<Self> {
        Self::of(&Config::on(redis, ring)?).await
    }

    /// Connects like [`on`](Self::on), with the Redis, the ring, the application, `durability`, `max_waiting` and
    /// `max_body` of these settings. A new ring gets as many partitions as they say. If they name several,
    /// the ring must have as many.
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
        let destinations = Destinations::open(&config).await?.into();
        let Config { ring, max_waiting, max_body, .. } = config;
        Ok(Self { ring, application, max_waiting, max_body, destinations, only: None, body: PhantomData })
    }

    /// How many partitions the ring has.
    pub fn partitions(&self) -> u32 {
        self.destinations.count()
    }

    /// The same publisher, for one partition only. It publishes keys and single names only if they belong there.
    pub fn partition(&self, index: u32) -> Result<Self> {
        match self.destinations.at(index) {
            Some(_) => Ok(Self { only: Some(index), ..self.clone() }),
            None => Err(Error::expected("partition", format!("0 to {}", self.partitions() - 1), index)),
        }
    }

    /// The same publisher with the application and the limits of these settings.
    #[cfg(feature = "testing")]
    pub(crate) fn with_settings_of(self, config: &Config) -> Self {
        let (application, max_waiting) = (config.application.clone(), config.max_waiting);
        Self { application, max_waiting, max_body: config.max_body, ..self }
    }

    /// Publishes one message. Await the result to send it.
    pub fn publish(&self, message: impl Into<Draft<T>>) -> Publishing<'_, T> {
        Publishing { publisher: self, draft: message.into(), patience: Duration::ZERO }
    }

    /// Publishes up to 1,000 messages, all of them or none. Await the result to send them. There is one receipt per
    /// message, in their order. If the ring has partitions, all keys and single names of a call must belong to one of
    /// them, as [`Partition::of_key`](crate::Partition::of_key) decides.
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
    pub fn publish_all<D: Into<Draft<T>>>(
        &self,
        messages: impl IntoIterator<Item = D>,
    ) -> PublishingAll<'_, T> {
        // One message too many is enough to refuse them, however many there are.
        let most = Publisher::MAX_MESSAGES + 1;
        let drafts = messages.into_iter().take(most).map(Into::into).collect();
        PublishingAll { publisher: self, drafts, patience: Duration::ZERO }
    }

    /// Cancels a message that was published with a [delay](Draft::delay). Returns whether it was still delayed. If it was,
    /// no handler has seen it, and none will. The key of the message stays taken.
    ///
    /// In a ring with partitions, only a publisher of one [partition](Self::partition) can do this.
    pub async fn cancel(&self, id: u64) -> Result<bool> {
        let only = match self.partitions() {
            1 => Some(0),
            _ => self.only,
        };
        let Some(destination) = only.and_then(|index| self.destinations.at(index)) else {
            return Err(Error::expected(
                "partition",
                "the one of the message, by Publisher::partition",
                "none",
            ));
        };
        self.take_back(destination, MessageRef::Id(id)).await
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
        self.take_back(self.destinations.of_key(key), MessageRef::Key(key)).await
    }

    async fn take_back(&self, destination: &Destination, which: MessageRef<'_>) -> Result<bool> {
        let identity = destination.draw_identity();
        let cancellation = Cancellation {
            application: &self.application,
            partitions: self.partitions(),
            publisher: identity.incarnation,
            sequence: identity.sequence,
            which,
        };
        let outcome = destination.store.trying_for(PATIENCE).cancel(&cancellation).await;
        destination.put_back(identity);
        outcome
    }

    async fn send(&self, drafts: Vec<Draft<T>>, patience: Duration) -> Result<Vec<Receipt>> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let destination = self.destinations.choose(&drafts, self.only)?;
        let mut messages = self.check(drafts, destination.store.ring())?;
        let span = trace::publishing(destination.store.ring(), messages.iter().map(|new| &new.message));
        trace::connect(&span, messages.iter_mut().map(|new| &mut new.message));
        let outcome = self.submit(destination, &messages, patience).instrument(span.clone()).await;
        match &outcome {
            Ok(receipts) => trace::published(&span, receipts.iter().map(|receipt| receipt.id)),
            Err(error) => trace::failed(&span, error),
        }
        outcome
    }

    /// Sends these messages until Redis has them, or the patience is over.
    async fn submit(
        &self,
        destination: &Destination,
        messages: &[NewMessage],
        patience: Duration,
    ) -> Result<Vec<Receipt>> {
        let (started, mut patience) = (Instant::now(), patience);
        let identity = destination.draw_identity();
        let submission = Submission {
            application: &self.application,
            partitions: self.partitions(),
            publisher: identity.incarnation,
            // All tries have the same number. An earlier one may still be on its way.
            sequence: identity.sequence,
            max_waiting: destination.partition.share_of(self.max_waiting).max(1),
            messages,
        };
        let mut pause = Duration::from_millis(5);
        let outcome = loop {
            let outcome = self.try_once(destination, &submission).await;
            // This try may have arrived, even if Redis refused its repeat. The ring recognises a repeat only for a
            // while.
            let may_have_arrived = |error: &Error| {
                matches!(error, Error::Unreachable { .. } | Error::Unconfirmed { .. } | Error::Refused { .. })
            };
            if outcome.as_ref().is_err_and(may_have_arrived) {
                patience = patience.min(REPEATS);
            }
            let left = patience.saturating_sub(started.elapsed());
            if !outcome.as_ref().is_err_and(Error::may_pass) || left.is_zero() {
                break outcome;
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        destination.put_back(identity);
        outcome
    }

    async fn try_once(&self, destination: &Destination, submission: &Submission<'_>) -> Result<Vec<Receipt>> {
        let (ring, partition) = (destination.store.ring().to_string(), destination.partition.index);
        match destination.store.trying_for(PATIENCE).submit(submission).await? {
            Submit::Submitted(ids) => {
                let receipt = |it: &crate::steps::Submitted| {
                    let crate::steps::Submitted { id, duplicate } = *it;
                    Receipt { id, duplicate, partition }
                };
                Ok(ids.iter().map(receipt).collect())
            }
            Submit::Reused(position) => {
                let key = submission.messages.get(position).and_then(|new| new.terms.key.as_ref());
                Err(Error::KeyReused { key: key.map(|key| key.name.clone()).unwrap_or_default() })
            }
            Submit::Paused(left) => Err(Error::Paused { ring, left }),
            Submit::Full => Err(Error::Full { ring, max_waiting: submission.max_waiting }),
        }
    }

    /// Builds the messages. Refuses what the ring would not accept, before anything is sent.
    fn check(&self, drafts: Vec<Draft<T>>, ring: &RingName) -> Result<Vec<NewMessage>> {
        if drafts.len() > Publisher::MAX_MESSAGES {
            let expected = format!("at most {} in one call", Publisher::MAX_MESSAGES);
            return Err(Error::expected("messages", expected, "more"));
        }
        let count = drafts.len();
        let (mut messages, mut bytes) = (Vec::with_capacity(count), 0);
        let trace = trace::carried();
        for mut draft in drafts {
            if let Some(trace) = &trace {
                draft = draft.carry_on(trace);
            }
            let (size, limit) = (draft.body.len(), self.max_body);
            if size > limit {
                return Err(Error::BodyTooLarge { size, limit });
            }
            let new = draft.build(ring)?;
            bytes += size + new.message.headers().bytes();
            messages.push(new);
        }
        if count > 1 && bytes > Publisher::MAX_BYTES {
            let expected = format!("at most {} bytes in one call", Publisher::MAX_BYTES);
            return Err(Error::expected("messages", expected, format!("{bytes} bytes")));
        }
        Ok(messages)
    }
}

/// A publish of one message. Await it to send the message.
#[derive(Debug)]
#[must_use = "a message is published when its publish is awaited"]
pub struct Publishing<'a, T> {
    publisher: &'a Publisher<T>,
    draft: Draft<T>,
    patience: Duration,
}

impl<T> Publishing<'_, T> {
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

    /// See [`Draft::single`].
    pub fn single(self, name: impl Into<String>) -> Self {
        Self { draft: self.draft.single(name), ..self }
    }

    /// See [`Draft::header`].
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { draft: self.draft.header(name, value), ..self }
    }

    /// Tries again for this long while the ring is full, producing is paused, or Redis cannot be reached. It also tries
    /// again while Redis does not serve for the moment, for example because it loads its data. Without it, the publish
    /// fails at once, or after about five seconds if Redis cannot be reached. A publish that may have arrived is
    /// repeated for eight minutes at most.
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

impl<'a, T> IntoFuture for Publishing<'a, T> {
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
#[derive(Debug)]
#[must_use = "messages are published when their publish is awaited"]
pub struct PublishingAll<'a, T> {
    publisher: &'a Publisher<T>,
    drafts: Vec<Draft<T>>,
    patience: Duration,
}

impl<T> PublishingAll<'_, T> {
    /// See [`Publishing::patient`].
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

impl<'a, T> IntoFuture for PublishingAll<'a, T> {
    type Output = Result<Vec<Receipt>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.publisher.send(self.drafts, self.patience))
    }
}
