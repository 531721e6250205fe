//! Publishes what the generator has gathered.
//!
//! If others have published since the last publish, `publish` numbers the messages anew, and the reply contains their
//! ids. The generator acts on each reply as follows:
//!
//! - *published*: continue. The reply also reports when the next tick is due, so the rhythm of the ticks survives
//!   take-overs.
//! - *behind*: Redis has lost messages that it acknowledged. That requires a new term.
//! - *full*: keep the messages and try again a little later. The source is not called meanwhile.
//! - *paused*: keep the messages and try again when the pause ends. A resume may come earlier, so try every 500 ms too.
//! - *limit*: send as many messages as the limit still allows. If it allows none, or not the whole batch, rest. The
//!   node keeps the office.
//! - *reused*: some messages have the keys of others. Publish them without their keys, marked so that a lane turns each
//!   into a dead letter. Everything else of the batch goes along, so a source is never held up by a key.
//! - *fenced*: the term is over. Drop the messages, which no other node has seen, and let the heartbeat find out more.

use std::time::{Duration, Instant};

use tracing::Instrument as _;

use super::gathering::Gathered;
use super::{Generator, LATE, TermOver, TermProgress};
use crate::error::Result;
use crate::identity::Identity;
use crate::node::state::ServerClock;
use crate::observer::Notice;
use crate::pack;
use crate::source::Source;
use crate::steps::{Dispatch, Publish, PublishTerms, Term};
use crate::trace;

/// The shortest and the longest pause while the queue is full.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// If a batch has to wait for room for so long, the handlers are slow.
const SLOW: Duration = Duration::from_millis(20);
/// How often the generator looks whether producing was resumed.
const RESUMING: Duration = Duration::from_millis(500);

impl<S: Source> Generator<S> {
    /// Publishes these messages. Waits for room, or for the end of a pause, if necessary. Returns false if the term is over.
    pub(super) async fn send(
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
        trace::connect(&span, gathered.messages.iter_mut());
        loop {
            let answer = self.publish(me, term, at, &gathered).instrument(span.clone()).await?;
            let messages = &mut gathered.messages;
            match answer {
                Publish::Published { first_id, due_ms, now_ms, duplicates } => {
                    at.n += 1;
                    at.waited = started.elapsed();
                    let mut positions = 0..;
                    messages.retain(|_| positions.next().is_some_and(|at| !duplicates.contains(&at)));
                    for (message, id) in messages.iter_mut().zip(first_id..) {
                        message.id = id;
                    }
                    trace::named(&span, messages);
                    trace::published(&span, messages.iter().map(|message| message.id));
                    at.next_id = first_id + messages.len() as u64;
                    at.due_ms = due_ms;
                    at.clock = ServerClock::new(now_ms);
                    let mut known = self.known.lock().expect("no panic while held");
                    known.acknowledge(at.born, term.epoch, at.next_id - 1);
                    drop(known);
                    if !messages.is_empty() {
                        self.observers.notice(Notice::Generated { messages });
                    }
                    return Ok(true);
                }
                Publish::Reused(positions) => {
                    for (position, terms) in gathered.terms.iter_mut().enumerate() {
                        if positions.contains(&position) {
                            *terms = PublishTerms::default();
                            messages[position] = messages[position].clone().reused();
                        }
                    }
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

    async fn publish(
        &mut self,
        me: Identity,
        term: &Term,
        at: &TermProgress,
        gathered: &Gathered,
    ) -> Result<Publish> {
        let Gathered { messages, terms, batch, .. } = gathered;
        let dispatch = Dispatch {
            epoch: term.epoch,
            n: at.n,
            first_id: at.next_id,
            messages,
            terms,
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
}
