//! The path of a message (publish, claim, settle) and of an error (take, retry, drop).

use super::super::answer::Answer;
use super::super::call::{LATE_MS, Persona, Publication, Settles};
use super::image::elements;
use super::{Failed, ModelClock, ModelMessage, ModelRing};

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
            return Answer::Already { due };
        }
        let published = self.ledger.get("published").copied().unwrap_or(0);
        if call.first != published + 1 {
            return Answer::Expected { next: published + 1 };
        }
        if call.limit > 0 && published + count as u64 > call.limit {
            return Answer::Limit;
        }
        if (self.ready.len() + count) as u64 > call.max_waiting {
            return Answer::Full;
        }

        term.sent += 1;
        let due = next_due(due, call, now);
        self.office.due = Some(due);
        let pack = (count > 1).then_some(call.first);
        let message = |(id, body): (u64, &Vec<u8>)| ModelMessage {
            id,
            epoch: call.epoch,
            deliveries: 0,
            failures: 0,
            deaths: 0,
            body: body.clone(),
            pack,
        };
        self.ready.extend((call.first..).zip(&call.bodies).map(message));
        self.add("published", count);
        let generator = self.members.get_mut(&call.me.index).expect("whoever leads is a member");
        if !generator.is_forgotten {
            *generator.generated.get_or_insert(0) += count as u64;
        }
        self.extend_lease(call.me, clock);
        self.wake();
        Answer::Published { due }
    }

    /// A fenced publish is counted, and changes nothing else.
    fn fence(&mut self) -> Answer {
        self.add("fenced", 1);
        Answer::Fenced
    }

    pub(super) fn turn(
        &mut self,
        me: Persona,
        lane: usize,
        this_try: u64,
        settles: &Settles,
        clock: &ModelClock,
    ) -> Answer {
        let Some(member) = self.members.get_mut(&me.index) else { return Answer::Lost };
        let number = member.number;
        let mine = &mut member.lanes[lane];
        if this_try <= mine.last_try.unwrap_or(0) {
            return Answer::Late;
        }
        let Some(new) = to_settle(mine.cursor.unwrap_or(0), settles, mine.holds.len()) else {
            return Answer::Lost;
        };
        mine.last_try = Some(this_try);
        let cursor = mine.cursor.unwrap_or(0) + new as u64;
        mine.cursor = Some(cursor);
        let settled: Vec<ModelMessage> = mine.holds.drain(..new).collect();
        let still_holds = !mine.holds.is_empty();
        if new > 0 {
            // The messages that are left become single messages.
            open(&mut mine.holds);
            self.record(settled, settles, me, number, clock);
        }
        if !still_holds {
            // A message whose handler died travels alone from then on. A claim ends before it.
            let deadly = self.ready.iter().position(|message| message.deaths > 0);
            // The generator never claims.
            let generates = self.office.holder.is_some_and(|(holder, _)| holder == me.index);
            let most = if generates { 0 } else { deadly.map_or(usize::MAX, |at| at.max(1)) };
            let count = self.fitting(settles.wants.min(most));
            let claimed: Vec<_> = self.ready.drain(..count).collect();
            self.loose = if self.ready.is_empty() { 0 } else { self.loose.saturating_sub(count) };
            self.lane(me, lane).holds = claimed;
        }
        self.wake();
        Answer::Turn { cursor, held: elements(&self.lane(me, lane).holds) }
    }

    /// How many messages a lane gets: first those of an opened pack, then as many whole packs as fit. The first pack is
    /// opened only if the lane would otherwise get nothing.
    fn fitting(&mut self, wants: usize) -> usize {
        let all_alone = self.ready.iter().all(|message| message.pack.is_none());
        if self.ready.len() <= wants || all_alone {
            return wants.min(self.ready.len());
        }
        let mut count = self.loose.min(wants);
        for pack in packs(&self.ready[count..]) {
            if count + pack.len() > wants {
                break;
            }
            count += pack.len();
        }
        if count == 0 && wants > 0 {
            let first = packs(&self.ready).next().map_or(0, <[_]>::len);
            open(&mut self.ready[..first]);
            self.loose = first;
            count = wants;
        }
        count
    }

    fn lane(&mut self, me: Persona, lane: usize) -> &mut super::ModelLane {
        &mut self.members.get_mut(&me.index).expect("it was there before").lanes[lane]
    }

    /// Records the one outcome of each settled message.
    fn record(
        &mut self,
        settled: Vec<ModelMessage>,
        settles: &Settles,
        me: Persona,
        number: u64,
        clock: &ModelClock,
    ) {
        let (mut ids, mut failed_ids) = (Vec::new(), Vec::new());
        let total = settled.len();
        for (index, message) in settled.into_iter().enumerate() {
            ids.push(message.id.to_string());
            match settles.failures.iter().find(|(failed, _)| *failed == index) {
                None => self.done.push(message.id),
                Some((_, reason)) => {
                    failed_ids.push(message.id.to_string());
                    let message = ModelMessage { failures: message.failures + 1, ..message };
                    let (failed_ms, reason) = (clock.now(), (*reason).to_owned());
                    self.errors.push(Failed { message, failed_ms, member: number, reason });
                }
            }
        }
        self.add("done", total - failed_ids.len());
        self.add("failed", failed_ids.len());
        if !failed_ids.is_empty() {
            let handler = self.members.get_mut(&me.index).expect("it was there before");
            *handler.failed.get_or_insert(0) += failed_ids.len() as u64;
        }
        if me.journal {
            let (ids, failed) = (ids.join(" "), failed_ids.join(" "));
            self.journal.push(format!("ids|{ids}|errors|{failed}|member|{number}"));
        }
    }

    /// An error leaves Redis when the reader that holds it reports that it was shown.
    pub(super) fn take(&mut self, me: Persona, settles: &Settles) -> Answer {
        let Some(member) = self.members.get_mut(&me.index) else { return Answer::Lost };
        let stored = member.lanes[0].cursor.unwrap_or(0);
        let Some(new) = to_settle(stored, settles, member.shows.len()) else { return Answer::Lost };
        let cursor = stored + new as u64;
        let mut taken = Vec::new();
        if new > 0 {
            member.lanes[0].cursor = Some(cursor);
            taken.extend(member.shows.drain(..new).map(|error| error.message.id));
        }
        if member.shows.is_empty() {
            member.shows.extend(self.errors.drain(..settles.wants.min(self.errors.len())));
        }
        let held = member.shows.iter().map(Failed::element).collect();
        self.add("taken", taken.len());
        self.taken.extend(taken);
        Answer::Turn { cursor, held }
    }

    /// A retried error waits again without failures and deaths. A dropped error counts as taken. An error that a reader
    /// holds stays as it is.
    pub(super) fn resolve(&mut self, drops: bool, elements: &[Vec<u8>]) -> Answer {
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
            self.wake();
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
fn to_settle(stored: u64, settles: &Settles, held: usize) -> Option<usize> {
    if stored == settles.cursor + settles.count as u64 {
        Some(0)
    } else if stored == settles.cursor && held >= settles.count {
        Some(settles.count)
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
