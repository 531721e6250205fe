//! Who does what: turns the steps of a story into calls, by what the simulated copies know at that point.

use super::super::Kind;
use super::accident::Accident;
use super::call::{Call, GRACE_MS, Persona};
use super::copy::Copy;
use super::step::{Missed, Step};
use super::world::{Outcome, Telling};

/// More would only make members that never meet.
const MOST_COPIES: usize = 6;
/// Calls that a held-up connection delivers.
const STRETCH: usize = 5;

impl Telling<'_> {
    /// Makes one step; one that nobody can make at this point is left out.
    pub fn step(&mut self, step: &Step) -> Outcome {
        match *step {
            Step::Join { reader, lanes, max_attempts, presence } => {
                if self.copies.iter().filter(|copy| !copy.gone).count() >= MOST_COPIES {
                    return Ok(());
                }
                let persona = self.somebody(reader, lanes, max_attempts, presence);
                self.copies.push(Copy::new(persona));
                if presence {
                    self.happen(Accident::Connected(persona))?;
                }
                self.send(Call::Join(persona), true)
            }
            Step::JoinAgain { copy } => self.by(copy, |copy| Call::Join(copy.persona), true),
            Step::Beat { copy, heard } => self.by(copy, |copy| Call::Beat(copy.persona), heard),
            Step::Lead { copy, renew, more_known, missed, heard } => {
                let (interval, since) = (interval(copy), self.since(missed));
                self.by(copy, |copy| copy.lead(renew, more_known, interval, since), heard)
            }
            Step::Resign { copy, heard } => self.by_leader(copy, |copy| copy.resign(), heard),
            Step::Publish { copy, count, room, flaw, heard } => self.by_leader(
                copy,
                |copy| copy.publish(count, room, flaw, interval(room)),
                heard && flaw.is_none(),
            ),
            Step::Turn { copy, lane, settles, fails, wants, flaw, heard } => {
                self.sendings += 1;
                let sending = self.sendings;
                let turn = |copy: &mut Copy| copy.turn(lane, sending, settles, fails, wants, flaw);
                self.by_kind(copy, Kind::Member, turn, heard && flaw.is_none())
            }
            Step::Take { copy, settles, wants, flaw, heard } => {
                let take = |copy: &mut Copy| copy.take(settles, wants, flaw);
                self.by_kind(copy, Kind::Reader, take, heard && flaw.is_none())
            }
            Step::Suspects { short_leases } => {
                let lease_ms = if short_leases { 2_000 } else { 4_000_000 };
                self.send(Call::Suspects { lease_ms }, true)
            }
            Step::Bury { victim, judge, missed } => self.bury(victim, judge, missed),
            Step::Leave { copy, heard } => self.by(copy, |copy| Call::Leave(copy.persona), heard),
            Step::Ring => self.send(Call::Ring, true),
            Step::Resolve { drops, which } => self.resolve(drops, which),
            Step::Snapshot { stale } => {
                let mut roll: Vec<_> = self.model.members.values().map(|member| member.persona).collect();
                if stale {
                    roll.pop();
                }
                self.send(Call::Snapshot { roll }, true)
            }
            Step::Late { back } => {
                let Some(at) = self.sent.len().checked_sub(1 + usize::from(back) % self.sent.len().max(1))
                else {
                    return Ok(());
                };
                let call = self.sent[at].clone();
                self.call(call, true, false)
            }
            Step::LateStretch { copy, from } => self.late_stretch(copy, from),
            _ => self.accident(step),
        }
    }

    fn late_stretch(&mut self, copy: u8, from: u8) -> Outcome {
        let Some(sender) = self.copies.get(usize::from(copy) % self.copies.len().max(1)) else {
            return Ok(());
        };
        let sender = Some(sender.persona);
        let its: Vec<_> = self.sent.iter().filter(|call| call.sender() == sender).cloned().collect();
        // Mostly from the very first, which is the join.
        let skip = if from.is_multiple_of(2) { 0 } else { usize::from(from) % its.len().max(1) };
        its.into_iter().skip(skip).take(STRETCH).try_for_each(|call| self.call(call, true, false))
    }

    /// The moment since which somebody has been missed. None of them is near the end of the grace, so that it does not
    /// matter how long the step takes.
    fn since(&mut self, missed: Missed) -> u64 {
        match missed {
            Missed::Never => 0,
            Missed::LongSince => self.stage.now() - 3 * GRACE_MS,
            Missed::JustNow => self.stage.now() + 3_600_000,
        }
    }

    fn somebody(&mut self, reader: bool, lanes: u8, max_attempts: u8, presence: bool) -> Persona {
        self.identities += 1;
        let kind = if reader { Kind::Reader } else { Kind::Member };
        let lanes = if reader { 1 } else { lanes.into() };
        Persona {
            index: self.identities,
            kind,
            lanes,
            max_attempts: max_attempts.into(),
            journal: self.journal,
            presence,
        }
    }

    /// Has a copy send what it will; steps that nobody can make are left out.
    fn by(&mut self, copy: u8, make: impl FnOnce(&mut Copy) -> Call, heard: bool) -> Outcome {
        self.by_one(copy, |copy| !copy.gone, make, heard)
    }

    fn by_kind(
        &mut self,
        copy: u8,
        kind: Kind,
        make: impl FnOnce(&mut Copy) -> Call,
        heard: bool,
    ) -> Outcome {
        self.by_one(copy, |copy| !copy.gone && copy.persona.kind == kind, make, heard)
    }

    /// One that believes to be in office, if there is one; now and then somebody who never was.
    fn by_leader(&mut self, copy: u8, make: impl FnOnce(&mut Copy) -> Call, heard: bool) -> Outcome {
        if copy % 16 == 15 {
            return self.by_kind(copy, Kind::Member, make, heard);
        }
        self.by_one(copy, |copy| !copy.gone && copy.leads(), make, heard)
    }

    fn by_one(
        &mut self,
        copy: u8,
        fits: impl Fn(&Copy) -> bool,
        make: impl FnOnce(&mut Copy) -> Call,
        heard: bool,
    ) -> Outcome {
        let mut fitting: Vec<_> = self.copies.iter_mut().filter(|copy| fits(copy)).collect();
        if fitting.is_empty() {
            return Ok(());
        }
        let chosen = usize::from(copy) % fitting.len();
        let call = make(fitting[chosen]);
        self.send(call, heard)
    }

    fn bury(&mut self, victim: u8, judge: Option<u8>, missed: Missed) -> Outcome {
        let absent_since = self.since(missed);
        // Mostly one that is dead, or little would ever be buried; else anybody, the long gone included.
        let dead = |copy: &&Copy| {
            let member = self.model.members.get(&copy.persona.index);
            member.is_some_and(|member| member.deadline.from == 1 || self.model.misses(copy.persona))
        };
        let mut candidates: Vec<_> = self.copies.iter().filter(dead).map(|copy| copy.persona).collect();
        if candidates.is_empty() || victim % 4 == 3 {
            candidates = self.copies.iter().map(|copy| copy.persona).collect();
        }
        let judges: Vec<_> = self.copies.iter().filter(|copy| !copy.gone).map(|copy| copy.persona).collect();
        let pick = |list: &[Persona], at: u8| list.get(usize::from(at) % list.len().max(1)).copied();
        match pick(&candidates, victim) {
            Some(victim) => {
                let judge = judge.and_then(|judge| pick(&judges, judge));
                self.send(Call::Bury { victim, judge, absent_since }, true)
            }
            None => Ok(()),
        }
    }

    /// Some of the errors that somebody saw a moment ago, those in the hands of readers included.
    fn resolve(&mut self, drops: bool, which: u8) -> Outcome {
        let shown = self.model.members.values().flat_map(|member| &member.shows);
        let all = self.model.errors.iter().chain(shown).map(|error| error.element());
        let elements: Vec<_> = all
            .enumerate()
            .filter(|(at, _)| which >> (at % 8) & 1 == 1)
            .map(|(_, element)| element)
            .collect();
        if elements.is_empty() { Ok(()) } else { self.send(Call::Resolve { drops, elements }, true) }
    }

    fn accident(&mut self, step: &Step) -> Outcome {
        let living: Vec<_> = self.model.members.values().map(|member| member.persona).collect();
        let one = |copy: u8| living.get(usize::from(copy) % living.len().max(1)).copied();
        let now = self.stage.now();
        let accident = match *step {
            Step::Expire { copy } => one(copy).map(Accident::Expired),
            Step::Connection { copy, back } => one(copy)
                .filter(|who| who.presence)
                .map(|who| if back { Accident::Connected(who) } else { Accident::Disconnected(who) }),
            Step::Ahead { copy } => one(copy).map(|who| Accident::Ahead(who, now + 100 * 3_600_000)),
            Step::Forget { copy } => one(copy).map(Accident::Forgotten),
            Step::LoseEpoch { how } => self.lost_epoch(how, now),
            Step::MoveDue { ahead } => self
                .model
                .office
                .due
                .map(|_| Accident::Due(if ahead { now + 7_200_000 } else { now - 1_000_000 })),
            Step::HearBell => self.model.bell.then_some(Accident::BellHeard),
            Step::OtherVersion => {
                let before = self.model.schema;
                self.happen(Accident::Schema(Some("1")))?;
                let stranger =
                    Persona { index: 999, lanes: 1, max_attempts: 1, ..self.somebody(false, 1, 1, false) };
                self.call(Call::Join(stranger), false, false)?;
                Some(Accident::Schema(before))
            }
            _ => None,
        };
        accident.map_or(Ok(()), |accident| self.happen(accident))
    }

    /// Redis forgets the last epoch, or comes back with another one. That epochs grow all the same is promised as soon as
    /// Redis' clock has moved on, so the story waits for that.
    fn lost_epoch(&mut self, how: u8, now: u64) -> Option<Accident> {
        let last = self.model.epoch?;
        if how % 8 == 7 {
            return Some(Accident::Epoch(Some(last.max(now) + 1_000_000)));
        }
        if self.top_epoch > now + 1_000 {
            return None;
        }
        while self.stage.now() <= self.top_epoch {}
        Some(Accident::Epoch(if how.is_multiple_of(2) { None } else { Some(110) }))
    }
}

fn interval(choice: u8) -> u64 {
    if choice.is_multiple_of(3) { 0 } else { 500 }
}
