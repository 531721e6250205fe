//! Makes the messages while this node is in office.
//!
//! A term is a loop of two steps: gather what the source makes (`gathering.rs`), and publish it (`sending.rs`). This file
//! has the terms, and what happens if the source fails.
//!
//! A source that fails or panics does not end the node. The generator publishes what the source made before, reports
//! the failure, and tries again after a pause. Redis counts the failures, and ends the term after five in a row if
//! another node can take the office. If the office comes back, the generator pauses before it calls the source.
//!
//! At the start of a term, and after each failure, the source continues from what Redis holds. So a batch that was dropped
//! or refused is made again. If Redis holds another plan than that of the source, the generator first replaces it, in a
//! publish without messages.

mod gathering;
mod sending;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::refusals::Refusals;
use super::ring_view::RingView;
use super::state::{MemberState, ServerClock};
use crate::config::Config;
use crate::error::Result;
use crate::failure::Failure;
use crate::handler::catch;
use crate::identity::{Epoch, Identity};
use crate::observer::{Notice, Observers};
use crate::redis::Store;
use crate::source::{Plan, Progress, RawBatch, Source};
use crate::steps::{Known, Reported, SourceFailure, Term};
use gathering::Gathered;

/// Ticks that are later than this count as missed. The generator makes up for other late ticks. Otherwise it could not
/// keep an interval shorter than a round trip.
const LATE: Duration = Duration::from_millis(100);
/// The pause after the first failure of a source. It doubles with each further failure, up to the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
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
    /// When the ring of this term began.
    born: u64,
    n: u64,
    next_id: u64,
    due_ms: u64,
    clock: ServerClock,
    /// How many failures of the source were reported in this term.
    failures: u64,
    /// How long the last batch waited for room in the queue.
    waited: Duration,
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
        let known = *self.known.lock().expect("no panic while held");
        let mut at = TermProgress {
            born: known.born,
            n: term.sent,
            // An old server may have acknowledged more while this term began. The first publish is then `behind`.
            next_id: term.published.max(known.published) + 1,
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

    /// Reports to the observer that the limit allows no more messages.
    fn rest(&self) {
        let limit = self.config.limit.unwrap_or_default();
        self.observers.notice(Notice::LimitReached { limit });
    }

    /// How many messages the limit still allows.
    fn room(&self, at: &TermProgress) -> u64 {
        self.config.limit.map_or(u64::MAX, |limit| (limit + 1).saturating_sub(at.next_id))
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
