//! The path of a message (claim, settle) and of an error (take, retry, drop).

use super::super::answer::Answer;
use super::super::call::{Persona, Settles};
use super::{Delayed, Failed, ModelClaim, ModelClock, ModelMessage, ModelRing};
use crate::steps::{Disposition, Part, SUSPICIOUS, Settlement};

/// How many messages of a divided pack share an element, if lanes want no more than that.
const FEW: usize = 8;

impl ModelRing {
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
        self.end_pause(clock);
        let paused = self.handling_end.is_some();
        let due = if paused { Vec::new() } else { self.take_due(clock) };
        let mut bad = String::new();
        let postponed = if new > 0 {
            let (postponed, faults) = self.let_go(me, asks, clock);
            bad = faults;
            postponed
        } else {
            // The answer of an earlier try was lost. Redis gives it again.
            let member = &self.members[&me.index];
            let former = member.bad.as_ref().filter(|(at, _)| *at == cursor && !asks.effects.is_empty());
            if let Some((_, faults)) = former {
                bad = faults.clone();
                self.effects.push("bad effects shown again");
            }
            Vec::new()
        };
        if !bad.is_empty() {
            let member = self.members.get_mut(&me.index).expect("it was there before");
            member.bad = Some((cursor, bad.clone()));
        }
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
        let (asked, reserve) = if generates && !asks.both { (0, 0) } else { (asks.want, asks.reserve) };
        // At a limit a member gets what is left, without a reserve. A pack that is larger is opened.
        self.count_hands(0, new, clock);
        let room = self.room();
        let (want, reserve) = room.map_or((asked, reserve), |room| (asked.min(room), 0));
        if !was_lost && want < asked && !paused && !self.ready.is_empty() {
            self.effects.push("limited");
        }
        let claims = if was_lost {
            self.effects.push("claims shown again");
            shown
        } else {
            let takes_reserve = self.ready.len() > 4 * (want + reserve);
            if takes_reserve && reserve > 0 {
                self.effects.push("reserve");
            }
            let reserve = if takes_reserve { reserve } else { 0 };
            let claims = self.claim(me, want, asks.each, reserve, (room.is_some(), asks.has_suspect));
            let taken = claims.iter().map(|claim| claim.messages.len()).sum();
            self.count_hands(taken, 0, clock);
            if generates && !claims.is_empty() {
                self.effects.push("generator claims");
            }
            claims
        };
        let taken: usize = claims.iter().map(|claim| claim.messages.len()).sum();
        let is_due = !paused && self.is_due(clock);
        let waits = self.room() != Some(0) && (!self.ready.is_empty() || is_due);
        let is_idle = asks.listens && taken < asked && !waits;
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
            waits,
            due,
            paused,
            bad,
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

    /// Takes out of a hand what its member lets go of. Returns the messages that come again, and after which time. Also
    /// returns what Redis tells of bad effects.
    fn let_go(
        &mut self,
        me: Persona,
        asks: &Settlement,
        clock: &ModelClock,
    ) -> (Vec<(u64, ModelMessage)>, String) {
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
        let (postponed, bad) = self.record(settled, asks, me, clock);
        // None of these has an outcome yet.
        if returned + postponed.len() > 0 {
            let member = self.members.get_mut(&me.index).expect("it was there before");
            *member.back.get_or_insert(0) += (returned + postponed.len()) as u64;
        }
        (postponed, bad)
    }

    /// Takes what fits from the head of the queue. A message that a member died with takes the share of a whole lane,
    /// and leaves no reserve. Lanes that want several messages get a pack whole, even if it is up to twice as large,
    /// unless a limit makes the number `exact`. A small pack is never divided for a reserve. A member takes a suspect
    /// only if it has none.
    fn claim(
        &mut self,
        me: Persona,
        want: usize,
        each: usize,
        reserve: usize,
        (exact, mut has_suspect): (bool, bool),
    ) -> Vec<ModelClaim> {
        let (mut used, mut limit, mut claims) = (0, want + reserve, Vec::new());
        // How many suspects at the head stay there.
        let mut skipped = 0;
        while used < limit && skipped < self.ready.len() {
            let size = packs(&self.ready[skipped..]).next().map_or(0, <[_]>::len);
            let mut share = size;
            let is_suspect = self.ready[skipped].deaths >= SUSPICIOUS;
            if is_suspect && has_suspect {
                self.effects.push("suspect skipped");
                skipped += 1;
                continue;
            }
            if size == 1 && self.ready[skipped].deaths > 0 {
                (share, limit) = (each, want);
                if used >= limit {
                    break;
                }
            }
            let room = limit - used;
            let is_pack = size > 1;
            let fits = share <= room
                || (!is_pack && used == 0)
                || (is_pack && each > 1 && !exact && size <= 2 * room)
                || (is_pack && size <= FEW && limit > want);
            if fits {
                claims.push(self.ready.drain(skipped..skipped + size).collect::<Vec<_>>());
                used += share;
                has_suspect |= is_suspect;
            } else if size > 1 && (used == 0 || (each == 1 && 2 * used < limit)) {
                regroup(&mut self.ready[skipped + room..skipped + size]);
                let mut taken: Vec<_> = self.ready.drain(skipped..skipped + room).collect();
                for part in taken.chunks_mut(each.max(FEW)) {
                    regroup(part);
                    claims.push(part.to_vec());
                }
                self.effects.push("divided pack");
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
        // A message that begins frees its name.
        let begun: Vec<u64> =
            claims.iter().flat_map(|claim| &claim.messages).map(|message| message.id).collect();
        let taken = self.singles.len();
        self.singles.retain(|_, id| !begun.contains(id));
        self.effects.extend((self.singles.len()..taken).map(|_| "single name freed"));
        claims
    }

    fn hand(&mut self, me: Persona) -> &mut Vec<ModelClaim> {
        &mut self.members.get_mut(&me.index).expect("it was there before").hand
    }

    /// Records the one outcome of each settled message. Each comes with the name of its element and its place there.
    /// Returns the messages that come again instead, and after which time. Also returns what Redis tells of bad effects.
    fn record(
        &mut self,
        settled: Vec<(String, usize, ModelMessage)>,
        asks: &Settlement,
        me: Persona,
        clock: &ModelClock,
    ) -> (Vec<(u64, ModelMessage)>, String) {
        let (number, mut failed_ids, mut postponed) =
            (self.members[&me.index].number, Vec::new(), Vec::new());
        for other in &asks.not_done {
            let at = |(name, index, _): &&(String, usize, _)| *name == other.name && *index == other.index;
            let (.., message) = settled.iter().find(at).expect("what is not done was settled");
            let message = ModelMessage { pack: None, ..message.clone() };
            let deliveries = message.deliveries + 1;
            if self.open.contains_key(&message.id) && !matches!(other.disposition, Disposition::Fail { .. }) {
                self.effects.push("open message postponed");
            }
            match &other.disposition {
                Disposition::Fail { reason, died } => {
                    failed_ids.push(message.id);
                    let (failures, deaths) = (message.failures, message.deaths);
                    let message = match died {
                        true => ModelMessage { deaths: deaths + 1, ..message },
                        false => ModelMessage { failures: failures + 1, ..message },
                    };
                    self.effects.extend(died.then_some("last death without a burial"));
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
                Disposition::Die { after, .. } => {
                    let deaths = message.deaths + 1;
                    let again = ModelMessage { deliveries, deaths, ..message };
                    postponed.push((after.as_millis() as u64, again));
                    self.add("retries", 1);
                    self.effects.push("death without a burial");
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
        let (bad_ids, bad) = self.affect(&settled, asks, number, clock);
        failed_ids.extend(bad_ids);
        let comes_again = |id: u64| postponed.iter().any(|(_, message)| message.id == id);
        let over: Vec<u64> =
            settled.iter().map(|(.., message)| message.id).filter(|id| !comes_again(*id)).collect();
        let ids: Vec<_> = over.iter().map(ToString::to_string).collect();
        let total = over.len();
        for id in &over {
            let has_failed = failed_ids.contains(id);
            self.end(*id, if has_failed { "open message became an error" } else { "open message done" });
        }
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
        (postponed, bad)
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

    /// A retried error waits again without failures and deaths. A dropped error counts as taken. An error that is not
    /// where the caller saw it stays as it is. A reader may hold it.
    pub(super) fn resolve(&mut self, drops: bool, elements: &[(u64, Vec<u8>)], clock: &ModelClock) -> Answer {
        let in_place = |at: usize, error: &Failed| {
            elements.iter().any(|(place, element)| *place == at as u64 && error.element() == *element)
        };
        let errors = std::mem::take(&mut self.errors).into_iter().enumerate();
        let (resolved, left): (Vec<_>, Vec<_>) = errors.partition(|(at, error)| in_place(*at, error));
        self.errors = left.into_iter().map(|(_, error)| error).collect();
        let resolved: Vec<_> = resolved.into_iter().map(|(_, error)| error.message).collect();
        let count = resolved.len();
        if count == 0 {
            return Answer::Resolved { count: 0 };
        }
        if drops {
            self.taken.extend(resolved.iter().map(|message| message.id));
            self.add("taken", count);
            self.add("dropped", count);
            self.announce(format!("dropped|count|{count}|by|ops"));
        } else {
            self.ready.extend(resolved.into_iter().map(|message| ModelMessage {
                deliveries: message.deliveries + 1,
                failures: 0,
                deaths: 0,
                pack: None,
                ..message
            }));
            self.add("retried", count);
            self.announce(format!("retried|count|{count}|by|ops"));
            self.end_pause(clock);
            self.wake(None, false, clock);
        }
        Answer::Resolved { count: count as u64 }
    }
}

/// The messages of a list, grouped by element.
pub(super) fn packs(messages: &[ModelMessage]) -> impl Iterator<Item = &[ModelMessage]> {
    messages.chunk_by(|one, next| one.pack.is_some() && one.pack == next.pack)
}

/// Makes one element of neighbours that were in one pack.
fn regroup(messages: &mut [ModelMessage]) {
    let pack = (messages.len() > 1).then(|| messages[0].id);
    messages.iter_mut().for_each(|message| message.pack = pack);
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
