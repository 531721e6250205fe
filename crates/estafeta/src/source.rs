//! Where messages come from: what the elected node calls.
//!
//! [`Feed`](crate::Feed), [`Schedule`](crate::Schedule) and [`Every`](crate::Every) are the forms that users know. A
//! generator knows one of them as a [`Source`].

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::error::Result as NodeResult;
use crate::failure::Failure;
use crate::headers::Headers;
use crate::identity::Epoch;
use crate::node::{Generator, GeneratorStart, RingView};
use crate::steps::{Fields, PublishTerms};

/// The most messages of one batch.
pub(crate) const MAX_MESSAGES: usize = 1000;
/// The most bytes of all bodies and headers of one batch.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The largest checkpoint, in bytes.
pub(crate) const MAX_CHECKPOINT: usize = 64 * 1024;
/// The most ticks of one batch.
pub(crate) const MAX_TICKS: usize = 1000;
/// The longest name of a schedule entry, in bytes.
pub(crate) const MAX_NAME: usize = 512;

/// Makes the messages while this node is the generator.
pub(crate) trait Source: Send + 'static {
    /// Prepares the source for a term. The generator calls it when it has taken office, and again after each failure,
    /// before the next message.
    fn open(&mut self, from: &Progress) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Makes the next message or batch. The future is dropped when the node stops or loses its office. That of a plain
    /// body is also dropped when other messages are ready to go and this one is not.
    fn next(&mut self, ring: &mut RingView) -> impl Future<Output = Result<Made, Failure>> + Send;

    /// What it makes at which times, for people who look at the ring from outside. Empty if it has no times.
    fn plan(&self) -> Plan {
        Plan::new()
    }

    /// Redis has the last batch.
    fn published(&mut self) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Ok(()))
    }

    /// The term is over. Called once per term, unless the node dies.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The definitions of all entries of a schedule, by name.
pub(crate) type Plan = BTreeMap<String, String>;

/// A source of any type.
pub(crate) trait Produce: Send {
    /// Generates whenever this node is in office, until the node stops.
    fn run_generator(self: Box<Self>, start: GeneratorStart) -> BoxFuture<'static, NodeResult<()>>;
}

impl<S: Source> Produce for S {
    fn run_generator(self: Box<Self>, start: GeneratorStart) -> BoxFuture<'static, NodeResult<()>> {
        Box::pin(Generator::new(*self, start).run())
    }
}

/// What one call of a source made. A source makes always the same of the two.
pub(crate) enum Made {
    Message(SourceMessage),
    Batch(RawBatch),
}

/// A message before it has a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceMessage {
    pub headers: Headers,
    pub body: Bytes,
    pub terms: PublishTerms,
    /// The message was not made before this time of Redis' clock, whatever the generator believes.
    pub not_before_ms: u64,
}

impl From<Bytes> for SourceMessage {
    fn from(body: Bytes) -> Self {
        Self { body, ..Self::default() }
    }
}

/// Messages that are published in one step, together with a checkpoint and the last ticks of schedule entries: all of
/// it, or nothing. What a batch does not name stays as it is. A batch without messages may move a checkpoint or ticks.
///
/// A batch over one of the limits is a failure of its source. It is never split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawBatch {
    pub messages: Vec<SourceMessage>,
    pub checkpoint: Option<Bytes>,
    /// Names of schedule entries, and the last tick of each in milliseconds.
    pub ticks: Vec<(String, u64)>,
    /// The schedule entry that is open until all of these messages have an outcome.
    pub entry: Option<String>,
    /// What replaces the stored plan. Such a batch has no messages, and takes no tick of the interval.
    pub plan: Option<Plan>,
}

impl RawBatch {
    /// Whether it has neither messages nor anything to move.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses a batch that no step would publish. Bodies over `max_body` are cut before they are published.
    pub(crate) fn check(&self, max_body: usize, max_waiting: u64) -> Result<(), Failure> {
        let refuse = |what: &str, most: usize, unit: &str, found: usize| {
            Err(Failure::new(format_args!("{what}: expected at most {most} {unit}, got {found}")))
        };
        let room = usize::try_from(max_waiting).unwrap_or(usize::MAX);
        let size = |message: &SourceMessage| message.headers.bytes() + message.body.len().min(max_body);
        let bytes = self.messages.iter().map(size).sum();
        let checkpoint = self.checkpoint.as_ref().map_or(0, Bytes::len);
        let is_name = |name: &str| (1..=MAX_NAME).contains(&name.len());
        match (self.messages.len(), self.ticks.len()) {
            (count, _) if count > MAX_MESSAGES => refuse("batch", MAX_MESSAGES, "messages", count),
            // It would never fit into the ring.
            (count, _) if count > room => refuse("batch", room, "messages (max-waiting)", count),
            _ if bytes > MAX_BYTES => refuse("batch", MAX_BYTES, "bytes", bytes),
            _ if checkpoint > MAX_CHECKPOINT => refuse("checkpoint", MAX_CHECKPOINT, "bytes", checkpoint),
            (_, ticks) if ticks > MAX_TICKS => refuse("batch", MAX_TICKS, "ticks", ticks),
            _ => match self.ticks.iter().find(|(name, _)| !is_name(name)) {
                Some((name, _)) => Err(Failure::new(format_args!(
                    "name of a tick: expected 1 to {} bytes, got {}",
                    MAX_NAME,
                    name.len()
                ))),
                None => Ok(()),
            },
        }
    }
}

/// What the last published batches left in Redis, when a term begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The term that begins.
    pub epoch: Epoch,
    /// The last checkpoint, or None if there was none yet.
    pub checkpoint: Option<Vec<u8>>,
    /// The last tick of each schedule entry in milliseconds, by name.
    pub ticks: BTreeMap<String, u64>,
}

impl Progress {
    /// Reads what Redis holds. Another program may have written it.
    pub(crate) fn read(epoch: Epoch, checkpoint: Option<Vec<u8>>, stored: Fields) -> Result<Self, Failure> {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(ToOwned::to_owned);
        let tick = |(name, ms): (&Vec<u8>, &Vec<u8>)| Some((text(name)?, text(ms)?.parse().ok()?));
        let mut ticks = BTreeMap::new();
        for pair in &stored {
            let (name, ms) = tick(pair).ok_or_else(|| {
                let (name, ms) = (pair.0.escape_ascii(), pair.1.escape_ascii());
                Failure::new(format_args!("the last tick of '{name}' in Redis is no number: '{ms}'"))
            })?;
            ticks.insert(name, ms);
        }
        Ok(Self { epoch, checkpoint, ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_at_its_limits_is_accepted_and_one_beyond_a_limit_is_refused() {
        let bodies = |count: usize, size: usize| {
            let messages = vec![Bytes::from(vec![b'x'; size]).into(); count];
            RawBatch { messages, ..RawBatch::default() }
        };
        let checkpoint =
            |bytes: usize| RawBatch { checkpoint: Some(vec![0; bytes].into()), ..RawBatch::default() };
        let ticks = |count: u64| {
            let ticks = (0..count).map(|n| (n.to_string(), n)).collect();
            RawBatch { ticks, ..RawBatch::default() }
        };
        let named = |bytes| RawBatch { ticks: vec![("n".repeat(bytes), u64::MAX)], ..RawBatch::default() };
        let mut headers = Headers::new();
        headers.insert("n", "v").unwrap();
        let with_headers = |count: usize, size: usize| {
            let mut batch = bodies(count, size);
            batch.messages[0].headers = headers.clone();
            batch
        };
        let accepted = [
            bodies(1000, 0),
            with_headers(1, 1000),
            with_headers(4, 1024 * 1024 - 2),
            bodies(4, 1024 * 1024),
            checkpoint(64 * 1024),
            ticks(1000),
            named(512),
            // They are cut to a size at which they fit.
            bodies(4, 2 * 1024 * 1024),
        ];
        for batch in accepted {
            assert_eq!(batch.check(1024 * 1024, 1000), Ok(()));
        }
        let refused = [
            (bodies(1001, 0), "batch: expected at most 1000 messages, got 1001"),
            (bodies(5, 1024 * 1024), "batch: expected at most 4194304 bytes, got 5242880"),
            (with_headers(4, 1024 * 1024), "batch: expected at most 4194304 bytes, got 4194310"),
            (checkpoint(64 * 1024 + 1), "checkpoint: expected at most 65536 bytes, got 65537"),
            (ticks(1001), "batch: expected at most 1000 ticks, got 1001"),
            (named(0), "name of a tick: expected 1 to 512 bytes, got 0"),
            (named(513), "name of a tick: expected 1 to 512 bytes, got 513"),
        ];
        for (batch, reason) in refused {
            assert_eq!(batch.check(1024 * 1024, 2000).unwrap_err().reason(), reason);
        }
        let refused = bodies(10, 0).check(1, 9).unwrap_err();
        assert_eq!(refused.reason(), "batch: expected at most 9 messages (max-waiting), got 10");
    }

    #[test]
    fn a_tick_in_redis_that_is_no_number_is_a_failure() {
        let read = |ms: &str| Progress::read(Epoch(1), None, Fields::from([(b"a".to_vec(), ms.into())]));
        assert_eq!(read("7").unwrap().ticks, BTreeMap::from([("a".to_owned(), 7)]));
        let failure = read("x\n").unwrap_err();
        assert_eq!(failure.reason(), "the last tick of 'a' in Redis is no number: 'x\\n'");
        assert!(Progress::read(Epoch(1), None, Fields::from([(vec![0xff], b"1".to_vec())])).is_err());
    }
}
