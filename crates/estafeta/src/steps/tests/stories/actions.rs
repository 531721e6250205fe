//! Turns the steps of a story into calls, according to what the simulated nodes know at that point.

use super::super::{Duties, MemberKind, MessageRef, NEVER};
use super::accident::{Accident, LOST_OPEN};
use super::call::{GRACE_MS, Persona, StoryCall};
use super::simulated_node::SimulatedNode;
use super::simulated_publisher::{KEYS, PUBLISHERS};
use super::step::{SeenAbsent, StoryStep};
use super::world::{StoryResult, StoryRun};

/// With more nodes, most of them would never affect each other.
const MAX_NODES: usize = 6;
/// How many partitions most nodes and publishers expect.
pub(super) const PARTITIONS: u32 = 3;
/// How many calls a delayed connection delivers.
const STRETCH: usize = 5;

impl StoryRun<'_> {
    /// Makes one step. A step that no node can make at this point is skipped.
    pub fn step(&mut self, step: &StoryStep) -> StoryResult {
        match *step {
            StoryStep::Join { reader, foreign, lanes, max_deaths, presence, duties } => {
                if self.nodes.iter().filter(|node| !node.gone).count() >= MAX_NODES {
                    return Ok(());
                }
                let kind = if reader { MemberKind::Reader } else { MemberKind::Node };
                let persona = Persona {
                    application: application(kind, foreign && lanes != 2),
                    partitions: if foreign && lanes == 2 {
                        u32::from(max_deaths % 2) + 1
                    } else {
                        PARTITIONS
                    },
                    duties: duties_of(duties),
                    ..self.new_persona(kind, lanes, max_deaths, presence)
                };
                self.nodes.push(SimulatedNode::new(persona));
                if presence {
                    self.inject(Accident::Connected(persona))?;
                }
                self.send(StoryCall::Join(persona), true)
            }
            StoryStep::JoinAgain { node } => self.by(node, |node| StoryCall::Join(node.persona), true),
            StoryStep::Beat { node, more_known, times, answered } => {
                self.by(node, |node| node.beat(more_known, times), answered)
            }
            StoryStep::Lead { node, renew, more_known, missed, answered } => {
                let (interval, since) = (interval(node), self.since(missed));
                self.by(node, |node| node.lead(renew, more_known, interval, since), answered)
            }
            StoryStep::Resign { node, answered } => self.by_leader(node, |node| node.resign(), answered),
            StoryStep::Report { node, in_a_row, answered } => {
                self.by_leader(node, |node| node.report(in_a_row), answered)
            }
            StoryStep::Complain { node, patient, answered } => {
                self.by(node, |node| node.complain(if patient { 3_600_000 } else { 0 }), answered)
            }
            StoryStep::Publish { node, count, moves, room, flaw, answered } => {
                // A generator finds out that the message with this id is gone.
                let is_open = self.model.open.keys().any(|id| *id != LOST_OPEN);
                self.by_leader(
                    node,
                    |node| node.publish([count, moves, room], flaw, interval(room), is_open),
                    answered && flaw.is_none(),
                )
            }
            StoryStep::Submit { publisher, count, choices, room, answered } => {
                let publisher = publisher_of(publisher);
                let call = self.publishers[publisher].submit(publisher, count, choices, room);
                self.send(StoryCall::Submit(call), answered)
            }
            StoryStep::Cancel { publisher, by_key, which, answered } => {
                let (publisher, at) = (publisher_of(publisher), usize::from(which));
                // In three cases of four it names a message that waits for a time. Otherwise it is any message.
                let waiting: Vec<u64> = self.model.later.keys().copied().collect();
                let id = match waiting.get(at % waiting.len().max(1)) {
                    Some(id) if which % 4 != 3 => *id,
                    _ => u64::from(which) % (self.model.count("published") + 2),
                };
                let which = if by_key { MessageRef::Key(KEYS[at % KEYS.len()]) } else { MessageRef::Id(id) };
                let call = self.publishers[publisher].cancel(publisher, which);
                self.send(StoryCall::Cancel(call), answered)
            }
            StoryStep::Turn { node, fates, lanes, each, reserve, flaw, answered } => {
                self.tries += 1;
                let (this_try, wants) = (self.tries, [lanes, each, reserve].map(usize::from));
                let turn = |node: &mut SimulatedNode| node.turn(this_try, fates, wants, flaw);
                self.by_kind(node, MemberKind::Node, turn, answered && flaw.is_none())
            }
            StoryStep::Take { node, settles, wants, flaw, answered } => {
                let take = |node: &mut SimulatedNode| node.take(settles, wants, flaw);
                self.by_kind(node, MemberKind::Reader, take, answered && flaw.is_none())
            }
            StoryStep::Suspects { short_leases } => {
                let lease_ms = if short_leases { 2_000 } else { 4_000_000 };
                self.send(StoryCall::Suspects { lease_ms }, true)
            }
            StoryStep::Bury { victim, detector, missed } => self.bury(victim, detector, missed),
            StoryStep::Leave { node, answered } => {
                self.by(node, |node| StoryCall::Leave(node.persona), answered)
            }
            StoryStep::Sample { node, answered } => {
                let sample = |node: &mut SimulatedNode| node.sample();
                // If nobody may lead, any member samples.
                match self.model.office.holder {
                    Some(_) if node % 8 != 0 => self.by_leader(node / 8, sample, answered),
                    _ => self.by(node / 8, sample, answered),
                }
            }
            StoryStep::Wake => self.send(StoryCall::Wake, true),
            StoryStep::Pause { what, hours } => self.pause(what, hours),
            StoryStep::Limit { in_flight, rate, stale } => self.limit(in_flight, rate, stale),
            StoryStep::Resolve { drops, which } => self.resolve(drops, which),
            StoryStep::Snapshot { stale } => {
                let mut roll: Vec<_> = self.model.members.values().map(|member| member.persona).collect();
                if stale {
                    roll.pop();
                }
                self.send(StoryCall::Snapshot { roll }, true)
            }
            StoryStep::Late { back } => {
                let Some(at) = self.sent.len().checked_sub(1 + usize::from(back) % self.sent.len().max(1))
                else {
                    return Ok(());
                };
                let call = self.sent[at].clone();
                self.call(call, true, false)
            }
            StoryStep::LateStretch { node, from } => self.late_stretch(node, from),
            _ => self.accident(step),
        }
    }

    fn late_stretch(&mut self, node: u8, from: u8) -> StoryResult {
        let Some(sender) = self.nodes.get(usize::from(node) % self.nodes.len().max(1)) else {
            return Ok(());
        };
        let sender = Some(sender.persona);
        let its: Vec<_> = self.sent.iter().filter(|call| call.sender() == sender).cloned().collect();
        // Every second sequence begins with the first call, which is the join.
        let skip = if from.is_multiple_of(2) { 0 } else { usize::from(from) % its.len().max(1) };
        its.into_iter().skip(skip).take(STRETCH).try_for_each(|call| self.call(call, true, false))
    }

    /// The time since which the sender has missed a member. None of these times is near the end of the grace period, so
    /// the duration of the step does not matter.
    fn since(&mut self, missed: SeenAbsent) -> u64 {
        match missed {
            SeenAbsent::Never => 0,
            SeenAbsent::LongSince => self.env.now() - 3 * GRACE_MS,
            SeenAbsent::JustNow => self.env.now() + 3_600_000,
        }
    }

    fn new_persona(&mut self, kind: MemberKind, lanes: u8, max_deaths: u8, presence: bool) -> Persona {
        self.identities += 1;
        let lanes = if kind == MemberKind::Reader { 1 } else { lanes.into() };
        Persona {
            index: self.identities,
            kind,
            application: application(kind, false),
            lanes,
            max_deaths: max_deaths.into(),
            journal: self.journal,
            presence,
            duties: Duties::Both,
            partitions: PARTITIONS,
        }
    }

    /// Sends a call from a node that has not learned that it is gone. If there is none, the step is skipped.
    fn by(
        &mut self,
        node: u8,
        make: impl FnOnce(&mut SimulatedNode) -> StoryCall,
        answered: bool,
    ) -> StoryResult {
        self.by_one(node, |node| !node.gone, make, answered)
    }

    fn by_kind(
        &mut self,
        node: u8,
        kind: MemberKind,
        make: impl FnOnce(&mut SimulatedNode) -> StoryCall,
        answered: bool,
    ) -> StoryResult {
        self.by_one(node, |node| !node.gone && node.persona.kind == kind, make, answered)
    }

    /// Sends a call from a node that believes it is in office, if there is one. In one case of 16, any member sends it.
    fn by_leader(
        &mut self,
        node: u8,
        make: impl FnOnce(&mut SimulatedNode) -> StoryCall,
        answered: bool,
    ) -> StoryResult {
        if node % 16 == 15 {
            return self.by_kind(node, MemberKind::Node, make, answered);
        }
        self.by_one(node, |node| !node.gone && node.leads(), make, answered)
    }

    fn by_one(
        &mut self,
        node: u8,
        fits: impl Fn(&SimulatedNode) -> bool,
        make: impl FnOnce(&mut SimulatedNode) -> StoryCall,
        answered: bool,
    ) -> StoryResult {
        let mut fitting: Vec<_> = self.nodes.iter_mut().filter(|node| fits(node)).collect();
        if fitting.is_empty() {
            return Ok(());
        }
        let chosen = usize::from(node) % fitting.len();
        let call = make(fitting[chosen]);
        self.send(call, answered)
    }

    fn bury(&mut self, victim: u8, detector: Option<u8>, missed: SeenAbsent) -> StoryResult {
        let absent_since = self.since(missed);
        // In three cases of four the victim is dead, or few members would ever be buried. Otherwise it is any node,
        // even one that is long gone.
        let dead = |node: &&SimulatedNode| {
            let member = self.model.members.get(&node.persona.index);
            member.is_some_and(|member| member.deadline.from == 1 || self.model.misses(node.persona))
        };
        let mut candidates: Vec<_> = self.nodes.iter().filter(dead).map(|node| node.persona).collect();
        if candidates.is_empty() || victim % 4 == 3 {
            candidates = self.nodes.iter().map(|node| node.persona).collect();
        }
        let detectors: Vec<_> =
            self.nodes.iter().filter(|node| !node.gone).map(|node| node.persona).collect();
        let pick = |list: &[Persona], at: u8| list.get(usize::from(at) % list.len().max(1)).copied();
        match pick(&candidates, victim) {
            Some(victim) => {
                let detector = detector.and_then(|detector| pick(&detectors, detector));
                self.send(StoryCall::Bury { victim, detector, absent_since }, true)
            }
            None => Ok(()),
        }
    }

    /// In three cases of eight it resumes.
    fn pause(&mut self, what: u8, hours: u8) -> StoryResult {
        let end = match hours % 8 {
            0..3 => 0,
            3 => NEVER,
            hours => self.env.now() + u64::from(hours) * 3_600_000,
        };
        let (producing, handling) = match what % 3 {
            0 => (Some(end), None),
            1 => (None, Some(end)),
            _ => (Some(end), Some(end)),
        };
        self.send(StoryCall::Pause { producing, handling }, true)
    }

    /// In half of the cases, a limit is removed or stays as it is.
    fn limit(&mut self, in_flight: u8, rate: u8, stale: bool) -> StoryResult {
        let in_flight = match in_flight % 8 {
            0..2 => None,
            2..4 => Some(0),
            most => Some(u64::from(most) - 3),
        };
        let rate = match rate % 8 {
            0..2 => None,
            2..6 => Some(0),
            _ => Some(1),
        };
        let mut roll: Vec<_> = self.model.members.values().map(|member| member.persona).collect();
        if stale {
            roll.pop();
        }
        self.send(StoryCall::Limit { in_flight, rate, roll }, true)
    }

    /// Retries or drops some of the errors, including those that readers hold.
    fn resolve(&mut self, drops: bool, which: u8) -> StoryResult {
        let shown = self.model.members.values().flat_map(|member| &member.shows);
        let all = self.model.errors.iter().chain(shown).map(|error| error.element());
        let elements: Vec<_> = (0..).zip(all).filter(|(at, _)| which >> (at % 8) & 1 == 1).collect();
        if elements.is_empty() { Ok(()) } else { self.send(StoryCall::Resolve { drops, elements }, true) }
    }

    fn accident(&mut self, step: &StoryStep) -> StoryResult {
        let living: Vec<_> = self.model.members.values().map(|member| member.persona).collect();
        let one = |node: u8| living.get(usize::from(node) % living.len().max(1)).copied();
        let now = self.env.now();
        let accident = match *step {
            StoryStep::Expire { node } => one(node).map(Accident::Expired),
            StoryStep::Connection { node, back } => one(node)
                .filter(|who| who.presence)
                .map(|who| if back { Accident::Connected(who) } else { Accident::Disconnected(who) }),
            StoryStep::Ahead { node } => one(node).map(|who| Accident::Ahead(who, now + 100 * 3_600_000)),
            // What a member holds is in its hash, and would be lost with it.
            StoryStep::Forget { node } => one(node)
                .filter(|who| self.model.members[&who.index].hand.is_empty())
                .map(Accident::Forgotten),
            StoryStep::LoseEpoch { how } => self.lost_epoch(how, now),
            StoryStep::MoveDue { ahead } => self
                .model
                .office
                .due
                .map(|_| Accident::Due(if ahead { now + 7_200_000 } else { now - 1_000_000 })),
            StoryStep::EndKey { which } => {
                let key = KEYS[usize::from(which) % KEYS.len()];
                self.model.keys.contains_key(key).then_some(Accident::KeyEnded(key))
            }
            StoryStep::LoseOpen => Some(Accident::OpenLost),
            StoryStep::Pass { count } => {
                let waiting = self.model.later.len();
                (waiting > 0).then(|| Accident::Passed(self.model.earliest(usize::from(count) % waiting + 1)))
            }
            // None of these times leads to a slot of which the next step may miss the end.
            StoryStep::HistoryMoves { how } => {
                let ms = [400, 2_400, 3_000, 11_000, 70_000, -1_500, -15_000, -200_000][usize::from(how) % 8];
                (!self.model.history[0].is_empty()).then_some(Accident::HistoryMoved(ms))
            }
            StoryStep::PauseOver { handling } => {
                let end = if handling { self.model.handling_end } else { self.model.producing_end };
                end.map(|_| Accident::PauseOver { handling, brakes: self.brakes() })
            }
            StoryStep::RateOpens => {
                self.model.rate_limit.filter(|rate| !rate.is_open).map(|_| Accident::RateOpens(self.brakes()))
            }
            StoryStep::OtherVersion => {
                let before = self.model.schema;
                self.inject(Accident::Schema(Some("1")))?;
                let stranger = Persona {
                    index: 999,
                    lanes: 1,
                    max_deaths: 1,
                    ..self.new_persona(MemberKind::Node, 1, 1, false)
                };
                self.call(StoryCall::Join(stranger), false, false)?;
                let call = self.publishers[0].submit(0, 1, 0, 0);
                self.call(StoryCall::Submit(call), false, true)?;
                let call = self.publishers[0].cancel(0, MessageRef::Id(1));
                self.call(StoryCall::Cancel(call), false, true)?;
                Some(Accident::Schema(before))
            }
            _ => None,
        };
        accident.map_or(Ok(()), |accident| self.inject(accident))
    }

    /// Redis forgets the last epoch, or comes back with another one. Epochs are promised to grow even then, as soon as
    /// Redis' clock has moved on. So the story waits for that.
    fn lost_epoch(&mut self, how: u8, now: u64) -> Option<Accident> {
        let last = self.model.epoch?;
        if how % 8 == 7 {
            return Some(Accident::Epoch(Some(last.max(now) + 1_000_000)));
        }
        if self.top_epoch > now + 1_000 {
            return None;
        }
        while self.env.now() <= self.top_epoch {}
        Some(Accident::Epoch(if how.is_multiple_of(2) { None } else { Some(110) }))
    }
}

/// The publisher that runs another application is mostly refused, so it is seldom chosen.
fn publisher_of(choice: u8) -> usize {
    if choice % 16 == 15 { PUBLISHERS - 1 } else { usize::from(choice) % 2 }
}

/// Most nodes do everything.
fn duties_of(choice: u8) -> Duties {
    match choice % 10 {
        8 => Duties::Generate,
        9 => Duties::Handle,
        _ => Duties::Both,
    }
}

fn interval(choice: u8) -> u64 {
    if choice.is_multiple_of(3) { 0 } else { 500 }
}

/// Readers have no application.
fn application(kind: MemberKind, foreign: bool) -> &'static str {
    match kind {
        MemberKind::Reader => "",
        MemberKind::Node if foreign => "theirs",
        MemberKind::Node => "ours",
    }
}
