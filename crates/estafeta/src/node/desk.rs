//! What a node has claimed, and when it makes its next turn.
//!
//! A node makes one step, `turn`, for all of its lanes. The desk is what they share. It holds the messages that were
//! claimed and not yet started (the pool), and the results that Redis has not recorded yet. A lane reports the result of
//! one message and takes the next in one short critical section. So a slow message holds up nobody: the other lanes take
//! what is in the pool, and their results are settled without it.
//!
//! The [`Clerk`](super::clerk::Clerk) makes the turns, one at a time. [`Desk::decide`] is the whole decision when to
//! make one. A turn settles every result that is ready, and claims for all free lanes. It is due
//!
//! - if a lane is free and messages wait in Redis, if the ring has called this node, or if it does not know yet that a
//!   lane is free;
//! - if messages wait, and half of the reserve is gone. The reserve is what the lanes handle in about ten milliseconds.
//!   The node claims it in advance if many messages wait, so that no lane pauses for a round trip;
//! - if a result is ten milliseconds old, or the last lane has finished. Results wait for company, because a step costs
//!   Redis the same for one and for a hundred. A crash repeats at most that much finished work;
//! - if the pool did not move for 50 milliseconds, because all lanes are busy with slow messages. What was claimed and
//!   not started goes back, so that other nodes can have it;
//! - if a delayed message is due, and this node is the first in the line of idle nodes;
//! - if the node stops handling or begins to.
//!
//! The desk also knows what each lane is busy with, and since when. [`Desk::watch`] finds the messages whose handlers take
//! too long. The handler of such a message is dropped by its lane. If it is still there a little later, it blocks its
//! thread. The desk then settles the message as failed and counts the lane as stuck. If the lane comes back, its result is
//! ignored.
//!
//! Messages travel in packs, and the desk settles a pack as a whole when its last message is done. If that takes longer
//! than ten milliseconds, it settles the part that is done. Redis then keeps the rest as single messages.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::batch_size::BatchSize;
use super::lane::timed_out;
use crate::config::Config;
use crate::keys::RingName;
use crate::message::Message;
use crate::observer::Postponed;
use crate::pack;
use crate::retry::Retry;
use crate::steps::{Disposition, NotDone, Part, Settlement};

/// How long a result may wait for company.
const SETTLING: Duration = Duration::from_millis(10);
/// How long messages may lie in the pool while no lane takes one.
const RETURNING: Duration = Duration::from_millis(50);
/// The pause before the next turn, if one claimed nothing although messages waited.
const RESTING: Duration = Duration::from_millis(10);

/// The share of the time limit after which a handler counts as slow.
const SLOW: f64 = 0.8;
/// How long a lane has to drop a handler whose time limit is over, as a share of the limit, and at least.
const DROPPING: f64 = 0.1;
const DROPPING_LEAST: Duration = Duration::from_millis(100);

/// An element that was claimed, with its messages. They stay in one place until they are settled, because moving each
/// of them from hand to hand would cost more than everything else that the desk does.
#[derive(Debug)]
struct Element {
    claim: u64,
    messages: Vec<Message>,
}

/// A message that was claimed.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    element: Arc<Element>,
    index: usize,
}

impl Claimed {
    pub fn message(&self) -> &Message {
        &self.element.messages[self.index]
    }

    fn claim(&self) -> u64 {
        self.element.claim
    }
}

/// A message with its outcome.
#[derive(Debug)]
pub(super) struct Handled {
    pub claimed: Claimed,
    /// What becomes of it. None if it is done.
    pub disposition: Option<Disposition>,
    pub took: Duration,
    pub at: Instant,
}

/// A message that a lane is busy with.
struct Running {
    claimed: Claimed,
    started: Instant,
}

/// The handlers that take too long.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The messages whose handlers have become slow since the last look.
    pub slow: Vec<Message>,
    /// The messages whose lanes have become stuck since the last look.
    pub stuck: Vec<Message>,
    /// When to look again.
    pub next: Option<Instant>,
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
pub(super) enum Next {
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

/// One turn, and the messages that it settles.
#[derive(Default)]
pub(super) struct Outgoing {
    pub settlement: Settlement,
    pub handled: Vec<Message>,
    pub failures: Vec<(usize, String)>,
    pub postponed: Vec<Postponed>,
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
    packs: HashMap<u64, HeldPack>,
    /// What the lanes are busy with, the longest first. Stuck lanes are not among them.
    running: VecDeque<Running>,
    /// How many of them are known to be slow. They are the first ones.
    slow: usize,
    time_limit: Duration,
    retry: Retry,
    /// How many stuck lanes Redis knows of.
    stuck_told: usize,
    idle: usize,
    /// Messages wait in Redis.
    waits: bool,
    /// The ring knows that this node has a free lane, and will call it. Or the node looks by itself.
    in_line: bool,
    /// A turn is due, whatever it brings.
    called: bool,
    /// When a turn is due because of a delayed message.
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
            packs: HashMap::new(),
            running: VecDeque::new(),
            slow: 0,
            time_limit: config.time_limit,
            retry: config.retry.clone(),
            stuck_told: 0,
            idle: 0,
            waits: false,
            in_line: false,
            called: true,
            due_at: None,
            handles: true,
            closed: false,
            moved_at: now,
            asked_at: now,
            wanted: 0,
            rests_until: None,
            batch_size: BatchSize::new(config.max_batch),
        };
        Self { state: Mutex::new(state), due: Notify::new(), work: Notify::new(), stuck }
    }

    /// Takes the result of a lane, if it has one, and gives it the next message.
    pub fn next(&self, handled: Option<Handled>, was_idle: bool, now: Instant) -> Next {
        let mut state = self.lock();
        state.idle -= usize::from(was_idle);
        let handled = self.take_back(&mut state, handled);
        if state.closed {
            // Each lane wakes the next one.
            self.work.notify_one();
            return Next::Closed;
        }
        let mut due = false;
        if let Some(handled) = handled {
            due = state.results.is_empty();
            state.results.push(handled);
        }
        let next = match state.pool.pop_front() {
            Some(claimed) => {
                state.running.push_back(Running { claimed: claimed.clone(), started: now });
                state.moved_at = now;
                // The clerk wakes the other lanes, never this one. It may block its thread at once, and tokio lets no
                // other thread run the last task that this thread has woken.
                due |= state.idle > 0 && !state.pool.is_empty();
                due |= state.waits && state.refills();
                Next::Handle(claimed)
            }
            None => {
                state.idle += 1;
                due = true;
                Next::Wait
            }
        };
        drop(state);
        if due {
            self.due.notify_one();
        }
        next
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
        let handled = handled?;
        let name = |claimed: &Claimed| (claimed.claim(), claimed.index);
        let is_it = |running: &Running| name(&running.claimed) == name(&handled.claimed);
        match state.running.iter().position(is_it) {
            Some(at) => {
                state.running.remove(at);
                state.slow -= usize::from(at < state.slow);
                Some(handled)
            }
            None => {
                self.stuck.fetch_sub(1, Ordering::Relaxed);
                // The ring learns of it with the next turn.
                state.called = true;
                self.due.notify_one();
                None
            }
        }
    }

    /// Looks for handlers that take too long. Settles the messages of those that block their lanes.
    pub fn watch(&self, now: Instant) -> Watched {
        let mut state = self.lock();
        let limit = state.time_limit;
        let slow_after = limit.mul_f64(SLOW);
        let stuck_after = limit + limit.mul_f64(DROPPING).max(DROPPING_LEAST);
        let mut watched = Watched::default();
        while let Some(running) = state.running.get(state.slow)
            && running.started + slow_after <= now
        {
            watched.slow.push(running.claimed.message().clone());
            state.slow += 1;
        }
        while state.running.front().is_some_and(|first| first.started + stuck_after <= now)
            && let Some(running) = state.running.pop_front()
        {
            state.slow = state.slow.saturating_sub(1);
            self.stuck.fetch_add(1, Ordering::Relaxed);
            watched.stuck.push(running.claimed.message().clone());
            let answer = Err(timed_out(limit));
            let disposition = state.retry.disposition(running.claimed.message(), answer, rand::random());
            let took = now - running.started;
            state.results.push(Handled { claimed: running.claimed, disposition, took, at: now });
        }
        let slow_at = state.running.get(state.slow).map(|running| running.started + slow_after);
        let stuck_at = state.running.front().map(|running| running.started + stuck_after);
        watched.next = slow_at.into_iter().chain(stuck_at).min();
        watched
    }

    /// The ring has called this node, or may have done so.
    pub fn call(&self) {
        self.lock().called = true;
    }

    /// The ring has told this node when a delayed message is due. A turn may have told an earlier time since.
    pub fn call_at(&self, at: Instant) {
        let mut state = self.lock();
        state.due_at = Some(state.due_at.map_or(at, |before| before.min(at)));
    }

    /// A turn has told when a delayed message is due, if this node is the one that waits for it.
    pub fn set_due(&self, at: Option<Instant>) {
        self.lock().due_at = at;
    }

    /// Ends the membership. What the lanes hold is no longer theirs.
    pub fn close(&self) {
        self.lock().closed = true;
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

    /// Puts what a turn brought into the pool.
    pub fn apply(
        &self,
        cursor: u64,
        claimed: u64,
        waits: bool,
        claims: Vec<(String, Vec<u8>)>,
        now: Instant,
    ) {
        let mut state = self.lock();
        state.apply(cursor, claimed, waits, claims, now);
        self.wake_lanes(state);
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
        let returns_at = (!self.pool.is_empty() && !duty.stops).then_some(self.moved_at + RETURNING);
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
            let settlement = &mut outgoing.settlement;
            settlement.want = self.batch_size.for_lanes(free);
            settlement.each = self.batch_size.each();
            let room = self.batch_size.most().saturating_sub(settlement.want);
            settlement.reserve = if returns { 0 } else { reserve.saturating_sub(self.pool.len()).min(room) };
            settlement.listens = self.poll.is_none();
            settlement.stuck = (stuck != self.stuck_told).then_some(stuck);
            self.stuck_told = stuck;
            self.called = false;
            self.due_at = None;
            self.wanted = settlement.want;
            self.asked_at = now;
            return Decision::Turn(outgoing.into());
        }
        if duty.stops && self.running.is_empty() && self.results.is_empty() {
            return Decision::Finished;
        }
        Decision::Wait(wakes_at)
    }

    /// Takes out the results that are ready, and what goes back if `returns`.
    fn outgoing(&mut self, now: Instant, settles_all: bool, returns: bool) -> Outgoing {
        let mut outgoing = Outgoing::default();
        outgoing.settlement.cursor = self.cursor;
        outgoing.settlement.seen = self.seen;
        let mut bytes = 0;
        let mut took = Duration::ZERO;
        let mut packs: HashMap<u64, (Vec<Handled>, Vec<Claimed>)> = HashMap::new();
        let mut results = std::mem::take(&mut self.results).into_iter().peekable();
        while let Some(handled) = results.next() {
            let claim = handled.claimed.claim();
            match self.packs.get(&claim) {
                Some(pack) if !pack.opened => {
                    // Results of one pack come mostly one after another. One search is enough for all of them.
                    let (settled, _) = packs.entry(claim).or_default();
                    settled.push(handled);
                    while let Some(next) = results.next_if(|next| next.claimed.claim() == claim) {
                        settled.push(next);
                    }
                }
                held => {
                    let name = name(&handled.claimed, held.is_some());
                    self.let_go(claim, 1);
                    bytes += handled.claimed.message().body().len();
                    took += handled.took;
                    outgoing.settle(&name, 0, handled);
                    outgoing.settlement.whole.push(name);
                    outgoing.settlement.count += 1;
                }
            }
        }
        if returns {
            for claimed in std::mem::take(&mut self.pool) {
                match self.packs.get(&claimed.claim()) {
                    Some(pack) if !pack.opened => packs.entry(claimed.claim()).or_default().1.push(claimed),
                    held => {
                        outgoing.settlement.returns.push(name(&claimed, held.is_some()));
                        self.let_go(claimed.claim(), 1);
                        outgoing.settlement.count += 1;
                    }
                }
            }
        }
        for (claim, (handled, back)) in packs {
            let pack = self.packs.get_mut(&claim).expect("looked up above");
            let aged = handled.first().is_some_and(|first| first.at + SETTLING <= now);
            let name = pack.name.clone();
            let whole = handled.len() == pack.messages;
            if !whole && !settles_all && !aged && back.is_empty() {
                self.results.extend(handled);
                continue;
            }
            if back.len() == pack.messages {
                outgoing.settlement.returns.push(name);
                outgoing.settlement.count += pack.size;
                self.packs.remove(&claim);
                continue;
            }
            for handled in &handled {
                bytes += handled.claimed.message().body().len();
                took += handled.took;
            }
            if whole {
                outgoing.settle_whole(&name, handled);
                outgoing.settlement.count += pack.size;
                outgoing.settlement.whole.push(name);
                self.packs.remove(&claim);
            } else {
                let mut part = Part { name, ..Part::default() };
                part.back.extend(back.iter().map(|claimed| claimed.index));
                for handled in handled {
                    part.settled.push(handled.claimed.index);
                    outgoing.settle(&part.name, handled.claimed.index, handled);
                }
                let gone = part.settled.len() + part.back.len();
                outgoing.settlement.count += gone;
                outgoing.settlement.parts.push(part);
                pack.opened = true;
                self.let_go(claim, gone);
            }
        }
        self.results.sort_by_key(|handled| handled.at);
        self.batch_size.record(outgoing.handled.len() + outgoing.postponed.len(), bytes, took);
        outgoing
    }

    /// Counts messages of a pack that leave the hand, and forgets the pack after its last one.
    fn let_go(&mut self, claim: u64, count: usize) {
        if let Some(pack) = self.packs.get_mut(&claim) {
            pack.left = pack.left.saturating_sub(count);
            if pack.left == 0 {
                self.packs.remove(&claim);
            }
        }
    }

    fn apply(
        &mut self,
        cursor: u64,
        claimed: u64,
        waits: bool,
        claims: Vec<(String, Vec<u8>)>,
        now: Instant,
    ) {
        let before = self.pool.len();
        // A claim that was told is the last one, or lies before it without a gap.
        let first = claimed + 1 - claims.len() as u64;
        self.rests_until = (waits && claims.is_empty()).then_some(now + RESTING);
        if !claims.is_empty() {
            self.moved_at = now;
        }
        for (claim, (name, element)) in (first..).zip(claims) {
            let mut messages = Vec::new();
            pack::read(&self.ring, element, &mut messages);
            if let Some((_, size)) = name.split_once('*') {
                let size = size.parse().unwrap_or(messages.len());
                let count = messages.len();
                let pack = HeldPack { size, messages: count, left: count, opened: false, name };
                self.packs.insert(claim, pack);
            }
            let count = messages.len();
            let element = Arc::new(Element { claim, messages });
            self.pool.extend((0..count).map(|index| Claimed { element: Arc::clone(&element), index }));
        }
        self.cursor = cursor;
        self.seen = claimed;
        self.waits = waits;
        self.in_line = self.wanted > self.pool.len() - before && !waits;
    }
}

impl Outgoing {
    /// Records the outcome of a message that lies at `index` of the element `name`.
    fn settle(&mut self, name: &str, index: usize, handled: Handled) {
        let Handled { claimed: Claimed { element, index: at }, disposition, .. } = handled;
        let message = match Arc::try_unwrap(element) {
            Ok(mut element) => element.messages.swap_remove(at),
            Err(shared) => shared.messages[at].clone(),
        };
        self.note(name, index, message, disposition);
    }

    /// Records the outcomes of all messages of an element.
    fn settle_whole(&mut self, name: &str, mut handled: Vec<Handled>) {
        // Most packs are done as a whole. Their messages move together.
        if handled.iter().any(|handled| handled.disposition.is_some()) {
            handled.sort_by_key(|handled| handled.claimed.index);
            for handled in handled {
                self.settle(name, handled.claimed.index, handled);
            }
            return;
        }
        let last = handled.pop().map(|last| last.claimed.element);
        drop(handled);
        match last.map(Arc::try_unwrap) {
            Some(Ok(element)) => self.handled.extend(element.messages),
            Some(Err(shared)) => self.handled.extend_from_slice(&shared.messages),
            None => {}
        }
    }

    fn note(&mut self, name: &str, index: usize, message: Message, disposition: Option<Disposition>) {
        match &disposition {
            None => self.handled.push(message),
            Some(Disposition::Fail { reason }) => {
                self.failures.push((self.handled.len(), reason.clone()));
                self.handled.push(message);
            }
            Some(Disposition::Retry { after, reason }) => {
                self.postponed.push(Postponed { message, after: *after, failure: Some(reason.clone()) });
            }
            Some(Disposition::Snooze { after, .. }) => {
                self.postponed.push(Postponed { message, after: *after, failure: None });
            }
        }
        if let Some(disposition) = disposition {
            self.settlement.not_done.push(NotDone { name: name.to_owned(), index, disposition });
        }
    }
}

/// The name of a single message in the member's hand. A message of a pack that was opened also has its index.
fn name(claimed: &Claimed, of_pack: bool) -> String {
    let claim = claimed.claim();
    if of_pack { format!("{claim}.{}", claimed.index) } else { claim.to_string() }
}
