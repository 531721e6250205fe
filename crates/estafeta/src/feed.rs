//! Sources that users write: feeds with a checkpoint, and functions that are called at an interval.
//!
//! A feed returns batches. The generator publishes each of them in one fenced step, messages and checkpoint together or
//! not at all. So a feed never has to find out which of its batches arrived: a term begins with the checkpoint that
//! Redis holds, and everything up to that checkpoint was published once.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body;
use crate::draft::Draft;
use crate::failure::Failure;
use crate::headers::Headers;
use crate::identity::Epoch;
use crate::node::RingView;
use crate::source::{
    MAX_BYTES, MAX_CHECKPOINT, MAX_MESSAGES, Made, Progress, RawBatch, Source, SourceMessage,
};

/// Reads from somewhere, and remembers in Redis how far it got.
///
/// While its node is in office, the generator asks the feed for one [`Batch`] after another. It publishes the messages
/// of a batch and its checkpoint in one step. If the node dies, the feed of the next generator is opened with the last
/// checkpoint that was published. So each message is published exactly once, whenever a node dies, if each batch has a
/// checkpoint.
///
/// ```
/// use estafeta::{Batch, Failure, Feed};
///
/// /// Publishes the lines of a text. The checkpoint is the number of lines that were published.
/// struct Lines {
///     text: &'static str,
///     at: usize,
/// }
///
/// impl Feed for Lines {
///     type Body = String;
///     type Checkpoint = usize;
///
///     async fn open(&mut self, from: Option<usize>) -> Result<(), Failure> {
///         self.at = from.unwrap_or(0);
///         Ok(())
///     }
///
///     async fn next(&mut self) -> Result<Batch<String, usize>, Failure> {
///         let Some(line) = self.text.lines().nth(self.at) else {
///             // The end. A feed that waits for more would wait here.
///             return std::future::pending().await;
///         };
///         self.at += 1;
///         Ok(Batch::one(line.to_owned()).checkpoint(self.at))
///     }
/// }
/// ```
///
/// A failure or a panic does not end the node. The generator reports it, waits for 100 ms, opens the feed again with
/// the checkpoint in Redis, and goes on. The wait doubles with each further failure in a row, up to 5 s. After five
/// failures in a row, the generator gives up its office, so that another node can try with its own feed. A node that is
/// alone keeps the office and goes on.
pub trait Feed: Send + 'static {
    /// The body of its messages: JSON, or [`Bytes`] as they are.
    type Body: Serialize + Send + 'static;
    /// Where it continues: JSON, or [`Bytes`] as they are. At most 64 KiB.
    type Checkpoint: Serialize + DeserializeOwned + Send + 'static;

    /// Names the term that the next call of [`open`](Self::open) belongs to. The generator calls it before each `open`. The
    /// epoch grows from term to term. So a system outside Redis can use it as a fencing token: it refuses the writes of a
    /// feed whose epoch is lower than one that it has seen.
    fn begin(&mut self, epoch: Epoch) {
        let _ = epoch;
    }

    /// Prepares the feed. The generator calls it when it has taken office, and again after each failure. `from` is the
    /// last checkpoint that any node of the ring has published. If the checkpoint in Redis does not parse, that is a
    /// failure, and this function is not called. So a feed never starts over by mistake.
    fn open(&mut self, from: Option<Self::Checkpoint>) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Returns the next messages, and waits if there are none. The future is dropped only when the term is over or the
    /// node stops. While the ring is full or paused, the generator holds a batch and does not call this function.
    fn next(&mut self) -> impl Future<Output = Result<Batch<Self::Body, Self::Checkpoint>, Failure>> + Send;

    /// Redis has all messages up to this checkpoint. Use it to acknowledge the messages where they come from. The
    /// generator does not call it for a batch without a checkpoint. If the node dies, the call may be missing, so
    /// `open` must not depend on it.
    fn published(
        &mut self,
        checkpoint: &Self::Checkpoint,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = checkpoint;
        std::future::ready(Ok(()))
    }

    /// The term is over, or the node stops. The generator calls it after each term in which it called
    /// [`open`](Self::open), but not if the node dies. Use it to let go of what only the generator should hold. A new
    /// term begins only when it has returned.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Messages that are published in one step, together with a checkpoint: all of it, or nothing. A batch without messages
/// may move the checkpoint. After a failure or a take-over, the messages of batches after the last checkpoint are made
/// again.
///
/// A batch over one of the limits is a failure of its feed. It is never split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<B, C = ()> {
    pub(crate) messages: Vec<BatchMessage<B>>,
    pub(crate) checkpoint: Option<C>,
}

/// One message of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BatchMessage<B> {
    Body(B, Headers),
    /// What a draft has become, or what was wrong with it.
    Draft(Result<SourceMessage, Failure>),
}

impl<B: Serialize + 'static> BatchMessage<B> {
    pub(crate) fn into_source(self) -> Result<SourceMessage, Failure> {
        match self {
            Self::Body(body, headers) => {
                headers.check_names()?;
                Ok(SourceMessage { headers, ..body::encode(&body)?.into() })
            }
            Self::Draft(message) => message,
        }
    }
}

impl Batch<()> {
    /// The most messages of one batch.
    pub const MAX_MESSAGES: usize = MAX_MESSAGES;
    /// The most bytes of all bodies and headers of one batch.
    pub const MAX_BYTES: usize = MAX_BYTES;
    /// The largest checkpoint, in bytes.
    pub const MAX_CHECKPOINT: usize = MAX_CHECKPOINT;
}

impl<B, C> Batch<B, C> {
    /// Messages with these bodies. The checkpoint stays where it is.
    pub fn new(messages: impl IntoIterator<Item = B>) -> Self {
        let messages = messages.into_iter().map(|body| BatchMessage::Body(body, Headers::new())).collect();
        Self { messages, checkpoint: None }
    }

    /// One message.
    pub fn one(body: B) -> Self {
        Self::new([body])
    }

    /// No message.
    pub fn empty() -> Self {
        Self::new([])
    }

    /// Adds a message with headers, such as a `traceparent`. A name that begins with `estafeta-` makes the batch a failure
    /// of its feed, because such names belong to the ring.
    #[must_use]
    pub fn with_message(mut self, body: B, headers: Headers) -> Self {
        self.messages.push(BatchMessage::Body(body, headers));
        self
    }

    /// Adds a message that may have headers, a [key](Draft::key) and a [delay](Draft::delay). A draft with an error makes
    /// the batch a failure of its feed, and so does one with a [single name](Draft::single).
    ///
    /// If an equal message has the key, this message is a duplicate: it is not published, and everything else of the
    /// batch is. If another message has the key, this message becomes a dead letter, and the feed goes on.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use estafeta::{Batch, Draft};
    ///
    /// let reminder = Draft::new(&"pay your order 17").key("reminder-17").delay(Duration::from_secs(24 * 3600));
    /// let batch: Batch<&str, u64> = Batch::one("two pizzas").with_draft(reminder).checkpoint(17);
    /// ```
    #[must_use]
    pub fn with_draft(mut self, draft: impl Into<Draft<B>>) -> Self {
        let message = draft.into().into_source().map_err(Failure::from);
        self.messages.push(BatchMessage::Draft(message));
        self
    }

    /// Moves the checkpoint together with the messages.
    #[must_use]
    pub fn checkpoint(self, checkpoint: C) -> Self {
        Self { checkpoint: Some(checkpoint), ..self }
    }
}

/// A feed as the generator knows it.
pub(crate) struct FeedSource<F: Feed> {
    feed: F,
    /// The checkpoint of the batch that is being published.
    checkpoint: Option<F::Checkpoint>,
}

impl<F: Feed> FeedSource<F> {
    pub fn new(feed: F) -> Self {
        Self { feed, checkpoint: None }
    }
}

impl<F: Feed> Source for FeedSource<F> {
    async fn open(&mut self, from: &Progress) -> Result<(), Failure> {
        let read = |stored: &Vec<u8>| {
            body::decode(&Bytes::copy_from_slice(stored)).map_err(|error| {
                Failure::new(format_args!(
                    "the checkpoint in Redis does not parse: {error}. `estafeta checkpoint` shows, sets and clears it"
                ))
            })
        };
        let checkpoint = from.checkpoint.as_ref().map(read).transpose()?;
        self.feed.begin(from.epoch);
        self.feed.open(checkpoint).await
    }

    async fn next(&mut self, _: &mut RingView) -> Result<Made, Failure> {
        let Batch { messages, checkpoint } = self.feed.next().await?;
        let raw = RawBatch {
            messages: messages.into_iter().map(BatchMessage::into_source).collect::<Result<_, _>>()?,
            checkpoint: checkpoint.as_ref().map(body::encode).transpose()?,
            ..RawBatch::default()
        };
        self.checkpoint = checkpoint;
        Ok(Made::Batch(raw))
    }

    async fn published(&mut self) -> Result<(), Failure> {
        match &self.checkpoint {
            Some(checkpoint) => self.feed.published(checkpoint).await,
            None => Ok(()),
        }
    }

    async fn close(&mut self) {
        self.feed.close().await;
    }
}

/// A function that the elected node calls at an interval. [`every`] makes one.
pub struct Every<F, T> {
    pub(crate) interval: Duration,
    pub(crate) catch_up: bool,
    function: F,
    body: PhantomData<fn() -> T>,
}

/// Calls `function` once per interval, and publishes what it returns. The ring keeps the rhythm, whichever node is the
/// generator. An interval of zero means as fast as Redis takes the messages.
///
/// The generator drops the future when the node stops or loses its office. If the interval is zero, or missed ticks are
/// made up for, it also drops the future if other messages are ready and this one takes longer than 2 ms. So take
/// nothing out of a queue or a database before the last `await`.
///
/// The function of the next generator knows nothing of this one. Use a [`Feed`] for a source that continues where
/// another one stopped. Use a [`Schedule`](crate::Schedule) for several rhythms, or for times of the day.
///
/// ```
/// # use std::time::Duration;
/// let mut n = 0;
/// let ticks = estafeta::every(Duration::from_secs(1), move || {
///     n += 1;
///     async move { Ok(format!("tick {n}")) }
/// });
/// ```
pub fn every<F, A, T>(interval: Duration, function: F) -> Every<F, T>
where
    F: FnMut() -> A + Send + 'static,
    A: Future<Output = Result<T, Failure>> + Send,
    T: Serialize + Send + 'static,
{
    Every { interval, catch_up: false, function, body: PhantomData }
}

impl<F, T> fmt::Debug for Every<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Every").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl<F, T> Every<F, T> {
    /// Makes up for ticks that were missed because there was no generator, no Redis or no room: one message per tick.
    /// Without it, the generator skips them, and the rhythm keeps its phase.
    #[must_use]
    pub fn catch_up(self) -> Self {
        Self { catch_up: true, ..self }
    }
}

impl<F, A, T> Source for Every<F, T>
where
    F: FnMut() -> A + Send + 'static,
    A: Future<Output = Result<T, Failure>> + Send,
    T: Serialize + Send + 'static,
{
    async fn open(&mut self, _: &Progress) -> Result<(), Failure> {
        Ok(())
    }

    async fn next(&mut self, _: &mut RingView) -> Result<Made, Failure> {
        let made = (self.function)().await?;
        Ok(Made::Message(body::encode(&made)?.into()))
    }
}

/// Publishes the items of a stream. `open` makes the stream, at the start of each term and after each failure. Each item
/// is a body and the checkpoint after it. `open` gets the checkpoint of the last item that was published.
///
/// ```
/// use futures_util::stream;
///
/// let numbers = estafeta::feed_of(|from: Option<u64>| {
///     let first = from.map_or(1, |last| last + 1);
///     stream::iter((first..=100).map(|n| Ok((format!("number {n}"), n))))
/// });
/// ```
///
/// When the stream ends, the feed publishes nothing more until the next term.
pub fn feed_of<F, S, T, C>(open: F) -> StreamFeed<F, S, C>
where
    F: FnMut(Option<C>) -> S + Send + 'static,
    S: Stream<Item = Result<(T, C), Failure>> + Send + 'static,
    T: Serialize + Send + 'static,
    C: Serialize + DeserializeOwned + Send + 'static,
{
    StreamFeed { open, stream: None, held: None }
}

/// A stream as a feed. [`feed_of`] makes one.
pub struct StreamFeed<F, S, C> {
    open: F,
    stream: Option<Pin<Box<S>>>,
    /// What the stream returned when the last batch was complete.
    held: Option<Result<(Bytes, C), Failure>>,
}

impl<F, S, C> fmt::Debug for StreamFeed<F, S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamFeed")
    }
}

impl<F, S, T, C> Feed for StreamFeed<F, S, C>
where
    F: FnMut(Option<C>) -> S + Send + 'static,
    S: Stream<Item = Result<(T, C), Failure>> + Send + 'static,
    T: Serialize + Send + 'static,
    C: Serialize + DeserializeOwned + Send + 'static,
{
    type Body = Bytes;
    type Checkpoint = C;

    async fn open(&mut self, from: Option<C>) -> Result<(), Failure> {
        self.held = None;
        self.stream = Some(Box::pin((self.open)(from)));
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<Bytes, C>, Failure> {
        let (mut bytes, mut checkpoint) = (0, None);
        let mut batch = Batch::empty();
        let first = match self.held.take() {
            Some(held) => held,
            None => match self.item().await {
                Some(item) => item,
                None => std::future::pending().await,
            },
        };
        let mut item = Some(first);
        // All items that the stream has ready go along.
        while let Some(next) = item {
            match next {
                Ok((body, after)) if batch.messages.is_empty() || bytes + body.len() <= MAX_BYTES => {
                    bytes += body.len();
                    batch.messages.push(BatchMessage::Body(body, Headers::new()));
                    checkpoint = Some(after);
                }
                Err(failure) if batch.messages.is_empty() => return Err(failure),
                later => {
                    self.held = Some(later);
                    break;
                }
            }
            if batch.messages.len() == MAX_MESSAGES {
                break;
            }
            item = self.item().now_or_never().flatten();
        }
        Ok(Batch { checkpoint, ..batch })
    }
}

impl<F, S, T, C> StreamFeed<F, S, C>
where
    S: Stream<Item = Result<(T, C), Failure>>,
    T: Serialize + 'static,
{
    /// The next item of the stream, or None at its end.
    async fn item(&mut self) -> Option<Result<(Bytes, C), Failure>> {
        let item = self.stream.as_mut()?.next().await;
        if item.is_none() {
            self.stream = None;
        }
        item.map(|item| item.and_then(|(body, checkpoint)| Ok((body::encode(&body)?, checkpoint))))
    }
}
