//! A publisher outside the ring. It writes down what it is about to do, and what Redis answered.
//!
//! A publisher that was killed does not know whether its last call arrived. If the messages of that call have keys, the
//! next process repeats the call, as any careful caller would. Without keys, the messages may have been published or
//! not, but only all of them or none.

use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{Config, Draft, Error, Publisher, Receipt};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio_util::sync::CancellationToken;

use super::message_plan::MessagePlan;
use super::worker::WorkerOptions;
use crate::record::{RecordLine, Recorder, Step};

/// How long a call is repeated while Redis cannot be reached.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait before the next try to connect, or to repeat a call that Redis refused.
const PAUSE: Duration = Duration::from_millis(50);
/// Most messages of a batch.
const BATCH: usize = 20;
/// The longest delay, in milliseconds.
const LONGEST_DELAY: u64 = 1500;

/// Publishes until `stop` is cancelled. `past` is what earlier processes of this publisher recorded.
pub async fn run(
    config: &Config,
    options: &WorkerOptions,
    past: &[RecordLine],
    recorder: &Recorder,
    stop: &CancellationToken,
) -> Result<()> {
    let publisher = connect(config, stop).await?;
    let Some(publisher) = publisher else { return Ok(()) };
    let (last_call, unanswered) = resume(past);
    let seed = options.seed ^ options.number << 32 ^ last_call;
    let mut user = User {
        publisher,
        recorder,
        number: options.number,
        seed: options.seed,
        call: last_call,
        random: SmallRng::seed_from_u64(seed),
    };
    for messages in unanswered {
        user.publish(&messages).await?;
    }
    while !stop.is_cancelled() {
        user.act(stop).await?;
        let pause = Duration::from_millis(user.random.random_range(0..15));
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
    Ok(())
}

/// Connects to Redis, however long that takes. Returns None if it was asked to stop.
async fn connect(config: &Config, stop: &CancellationToken) -> Result<Option<Publisher>> {
    while !stop.is_cancelled() {
        match Publisher::of(config).await {
            Err(Error::Unreachable { .. } | Error::Refused { .. }) => tokio::time::sleep(PAUSE).await,
            connected => return Ok(Some(connected?)),
        }
    }
    Ok(None)
}

/// Messages of one call: the key of each, if it has one, and its body.
type Messages = Vec<(Option<String>, String)>;

/// The number of the last call, and the messages with keys whose call has no answer.
fn resume(past: &[RecordLine]) -> (u64, Vec<Messages>) {
    let (mut last_call, mut unanswered) = (0, Vec::<(u64, Messages)>::new());
    for line in past {
        match &line.step {
            Step::Submits { call, messages } => {
                last_call = last_call.max(*call);
                // A repeat replaces its first try.
                unanswered.retain(|(_, earlier)| earlier != messages);
                if messages.iter().all(|(key, _)| key.is_some()) {
                    unanswered.push((*call, messages.clone()));
                }
            }
            Step::Receipts { call, .. } | Step::Refused { call } => {
                unanswered.retain(|(other, _)| other != call)
            }
            Step::Cancels { call, .. } => last_call = last_call.max(*call),
            _ => {}
        }
    }
    (last_call, unanswered.into_iter().map(|(_, messages)| messages).collect())
}

/// One user of a publisher, who does one thing after another.
struct User<'a> {
    publisher: Publisher,
    recorder: &'a Recorder,
    number: u64,
    seed: u64,
    /// The number of the last call.
    call: u64,
    random: SmallRng,
}

impl User<'_> {
    async fn act(&mut self, stop: &CancellationToken) -> Result<()> {
        let several = self.random.random_range(2..=BATCH);
        match self.random.random_range(0..8) {
            0 => {
                let messages = self.messages(1, false);
                self.publish(&messages).await?;
            }
            1 => {
                let messages = self.messages(1, true);
                self.publish_again(&messages).await?;
            }
            2 => {
                let messages = self.messages(several, false);
                self.publish(&messages).await?;
            }
            3 => {
                let messages = self.messages(several, true);
                self.publish_again(&messages).await?;
            }
            4 => self.publish_twice_at_once().await?,
            5 => self.publish_what_others_publish().await?,
            keyed => self.publish_and_cancel(keyed == 6, stop).await?,
        }
        Ok(())
    }

    /// Messages that no other call has. Some of them are delayed.
    fn messages(&mut self, count: usize, keyed: bool) -> Messages {
        let one = |index: usize| {
            let name = format!("p{}-{}-{index}", self.number, self.call + 1);
            let mut plan = MessagePlan::random(&mut self.random, name.clone());
            if self.random.random_bool(0.3) {
                plan = plan.delayed(delay(&mut self.random));
            }
            (keyed.then_some(name), plan.to_string())
        };
        (0..count).map(one).collect()
    }

    /// Publishes messages with keys, and often once more.
    async fn publish_again(&mut self, messages: &Messages) -> Result<()> {
        self.publish(messages).await?;
        if self.random.random() {
            self.publish(messages).await?;
        }
        Ok(())
    }

    /// Two calls with the same message are on their way at the same time.
    async fn publish_twice_at_once(&mut self) -> Result<()> {
        let messages = self.messages(1, true);
        let (first, second) = (self.next_call(), self.next_call());
        let (publisher, recorder) = (&self.publisher, self.recorder);
        let publish = |call| publish(publisher, recorder, call, &messages);
        let (first, second) = tokio::try_join!(publish(first), publish(second))?;
        if first.or(second).is_none() {
            self.publish(&messages).await?;
        }
        Ok(())
    }

    /// The other publishers publish the same message with the same key.
    async fn publish_what_others_publish(&mut self) -> Result<()> {
        let number = self.call / 8;
        let key = format!("shared-{number}");
        let mut random = SmallRng::seed_from_u64(self.seed ^ number);
        let plan = MessagePlan::random(&mut random, key.clone());
        self.publish(&vec![(Some(key), plan.to_string())]).await?;
        Ok(())
    }

    /// Publishes a delayed message and cancels it after a while, which may be too late. A key whose message was cancelled
    /// is free again.
    async fn publish_and_cancel(&mut self, keyed: bool, stop: &CancellationToken) -> Result<()> {
        let name = format!("p{}-{}-0", self.number, self.call + 1);
        let delay = delay(&mut self.random);
        let plan = MessagePlan::random(&mut self.random, name.clone()).delayed(delay);
        let key = keyed.then(|| name.clone());
        let receipts = self.publish(&vec![(key.clone(), plan.to_string())]).await?;
        let Some(receipt) = receipts.first().copied() else { return Ok(()) };
        let share = self.random.random_range(0.0..1.3);
        stop.run_until_cancelled(tokio::time::sleep(delay.mul_f64(share))).await;
        let call = self.next_call();
        self.recorder.write(Step::Cancels { call, id: receipt.id });
        let cancelled = match &key {
            Some(key) => self.publisher.cancel_key(key).await,
            None => self.publisher.cancel(receipt.id).await,
        };
        let is_cancelled = match cancelled {
            // Nobody knows whether it was cancelled. A refusal may concern the repeat of a call that arrived.
            Err(Error::Unreachable { .. } | Error::Refused { .. }) => return Ok(()),
            cancelled => cancelled.with_context(|| format!("cannot cancel {name}"))?,
        };
        self.recorder.write(Step::Cancelled { call, is_cancelled });
        if is_cancelled && key.is_some() {
            let plan = MessagePlan::random(&mut self.random, format!("{name}-new"));
            self.publish(&vec![(key, plan.to_string())]).await?;
        }
        Ok(())
    }

    fn next_call(&mut self) -> u64 {
        self.call += 1;
        self.call
    }

    /// Publishes messages. Repeats a call that has no answer if the messages have keys.
    async fn publish(&mut self, messages: &Messages) -> Result<Vec<Receipt>> {
        loop {
            let call = self.next_call();
            match publish(&self.publisher, self.recorder, call, messages).await? {
                Some(receipts) => return Ok(receipts),
                None if messages.iter().any(|(key, _)| key.is_none()) => return Ok(Vec::new()),
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

fn delay(random: &mut SmallRng) -> Duration {
    Duration::from_millis(random.random_range(1..=LONGEST_DELAY))
}

/// Makes one call. Returns None if nobody knows whether the messages were published.
async fn publish(
    publisher: &Publisher,
    recorder: &Recorder,
    call: u64,
    messages: &Messages,
) -> Result<Option<Vec<Receipt>>> {
    recorder.write(Step::Submits { call, messages: messages.clone() });
    let drafts = messages.iter().map(|(key, body)| {
        let draft = Draft::new(body.clone().into_bytes());
        let draft = key.iter().fold(draft, |draft, key| draft.key(key));
        let delay_ms = MessagePlan::parse(body).map_or(0, |plan| plan.delay_ms);
        draft.delay(Duration::from_millis(delay_ms))
    });
    let receipts = match publisher.publish_all(drafts).patient(PATIENCE).await {
        Ok(receipts) => receipts,
        // Redis may be busy or loading. A refusal may concern the repeat of a call that arrived.
        Err(Error::Unreachable { .. } | Error::Refused { .. }) => return Ok(None),
        // Redis may have lost that the earlier message with this key was cancelled. The judge knows.
        Err(Error::KeyReused { .. }) => {
            recorder.write(Step::Refused { call });
            return Ok(Some(Vec::new()));
        }
        Err(error) => return Err(error).context("a publish was refused"),
    };
    let answered = receipts.iter().map(|receipt| (receipt.id, receipt.duplicate)).collect();
    recorder.write(Step::Receipts { call, receipts: answered });
    Ok(Some(receipts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_repeats_only_calls_with_keys_that_have_no_answer() {
        let line = |step| RecordLine { at_ms: 1, step };
        let keyed = |name: &str| vec![(Some(name.to_owned()), format!("{name}/done"))];
        let submits = |call, messages| line(Step::Submits { call, messages });
        let past = [
            submits(1, keyed("a")),
            line(Step::Receipts { call: 1, receipts: vec![(1, false)] }),
            submits(2, keyed("b")),
            submits(3, vec![(None, "c/done".to_owned())]),
            submits(4, keyed("d")),
            line(Step::Cancels { call: 5, id: 1 }),
            line(Step::Started { pid: 2 }),
            submits(6, keyed("b")),
        ];
        assert_eq!(resume(&past), (6, vec![keyed("d"), keyed("b")]));
        assert_eq!(resume(&[]), (0, vec![]));
        let again = [&past[..], &[line(Step::Receipts { call: 6, receipts: vec![(2, true)] })]].concat();
        assert_eq!(resume(&again), (6, vec![keyed("d")]));
    }
}
