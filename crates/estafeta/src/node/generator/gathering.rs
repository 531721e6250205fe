//! Makes the messages of one publish from what the source makes.
//!
//! A source makes plain bodies or batches. The generator sends plain bodies together, as many as are ready. A batch is
//! one publish, with its checkpoint and its ticks.
//!
//! The generator numbers its messages by what it knows: the next id from `lead` and from its own publishes. A body over
//! the limit is published like any other, but cut to the limit, and with its real size in a header. A lane turns the
//! message into a dead letter. So ids have no gaps, and the source goes on.

use std::pin::pin;
use std::time::{Duration, Instant};

use super::{Generator, LATE, TermProgress};
use crate::error::Result;
use crate::failure::Failure;
use crate::handler::catch;
use crate::message::Message;
use crate::node::batch_size::MOST_BYTES;
use crate::source::{Made, RawBatch, Source, SourceMessage};
use crate::steps::{PublishTerms, Term, millis};

/// The generator waits no longer than this for a slow source, neither to fill a batch nor to get one more message.
const GATHERING: Duration = Duration::from_millis(2);

/// What the source made for one publish, and why it made no more.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) messages: Vec<Message>,
    /// Keys and delays of the messages. Empty if no message has any.
    pub(super) terms: Vec<PublishTerms>,
    pub(super) bytes: usize,
    /// What moves with the messages, if the source made a batch. A batch is never split.
    pub(super) batch: Option<RawBatch>,
    pub(super) failure: Option<Failure>,
}

impl Gathered {
    fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

impl<S: Source> Generator<S> {
    /// Waits for the next tick and makes its messages.
    pub(super) async fn gather(&mut self, term: &Term, at: &TermProgress) -> Gathered {
        let room = self.room(at);
        if room == 0 {
            self.rest();
            std::future::pending::<()>().await;
        }
        let most = self.ticks_due(at).await.min(room) as usize;
        let asked = Instant::now();
        let mut gathered = match self.next().await {
            Ok(Made::Batch(batch)) => return self.one_batch(batch, term, at),
            Ok(Made::Message(message)) => {
                let mut gathered = Gathered { messages: Vec::with_capacity(most), ..Gathered::default() };
                self.add(message, &mut gathered, term, at);
                gathered
            }
            Err(failure) => return Gathered::failed(failure),
        };
        // If the generator had to wait for the first message, it sends that message at once.
        if asked.elapsed() < GATHERING {
            let mut patience = pin!(tokio::time::sleep_until((asked + GATHERING).into()));
            while gathered.messages.len() < most && gathered.bytes < MOST_BYTES {
                let made = tokio::select! {
                    biased;
                    made = self.next() => made,
                    () = &mut patience => break,
                };
                match made {
                    Ok(Made::Message(message)) => {
                        if self.add(message, &mut gathered, term, at) >= asked + GATHERING {
                            break;
                        }
                    }
                    Ok(Made::Batch(_)) => unreachable!("what a source makes has one type"),
                    Err(failure) => {
                        gathered.failure = Some(failure);
                        break;
                    }
                }
            }
        }
        gathered
    }

    async fn next(&mut self) -> Result<Made, Failure> {
        catch("source", || self.source.next(&mut self.view)).await
    }

    /// Numbers a message. Returns the time at which it did so.
    fn add(&self, made: SourceMessage, gathered: &mut Gathered, term: &Term, at: &TermProgress) -> Instant {
        let now = Instant::now();
        let (id, ms) = (at.next_id + gathered.messages.len() as u64, at.clock.ms_at(now));
        let ms = ms.max(made.not_before_ms);
        let message = Message::new(&self.config.ring, id, term.epoch, ms, made.body)
            .with_headers(made.headers)
            .cut(self.config.max_body);
        gathered.bytes += message.body().len();
        gathered.messages.push(message);
        now
    }

    /// Makes the messages of a batch, or refuses it as a whole.
    fn one_batch(&self, mut batch: RawBatch, term: &Term, at: &TermProgress) -> Gathered {
        if let Err(failure) = batch.check(self.config.max_body, self.config.max_waiting) {
            return Gathered::failed(failure);
        }
        let mut gathered = Gathered::default();
        for mut message in std::mem::take(&mut batch.messages) {
            gathered.terms.push(std::mem::take(&mut message.terms));
            self.add(message, &mut gathered, term, at);
        }
        if gathered.terms.iter().all(PublishTerms::is_plain) {
            gathered.terms.clear();
        }
        gathered.batch = Some(batch);
        gathered
    }

    /// Waits until a tick is due and returns how many messages may be sent at once.
    async fn ticks_due(&mut self, at: &TermProgress) -> u64 {
        let interval = millis(self.config.interval);
        // A batch that needs most of the room would have to wait until the handlers have nothing left to do.
        let most = (self.config.max_batch as u64).min((self.config.max_waiting / 4).max(1));
        if interval == 0 {
            return most;
        }
        tokio::time::sleep_until(at.clock.instant(at.due_ms).into()).await;
        let late = at.clock.ms_at(Instant::now()).saturating_sub(at.due_ms);
        if !self.config.catch_up && Duration::from_millis(late) > LATE {
            return 1;
        }
        (1 + late / interval).min(most)
    }
}
