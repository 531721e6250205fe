//! What one turn lets go of: the call, and what the node reports to its observers when Redis has recorded it.
//!
//! A pack is settled as a whole when its last message is done. If that takes longer than ten milliseconds, the part that
//! is done is settled. Redis then keeps the rest as single messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Claimed, DeskState, Handled, SETTLING};
use crate::effects;
use crate::keys::RingName;
use crate::message::Message;
use crate::node::state::ServerClock;
use crate::observer::{HandlingResult, HandlingTimes, Postponed};
use crate::steps::{BadEffects, Disposition, MessageEffects, NotDone, Part, Settlement};

/// One turn, and the messages that it settles.
#[derive(Default)]
pub(in crate::node) struct Outgoing {
    pub settlement: Settlement,
    pub handled: Vec<Message>,
    pub failures: Vec<(usize, String)>,
    pub postponed: Vec<Postponed>,
    /// When the handler of each message in `handled` began, and how long it took.
    handled_runs: Vec<HandlerRun>,
    /// The same for each message in `postponed`.
    postponed_runs: Vec<HandlerRun>,
    /// Where the messages with effects are in `handled`.
    with_effects: Vec<usize>,
    /// What the effects of this turn cost so far.
    cost: usize,
    /// Some results have to wait for the next turn, because this one has no room for their effects.
    pub(super) is_full: bool,
}

impl Outgoing {
    /// Whether the effects of a message fit into this turn. If they do, they count from now on.
    pub(super) fn has_room_for(&mut self, handled: &Handled) -> bool {
        let cost = self.cost + handled.effects.as_ref().map_or(0, |effects| effects.cost());
        let fits = self.cost == 0 || cost <= effects::MOST_BYTES_OF_TURN;
        if fits {
            self.cost = cost;
        }
        self.is_full |= !fits;
        fits
    }

    /// Makes dead letters of the messages that are forwarded to rings other than this one, because the node may not write
    /// there.
    pub fn give_up_forwards(&mut self, ring: &RingName, reason: &str) {
        let effects = std::mem::take(&mut self.settlement.effects);
        for (message, at) in effects.into_iter().zip(std::mem::take(&mut self.with_effects)) {
            if message.effects.leave(ring) {
                let MessageEffects { name, index, .. } = message;
                let disposition = Disposition::Fail { reason: reason.to_owned(), died: false };
                self.settlement.not_done.push(NotDone { name, index, disposition });
                self.failures.push((at, reason.to_owned()));
            } else {
                self.settlement.effects.push(message);
                self.with_effects.push(at);
            }
        }
    }

    /// Notes which messages became dead letters because Redis refused their effects.
    pub fn note_bad_effects(&mut self, bad: Vec<BadEffects>) {
        for BadEffects { position, reason } in bad {
            self.failures.extend(self.with_effects.get(position).map(|at| (*at, reason)));
        }
        self.failures.sort_by_key(|(at, _)| *at);
    }

    /// How long each message waited and its handler took, and what became of it.
    pub fn times(&self, clock: &ServerClock) -> Vec<HandlingTimes> {
        let settled = self.handled_runs.iter().map(|run| run.times(clock, HandlingResult::Done));
        let mut times: Vec<_> = settled.collect();
        for (at, _) in &self.failures {
            times.get_mut(*at).into_iter().for_each(|one| one.result = HandlingResult::Failed);
        }
        times.extend(self.postponed_runs.iter().zip(&self.postponed).map(|(run, postponed)| {
            let is_snooze = postponed.failure.is_none();
            run.times(clock, if is_snooze { HandlingResult::Snoozed } else { HandlingResult::Retried })
        }));
        times
    }

    /// Records the outcome of a message that lies at `index` of the element `name`.
    pub(super) fn settle(&mut self, name: &str, index: usize, handled: Handled) {
        let run = HandlerRun::of(&handled);
        let Handled { claimed: Claimed { element, index: at }, disposition, effects, .. } = handled;
        let message = match Arc::try_unwrap(element) {
            Ok(mut element) => element.messages.swap_remove(at),
            Err(shared) => shared.messages[at].clone(),
        };
        if let Some(effects) = effects {
            self.with_effects.push(self.handled.len());
            let (name, id) = (name.to_owned(), message.id);
            self.settlement.effects.push(MessageEffects { name, index, id, effects });
        }
        self.note(name, index, message, disposition, run);
    }

    /// Records the outcomes of all messages of an element.
    pub(super) fn settle_whole(&mut self, name: &str, mut handled: Vec<Handled>) {
        // Most packs are done as a whole. Their messages move together.
        if handled.iter().any(|handled| handled.disposition.is_some() || handled.effects.is_some()) {
            handled.sort_by_key(|handled| handled.claimed.index);
            for handled in handled {
                self.settle(name, handled.claimed.index, handled);
            }
            return;
        }
        self.handled_runs.extend(handled.iter().map(HandlerRun::of));
        let last = handled.pop().map(|last| last.claimed.element);
        drop(handled);
        match last.map(Arc::try_unwrap) {
            Some(Ok(element)) => self.handled.extend(element.messages),
            Some(Err(shared)) => self.handled.extend_from_slice(&shared.messages),
            None => {}
        }
    }

    fn note(
        &mut self,
        name: &str,
        index: usize,
        message: Message,
        disposition: Option<Disposition>,
        run: HandlerRun,
    ) {
        match &disposition {
            None | Some(Disposition::Fail { .. }) => self.handled_runs.push(run),
            Some(_) => self.postponed_runs.push(run),
        }
        match &disposition {
            None => {
                if message.is_of_open_entry() {
                    self.settlement.ends.push(name.to_owned());
                }
                self.handled.push(message);
            }
            Some(Disposition::Fail { reason, .. }) => {
                self.failures.push((self.handled.len(), reason.clone()));
                self.handled.push(message);
            }
            Some(Disposition::Retry { after, reason } | Disposition::Die { after, reason }) => {
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

/// When a handler began, and how long it took.
struct HandlerRun {
    started: Instant,
    took: Duration,
    /// When its message was published, in ms of Redis' clock. None if it was delivered before.
    published_ms: Option<u64>,
}

impl HandlerRun {
    fn of(handled: &Handled) -> Self {
        let Handled { took, at, .. } = *handled;
        let message = handled.claimed.message();
        let published_ms = (message.delivery == 1 && message.id > 0).then_some(message.published_ms);
        Self { started: at.checked_sub(took).unwrap_or(at), took, published_ms }
    }

    fn times(&self, clock: &ServerClock, result: HandlingResult) -> HandlingTimes {
        let started_ms = clock.ms_at(self.started);
        let since = |published_ms| Duration::from_millis(started_ms.saturating_sub(published_ms));
        HandlingTimes { waited: self.published_ms.map(since), took: self.took, result }
    }
}

impl DeskState {
    /// Takes out the results that are ready, and what goes back if `returns`.
    pub(super) fn outgoing(&mut self, now: Instant, settles_all: bool, returns: bool) -> Outgoing {
        let mut outgoing = Outgoing::default();
        outgoing.settlement.cursor = self.cursor;
        outgoing.settlement.seen = self.seen;
        let mut bytes = 0;
        let mut took = Duration::ZERO;
        let mut packs: HashMap<u64, (Vec<Handled>, Vec<Claimed>)> = HashMap::new();
        let mut results = std::mem::take(&mut self.results).into_iter().peekable();
        while let Some(handled) = results.next() {
            if handled.effects.is_some() && !outgoing.has_room_for(&handled) {
                self.results.push(handled);
                continue;
            }
            let claim = handled.claimed.claim();
            match self.packs.get(&claim) {
                Some(pack) if !pack.opened => {
                    // Results of one pack come mostly one after another. One search is enough for all of them.
                    let (settled, _) = packs.entry(claim).or_default();
                    settled.push(handled);
                    let is_next = |next: &Handled| next.claimed.claim() == claim && next.effects.is_none();
                    while let Some(next) = results.next_if(is_next) {
                        settled.push(next);
                    }
                }
                held => {
                    let name = name(&handled.claimed, held.is_some());
                    self.suspects -= usize::from(handled.claimed.is_suspect());
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
                        self.suspects -= usize::from(claimed.is_suspect());
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
}

/// The name of a single message in the member's hand. A message of a pack that was opened also has its index.
fn name(claimed: &Claimed, of_pack: bool) -> String {
    let claim = claimed.claim();
    if of_pack { format!("{claim}.{}", claimed.index) } else { claim.to_string() }
}
