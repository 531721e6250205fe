//! A message in the hands of its handler.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::body;
use crate::draft::check_key;
use crate::failure::Failure;
use crate::headers::Headers;
use crate::keys::RingName;
use crate::message::{CARRY, KEY, Message, TICK};

/// One message, as a handler gets it. The handler owns it.
///
/// The body is read from JSON. A `Job<Bytes>` has the body as it is. For several kinds of work, use an enum.
///
/// A body that does not parse becomes a dead letter at once, with the parser's message as its reason. If it is not JSON
/// at all, the reason also quotes how it begins. There is one exception: if the body is an unknown variant of an enum, the message is first snoozed for ten minutes. A newer
/// program that is just being rolled out may have published it.
#[derive(Clone, Debug)]
pub struct Job<T> {
    /// The body.
    pub body: T,
    message: Message,
    attempts: u32,
    deadline: Instant,
    membership: CancellationToken,
}

impl<T> Job<T> {
    /// The message's number in the ring: 1, 2, 3 ...
    pub fn id(&self) -> u64 {
        self.message.id
    }

    /// The ring that it comes from.
    pub fn ring(&self) -> &RingName {
        self.message.ring()
    }

    /// The name of the message, such as `orders/1794865241094/17`. All deliveries of a message have the same name, and
    /// no other message has it. Use it to make work outside of Redis idempotent: as the key of a request, or as the
    /// primary key of a row. [`Message::key`] returns the same name.
    pub fn message_name(&self) -> String {
        self.message.key()
    }

    /// Which attempt this is: 1, plus one for each failure. Snoozes and deaths of nodes do not count.
    pub fn attempt(&self) -> u32 {
        self.message.attempt()
    }

    /// How many attempts there are, as [`Retry::attempts`](crate::Retry::attempts) sets.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether a failure would make this message a dead letter.
    pub fn is_last_attempt(&self) -> bool {
        self.attempt() >= self.attempts
    }

    /// 1 for the first delivery, plus one after each death, clean stop, failure, snooze and retry of a dead letter.
    pub fn delivery(&self) -> u32 {
        self.message.delivery
    }

    /// How often its handler snoozed it.
    pub fn snoozes(&self) -> u32 {
        self.message.snoozes
    }

    /// The headers with which the message was published.
    pub fn headers(&self) -> &Headers {
        self.message.headers()
    }

    /// The header `traceparent`, which names the trace to which this message belongs. What the handler publishes gets the
    /// same header, and the header `tracestate`, unless it sets another `traceparent`. That concerns messages of a
    /// [`Publisher`](crate::Publisher) that it awaits itself, and [forwards](crate::Outcome::forward).
    pub fn traceparent(&self) -> Option<&str> {
        self.message.traceparent()
    }

    /// What the last snooze of this message [carried](crate::Outcome::carry), if any did.
    pub fn carry(&self) -> Option<&str> {
        self.message.carry()
    }

    /// The [key](crate::Draft::key) with which the message was published, if it has one.
    pub fn publish_key(&self) -> Option<&str> {
        self.message.publish_key()
    }

    /// The time for which a [`Schedule`](crate::Schedule) made this message. Other messages have none.
    pub fn tick(&self) -> Option<SystemTime> {
        self.message.tick_ms().map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
    }

    /// When the message was made, by Redis' clock. If it had to wait for room in the ring, it was published later.
    pub fn published(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.message.published_ms)
    }

    /// When the time limit of this attempt ends. The node then drops the future of an async handler.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits until the work has become useless: the time limit is over, or the ring has declared this node dead and
    /// given the message to another node. The ring then ignores what this attempt returns. Only a blocking function
    /// still has a tenth of the limit, or a second if that is longer, to return.
    pub async fn cancelled(&self) {
        tokio::select! {
            () = self.membership.cancelled() => {}
            () = tokio::time::sleep_until(self.deadline.into()) => {}
        }
    }

    /// Whether the work has become useless, as in [`cancelled`](Self::cancelled). A
    /// [blocking](crate::Node::handle_blocking) handler that takes long should call this function now and then, because
    /// nothing can end it from outside.
    pub fn is_cancelled(&self) -> bool {
        self.membership.is_cancelled() || Instant::now() >= self.deadline
    }

    /// The message as the ring delivered it, with its undecoded body.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The same job with another body.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Job<U> {
        let Self { body, message, attempts, deadline, membership } = self;
        Job { body: change(body), message, attempts, deadline, membership }
    }

    /// A job as a ring would deliver it, for tests of handlers. It is message 1 of the ring `sample` on its first
    /// attempt of 8, with a time limit of ten minutes. It needs no Redis.
    pub fn sample(body: T) -> Self {
        let message = Message::sample("sample", 1, Bytes::new());
        let deadline = Instant::now() + Duration::from_secs(600);
        Self { body, message, attempts: 8, deadline, membership: CancellationToken::new() }
    }

    /// The same job, delivered as this message. For tests of handlers that look at more than the body.
    #[must_use]
    pub fn with_message(self, message: Message) -> Self {
        Self { message, ..self }
    }

    /// The same job on this attempt, of so many. For tests of handlers.
    #[must_use]
    pub fn with_attempt(mut self, attempt: u32, attempts: u32) -> Self {
        (self.message.failures, self.attempts) = (attempt.saturating_sub(1), attempts);
        self
    }

    /// The same job, made for this time by a schedule. For tests of handlers.
    #[must_use]
    pub fn with_tick(mut self, tick: SystemTime) -> Self {
        let ms = tick.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        self.message = self.message.with_header(TICK, ms.to_string());
        self
    }

    /// The same job, published with this [key](crate::Draft::key). For tests of handlers.
    ///
    /// # Panics
    ///
    /// If no message can have this key.
    #[must_use]
    pub fn with_publish_key(mut self, key: impl Into<String>) -> Self {
        let key = key.into();
        check_key(&key).unwrap_or_else(|error| panic!("{error}"));
        self.message = self.message.with_header(KEY, key);
        self
    }

    /// The same job after a snooze that [carried](crate::Outcome::carry) this text. For tests of handlers.
    #[must_use]
    pub fn with_carry(mut self, state: impl Into<String>) -> Self {
        self.message.snoozes += 1;
        self.message = self.message.with_header(CARRY, state);
        self
    }
}

impl Job<Bytes> {
    /// The same delivery, with the body that this job has now.
    pub(crate) fn as_delivery(&self) -> Delivery<'_> {
        Delivery {
            message: &self.message,
            body: Some(&self.body),
            attempts: self.attempts,
            deadline: self.deadline,
            membership: &self.membership,
        }
    }
}

/// A message that a lane gives to its handler.
#[derive(Clone, Copy)]
pub(crate) struct Delivery<'a> {
    pub message: &'a Message,
    /// The body that a wrapper has put in place of the message's own.
    pub body: Option<&'a Bytes>,
    pub attempts: u32,
    pub deadline: Instant,
    /// Ends with the membership under which the message was claimed.
    pub membership: &'a CancellationToken,
}

/// Why a body is not the one that its handler expects.
pub(crate) enum Unreadable {
    /// A newer program may have published it.
    UnknownVariant,
    Bad(Failure),
}

impl Delivery<'_> {
    pub fn job<T: DeserializeOwned + 'static>(self) -> Result<Job<T>, Unreadable> {
        let raw = self.body.unwrap_or_else(|| self.message.body_bytes());
        let body = body::decode(raw).map_err(|error| {
            let text = body::explain(raw, &error);
            match text.starts_with("unknown variant ") && self.message.snoozes == 0 {
                true => Unreadable::UnknownVariant,
                false => Unreadable::Bad(Failure::fatal(format_args!("the body does not parse: {text}"))),
            }
        })?;
        Ok(Job {
            body,
            message: self.message.clone(),
            attempts: self.attempts,
            deadline: self.deadline,
            membership: self.membership.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sample_looks_like_a_delivery_and_can_be_changed() {
        let job = Job::sample(7);
        assert_eq!((job.body, job.id(), job.attempt(), job.attempts(), job.delivery()), (7, 1, 1, 8, 1));
        assert_eq!((job.tick(), job.carry(), job.is_cancelled()), (None, None, false));
        assert!(Job::sample(()).with_attempt(3, 3).is_last_attempt());
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_794_938_130_000);
        let job = Job::sample(()).with_tick(time).with_carry("page 3");
        assert_eq!((job.tick(), job.carry(), job.snoozes()), (Some(time), Some("page 3"), 1));
        assert_eq!(
            (job.publish_key(), Job::sample(()).with_publish_key("k").publish_key()),
            (None, Some("k"))
        );
    }
}
