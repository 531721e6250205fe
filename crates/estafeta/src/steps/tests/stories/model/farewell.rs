//! `suspects`, `bury` and `leave`: how members go, and what happens to what they held.

use super::super::answer::Answer;
use super::super::call::Persona;
use super::{Failed, Member, ModelClock, ModelMessage, ModelRing};

const GAVE_UP: &str = "gave up: every node that handled it died or hung";

impl ModelRing {
    /// `suspects` assumes that every member has presence and the same lease. `bury` knows what each member registered.
    pub(super) fn suspects(&self, lease_ms: u64, clock: &ModelClock) -> Answer {
        let mut members: Vec<&Member> = self.members.values().collect();
        members.sort_by_key(|member| (member.deadline.from, member.persona.name()));
        let state = |member: &Member| {
            let (deadline, now) = (member.deadline.from, clock.now());
            match self.connected.contains(&member.persona.index) {
                _ if deadline < now => Some("expired"),
                false => Some("absent"),
                true => (deadline > now + lease_ms).then_some("ahead"),
            }
        };
        let suspects =
            members.iter().filter_map(|member| Some((member.persona.name(), state(member)?.to_owned())));
        let list = suspects.collect();
        let waits = !self.ready.is_empty() || self.is_due(clock);
        let is_paused = self.handling_end.is_some_and(|end| end > clock.now());
        let is_closed = is_paused || self.limited_room() == Some(0);
        Answer::Suspects { needs_wakeup: waits && !is_closed && !self.idle.is_empty(), list }
    }

    /// Removes a member whose lease ran out, or that was missed for the grace period. A detector whose own lease ran out
    /// is ignored.
    pub(super) fn bury(
        &mut self,
        victim: Persona,
        detector: Option<Persona>,
        absent_since: u64,
        clock: &ModelClock,
    ) -> Answer {
        let now = clock.now();
        let Some(member) = self.members.get(&victim.index) else { return Answer::Gone };
        let is_awake = |detector: Persona| {
            self.members.get(&detector.index).is_some_and(|detector| detector.deadline.from >= now)
        };
        if !detector.is_none_or(is_awake) {
            return Answer::Alive;
        }
        let is_forgotten = member.is_forgotten;
        let number = member.known_number();
        let state = self.health(member, now);
        if state == "ahead" && !is_forgotten {
            self.extend_lease(victim, clock);
        }
        if !Self::is_dead(state, absent_since, now) {
            return Answer::Alive;
        }
        // Only its hash contained the limit of deaths.
        let max_deaths = if is_forgotten { u32::MAX } else { victim.max_deaths };
        let (returned, gave_up) = self.remove(victim, Some(max_deaths), clock);
        self.add("buried", 1);
        self.announce(format!("buried|member|{number}|why|{state}|returned|{returned}|gave-up|{gave_up}"));
        self.wake(None, false, clock);
        Answer::Buried { number, returned, gave_up }
    }

    /// A member that leaves turns no message into an error.
    pub(super) fn leave(&mut self, me: Persona, clock: &ModelClock) -> Answer {
        let Some(member) = self.members.get(&me.index) else { return Answer::Left { returned: 0 } };
        let number = member.known_number();
        if self.office.holder.is_some_and(|(holder, _)| holder == me.index) {
            self.call_heir(me);
        }
        let (returned, _) = self.remove(me, None, clock);
        self.announce(format!("left|member|{number}|returned|{returned}"));
        self.wake(None, false, clock);
        Answer::Left { returned }
    }

    /// Returns what a member held to the head of the list it came from, in the old order. If the member died, there is a
    /// limit of deaths. A message that reaches it becomes an error instead.
    fn remove(&mut self, who: Persona, max_deaths: Option<u32>, clock: &ModelClock) -> (u64, u64) {
        let number = self.members[&who.index].known_number();
        if self.office.holder.is_some_and(|(holder, _)| holder == who.index) {
            self.vacate(number, clock);
        }
        let member = self.members.remove(&who.index).expect("it was there before");
        let held = if member.is_forgotten { 0 } else { member.held() };
        if self.office.holder.is_none() && self.succession().is_empty() {
            // No member is left that could take over from the last leader.
            self.office.last = None;
        }
        self.errors.splice(..0, member.shows);
        self.idle.retain(|idle| *idle != who.index);
        self.end_pause(clock);
        self.count_hands(0, held, clock);

        let mut held: Vec<ModelMessage> = member.hand.into_iter().flat_map(|claim| claim.messages).collect();
        held.sort_by_key(|message| message.id);
        let is_spent = |message: &ModelMessage| max_deaths.is_some_and(|most| message.deaths + 1 >= most);
        let (spent, back): (Vec<_>, Vec<_>) = held.into_iter().partition(is_spent);
        let (returned, gave_up) = (back.len(), spent.len());
        self.ready.splice(
            ..0,
            back.into_iter().map(|message| ModelMessage {
                deliveries: message.deliveries + 1,
                deaths: message.deaths + u32::from(max_deaths.is_some()),
                pack: None,
                ..message
            }),
        );
        if who.journal && gave_up > 0 {
            let ids: Vec<_> = spent.iter().map(|message| message.id.to_string()).collect();
            let ids = ids.join(" ");
            self.journal.push(format!("ids|{ids}|errors|{ids}|member|{}", member.number));
        }
        spent.iter().for_each(|message| self.end(message.id, "open message given up"));
        self.errors.extend(spent.into_iter().map(|message| Failed {
            message: ModelMessage { deaths: message.deaths + 1, ..message },
            failed_ms: clock.now(),
            member: member.number,
            reason: GAVE_UP.into(),
        }));
        self.add("returned", returned);
        self.add("failed", gave_up);
        (returned as u64, gave_up as u64)
    }
}

impl Member {
    /// Its number, or 0 if its hash was deleted.
    fn known_number(&self) -> u64 {
        if self.is_forgotten { 0 } else { self.number }
    }
}
