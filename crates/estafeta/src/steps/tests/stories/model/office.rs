//! `join`, `beat`, `lead`, `resign` and `snapshot`: which members the ring has, and which of them leads.

use super::super::answer::{Answer, Overview, SeenMember};
use super::super::call::{COMPLAINT, HOST, Persona, StoryCall};
use super::{Called, Member, ModelClock, ModelRing, ModelTerm};
use crate::inspect::EventKind;
use crate::layout::Layouts;
use crate::steps::{Known, LatencyGroup, MemberKind};

impl ModelRing {
    /// The layout that all members of a story know.
    pub(super) const LAYOUT: &'static str = const {
        assert!(Layouts::KNOWN.newest == 4, "which is it now?");
        "4"
    };

    pub(super) fn join(&mut self, me: Persona, clock: &ModelClock) -> Answer {
        let ours = Self::LAYOUT;
        if let Some(theirs) = self.schema.filter(|theirs| *theirs != ours) {
            return Answer::Schema { theirs: theirs.into() };
        }
        let partitions = Some(me.partitions).filter(|_| me.kind == MemberKind::Node);
        if let Some(refusal) = self.refuse(me.application, partitions, true) {
            return refusal;
        }
        if let Some(known) = self.whole(me) {
            return Answer::Joined { number: known.number };
        }
        self.schema = Some(ours);
        self.ledger.entry("born").or_insert(clock.now());
        self.application = Some(me.application).filter(|ours| !ours.is_empty()).or(self.application);
        self.partitions = partitions.filter(|count| *count > 1).or(self.partitions);
        self.add("joined", 1);
        let number = self.count("joined");
        let place = self.end_of_line().max(number);
        // If only its entry in the member list was left, a reader keeps what it held.
        let shows = self.members.remove(&me.index).map(|former| former.shows).unwrap_or_default();
        let member = Member {
            persona: me,
            number,
            place,
            started: clock.now(),
            deadline: clock.in_ms(me.lease_ms()),
            is_forgotten: false,
            cursor: None,
            last_try: None,
            claimed: 0,
            hand: Vec::new(),
            shows,
            generated: None,
            failed: None,
            back: None,
            stuck: None,
            complained: None,
            bad: None,
            noted: None,
        };
        self.members.insert(me.index, member);
        let role = if me.kind == MemberKind::Reader { "reader" } else { "node" };
        self.announce(format!("joined|member|{number}|role|{role}|host|{HOST}|pid|{}", std::process::id()));
        Answer::Joined { number }
    }

    /// The answer to a caller of another application, or one that expects another number of partitions. It `demands` its
    /// number if it may begin a ring.
    pub(super) fn refuse(&self, application: &str, partitions: Option<u32>, demands: bool) -> Option<Answer> {
        match (self.partitions, partitions) {
            (Some(theirs), Some(ours)) if theirs != ours => {
                return Some(Answer::Partitions { lacks: false, count: theirs });
            }
            _ => {}
        }
        let theirs = self.application?;
        if !["", theirs].contains(&application) {
            return Some(Answer::Application { theirs: theirs.into() });
        }
        let ours = partitions.filter(|ours| demands && *ours > 1 && self.partitions.is_none())?;
        Some(Answer::Partitions { lacks: true, count: ours })
    }

    pub(super) fn beat(
        &mut self,
        me: Persona,
        known: Known,
        latencies: &LatencyGroup,
        clock: &ModelClock,
    ) -> Answer {
        let now = clock.now();
        let Some(member) = self.whole(me) else { return Answer::Lost };
        let (overslept, number) = (member.deadline.from < now, member.number);
        let lost = self.loss(known);
        if lost > 0 && self.office.holder.is_none_or(|(holder, _)| holder != me.index) {
            self.lose(lost, number);
            if let Some(term) = self.office.term.as_mut().filter(|term| known.epoch.0 < term.epoch) {
                term.base = known.published;
            }
        }
        let is_other_ring = known.born != 0 && known.born != self.count("born");
        if is_other_ring && self.count("former") == 0 {
            self.add("former", known.born as usize);
            self.announce(format!("wiped|member|{number}|known|{}", known.published));
        }
        let (office, leader) = match self.office.holder {
            None => ("none", String::new()),
            Some((index, _)) if index == me.index => ("me", me.name()),
            Some((index, _)) => {
                let leader = &self.members[&index];
                (self.health_in_office(leader, now), leader.persona.name())
            }
        };
        let rank = self.rank(me);
        let outstanding = self.count("published") + self.count("retried")
            - self.count("done")
            - self.count("failed")
            - self.count("lost")
            - self.count("cancelled");
        let answer = Answer::Stands {
            overslept,
            rank,
            office: office.into(),
            leader,
            epoch: self.office.term.as_ref().map_or(0, |term| term.epoch),
            counts: [self.count("published"), outstanding, self.count("born"), self.members.len() as u64],
        };
        self.extend_lease(me, clock);
        self.note_latencies(me, latencies);
        answer
    }

    /// The health of the member in office. The office itself records whether that member has presence.
    fn health_in_office(&self, leader: &Member, now: u64) -> &'static str {
        let is_missed =
            self.office.term.as_ref().is_some_and(|term| term.presence) && self.misses(leader.persona);
        self.health_if(leader, is_missed, now)
    }

    /// A member gets the office if the office is vacant. It also gets it if the holder is dead and its own lease still
    /// runs.
    pub(super) fn lead(&mut self, call: &StoryCall, clock: &ModelClock) -> Answer {
        let StoryCall::Lead { me, replaces, known, interval, silence, absent_since } = *call else {
            unreachable!("{call}")
        };
        let now = clock.now();
        let Some(candidate) = self.whole(me).filter(|_| me.is_candidate()) else {
            return Answer::Lost;
        };
        let (number, overslept) = (candidate.number, candidate.deadline.from < now);
        let published = self.count("published");
        let due = self.office.due.unwrap_or(now);
        let mut silence = silence;
        match (self.office.holder, &self.office.term) {
            (Some((holder, _)), Some(term)) if holder == me.index && term.epoch != replaces => {
                let (epoch, sent) = (term.epoch, term.sent);
                return Answer::Leads { epoch, sent, published, due, predecessor: 0, silence: 0 };
            }
            (Some((holder, _)), Some(term)) if holder != me.index => {
                let incumbent = &self.members[&holder];
                let state = self.health_in_office(incumbent, now);
                if overslept || !Self::is_dead(state, absent_since, now) {
                    return Answer::Follows;
                }
                if state == "expired" {
                    silence = now - incumbent.deadline.from + term.lease_ms;
                }
            }
            (None, _) => {
                silence = self.office.vacated.map_or(silence, |vacated| now.saturating_sub(vacated.from));
                let is_early = self.office.vacated.is_some() && silence < me.lease_ms();
                if self.office.yielded == Some(me.index) && is_early && self.succession().len() > 1 {
                    self.effects.push("let others lead");
                    return Answer::Follows;
                }
            }
            _ => {}
        }
        let predecessor = self.office.holder.map(|(_, number)| number).or(self.office.last).unwrap_or(0);

        let latest = self.epoch.unwrap_or(0);
        let epoch = now.max(latest + 1).max(known.epoch.0 + 1);
        let due = due.min(now + interval);
        self.epoch = Some(epoch);
        self.office.holder = Some((me.index, number));
        let (lease_ms, presence) = (me.lease_ms(), me.presence);
        let lost = self.loss(known);
        let published = published + lost;
        self.office.term =
            Some(ModelTerm { epoch, base: published, sent: 0, lease_ms, since: now, presence });
        self.office.due = Some(due);
        self.office.last = Some(number);
        (self.office.yielded, self.office.reported) = (None, 0);
        self.extend_lease(me, clock);
        if lost > 0 {
            self.lose(lost, number);
        }
        if predecessor != 0 && predecessor != number {
            self.add("takeovers", 1);
            let rest = format!("from|{predecessor}|silence|{silence}|epoch|{epoch}");
            self.announce(format!("took-over|member|{number}|{rest}"));
        } else {
            self.announce(format!("took-office|member|{number}|epoch|{epoch}"));
        }
        Answer::Leads { epoch, sent: 0, published, due, predecessor, silence }
    }

    /// How many messages are lost, by the knowledge of one node. Its knowledge of an earlier term is compared with the
    /// start of the latest one.
    fn loss(&self, known: Known) -> u64 {
        let found = match &self.office.term {
            Some(term) if known.epoch.0 < term.epoch => term.base,
            _ => self.count("published"),
        };
        if known.born == self.count("born") { known.published.saturating_sub(found) } else { 0 }
    }

    /// Counts messages that Redis has lost. Their ids are not given out again.
    fn lose(&mut self, lost: u64, number: u64) {
        let found = self.count("published");
        let known = found + lost;
        self.add("published", lost as usize);
        self.add("lost", lost as usize);
        self.announce(format!("rolled-back|member|{number}|known|{known}|found|{found}"));
    }

    pub(super) fn resign(&mut self, me: Persona, epoch: u64, clock: &ModelClock) -> Answer {
        if let (Some((holder, number)), Some(term)) = (self.office.holder, &self.office.term)
            && holder == me.index
            && term.epoch == epoch
        {
            self.vacate(number, clock);
            self.announce(format!("resigned|member|{number}"));
            self.call_heir(me);
        }
        Answer::Resigned
    }

    /// Records a failure of the generator's source. After five in a row, the generator goes to the end of the line of
    /// succession, if another member is in it.
    pub(super) fn report(&mut self, call: &StoryCall, clock: &ModelClock) -> Answer {
        let StoryCall::Report { me, epoch, n, in_a_row, reason } = *call else { unreachable!("{call}") };
        let Some((_, number)) = self.office.holder.filter(|(holder, _)| *holder == me.index) else {
            return Answer::Fenced;
        };
        if self.office.term.as_ref().is_none_or(|term| term.epoch != epoch) {
            return Answer::Fenced;
        }
        if n <= self.office.reported {
            return Answer::Noted;
        }
        self.office.reported = n;
        self.add("source-failed", 1);
        let nth = if in_a_row > 5 { in_a_row } else { n };
        if nth <= 5 || nth.is_multiple_of(10) || in_a_row == 5 {
            self.announce(format!("source-failed|member|{number}|in-a-row|{in_a_row}|reason|{reason}"));
        }
        if in_a_row < 5 || self.succession().len() < 2 {
            return Answer::Noted;
        }
        self.vacate(number, clock);
        self.office.yielded = Some(me.index);
        let place = self.end_of_line();
        self.members.get_mut(&me.index).expect("the leader is a member").place = place;
        self.announce(format!("resigned|member|{number}"));
        self.call_heir(me);
        Answer::Resigned
    }

    /// Announces that the handler of a member is broken, unless its last such event is younger than the pause.
    pub(super) fn complain(&mut self, me: Persona, pause_ms: u64, clock: &ModelClock) -> Answer {
        let Some(member) = self.whole(me) else { return Answer::Lost };
        let (number, now) = (member.number, clock.now());
        if member.complained.is_some_and(|last| now < last + pause_ms) {
            return Answer::Quiet;
        }
        self.members.get_mut(&me.index).expect("it is a member").complained = Some(now);
        self.announce(format!("handler-broken|member|{number}|reason|{COMPLAINT}"));
        Answer::Complained
    }

    /// Calls the heir to the vacant office, if it is connected.
    pub(super) fn call_heir(&mut self, leaving: Persona) {
        let heir = self.succession().into_iter().map(|heir| heir.persona).find(|heir| *heir != leaving);
        let heir = heir.filter(|heir| self.connected.contains(&heir.index));
        self.called.extend(heir.map(|heir| (heir, Called::Office)));
    }

    /// The next tick stays as it is. The last leader is remembered if another member can take over from it.
    pub(super) fn vacate(&mut self, number: u64, clock: &ModelClock) {
        let heirs = self.succession().len();
        self.office.holder = None;
        self.office.last = (heirs > 1).then_some(number);
        // The script reads the clock once more for this.
        self.office.vacated = Some(clock.span);
    }

    pub(super) fn extend_lease(&mut self, me: Persona, clock: &ModelClock) {
        if let Some(member) = self.members.get_mut(&me.index) {
            member.deadline = clock.in_ms(me.lease_ms());
        }
    }

    pub(super) fn snapshot(&self, roll: &[Persona], clock: &ModelClock) -> Answer {
        let mut known: Vec<_> = roll.iter().map(|who| who.index).collect();
        known.sort_unstable();
        if !known.iter().eq(self.members.keys()) {
            return Answer::Changed;
        }
        let mut members: Vec<_> = self.members.values().filter(|member| !member.is_forgotten).collect();
        members.sort_by_key(|member| member.number);
        let leads = |member: &Member| self.office.holder.is_some_and(|(who, _)| who == member.persona.index);
        let is_reader = |member: &&&Member| member.persona.kind == MemberKind::Reader;
        let held = |member: &Member| (member.held() + member.shows.len()) as u64;
        // A generator whose hash was deleted is not shown, and the others keep the rank that they have beside it.
        let unseen = self.members.values().find(|member| leads(member) && member.is_forgotten);
        let rank = |member: &Member| {
            let behind = unseen.is_some_and(|leader| leader.place < member.place);
            let rank = u64::try_from(self.rank(member.persona)).ok().filter(|_| !leads(member));
            rank.map(|rank| rank + u64::from(behind))
        };
        let totals = |member: &Member| {
            let processed = member.cursor.unwrap_or(0) - member.back.unwrap_or(0);
            [member.generated.unwrap_or(0), processed, member.failed.unwrap_or(0)]
        };
        let held_by_readers: u64 = members.iter().filter(is_reader).map(|member| held(member)).sum();
        let all: u64 = members.iter().map(|member| held(member)).sum();
        // What a reader holds is not seen if its hash was deleted.
        let balanced = self.members.values().all(|member| !member.is_forgotten || member.shows.is_empty());
        let epoch = self.office.term.as_ref().map_or(0, |term| term.epoch);
        Answer::Snapshot(Box::new(Overview {
            layout: self.schema.and_then(|layout| layout.parse().ok()),
            application: self.application.map(ToOwned::to_owned),
            generator: self.office.holder.map(|(_, number)| (number, epoch)),
            members: members
                .iter()
                .map(|member| SeenMember {
                    number: member.number,
                    pid: std::process::id().into(),
                    host: HOST.into(),
                    started: member.started,
                    deadline: member.deadline.from,
                    state: self.health(member, clock.now()).into(),
                    rank: rank(member),
                    held: held(member),
                    totals: totals(member),
                    stuck: member.stuck.unwrap_or(0),
                })
                .collect(),
            ledger: [
                "takeovers",
                "returned",
                "fenced",
                "buried",
                "retried",
                "dropped",
                "retries",
                "snoozes",
                "cancelled",
                "submitted",
            ]
            .map(|name| self.count(name)),
            readers: members.iter().filter(is_reader).count(),
            waiting: self.ready.len() as u64,
            later: self.later.len() as u64,
            in_flight: all - held_by_readers,
            errors_kept: self.errors.len() as u64 + held_by_readers,
            balanced,
            pauses: [self.producing_end, self.handling_end].map(|end| end.filter(|end| *end > clock.now())),
            limits: [self.in_flight_limit.map(|(most, _)| most), self.rate_limit.map(|_| 1)],
            events: self.events.iter().rev().map(|event| read_event(event)).collect(),
        }))
    }
}

/// Converts an entry of the event stream to the type of the library.
fn read_event(entry: &str) -> EventKind {
    let words: Vec<&str> = entry.split('|').collect();
    EventKind::of_fields(words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect())
}
