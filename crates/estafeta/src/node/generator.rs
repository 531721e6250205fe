//! Makes the messages while this node is in office.
//!
//! The generator numbers its messages by what it knows: the next id from `lead` and from its own publishes. If others
//! have published in between, `publish` numbers the messages anew, and the reply contains their ids. The generator acts
//! on each reply as follows:
//!
//! - *published*: continue. The reply also reports when the next tick is due, so the rhythm of the ticks survives
//!   take-overs.
//! - *behind*: Redis has lost messages that it acknowledged. That requires a new term.
//! - *full*: keep the messages and try again a little later.
//! - *limit*: send as many messages as the limit still allows. If it allows none, rest. The node keeps the office.
//! - *fenced*: the term is over. Drop the messages, which no other node has seen, and let the heartbeat find out more.
//!
//! A source that fails or panics does not end the node. The generator publishes what the source made before, reports the
//! failure, and tries again after a pause. Redis counts the failures, and ends the term after five in a row if another
//! node can take the office. A body over the limit is published like any other, cut to the limit and with a header that
//! says so. A lane turns it into a dead letter. So ids have no gaps, and the source goes on.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::batch_size::MOST_BYTES;
use super::refusals::Refusals;
use super::state::{MemberState, ServerClock};
use crate::config::{Config, Missed};
use crate::error::Result;
use crate::handler::{Failure, catch};
use crate::identity::{Epoch, Identity};
use crate::message::Message;
use crate::observer::{Notice, Observer};
use crate::redis::Store;
use crate::source::Source;
use crate::steps::{Batch, Known, Publish, Reported, SourceFailure, Term};

/// Ticks that are later than this count as missed. The generator makes up for other late ticks. Otherwise it could not
/// keep an interval shorter than a round trip.
const LATE: Duration = Duration::from_millis(100);
/// The generator waits no longer than this for a slow source, neither to fill a batch nor to get one more message.
const GATHERING: Duration = Duration::from_millis(2);
/// The pause after the first failure of a source. It doubles with each further failure, up to the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct Generator<S, O> {
    pub store: Store,
    pub config: Arc<Config>,
    pub source: S,
    pub observer: Arc<O>,
    pub state: watch::Receiver<MemberState>,
    pub refusals: Arc<Refusals>,
    /// What this node knows to be published.
    pub known: Arc<Mutex<Known>>,
    /// How often the source has failed since it last made a message, in any term.
    pub failures_in_a_row: u64,
}

/// What changes from one publish to the next.
struct Progress {
    n: u64,
    next_id: u64,
    due_ms: u64,
    clock: ServerClock,
    /// How many failures of the source were reported in this term.
    failures: u64,
}

/// What the source made for one publish, and why it made no more.
#[derive(Default)]
struct Gathered {
    messages: Vec<Message>,
    bytes: usize,
    failure: Option<Failure>,
}

impl<S: Source, O: Observer> Generator<S, O> {
    pub async fn run(mut self, quiet: CancellationToken) -> Result<()> {
        loop {
            let (me, term, clock) = tokio::select! {
                () = quiet.cancelled() => return Ok(()),
                office = self.office() => office,
            };
            let epoch = term.epoch;
            self.serve(me, term, clock, &quiet).await?;
            if quiet.is_cancelled() {
                return self.store.resign(me.incarnation, epoch).await;
            }
        }
    }

    /// Publishes until the term is over or the node stops.
    async fn serve(
        &mut self,
        me: Identity,
        term: Term,
        clock: ServerClock,
        quiet: &CancellationToken,
    ) -> Result<()> {
        let mut over = TermOver { state: self.state.clone(), epoch: term.epoch, quiet: quiet.clone() };
        let mut progress =
            Progress { n: term.sent, next_id: term.published + 1, due_ms: term.due_ms, clock, failures: 0 };
        loop {
            let Gathered { messages, failure, .. } = tokio::select! {
                () = over.wait() => return Ok(()),
                gathered = self.gather(&term, &progress) => gathered,
            };
            if !messages.is_empty() {
                self.failures_in_a_row = 0;
                if !self.send(me, &term, &mut progress, messages, &mut over).await? {
                    return Ok(());
                }
            }
            if let Some(failure) = failure
                && !self.report(me, &term, &mut progress, &failure, &mut over).await?
            {
                return Ok(());
            }
        }
    }

    /// Reports that the source failed, and pauses. Returns false if the term is over.
    async fn report(
        &mut self,
        me: Identity,
        term: &Term,
        progress: &mut Progress,
        failure: &Failure,
        over: &mut TermOver,
    ) -> Result<bool> {
        self.failures_in_a_row += 1;
        progress.failures += 1;
        let in_a_row = self.failures_in_a_row;
        let doublings = u32::try_from(in_a_row - 1).unwrap_or(u32::MAX);
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE);
        self.observer.notice(Notice::SourceFailed { reason: failure.reason(), in_a_row, pause });
        let failure =
            SourceFailure { epoch: term.epoch, n: progress.failures, in_a_row, reason: failure.brief() };
        match self.store.report(me.incarnation, &failure).await? {
            Reported::Noted => tokio::select! {
                () = over.wait() => Ok(false),
                () = tokio::time::sleep(pause) => Ok(true),
            },
            Reported::Over => {
                self.refusals.report_epoch(term.epoch);
                over.wait().await;
                Ok(false)
            }
        }
    }

    /// Publishes these messages, and waits for room if necessary. Returns false if the term is over.
    async fn send(
        &mut self,
        me: Identity,
        term: &Term,
        progress: &mut Progress,
        mut messages: Vec<Message>,
        over: &mut TermOver,
    ) -> Result<bool> {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.publish(me, term, progress, &messages).await? {
                Publish::Published { first_id, due_ms, now_ms } => {
                    progress.n += 1;
                    for (message, id) in messages.iter_mut().zip(first_id..) {
                        message.id = id;
                    }
                    progress.next_id = first_id + messages.len() as u64;
                    progress.due_ms = due_ms;
                    progress.clock = ServerClock::new(now_ms);
                    let mut known = self.known.lock().expect("no panic while held");
                    known.learn(term.epoch, progress.next_id - 1);
                    drop(known);
                    self.observer.notice(Notice::Generated { messages: &messages });
                    return Ok(true);
                }
                Publish::Limit { published } => {
                    progress.next_id = published + 1;
                    messages.truncate(usize::try_from(self.room(progress)).unwrap_or(usize::MAX));
                    if messages.is_empty() {
                        return Ok(true);
                    }
                    for (message, id) in messages.iter_mut().zip(progress.next_id..) {
                        message.id = id;
                    }
                }
                Publish::Fenced | Publish::Behind => {
                    self.refusals.report_epoch(term.epoch);
                    over.wait().await;
                    return Ok(false);
                }
                Publish::Full { now_ms } => {
                    progress.clock = ServerClock::new(now_ms);
                    tokio::select! {
                        () = over.wait() => return Ok(false),
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
            }
        }
    }

    /// How many messages the limit still allows.
    fn room(&self, progress: &Progress) -> u64 {
        self.config.limit.map_or(u64::MAX, |limit| (limit + 1).saturating_sub(progress.next_id))
    }

    /// Waits for the next tick and makes its messages.
    async fn gather(&mut self, term: &Term, progress: &Progress) -> Gathered {
        let room = self.room(progress);
        if room == 0 {
            let limit = self.config.limit.unwrap_or_default();
            self.observer.notice(Notice::LimitReached { limit });
            std::future::pending::<()>().await;
        }
        let most = self.ticks_due(progress).await.min(room) as usize;
        let asked = Instant::now();
        let mut gathered = Gathered { messages: Vec::with_capacity(most), ..Gathered::default() };
        let body = self.next_body().await;
        self.add(body, &mut gathered, term, progress);
        // If the generator had to wait for the first message, it sends that message at once.
        if asked.elapsed() < GATHERING {
            let mut patience = pin!(tokio::time::sleep_until((asked + GATHERING).into()));
            while gathered.failure.is_none() && gathered.messages.len() < most && gathered.bytes < MOST_BYTES
            {
                let body = tokio::select! {
                    biased;
                    body = self.next_body() => body,
                    () = &mut patience => break,
                };
                if self.add(body, &mut gathered, term, progress) >= asked + GATHERING {
                    break;
                }
            }
        }
        gathered
    }

    async fn next_body(&mut self) -> Result<Vec<u8>, Failure> {
        catch("source", || self.source.next()).await
    }

    /// Makes a message from a body, or keeps the failure. Returns the time at which it did so.
    fn add(
        &self,
        body: Result<Vec<u8>, Failure>,
        gathered: &mut Gathered,
        term: &Term,
        progress: &Progress,
    ) -> Instant {
        let now = Instant::now();
        match body {
            Ok(body) => {
                let (id, ms) = (progress.next_id + gathered.messages.len() as u64, progress.clock.ms_at(now));
                let message = Message::new(&self.config.ring, id, term.epoch, ms, body);
                let message = message.cut(self.config.max_body);
                gathered.bytes += message.body().len();
                gathered.messages.push(message);
            }
            Err(failure) => gathered.failure = Some(failure),
        }
        now
    }

    /// Waits until a tick is due and returns how many messages may be sent at once.
    async fn ticks_due(&mut self, progress: &Progress) -> u64 {
        let interval = u64::try_from(self.config.interval.as_millis()).unwrap_or(u64::MAX);
        // A batch that needs most of the room would have to wait until the handlers have nothing left to do.
        let most = (self.config.max_batch as u64).min((self.config.max_waiting / 4).max(1));
        if interval == 0 {
            return most;
        }
        tokio::time::sleep_until(progress.clock.instant(progress.due_ms).into()).await;
        let late = progress.clock.ms_at(Instant::now()).saturating_sub(progress.due_ms);
        if self.config.missed == Missed::Skip && Duration::from_millis(late) > LATE {
            return 1;
        }
        (1 + late / interval).min(most)
    }

    async fn publish(
        &mut self,
        me: Identity,
        term: &Term,
        progress: &Progress,
        messages: &[Message],
    ) -> Result<Publish> {
        let batch = Batch {
            epoch: term.epoch,
            n: progress.n,
            messages,
            interval: self.config.interval,
            catch_up: self.config.missed == Missed::CatchUp,
            max_waiting: self.config.max_waiting,
            limit: self.config.limit.unwrap_or(0),
            lease: self.config.lease,
            late: LATE,
        };
        self.store.publish(me.incarnation, &batch).await
    }

    /// Waits until this node is in office.
    async fn office(&mut self) -> (Identity, Term, ServerClock) {
        loop {
            if let MemberState::Generator(me, term, clock) = &*self.state.borrow_and_update() {
                return (*me, term.clone(), *clock);
            }
            if self.state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// The end of a term: the node stops, or the heartbeat has found that the office is lost or renewed.
struct TermOver {
    state: watch::Receiver<MemberState>,
    epoch: Epoch,
    quiet: CancellationToken,
}

impl TermOver {
    async fn wait(&mut self) {
        let over = |state: &MemberState| state.epoch() != Some(self.epoch);
        tokio::select! {
            () = self.quiet.cancelled() => {}
            _ = self.state.wait_for(over) => {}
        }
    }
}
