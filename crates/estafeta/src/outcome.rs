//! What becomes of a message that was handled.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::draft::Draft;
use crate::effects::{Effect, Effects};
use crate::failure::Failure;
use crate::keys::RingName;

/// What becomes of a message that was handled without a failure.
///
/// A message that is done may have *effects*. Redis writes them in the step that settles the message. So each effect is
/// applied exactly once, if and only if the message is done, even if nodes die meanwhile:
///
/// ```
/// # use std::time::Duration;
/// # use estafeta::Outcome;
/// let day = Duration::from_secs(24 * 3600);
/// let outcome = Outcome::done().add("sold", 3).set("last-order", "17", None).result("shipped", day);
/// ```
///
/// A message has at most 100 forwards and 16 other effects, and 256 KiB of them in all. A name has 1 to 200 visible
/// ASCII characters, and `{ring}:u:NAME` is its key in Redis. If one effect of a message is bad, the message becomes a
/// dead letter with the reason, and none of its effects is applied. The same happens if a snooze has effects, or if a
/// message that is done carries something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) snooze: Option<Duration>,
    pub(crate) carry: Option<String>,
    /// Most messages have none.
    pub(crate) effects: Option<Box<Effects>>,
}

/// Says in words what becomes of the message: `done; add 3 to sold`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.snooze {
            Some(after) => write!(f, "snooze for {after:?}")?,
            None => f.write_str("done")?,
        }
        if let Some(carry) = &self.carry {
            write!(f, "; carry {carry:?}")?;
        }
        self.effects.iter().flat_map(|effects| &effects.0).try_for_each(|effect| write!(f, "; {effect}"))
    }
}

impl Outcome {
    /// The message is done. `()` means the same.
    pub fn done() -> Self {
        Self { snooze: None, carry: None, effects: None }
    }

    /// The message waits in Redis for this time, by Redis' clock, and then comes again. That is no failure, and it uses
    /// up no attempt. A time of more than ten years counts as ten years.
    pub fn snooze(after: Duration) -> Self {
        Self { snooze: Some(after), carry: None, effects: None }
    }

    /// The next delivery of a snoozed message has this text as its [`carry`](crate::Job::carry). It stays with the message
    /// until another snooze carries something else. A text of more than 4 KiB makes the snooze a failure.
    #[must_use]
    pub fn carry(self, state: impl Into<String>) -> Self {
        Self { carry: Some(state.into()), ..self }
    }

    /// Redis keeps this result of the message for the time `ttl`. [`Ring::result`](crate::Ring::result)
    /// returns it. A second result replaces the first one.
    #[must_use]
    pub fn result(self, value: impl Into<Bytes>, ttl: Duration) -> Self {
        self.with(Effect::Result { value: value.into(), ttl })
    }

    /// The key `{ring}:u:NAME` gets this value, for the time `ttl`, or for ever. A value of another type than a string is
    /// not replaced: it makes the effect bad.
    #[must_use]
    pub fn set(self, name: impl Into<String>, value: impl Into<Bytes>, ttl: Option<Duration>) -> Self {
        self.with(Effect::Set { key: name.into(), value: value.into(), ttl })
    }

    /// Adds `n` to the whole number at the key `{ring}:u:NAME`. A missing key counts as 0. The effect is bad if another
    /// text is there, or if `n` or the sum has more than 15 digits.
    #[must_use]
    pub fn add(self, name: impl Into<String>, n: i64) -> Self {
        self.with(Effect::Add { key: name.into(), n })
    }

    /// Appends an entry with these fields to the stream `{ring}:u:NAME`. With `maxlen`, Redis removes the oldest
    /// entries, so that about `maxlen` entries are left. An entry has 1 to 100 fields.
    #[must_use]
    pub fn append<N: Into<Bytes>, V: Into<Bytes>>(
        self,
        name: impl Into<String>,
        fields: impl IntoIterator<Item = (N, V)>,
        maxlen: Option<u64>,
    ) -> Self {
        let field = |(name, value): (N, V)| (name.into(), value.into());
        let (stream, fields) = (name.into(), fields.into_iter().map(field).collect());
        self.with(Effect::Append { stream, fields, maxlen })
    }

    /// Publishes a message in another ring of the same group, such as `shop/mails` for a handler of `shop/orders`, or in
    /// this ring. It is published even if that ring is full, and the ring need not exist yet. It has no headers, except those of
    /// the [trace](crate::Job::traceparent) of this message.
    ///
    /// That ring must belong to the application of this node. If this node has the default application, which is the
    /// name of its ring, then that ring must have the default as well.
    #[must_use]
    pub fn forward(self, ring: &RingName, body: impl Into<Bytes>) -> Self {
        self.with(Effect::forward(ring.clone(), body))
    }

    /// Publishes a message like [`forward`](Self::forward), with this value as JSON. That is what a `Job<T>` of the other
    /// ring expects. Fails if the value cannot be written as JSON.
    pub fn forward_json<T: Serialize>(self, ring: &RingName, body: &T) -> Result<Self, Failure> {
        Ok(self.forward(ring, serde_json::to_vec(body)?))
    }

    /// Publishes a message like [`forward`](Self::forward), with headers. `Draft::new(&value)` has the value as JSON. If the
    /// draft has a `traceparent`, the message belongs to that trace.
    ///
    /// ```
    /// # use estafeta::{Draft, Failure, Outcome, RingName};
    /// fn accepted(mails: &RingName, order: u64) -> Result<Outcome, Failure> {
    ///     Outcome::done().forward_with(mails, Draft::new(&order).header("shop", "berlin"))
    /// }
    /// ```
    ///
    /// Returns a [fatal](Failure::fatal) failure if something is wrong with the draft. A forward cannot have a key, a delay
    /// or a single name.
    pub fn forward_with<T>(self, ring: &RingName, message: Draft<T>) -> Result<Self, Failure> {
        let (headers, body) = message.into_forward().map_err(Failure::fatal)?;
        Ok(self.with(Effect::Forward { ring: ring.clone(), headers, body }))
    }

    fn with(mut self, effect: Effect) -> Self {
        self.effects.get_or_insert_default().push(effect);
        self
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::done()
    }
}

/// What becomes of the messages of a [batch](crate::Node::handle_batch). `()` means that all of them are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcomes {
    /// None if all are done.
    each: Option<Vec<Result<Outcome, Failure>>>,
}

impl Outcomes {
    /// All messages are done. `()` means the same.
    pub fn done() -> Self {
        Self { each: None }
    }

    /// One outcome per message, in the order of the jobs. If there are more or fewer outcomes than jobs, all messages of
    /// the batch have failed.
    ///
    /// ```
    /// # use estafeta::{Failure, Job, Outcomes};
    /// async fn store(jobs: Vec<Job<i64>>) -> Result<Outcomes, Failure> {
    ///     let one = |job: Job<i64>| if job.body < 0 { Err(Failure::fatal("below zero")) } else { Ok(()) };
    ///     Ok(Outcomes::each(jobs.into_iter().map(one)))
    /// }
    /// ```
    pub fn each<O: Into<Outcome>>(outcomes: impl IntoIterator<Item = Result<O, Failure>>) -> Self {
        Self { each: Some(outcomes.into_iter().map(|outcome| outcome.map(Into::into)).collect()) }
    }

    /// The outcomes of this many messages.
    pub(crate) fn of(self, count: usize) -> Vec<Result<Outcome, Failure>> {
        match self.each {
            None => vec![Ok(Outcome::done()); count],
            Some(each) if each.len() == count => each,
            Some(each) => {
                let (expected, got) = (format_args!("one per message, {count} in all"), each.len());
                vec![Err(Failure::new(format_args!("outcomes: expected {expected}, got {got}"))); count]
            }
        }
    }
}

impl From<()> for Outcomes {
    fn from((): ()) -> Self {
        Self::done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_said_in_words() {
        let second = Duration::from_secs(1);
        let ring = "shop/mails".parse().unwrap();
        let outcome = Outcome::done().add("sold", 3).set("k", "v", None).set("t", "v", Some(second));
        let outcome = outcome.append("s", [("a", "b")], None).result("four", second).forward(&ring, "x");
        let words = "done; add 3 to sold; set k to 1 bytes; set t to 1 bytes for 1s; append 1 fields to s; result of 4 \
                     bytes for 1s; forward 1 bytes to shop/mails";
        assert_eq!(outcome.to_string(), words);
        assert_eq!(Outcome::snooze(second).carry("p").to_string(), "snooze for 1s; carry \"p\"");
    }
}
