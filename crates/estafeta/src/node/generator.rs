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
//! - *paused*: keep the messages and try again when the pause ends. A resume may come earlier, so try every 500 ms too.
//! - *limit*: send as many messages as the limit still allows. If it allows none, or not the whole batch, rest. The
//!   node keeps the office.
//! - *fenced*: the term is over. Drop the messages, which no other node has seen, and let the heartbeat find out more.
//!
//! A source that fails or panics does not end the node. The generator publishes what the source made before, reports
//! the failure, and tries again after a pause. Redis counts the failures, and ends the term after five in a row if
//! another node can take the office. If the office comes back, the generator pauses before it calls the source. A body
//! over the limit is published like any other, but cut to the limit, and with its real size in a header. A lane turns
//! the message into a dead letter. So ids have no gaps, and the source goes on.
//!
//! A source makes plain bodies or batches. The generator sends plain bodies together, as many as are ready. A batch is
//! one publish, with its checkpoint and its ticks. If the ring is full, the generator holds the batch and does not call
//! the source. At the start of a term, and after each failure, the source continues from what Redis holds. So a batch
//! that was dropped or refused is made again. If Redis holds another plan than that of the source, the generator first
//! replaces it, in a publish without messages.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::batch_size::MOST_BYTES;
use super::refusals::Refusals;
use super::ring_view::RingView;
use super::state::{MemberState, ServerClock};
use crate::config::Config;
use crate::error::Result;
use crate::failure::Failure;
use crate::handler::catch;
use crate::identity::{Epoch, Identity};
use crate::message::Message;
use crate::observer::{Notice, Observers};
use crate::pack;
use crate::redis::Store;
use crate::source::{Made, Plan, Progress, RawBatch, Source, SourceMessage};
use crate::steps::{Dispatch, Known, Publish, Reported, SourceFailure, Term, millis};
use crate::trace;

/// Ticks that are later than this count as missed. The generator makes up for other late ticks. Otherwise it could not
/// keep an interval shorter than a round trip.
const LATE: Duration = Duration::from_millis(100);
/// The generator waits no longer than this for a slow source, neither to fill a batch nor to get one more message.
const GATHERING: Duration = Duration::from_millis(2);
/// The pause after the first failure of a source. It doubles with each further failure, up to the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The shortest and the longest pause while the queue is full.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// If a batch has to wait for room for so long, the handlers are slow.
const SLOW: Duration = Duration::from_millis(20);
/// How often the generator looks whether producing was resumed.
const RESUMING: Duration = Duration::from_millis(500);
/// The pause after a batch with nothing in it, if no interval sets the pace.
const NOTHING_PAUSE: Duration = Duration::from_millis(10);

/// What a node gives to its generator.
pub(crate) struct GeneratorStart {
    pub(super) store: Store,
    pub(super) config: Arc<Config>,
    pub(super) observers: Arc<Observers>,
    pub(super) state: watch::Receiver<MemberState>,
    pub(super) refusals: Arc<Refusals>,
    /// What this node knows to be published.
    pub(super) known: Arc<Mutex<Known>>,
    /// Redis' clock, as the heartbeat last heard of it.
    pub(super) clock: watch::Receiver<ServerClock>,
    pub(super) quiet: CancellationToken,
}

pub(crate) struct Generator<S> {
    source: S,
    /// How often the source has failed since it last made a message, in any term.
    failures_in_a_row: u64,
    store: Store,
    config: Arc<Config>,
    observers: Arc<Observers>,
    state: watch::Receiver<MemberState>,
    refusals: Arc<Refusals>,
    known: Arc<Mutex<Known>>,
    /// What the source sees of the ring.
    view: RingView,
    quiet: CancellationToken,
}

/// What changes from one publish to the next.
struct TermProgress {
    n: u64,
    next_id: u64,
    due_ms: u64,
    clock: ServerClock,
    /// How many failures of the source were reported in this term.
    failures: u64,
    /// How long the last batch waited for room in the queue.
    waited: Duration,
}

/// What the source made for one publish, and why it made no more.
#[derive(Default)]
struct Gathered {
    messages: Vec<Message>,
    bytes: usize,
    /// What moves with the messages, if the source made a batch. A batch is never split.
    batch: Option<RawBatch>,
    failure: Option<Failure>,
}

impl Gathered {
    fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

impl<S: Source> Generator<S> {
    pub fn new(source: S, start: GeneratorStart) -> Self {
        let GeneratorStart { store, config, observers, state, refusals, known, clock, quiet } = start;
        let view = RingView::new(store.clone(), clock, config.max_waiting);
        Self { source, failures_in_a_row: 0, store, config, observers, state, refusals, known, view, quiet }
    }

    pub async fn run(mut self) -> Result<()> {
        let quiet = self.quiet.clone();
        loop {
            let (me, term, clock) = tokio::select! {
                () = quiet.cancelled() => return Ok(()),
                office = self.office() => office,
            };
            let epoch = term.epoch;
            let served = self.serve(me, term, clock, &quiet).await;
            let closed = catch("source", || async {
                self.source.close().await;
                Ok(())
            });
            if let Err(failure) = closed.await {
                tracing::warn!("the source could not be closed: {failure}");
            }
            served?;
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
        self.view.begin_term();
        let mut over = TermOver { state: self.state.clone(), epoch: term.epoch, quiet: quiet.clone() };
        let mut at = TermProgress {
            n: term.sent,
            next_id: term.published + 1,
            due_ms: term.due_ms,
            clock,
            failures: 0,
            waited: Duration::ZERO,
        };
        // The source failed last in an earlier term. Otherwise nodes with broken sources would pass the office round
        // without a pause.
        if self.failures_in_a_row > 0 {
            tokio::select! {
                () = over.wait() => return Ok(()),
                () = tokio::time::sleep(pause_after(self.failures_in_a_row)) => {}
            }
        }
        loop {
            let opened = tokio::select! {
                () = over.wait() => return Ok(()),
                opened = self.open(&term) => opened?,
            };
            let failure = match opened {
                Err(failure) => Some(failure),
                Ok(new_plan) => {
                    if let Some(plan) = new_plan {
                        let batch = RawBatch { plan: Some(plan), ..RawBatch::default() };
                        let gathered = Gathered { batch: Some(batch), ..Gathered::default() };
                        if !self.send(me, &term, &mut at, gathered, &mut over).await? {
                            return Ok(());
                        }
                    }
                    self.publish_until_failure(me, &term, &mut at, &mut over).await?
                }
            };
            let Some(failure) = failure else { return Ok(()) };
            if !self.report(me, &term, &mut at, &failure, &mut over).await? {
                return Ok(());
            }
        }
    }

    /// Has the source continue from what Redis holds. The caller is in office, so only it can change that. Returns the
    /// plan of the source if Redis holds another one.
    async fn open(&mut self, term: &Term) -> Result<Result<Option<Plan>, Failure>> {
        let (checkpoint, ticks) = self.store.progress().await?;
        let (stored, plan) = (self.store.plan().await?, self.source.plan());
        let opened = match Progress::read(term.epoch, checkpoint, ticks) {
            Ok(progress) => catch("source", || self.source.open(&progress)).await,
            Err(failure) => Err(failure),
        };
        let is_stored = plan.iter().map(|(name, text)| (name.as_bytes(), text.as_bytes()));
        let is_stored = is_stored.eq(stored.iter().map(|(name, text)| (&name[..], &text[..])));
        Ok(opened.map(|()| (!is_stored).then_some(plan)))
    }

    /// Publishes what the source makes. Returns None when the term is over.
    async fn publish_until_failure(
        &mut self,
        me: Identity,
        term: &Term,
        at: &mut TermProgress,
        over: &mut TermOver,
    ) -> Result<Option<Failure>> {
        loop {
            let mut gathered = tokio::select! {
                () = over.wait() => return Ok(None),
                gathered = self.gather(term, at) => gathered,
            };
            let failure = gathered.failure.take();
            if !gathered.messages.is_empty() || gathered.batch.is_some() {
                // Without messages and without an interval there is nothing to publish.
                let is_empty = |batch: &RawBatch| batch.is_empty() && gathered.messages.is_empty();
                if self.config.interval.is_zero() && gathered.batch.as_ref().is_some_and(is_empty) {
                    tokio::select! {
                        () = over.wait() => return Ok(None),
                        () = tokio::time::sleep(NOTHING_PAUSE) => {}
                    }
                } else {
                    let is_batch = gathered.batch.is_some();
                    let made_something = gathered.batch.as_ref().is_none_or(|batch| !is_empty(batch));
                    if !self.send(me, term, at, gathered, over).await? {
                        return Ok(None);
                    }
                    if is_batch {
                        let acknowledged = tokio::select! {
                            () = over.wait() => return Ok(None),
                            acknowledged = catch("source", || self.source.published()) => acknowledged,
                        };
                        if let Err(failure) = acknowledged {
                            return Ok(Some(failure));
                        }
                    }
                    if made_something {
                        self.failures_in_a_row = 0;
                    }
                }
            }
            if failure.is_some() {
                return Ok(failure);
            }
        }
    }

    /// Reports that the source failed, and pauses. Returns false if the term is over.
    async fn report(
        &mut self,
        me: Identity,
        term: &Term,
        at: &mut TermProgress,
        failure: &Failure,
        over: &mut TermOver,
    ) -> Result<bool> {
        self.failures_in_a_row += 1;
        at.failures += 1;
        let in_a_row = self.failures_in_a_row;
        let pause = pause_after(in_a_row);
        self.observers.notice(Notice::SourceFailed { reason: failure.reason(), in_a_row, pause });
        let failure = SourceFailure { epoch: term.epoch, n: at.failures, in_a_row, reason: failure.brief() };
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

    /// Publishes these messages. Waits for room, or for the end of a pause, if necessary. Returns false if the term is over.
    async fn send(
        &mut self,
        me: Identity,
        term: &Term,
        at: &mut TermProgress,
        mut gathered: Gathered,
        over: &mut TermOver,
    ) -> Result<bool> {
        // A refused batch costs Redis nearly as much as one that it takes. So the first pause is half as long as the batch
        // before had to wait.
        let mut pause = (at.waited / 2).clamp(SHORTEST_WAIT, LONGEST_WAIT);
        let started = Instant::now();
        let span = trace::publishing(&self.config.ring, gathered.messages.iter());
        loop {
            let answer = self.publish(me, term, at, &gathered).instrument(span.clone()).await?;
            let messages = &mut gathered.messages;
            match answer {
                Publish::Published { first_id, due_ms, now_ms } => {
                    at.n += 1;
                    at.waited = started.elapsed();
                    for (message, id) in messages.iter_mut().zip(first_id..) {
                        message.id = id;
                    }
                    trace::published(&span, messages.iter().map(|message| message.id));
                    at.next_id = first_id + messages.len() as u64;
                    at.due_ms = due_ms;
                    at.clock = ServerClock::new(now_ms);
                    let mut known = self.known.lock().expect("no panic while held");
                    known.learn(term.epoch, at.next_id - 1);
                    drop(known);
                    if !messages.is_empty() {
                        self.observers.notice(Notice::Generated { messages });
                    }
                    return Ok(true);
                }
                // The rest of the limit has no room for this batch, and there will never be more.
                Publish::Limit { .. } if gathered.batch.is_some() => {
                    self.rest();
                    over.wait().await;
                    return Ok(false);
                }
                Publish::Limit { published } => {
                    at.next_id = published + 1;
                    messages.truncate(usize::try_from(self.room(at)).unwrap_or(usize::MAX));
                    if messages.is_empty() {
                        return Ok(true);
                    }
                    for (message, id) in messages.iter_mut().zip(at.next_id..) {
                        message.id = id;
                    }
                }
                Publish::Fenced | Publish::Behind => {
                    self.refusals.report_epoch(term.epoch);
                    over.wait().await;
                    return Ok(false);
                }
                Publish::Paused { now_ms, end_ms } => {
                    at.clock = ServerClock::new(now_ms);
                    let left = Duration::from_millis(end_ms.saturating_sub(now_ms));
                    tokio::select! {
                        () = over.wait() => return Ok(false),
                        () = tokio::time::sleep(left.min(RESUMING)) => {}
                    }
                }
                Publish::Full { now_ms } => {
                    at.clock = ServerClock::new(now_ms);
                    tokio::select! {
                        () = over.wait() => return Ok(false),
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// Reports to the observer that the limit allows no more messages.
    fn rest(&self) {
        let limit = self.config.limit.unwrap_or_default();
        self.observers.notice(Notice::LimitReached { limit });
    }

    /// How many messages the limit still allows.
    fn room(&self, at: &TermProgress) -> u64 {
        self.config.limit.map_or(u64::MAX, |limit| (limit + 1).saturating_sub(at.next_id))
    }

    /// Waits for the next tick and makes its messages.
    async fn gather(&mut self, term: &Term, at: &TermProgress) -> Gathered {
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
        for message in std::mem::take(&mut batch.messages) {
            self.add(message, &mut gathered, term, at);
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

    async fn publish(
        &mut self,
        me: Identity,
        term: &Term,
        at: &TermProgress,
        gathered: &Gathered,
    ) -> Result<Publish> {
        let Gathered { messages, batch, .. } = gathered;
        let dispatch = Dispatch {
            epoch: term.epoch,
            n: at.n,
            first_id: at.next_id,
            messages,
            pack: if at.waited < SLOW { pack::MOST } else { pack::FEW },
            checkpoint: batch.as_ref().and_then(|batch| batch.checkpoint.as_deref()),
            ticks: batch.as_ref().map_or(&[], |batch| &batch.ticks),
            entry: batch.as_ref().and_then(|batch| batch.entry.as_deref()),
            plan: batch.as_ref().and_then(|batch| batch.plan.as_ref()),
            // A batch takes one tick, whatever is in it. Only a plan takes none.
            intervals: batch.as_ref().map_or(messages.len(), |batch| usize::from(batch.plan.is_none())),
            interval: self.config.interval,
            catch_up: self.config.catch_up,
            max_waiting: self.config.max_waiting,
            limit: self.config.limit.unwrap_or(0),
            lease: self.config.lease,
            late: LATE,
        };
        self.store.publish(me.incarnation, &dispatch).await
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

/// How long to pause after this many failures in a row.
fn pause_after(in_a_row: u64) -> Duration {
    let doublings = u32::try_from(in_a_row.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE)
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
