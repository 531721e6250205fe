//! What a node has claimed, and when it makes its next turn.
//!
//! A node makes one step, `turn`, for all of its lanes. The desk is what they share. It holds the messages that were
//! claimed and not yet started (the pool), and the results that Redis has not recorded yet. A lane reports the result
//! of one message and takes the next in one short critical section. So a slow message holds up only itself: the other
//! lanes take what is in the pool, and their results are settled without it.
//!
//! The [`Clerk`](super::clerk::Clerk) makes the turns, one at a time. [`Desk::decide`] is the whole decision when to
//! make one. A turn settles every result that is ready, and claims for all free lanes. It is due
//!
//! - if the ring has called this node, or if a lane is free and messages wait in Redis or the node does not stand in
//!   the line of idle nodes yet;
//! - if messages wait, and half of the reserve is gone. The reserve is what the lanes handle in about ten milliseconds.
//!   The node claims it in advance if many messages wait, so that no lane pauses for a round trip;
//! - if a result is ten milliseconds old, or the last lane has finished. Results wait for other results, because a step
//!   costs Redis the same for one and for a hundred. A crash repeats at most that much finished work;
//! - if the pool did not move for 50 milliseconds, because all lanes are busy with slow messages. What was claimed and
//!   not started goes back, so that other nodes can have it;
//! - if a delayed message is due, a pause ends or the rate allows claims again, and this node is the first in the line
//!   of idle nodes;
//! - if handling is paused. What was claimed and not started goes back;
//! - if the node stops handling or begins to.
//!
//! The desk also knows what each lane is busy with, and since when. [`Desk::watch`] finds the messages whose handlers take
//! too long (`watch.rs`).
//!
//! Messages travel in packs, and the desk knows which message came in which pack (`outgoing.rs`).

mod outgoing;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(super) use outgoing::Outgoing;
pub(super) use watch::Watched;

use super::batch_size::BatchSize;
use crate::config::Config;
use crate::effects::Effects;
use crate::identity::Epoch;
use crate::keys::RingName;
use crate::message::Message;
use crate::pack;
use crate::retry::Retry;
use crate::steps::{Disposition, SUSPICIOUS};

/// How long a result may wait for company.
const SETTLING: Duration = Duration::from_millis(10);
/// How long messages may lie in the pool while no lane takes one.
const RETURNING: Duration = Duration::from_millis(50);
/// The pause before the next turn, if one claimed nothing although messages waited.
const RESTING: Duration = Duration::from_millis(10);

/// An element that was claimed, with its messages. They stay in one place until they are settled, because moving each
/// of them from hand to hand would cost more than everything else that the desk does.
#[derive(Debug)]
struct ClaimedElement {
    claim: u64,
    messages: Vec<Message>,
}

/// A message that was claimed.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    element: Arc<ClaimedElement>,
    index: usize,
}

impl Claimed {
    pub fn message(&self) -> &Message {
        &self.element.messages[self.index]
    }

    fn claim(&self) -> u64 {
        self.element.claim
    }

    fn is_suspect(&self) -> bool {
        self.message().deaths >= SUSPICIOUS
    }
}

/// A message with its outcome.
#[derive(Debug)]
pub(super) struct Handled {
    pub claimed: Claimed,
    /// What becomes of it. None if it is done.
    pub disposition: Option<Disposition>,
    /// What Redis writes in the step that settles it. Only a message that is done has effects.
    pub effects: Option<Box<Effects>>,
    pub took: Duration,
    pub at: Instant,
}

/// A message that a lane is busy with.
struct BusyLane {
    claimed: Claimed,
    started: Instant,
}

/// A pack in the member's hand.
struct HeldPack {
    name: String,
    /// The number of messages that Redis counts.
    size: usize,
    /// The messages that it really has. A broken pack is one foreign message.
    messages: usize,
    /// The number of messages that this node has not let go of yet.
    left: usize,
    /// Redis has opened the pack, because a part of it was settled or went back.
    opened: bool,
}

/// What a lane does next.
pub(super) enum NextTask {
    Handle(Claimed),
    /// Nothing to do. The lane waits for [`Desk::work`].
    Wait,
    /// The membership is over.
    Closed,
}

/// What the clerk does next.
pub(super) enum Decision {
    Turn(Box<Outgoing>),
    /// Wait until then, unless something happens before.
    Wait(Option<Instant>),
    /// The node stops, and every result is recorded.
    Finished,
}

/// What the node may do at the moment.
#[derive(Clone, Copy)]
pub(super) struct Duty {
    /// The node claims messages.
    pub handles: bool,
    /// The node stops. Its lanes start no further message.
    pub stops: bool,
}

pub(super) struct Desk {
    state: Mutex<DeskState>,
    /// Signals the clerk that a turn may be due.
    pub due: Notify,
    /// Signals a lane that the pool has a message.
    pub work: Notify,
    /// How many lanes of this node are stuck, at this desk or at a former one.
    stuck: Arc<AtomicUsize>,
    /// Cancelled when the membership ends.
    pub membership: CancellationToken,
}

struct DeskState {
    ring: RingName,
    lanes: usize,
    /// How often to look for messages if the ring cannot call this node.
    poll: Option<Duration>,
    cursor: u64,
    seen: u64,
    pool: VecDeque<Claimed>,
    results: Vec<Handled>,
    /// How many suspects the node holds: messages that several members died with.
    suspects: usize,
    packs: HashMap<u64, HeldPack>,
    /// What the lanes are busy with, the longest first. Stuck lanes are not among them.
    running: VecDeque<BusyLane>,
    /// How many of them are known to be slow. They are the first ones.
    slow: usize,
    time_limit: Duration,
    retry: Retry,
    max_deaths: u32,
    /// How many stuck lanes Redis knows of.
    stuck_reported: usize,
    idle: usize,
    /// Messages wait in Redis.
    waits: bool,
    /// The ring knows that this node has a free lane, and will call it. Or the node looks by itself.
    in_line: bool,
    /// A turn is due, whatever it brings.
    called: bool,
    /// Handling is paused, as far as this node knows.
    paused: bool,
    /// When a turn is due because of a delayed message, the end of a pause, or the rate.
    due_at: Option<Instant>,
    handles: bool,
    closed: bool,
    /// When a lane last took a message, or the pool was filled.
    moved_at: Instant,
    asked_at: Instant,
    /// How many messages the last turn asked for.
    wanted: usize,
    rests_until: Option<Instant>,
    batch_size: BatchSize,
}

impl Desk {
    /// A desk for a new membership. `poll` is given if the ring cannot call this node.
    pub fn new(config: &Config, poll: Option<Duration>, stuck: Arc<AtomicUsize>) -> Self {
        let now = Instant::now();
        let state = DeskState {
            ring: config.ring.clone(),
            lanes: config.concurrency,
            poll,
            cursor: 0,
            seen: 0,
            pool: VecDeque::new(),
            results: Vec::new(),
            suspects: 0,
            packs: HashMap::new(),
            running: VecDeque::new(),
            slow: 0,
            time_limit: config.time_limit,
            retry: config.retry.clone(),
            max_deaths: config.max_deaths,
            stuck_reported: 0,
            idle: 0,
            waits: false,
            in_line: false,
            called: true,
            paused: false,
            due_at: None,
            handles: true,
            closed: false,
            moved_at: now,
            asked_at: now,
            wanted: 0,
            rests_until: None,
            batch_size: BatchSize::new(config.max_batch),
        };
        let membership = CancellationToken::new();
        Self { state: Mutex::new(state), due: Notify::new(), work: Notify::new(), stuck, membership }
    }

    /// Takes the result of a lane, if it has one, and gives it the next message.
    pub fn next(&self, handled: Option<Handled>, was_idle: bool, now: Instant) -> NextTask {
        let mut state = self.lock();
        state.idle -= usize::from(was_idle);
        let handled = self.take_back(&mut state, handled);
        if state.closed {
            // Each lane wakes the next one.
            self.work.notify_one();
            return NextTask::Closed;
        }
        let mut due = false;
        if let Some(handled) = handled {
            due = state.results.is_empty();
            state.results.push(handled);
        }
        let next = match state.pool.pop_front() {
            Some(claimed) => {
                state.running.push_back(BusyLane { claimed: claimed.clone(), started: now });
                state.moved_at = now;
                // The clerk wakes the other lanes, never this one. It may block its thread at once, and tokio lets no
                // other thread run the last task that this thread has woken.
                due |= state.idle > 0 && !state.pool.is_empty();
                due |= state.waits && state.refills();
                NextTask::Handle(claimed)
            }
            None => {
                state.idle += 1;
                due = true;
                NextTask::Wait
            }
        };
        drop(state);
        if due {
            self.due.notify_one();
        }
        next
    }

    /// Takes back a message that a lane could not handle. Another lane may take it. If none does, it returns to the queue
    /// like any message that no lane has started. The lane that gives it back is not idle: it rests.
    pub fn put_back(&self, claimed: Claimed, now: Instant) {
        let mut state = self.lock();
        if self.stops_running(&mut state, &claimed) && !state.closed {
            if state.pool.is_empty() {
                state.moved_at = now;
            }
            state.pool.push_front(claimed);
        }
        drop(state);
        self.due.notify_one();
    }

    /// Takes the last result of a lane that stops, if it has one.
    pub fn finish(&self, handled: Option<Handled>, was_idle: bool) {
        let mut state = self.lock();
        state.idle -= usize::from(was_idle);
        let handled = self.take_back(&mut state, handled);
        if let Some(handled) = handled.filter(|_| !state.closed) {
            state.results.push(handled);
        }
        drop(state);
        self.due.notify_one();
    }

    /// Notes that a lane is no longer busy. Returns its result, unless the message was settled without it.
    fn take_back(&self, state: &mut DeskState, handled: Option<Handled>) -> Option<Handled> {
        handled.filter(|handled| self.stops_running(state, &handled.claimed))
    }

    /// Notes that a lane is no longer busy with a message. Returns false if the message was settled without the lane.
    fn stops_running(&self, state: &mut DeskState, claimed: &Claimed) -> bool {
        let name = |claimed: &Claimed| (claimed.claim(), claimed.index);
        let at = state.running.iter().position(|running| name(&running.claimed) == name(claimed));
        match at {
            Some(at) => {
                state.running.remove(at);
                state.slow -= usize::from(at < state.slow);
            }
            None => {
                self.stuck.fetch_sub(1, Ordering::Relaxed);
                // The ring learns of it with the next turn.
                state.called = true;
                self.due.notify_one();
            }
        }
        at.is_some()
    }

    /// The ring has called this node, or may have done so.
    pub fn call(&self) {
        self.lock().called = true;
    }

    /// The ring has announced when this node must make a turn. A turn may have reported an earlier time since.
    pub fn call_at(&self, at: Instant) {
        let mut state = self.lock();
        state.due_at = Some(state.due_at.map_or(at, |before| before.min(at)));
    }

    /// A turn has reported when this node must make the next one, if it is the one that waits for that time.
    pub fn set_due(&self, at: Option<Instant>) {
        self.lock().due_at = at;
    }

    /// A turn has reported whether handling is paused.
    pub fn set_paused(&self, paused: bool) {
        self.lock().paused = paused;
    }

    /// Ends the membership. What the lanes hold is no longer theirs.
    pub fn close(&self) {
        self.lock().closed = true;
        self.membership.cancel();
        self.work.notify_one();
    }

    pub fn decide(&self, now: Instant, duty: Duty) -> Decision {
        let stuck = self.stuck.load(Ordering::Relaxed);
        let mut state = self.lock();
        let decision = state.decide(now, duty, stuck);
        self.wake_lanes(state);
        decision
    }

    /// Wakes as many idle lanes as there are messages in the pool.
    fn wake_lanes(&self, state: MutexGuard<'_, DeskState>) {
        let wake = state.idle.min(state.pool.len());
        drop(state);
        for _ in 0..wake {
            self.work.notify_one();
        }
    }

    /// Puts what a turn brought into the pool. Returns the epoch and the id of the latest message of a generator in it.
    pub fn apply(
        &self,
        cursor: u64,
        claimed: u64,
        waits: bool,
        claims: Vec<(String, Vec<u8>)>,
        now: Instant,
    ) -> Option<(Epoch, u64)> {
        let mut state = self.lock();
        let latest = state.apply(cursor, claimed, waits, claims, now);
        self.wake_lanes(state);
        latest
    }

    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().expect("no panic while held")
    }
}

impl DeskState {
    /// Whether the pool has fallen to half of the reserve.
    fn refills(&self) -> bool {
        let reserve = self.batch_size.reserve(self.lanes);
        reserve > 0 && self.pool.len() == reserve / 2
    }

    fn decide(&mut self, now: Instant, duty: Duty, stuck: usize) -> Decision {
        if self.handles != duty.handles {
            self.handles = duty.handles;
            self.called = true;
        }
        let free = if duty.handles { self.idle.saturating_sub(self.pool.len()) } else { 0 };
        let reserve = if duty.handles { self.batch_size.reserve(self.lanes) } else { 0 };
        let all_done = self.running.is_empty() && self.pool.is_empty();
        let settles_at = self
            .results
            .first()
            .map(|first| if all_done || !duty.handles { now } else { first.at + SETTLING });
        let returns_at = if self.paused { now } else { self.moved_at + RETURNING };
        let returns_at = (!self.pool.is_empty() && !duty.stops).then_some(returns_at);
        let asks_at = match self.poll {
            _ if free == 0 => None,
            _ if self.waits || !self.in_line => Some(self.rests_until.unwrap_or(now)),
            Some(poll) => Some(self.asked_at + poll),
            None => None,
        };
        let due_at = self.due_at.filter(|_| duty.handles);
        let wakes_at = [settles_at, returns_at, asks_at, due_at].into_iter().flatten().min();
        // If no lane has taken a message for a while, all of them are busy with slow ones.
        let moves = self.moved_at + RETURNING > now && self.rests_until.is_none();
        let refills = self.waits && moves && reserve > 0 && self.pool.len() <= reserve / 2;
        if self.called || refills || wakes_at.is_some_and(|at| at <= now) {
            let returns = returns_at.is_some_and(|at| at <= now);
            let mut outgoing = self.outgoing(now, !duty.handles || all_done, returns);
            // What is left goes first. Otherwise lanes that are faster than their effects would pile up results.
            let (is_full, settlement) = (outgoing.is_full, &mut outgoing.settlement);
            settlement.want = if is_full { 0 } else { self.batch_size.for_lanes(free) };
            settlement.each = self.batch_size.each();
            let room = self.batch_size.most().saturating_sub(settlement.want);
            let reserve = if returns || is_full { 0 } else { reserve.saturating_sub(self.pool.len()) };
            settlement.reserve = reserve.min(room);
            settlement.listens = self.poll.is_none();
            settlement.has_suspect = self.suspects > 0;
            settlement.stuck = (stuck != self.stuck_reported).then_some(stuck);
            self.stuck_reported = stuck;
            self.called = is_full;
            self.due_at = None;
            self.wanted = settlement.want;
            self.asked_at = now;
            return Decision::Turn(outgoing.into());
        }
        if duty.stops && self.running.is_empty() && self.results.is_empty() {
            // Under the same lock. Otherwise a lane could still start a message, and its result would get lost.
            self.closed = true;
            return Decision::Finished;
        }
        Decision::Wait(wakes_at)
    }

    fn apply(
        &mut self,
        cursor: u64,
        claimed: u64,
        waits: bool,
        claims: Vec<(String, Vec<u8>)>,
        now: Instant,
    ) -> Option<(Epoch, u64)> {
        let mut latest = None;
        // The epoch of a message from outside the ring is the time at which it was published.
        let is_generated = |message: &&Message| message.epoch.0 != message.published_ms;
        let before = self.pool.len();
        // A claim that was shown is the last one, or lies before it without a gap.
        let first = claimed + 1 - claims.len() as u64;
        self.rests_until = (waits && claims.is_empty()).then_some(now + RESTING);
        if !claims.is_empty() {
            self.moved_at = now;
        }
        for (claim, (name, element)) in (first..).zip(claims) {
            let mut messages = Vec::new();
            pack::read(&self.ring, element, &mut messages);
            self.suspects += messages.iter().filter(|message| message.deaths >= SUSPICIOUS).count();
            if let Some((_, size)) = name.split_once('*') {
                let size = size.parse().unwrap_or(messages.len());
                let count = messages.len();
                let pack = HeldPack { size, messages: count, left: count, opened: false, name };
                self.packs.insert(claim, pack);
            }
            let last = messages.last().filter(is_generated);
            latest = latest.max(last.map(|message| (message.epoch, message.id)));
            let count = messages.len();
            let element = Arc::new(ClaimedElement { claim, messages });
            self.pool.extend((0..count).map(|index| Claimed { element: Arc::clone(&element), index }));
        }
        self.cursor = cursor;
        self.seen = claimed;
        self.waits = waits;
        self.in_line = self.wanted > self.pool.len() - before && !waits;
        latest
    }
}
