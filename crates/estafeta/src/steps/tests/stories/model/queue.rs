//! The path of a message (publish, claim, settle) and of an error (take, retry, drop).

use super::super::answer::Answer;
use super::super::call::{LATE_MS, PUBLISHED_MS, Persona, Publication, Settles};
use super::{Delayed, Failed, ModelClaim, ModelClock, ModelMessage, ModelRing};
use crate::steps::{Disposition, Part, Settlement};

impl ModelRing {
    pub(super) fn publish(&mut self, call: &Publication, clock: &ModelClock) -> Answer {
        let (now, count) = (clock.now(), call.bodies.len());
        let holds = self.office.holder.is_some_and(|(holder, _)| holder == call.me.index);
        let (Some(term), Some(due)) = (&mut self.office.term, self.office.due) else {
            return self.fence();
        };
        if !holds || term.epoch != call.epoch || term.sent < call.n {
            return self.fence();
        }
        if term.sent > call.n {
            let changed = self.office.renumbered.filter(|(epoch, n, _)| (*epoch, *n) == (call.epoch, call.n));
            return Answer::Already { first: changed.map_or(call.first, |(.., first)| first), due };
        }
        let published = self.ledger.get("published").copied().unwrap_or(0);
        if call.first > published + 1 {
            return Answer::Behind;
        }
        if call.limit > 0 && published + count as u64 > call.limit {
            return Answer::Limit { published };
        }
        if (self.ready.len() + count) as u64 > call.max_waiting {
            return Answer::Full;
        }

        term.sent += 1;
        let due = next_due(due, call, now);
        self.office.due = Some(due);
        let first = published + 1;
        if first != call.first {
            self.office.renumbered = Some((call.epoch, call.n, first));
            self.effects.push("numbered anew");
        }
        let pack = (count > 1).then_some(first);
        let message = |(id, body): (u64, &Vec<u8>)| ModelMessage {
            id,
            epoch: call.epoch,
            published_ms: PUBLISHED_MS,
            deliveries: 0,
            failures: 0,
            deaths: 0,
            snoozes: 0,
            headers: Vec::new(),
            body: body.clone(),
            pack,
        };
        let was_empty = self.ready.is_empty();
        self.ready.extend((first..).zip(&call.bodies).map(message));
        self.add("published", count);
        let generator = self.members.get_mut(&call.me.index).expect("whoever leads is a member");
        if !generator.is_forgotten {
            *generator.generated.get_or_insert(0) += count as u64;
        }
        self.extend_lease(call.me, clock);
        // If messages waited before, a member was called for them.
        if was_empty {
            self.wake(None, false, clock);
        }
        Answer::Published { first, due }
    }

    /// A fenced publish is counted, and changes nothing else.
    fn fence(&mut self) -> Answer {
        self.add("fenced", 1);
        Answer::Fenced
    }

    pub(super) fn turn(
        &mut self,
        me: Persona,
        this_try: u64,
        asks: &Settlement,
        clock: &ModelClock,
    ) -> Answer {
        let Some(member) = self.members.get_mut(&me.index) else { return Answer::Lost };
        if this_try <= member.last_try.unwrap_or(0) {
            return Answer::Late;
        }
        let stored = member.cursor.unwrap_or(0);
        let Some(new) = to_settle(stored, asks.cursor, asks.count, member.held()) else {
            return Answer::Lost;
        };
        // Claims are shown again until the member has seen them.
        let unseen = member.hand.iter().filter(|claim| claim.number > asks.seen);
        let shown: Vec<ModelClaim> = unseen.cloned().collect();
        if member.claimed < asks.seen || shown.len() as u64 != member.claimed - asks.seen {
            return Answer::Lost;
        }
        // Only a hand that an intruder has changed lacks what its member names.
        let named = asks.whole.iter().chain(&asks.returns).chain(asks.parts.iter().map(|part| &part.name));
        let holds = |name: &String| member.hand.iter().any(|claim| claim.name() == *name);
        if new > 0 && !named.clone().all(holds) {
            return Answer::Lost;
        }
        let was_lost = member.claimed > asks.seen;
        member.last_try = Some(this_try);
        member.stuck = asks.stuck.map(|stuck| stuck as u64).or(member.stuck);
        member.cursor = Some(stored + new as u64);
        let cursor = stored + new as u64;
        let due = self.take_due(clock);
        let postponed = if new > 0 { self.let_go(me, asks, clock) } else { Vec::new() };
        self.ready.extend(due);
        for (after, message) in postponed {
            if after == 0 {
                self.ready.push(message);
            } else {
                let due = clock.in_ms(after);
                self.later.insert(message.id, Delayed { due, message });
            }
        }
        // The generator claims only if it says so.
        let generates = self.office.holder.is_some_and(|(holder, _)| holder == me.index);
        let (want, reserve) = if generates && !asks.both { (0, 0) } else { (asks.want, asks.reserve) };
        let claims = if was_lost {
            self.effects.push("claims shown again");
            shown
        } else {
            let takes_reserve = self.ready.len() > 4 * (want + reserve);
            if takes_reserve && reserve > 0 {
                self.effects.push("reserve");
            }
            let claims = self.claim(me, want, asks.each, if takes_reserve { reserve } else { 0 });
            if generates && !claims.is_empty() {
                self.effects.push("generator claims");
            }
            claims
        };
        let taken: usize = claims.iter().map(|claim| claim.messages.len()).sum();
        let is_due = self.is_due(clock);
        let is_idle = asks.listens && taken < want && self.ready.is_empty() && !is_due;
        match self.idle.iter().position(|idle| *idle == me.index) {
            None if is_idle => self.idle.push(me.index),
            Some(at) if !is_idle => {
                self.idle.remove(at);
            }
            _ => {}
        }
        let due = self.wake(Some(me.index), is_due, clock);
        Answer::Turn {
            cursor,
            claimed: self.members[&me.index].claimed,
            waits: !self.ready.is_empty() || is_due,
            due,
            claims: claims.iter().map(|claim| (claim.name(), claim.element())).collect(),
        }
    }

    /// Takes out the messages that are due, the earliest first. One step moves only so many.
    fn take_due(&mut self, clock: &ModelClock) -> Vec<ModelMessage> {
        let mut due = Vec::new();
        for id in self.earliest(100) {
            if self.later[&id].due.from <= clock.now() {
                due.push(self.later.remove(&id).expect("it waits").message);
                self.effects.push("delayed message moved");
            }
        }
        due
    }

    /// Takes out of a hand what its member lets go of. Returns the messages that come again, and after which time.
    fn let_go(&mut self, me: Persona, asks: &Settlement, clock: &ModelClock) -> Vec<(u64, ModelMessage)> {
        let hand = std::mem::take(self.hand(me));
        let named = |names: &[String], claim: &ModelClaim| names.contains(&claim.name());
        let (mut settled, mut back, mut stays) = (Vec::new(), Vec::new(), Vec::new());
        // Whole elements are recorded first, in the order of the call.
        for name in &asks.whole {
            let claim = hand.iter().find(|claim| claim.name() == *name).expect("it names what it holds");
            settled
                .extend((0..).zip(&claim.messages).map(|(at, message)| (name.clone(), at, message.clone())));
        }
        for part in &asks.parts {
            let claim = hand.iter().find(|claim| claim.name() == part.name).expect("it names what it holds");
            let of_part = claim.messages.iter().enumerate().filter(|(at, _)| part.settled.contains(at));
            settled.extend(of_part.map(|(at, message)| (part.name.clone(), at, message.clone())));
            self.effects.push("part of a pack");
        }
        for claim in hand {
            let part = asks.parts.iter().find(|part| part.name == claim.name());
            if named(&asks.returns, &claim) {
                back.extend(claim.messages);
            } else if let Some(Part { settled, back: returns, .. }) = part {
                for (at, message) in claim.messages.into_iter().enumerate() {
                    let message = ModelMessage { pack: None, ..message };
                    if returns.contains(&at) {
                        back.push(message);
                    } else if !settled.contains(&at) {
                        let number = claim.number;
                        stays.push(ModelClaim { number, index: Some(at), messages: vec![message] });
                    }
                }
            } else if !named(&asks.whole, &claim) {
                stays.push(claim);
            }
        }
        *self.hand(me) = stays;
        if !back.is_empty() {
            self.effects.push("unstarted messages returned");
        }
        let returned = back.len();
        self.ready.splice(..0, back);
        let postponed = self.record(settled, asks, me, clock);
        // None of these has an outcome yet.
        if returned + postponed.len() > 0 {
            let member = self.members.get_mut(&me.index).expect("it was there before");
            *member.back.get_or_insert(0) += (returned + postponed.len()) as u64;
        }
        postponed
    }

    /// Takes what fits from the head of the queue. A message that a member died with takes the share of a whole lane,
    /// and leaves no reserve. Lanes that want several messages get a pack whole, even if it is up to twice as large.
    fn claim(&mut self, me: Persona, want: usize, each: usize, reserve: usize) -> Vec<ModelClaim> {
        let (mut used, mut limit, mut claims) = (0, want + reserve, Vec::new());
        while used < limit && !self.ready.is_empty() {
            let size = packs(&self.ready).next().map_or(0, <[_]>::len);
            let mut share = size;
            if size == 1 && self.ready[0].deaths > 0 {
                (share, limit) = (each, want);
                if used >= limit {
                    break;
                }
            }
            let room = limit - used;
            let fits =
                share <= room || (size == 1 && used == 0) || (size > 1 && each > 1 && size <= 2 * room);
            if fits {
                claims.push(self.ready.drain(..size).collect::<Vec<_>>());
                used += share;
            } else if size > 1 && (used == 0 || (each == 1 && 2 * used < limit)) {
                open(&mut self.ready[..size]);
                claims.extend(self.ready.drain(..room).map(|message| vec![message]));
                used = limit;
            } else {
                break;
            }
        }
        let member = self.members.get_mut(&me.index).expect("it was there before");
        let first = member.claimed + 1;
        member.claimed += claims.len() as u64;
        let claim = |(number, messages)| ModelClaim { number, index: None, messages };
        let claims: Vec<ModelClaim> = (first..).zip(claims).map(claim).collect();
        member.hand.extend(claims.iter().cloned());
        claims
    }

    fn hand(&mut self, me: Persona) -> &mut Vec<ModelClaim> {
        &mut self.members.get_mut(&me.index).expect("it was there before").hand
    }

    /// Records the one outcome of each settled message. Each comes with the name of its element and its place there.
    /// Returns the messages that come again instead, and after which time.
    fn record(
        &mut self,
        settled: Vec<(String, usize, ModelMessage)>,
        asks: &Settlement,
        me: Persona,
        clock: &ModelClock,
    ) -> Vec<(u64, ModelMessage)> {
        let (number, mut failed_ids, mut postponed) =
            (self.members[&me.index].number, Vec::new(), Vec::new());
        for other in &asks.not_done {
            let at = |(name, index, _): &&(String, usize, _)| *name == other.name && *index == other.index;
            let (.., message) = settled.iter().find(at).expect("what is not done was settled");
            let message = ModelMessage { pack: None, ..message.clone() };
            let deliveries = message.deliveries + 1;
            match &other.disposition {
                Disposition::Fail { reason } => {
                    failed_ids.push(message.id);
                    let message = ModelMessage { failures: message.failures + 1, ..message };
                    let (failed_ms, reason) = (clock.now(), reason.clone());
                    self.errors.push(Failed { message, failed_ms, member: number, reason });
                }
                Disposition::Retry { after, .. } => {
                    let failures = message.failures + 1;
                    let again = ModelMessage { deliveries, failures, ..message };
                    postponed.push((after.as_millis() as u64, again));
                    self.add("retries", 1);
                    self.effects.push("retry");
                }
                Disposition::Snooze { after, headers } => {
                    let snoozes = message.snoozes + 1;
                    let kept = if headers.is_empty() { message.headers.clone() } else { headers.clone() };
                    let again = ModelMessage { deliveries, snoozes, headers: kept, ..message };
                    postponed.push((after.as_millis() as u64, again));
                    self.add("snoozes", 1);
                    self.effects.push("snooze");
                }
            }
        }
        let comes_again = |id: u64| postponed.iter().any(|(_, message)| message.id == id);
        let over: Vec<u64> =
            settled.iter().map(|(.., message)| message.id).filter(|id| !comes_again(*id)).collect();
        let ids: Vec<_> = over.iter().map(ToString::to_string).collect();
        let total = over.len();
        self.done.extend(over.into_iter().filter(|id| !failed_ids.contains(id)));
        self.add("done", total - failed_ids.len());
        self.add("failed", failed_ids.len());
        if !failed_ids.is_empty() {
            let handler = self.members.get_mut(&me.index).expect("it was there before");
            *handler.failed.get_or_insert(0) += failed_ids.len() as u64;
        }
        if me.journal && total > 0 {
            let failed: Vec<_> = failed_ids.iter().map(ToString::to_string).collect();
            self.journal.push(format!("ids|{}|errors|{}|member|{number}", ids.join(" "), failed.join(" ")));
        }
        postponed
    }

    /// An error leaves Redis when the reader that holds it reports that it was shown.
    pub(super) fn take(&mut self, me: Persona, settles: &Settles) -> Answer {
        let Some(member) = self.members.get_mut(&me.index) else { return Answer::Lost };
        let stored = member.cursor.unwrap_or(0);
        let Some(new) = to_settle(stored, settles.cursor, settles.count, member.shows.len()) else {
            return Answer::Lost;
        };
        let cursor = stored + new as u64;
        let mut taken = Vec::new();
        if new > 0 {
            member.cursor = Some(cursor);
            taken.extend(member.shows.drain(..new).map(|error| error.message.id));
        }
        if member.shows.is_empty() {
            member.shows.extend(self.errors.drain(..settles.wants.min(self.errors.len())));
        }
        let held = member.shows.iter().map(Failed::element).collect();
        self.add("taken", taken.len());
        self.taken.extend(taken);
        Answer::Took { cursor, held }
    }

    /// A retried error waits again without failures and deaths. A dropped error counts as taken. An error that a reader
    /// holds stays as it is.
    pub(super) fn resolve(&mut self, drops: bool, elements: &[Vec<u8>], clock: &ModelClock) -> Answer {
        let mut resolved = Vec::new();
        for element in elements {
            if let Some(at) = self.errors.iter().position(|error| error.element() == *element) {
                resolved.push(self.errors.remove(at).message);
            }
        }
        let count = resolved.len();
        if count == 0 {
            return Answer::Resolved { count: 0 };
        }
        if drops {
            self.taken.extend(resolved.iter().map(|message| message.id));
            self.add("taken", count);
            self.add("dropped", count);
            self.announce(format!("dropped|count|{count}"));
        } else {
            self.ready.extend(resolved.into_iter().map(|message| ModelMessage {
                deliveries: message.deliveries + 1,
                failures: 0,
                deaths: 0,
                pack: None,
                ..message
            }));
            self.add("retried", count);
            self.announce(format!("retried|count|{count}"));
            self.wake(None, false, clock);
        }
        Answer::Resolved { count: count as u64 }
    }
}

/// The messages of a list, grouped by element.
pub(super) fn packs(messages: &[ModelMessage]) -> impl Iterator<Item = &[ModelMessage]> {
    messages.chunk_by(|one, next| one.pack.is_some() && one.pack == next.pack)
}

/// Opens the packs of these messages. From now on each message has its own element.
fn open(messages: &mut [ModelMessage]) {
    messages.iter_mut().for_each(|message| message.pack = None);
}

/// How many messages are to be settled now. That is 0 if they were settled before, and `None` if the caller's view of
/// its state is wrong.
fn to_settle(stored: u64, cursor: u64, count: usize, held: usize) -> Option<usize> {
    if stored == cursor + count as u64 {
        Some(0)
    } else if stored == cursor && held >= count {
        Some(count)
    } else {
        None
    }
}

/// The ticks keep their phase. A tick further ahead than one interval is left over from a clock that jumped back.
/// Missed ticks are skipped, or made up for if `catch_up` is set.
fn next_due(due: u64, call: &Publication, now: u64) -> u64 {
    let interval = call.interval;
    if interval == 0 {
        return due;
    }
    let due = due.min(now + interval) + interval * call.bodies.len() as u64;
    let was_missed = due + LATE_MS < now;
    if was_missed && !call.catch_up { due + interval * ((now - due) / interval + 1) } else { due }
}
