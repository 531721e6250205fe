//! Makes the turns of a node, one at a time.
//!
//! The clerk always knows the identity under which the node claimed. `turn` settles results and claims the next
//! messages in one round trip. If the reply is lost, the store repeats the step. The cursor shows Redis that it already
//! has the results. The number of the last claim that the node has seen shows Redis which claims to return again.
//! `lost` means that the ring declared this member dead. The messages that it held are back in the queue and belong to
//! other members. The clerk then drops all results and waits for the node's next identity.
//!
//! An idle node waits for a call. `turn` puts a member with a free lane into a line if it finds the queue empty. The
//! step that brings a message calls the first in line, on a channel to which the work connection subscribes. A call
//! carries no message, so no message can be lost with it. After a reconnect, the clerk makes a turn by itself, because
//! a call may have been lost. If a called node is frozen, the generator's next sweep calls another one. A call can also
//! get lost without a sign, on a connection that is half open. So a node that has nothing to do makes a turn now and
//! then. A node that Redis cannot call, because the server or a proxy does not speak RESP3, looks for messages at short
//! intervals instead.
//!
//! The first node in that line also makes a turn when delayed messages are due, when a pause ends, and when a limit on
//! the rate allows claims again. It learns the time from its own turn, or by a message on its channel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::desk::{Decision, Desk, Duty, Outgoing, Watched};
use super::latency_log::LatencyLog;
use super::refusals::Refusals;
use super::state::{MemberState, ServerClock};
use crate::config::Config;
use crate::error::Result;
use crate::identity::Identity;
use crate::latency::Latencies;
use crate::observer::{Notice, Observers};
use crate::redis::Store;
use crate::steps::{Known, Turn};
use crate::trace;

/// How long a node waits for a call before it looks for messages by itself.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(crate) struct Clerk {
    pub store: Store,
    pub config: Arc<Config>,
    pub observers: Arc<Observers>,
    pub state: watch::Receiver<MemberState>,
    pub refusals: Arc<Refusals>,
    /// What this node knows to be published.
    pub known: Arc<Mutex<Known>>,
    /// What this node counts of waiting and handling times.
    pub latencies: Arc<LatencyLog>,
    /// Redis' clock.
    pub clock: watch::Receiver<ServerClock>,
    /// How many lanes of this node are stuck.
    pub stuck: Arc<AtomicUsize>,
    /// The desk of the current membership, for the lanes.
    pub desk: watch::Sender<Option<Arc<Desk>>>,
}

impl Clerk {
    pub async fn run(mut self, quiet: CancellationToken) -> Result<()> {
        loop {
            let me = tokio::select! {
                () = quiet.cancelled() => return Ok(()),
                me = self.identity() => me,
            };
            if self.work_as(me, &quiet).await? {
                return Ok(());
            }
            self.refusals.report_member(me.incarnation);
            tokio::select! {
                () = quiet.cancelled() => return Ok(()),
                () = self.other_than(me) => {}
            }
        }
    }

    /// Works under one identity. Returns true if the node stops, false if the ring no longer knows this identity.
    async fn work_as(&mut self, me: Identity, quiet: &CancellationToken) -> Result<bool> {
        let listens = self.config.presence && self.store.listen(me.incarnation).await?;
        let poll = (!listens).then_some(self.config.poll);
        let desk = Arc::new(Desk::new(&self.config, poll, Arc::clone(&self.stuck)));
        // The node may also give up on its clerk, at the deadline of a stop. Handlers must learn of that, too.
        let _over = desk.membership.clone().drop_guard();
        self.desk.send_replace(Some(Arc::clone(&desk)));
        let worked = self.make_turns(me, &desk, quiet).await;
        desk.close();
        worked
    }

    async fn make_turns(&mut self, me: Identity, desk: &Desk, quiet: &CancellationToken) -> Result<bool> {
        loop {
            let stops = quiet.is_cancelled();
            let state = self.state.borrow_and_update().clone();
            if !stops && state.identity() != Some(me) {
                return Ok(false);
            }
            let duty = Duty { handles: state.handles(self.config.generator_handles) && !stops, stops };
            let mut outgoing = match desk.decide(Instant::now(), duty) {
                Decision::Finished => return Ok(true),
                Decision::Turn(outgoing) => outgoing,
                Decision::Wait(until) => {
                    // After the decision: if the pool was empty then, the desk knows every message that a lane has.
                    let watched = self.watch(desk);
                    if !watched.stuck.is_empty() {
                        continue;
                    }
                    let looks_at = Instant::now() + LONGEST_WAIT;
                    let wakes_at = [until, watched.next].into_iter().flatten().fold(looks_at, Instant::min);
                    tokio::select! {
                        () = desk.due.notified() => {}
                        () = tokio::time::sleep_until(wakes_at.into()) => {
                            if wakes_at == looks_at && duty.handles {
                                desk.call();
                            }
                        }
                        () = self.store.connection().called() => desk.call(),
                        at = self.store.connection().announced() => desk.call_at(at),
                        () = changed(&mut self.state) => {}
                        () = quiet.cancelled(), if !stops => {}
                    }
                    continue;
                }
            };
            outgoing.settlement.both = self.config.generator_handles;
            if !outgoing.settlement.effects.is_empty() {
                outgoing.settlement.application = self.config.named_application();
                outgoing.settlement.partitions = self.config.partitions;
            }
            let settles = outgoing.handled.len() + outgoing.postponed.len();
            let postponed = outgoing.postponed.iter().map(|postponed| &postponed.message);
            let span = trace::settling(&self.config.ring, settles, outgoing.handled.iter().chain(postponed));
            let journal = self.config.journal;
            let turn = self.store.turn(me, &outgoing.settlement, journal);
            let mut turn = turn.instrument(span.clone()).await?;
            if let Turn::Forbidden { reason } = turn {
                outgoing.give_up_forwards(&self.config.ring, &format!("forward: Redis refuses it: {reason}"));
                let again = self.store.turn(me, &outgoing.settlement, journal);
                turn = again.instrument(span.clone()).await?;
            }
            let Turn::Applied { cursor, claimed, waits, due, paused, claims, bad } = turn else {
                return Ok(false);
            };
            let now = Instant::now();
            if let Some((epoch, id)) = desk.apply(cursor, claimed, waits, claims, now) {
                self.known.lock().expect("no panic while held").claim(epoch, id);
            }
            desk.set_paused(paused);
            desk.set_due(due.and_then(|due| now.checked_add(due)));
            outgoing.note_bad_effects(bad);
            self.note_times(&outgoing);
            let dead_letters = outgoing.failures.len();
            trace::settled(
                &span,
                outgoing.handled.len() - dead_letters,
                dead_letters,
                outgoing.postponed.len(),
            );
            if !outgoing.handled.is_empty() {
                let (messages, failures) = (&outgoing.handled[..], &outgoing.failures[..]);
                self.observers.notice(Notice::Settled { member: me.number, messages, failures });
            }
            if !outgoing.postponed.is_empty() {
                let messages = &outgoing.postponed[..];
                self.observers.notice(Notice::Postponed { member: me.number, messages });
            }
        }
    }

    /// Counts and reports how long messages waited, and how long their handlers took.
    fn note_times(&self, outgoing: &Outgoing) {
        if outgoing.handled.is_empty() && outgoing.postponed.is_empty() {
            return;
        }
        let times = outgoing.times(&self.clock.borrow());
        let (mut wait, mut handling) = (Latencies::default(), Latencies::default());
        for one in &times {
            handling.record(one.took);
            one.waited.iter().for_each(|waited| wait.record(*waited));
        }
        self.latencies.add(&wait, &handling);
        self.observers.notice(Notice::Timed { times: &times });
    }

    /// Reports handlers that take too long.
    fn watch(&self, desk: &Desk) -> Watched {
        let watched = desk.watch(Instant::now());
        for message in &watched.slow {
            self.observers.notice(Notice::HandlerSlow { message, limit: self.config.time_limit });
        }
        let stuck = self.stuck.load(Ordering::Relaxed);
        for (message, others) in watched.stuck.iter().zip((0..watched.stuck.len()).rev()) {
            self.observers.notice(Notice::HandlerStuck { message, stuck: stuck.saturating_sub(others) });
        }
        watched
    }

    async fn identity(&mut self) -> Identity {
        loop {
            if let Some(me) = self.state.borrow_and_update().identity() {
                return me;
            }
            changed(&mut self.state).await;
        }
    }

    async fn other_than(&mut self, me: Identity) {
        let other = |state: &MemberState| state.identity().is_some_and(|now| now != me);
        if self.state.wait_for(other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits until the node's state changes. Once the heartbeat has ended, the state never changes again. The node is about
/// to stop for that reason, and a clerk that ended as well would hide the reason.
async fn changed(state: &mut watch::Receiver<MemberState>) {
    if state.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
