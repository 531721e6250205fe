//! The ring as it must be, in plain Rust: the executable specification of the scripts.
//!
//! Each step is a function of the ring before it, the call and Redis' time; it changes the ring and says what Redis has to
//! answer. It is written after `docs/protocol.md`, not after the scripts. Nothing here knows keys or Lua; only `image`
//! knows how a ring lies in Redis.
//!
//! Redis' clock runs while a step is made, so the model is told between which two moments that was, and the moment itself
//! where the answer tells it. What Redis stamped in between is a [`Span`] until it was looked up.

mod farewell;
mod image;
mod office;
mod queue;

use std::collections::{BTreeMap, BTreeSet};

use super::answer::Answer;
use super::call::{Call, GRACE_MS, Persona};
use crate::steps::Kind;

#[derive(Clone, Default)]
pub(super) struct Ring {
    pub schema: Option<&'static str>,
    /// By their place in the story.
    pub members: BTreeMap<usize, Member>,
    pub office: Office,
    pub epoch: Option<u64>,
    pub ready: Vec<Message>,
    /// So many messages at the head of the queue are known to lie alone, because the pack they were in was opened.
    pub loose: usize,
    pub bell: bool,
    pub errors: Vec<Failed>,
    pub ledger: BTreeMap<&'static str, u64>,
    pub events: Vec<String>,
    pub journal: Vec<String>,
    /// Ids that were handled well, and of errors that were taken or dropped. Redis counts them, and forgets which.
    pub done: Vec<u64>,
    pub taken: Vec<u64>,
    /// Whose connection is there, by their place in the story, members or not.
    pub connected: BTreeSet<usize>,
    /// Who was called to the office, and has not been looked for yet.
    pub called: Vec<Persona>,
}

#[derive(Clone)]
pub(super) struct Member {
    pub persona: Persona,
    pub number: u64,
    pub started: u64,
    pub deadline: Span,
    /// Somebody deleted what it told of itself: its name and what it holds are all that is left.
    pub is_forgotten: bool,
    pub lanes: Vec<Lane>,
    /// What a reader shows at the moment.
    pub shows: Vec<Failed>,
    /// Running totals, which begin with the first message of their kind.
    pub generated: Option<u64>,
    pub failed: Option<u64>,
}

#[derive(Clone, Default)]
pub(super) struct Lane {
    pub cursor: Option<u64>,
    pub last_try: Option<u64>,
    pub holds: Vec<Message>,
}

#[derive(Clone, Default)]
pub(super) struct Office {
    /// Who is in office: place in the story, number.
    pub holder: Option<(usize, u64)>,
    /// The term of the holder or, in a vacant office, of the last one.
    pub term: Option<Term>,
    pub due: Option<u64>,
    pub last: Option<u64>,
    pub vacated: Option<Span>,
}

#[derive(Clone)]
pub(super) struct Term {
    pub epoch: u64,
    pub sent: u64,
    pub lease_ms: u64,
    pub since: u64,
    pub presence: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub id: u64,
    pub epoch: u64,
    pub attempt: u32,
    pub body: Vec<u8>,
    /// The first message of the pack that it lies in, if it does. Messages of a pack stand next to each other.
    pub pack: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failed {
    pub message: Message,
    pub failed_ms: u64,
    pub member: u64,
    pub reason: String,
}

/// A moment of Redis' clock, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub from: u64,
    pub to: u64,
}

/// When a step was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub span: Span,
    /// The moment itself, if it is known.
    pub now: Option<u64>,
}

impl Span {
    pub fn exactly(ms: u64) -> Self {
        Self { from: ms, to: ms }
    }

    fn plus(self, ms: u64) -> Self {
        Self { from: self.from + ms, to: self.to + ms }
    }

    pub fn covers(self, ms: u64) -> bool {
        (self.from..=self.to).contains(&ms)
    }
}

impl Clock {
    pub fn now(&self) -> u64 {
        self.now.unwrap_or(self.span.from)
    }

    /// What is stamped now, `ms` from now.
    fn in_ms(&self, ms: u64) -> Span {
        self.now.map_or(self.span, Span::exactly).plus(ms)
    }
}

impl Ring {
    /// Makes one step and says what has to be answered.
    pub fn apply(&mut self, call: &Call, clock: &Clock) -> Answer {
        match call {
            Call::Join(me) => self.join(*me, clock),
            Call::Beat(me) => self.beat(*me, clock),
            Call::Lead { .. } => self.lead(call, clock),
            Call::Resign { me, epoch } => self.resign(*me, *epoch, clock),
            Call::Publish(publication) => self.publish(publication, clock),
            // A member that a late join brought back is another one to whoever was told its former number.
            Call::Turn { me, number, .. } | Call::Take { me, number, .. } if !self.knows(*me, *number) => {
                Answer::Lost
            }
            Call::Turn { me, lane, sending, settles, .. } => self.turn(*me, *lane, *sending, settles, clock),
            Call::Take { me, settles, .. } => self.take(*me, settles),
            Call::Suspects { lease_ms } => self.suspects(*lease_ms, clock),
            Call::Bury { victim, judge, absent_since } => self.bury(*victim, *judge, *absent_since, clock),
            Call::Leave(me) => self.leave(*me, clock),
            Call::Ring => {
                self.wake();
                Answer::Rung
            }
            Call::Resolve { drops, elements } => self.resolve(*drops, elements),
            Call::Snapshot { roll } => self.snapshot(roll, clock),
        }
    }

    fn knows(&self, me: Persona, number: u64) -> bool {
        self.whole(me).is_some_and(|member| member.number == number)
    }

    /// A member that is known by more than its name.
    fn whole(&self, who: Persona) -> Option<&Member> {
        self.members.get(&who.index).filter(|member| !member.is_forgotten)
    }

    pub fn forget(&mut self, who: Persona) {
        if let Some(member) = self.members.get_mut(&who.index) {
            let lanes = member.lanes.drain(..);
            member.lanes = lanes.map(|lane| Lane { holds: lane.holds, ..Lane::default() }).collect();
            (member.is_forgotten, member.generated, member.failed) = (true, None, None);
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        self.ledger.get(name).copied().unwrap_or(0)
    }

    fn add(&mut self, name: &'static str, count: usize) {
        *self.ledger.entry(name).or_default() += count as u64;
    }

    fn announce(&mut self, event: String) {
        self.events.push(format!("kind|{event}"));
    }

    /// The bell is rung whenever something waits, and once is enough.
    fn wake(&mut self) {
        self.bell |= !self.ready.is_empty();
    }

    /// Whether somebody who said that it would be connected is not.
    pub fn misses(&self, who: Persona) -> bool {
        who.presence && !self.connected.contains(&who.index)
    }

    /// How a member looks to the others. Of one that was forgotten nobody knows that it would be connected, except who
    /// finds it in office.
    pub fn looks(&self, member: &Member, now: u64) -> &'static str {
        let is_missed = self.misses(member.persona) && !member.is_forgotten;
        self.looks_when(member, is_missed, now)
    }

    fn looks_when(&self, member: &Member, is_missed: bool, now: u64) -> &'static str {
        if member.deadline.from < now {
            "expired"
        } else if is_missed {
            "absent"
        } else if member.deadline.from > now + member.persona.lease_ms() {
            "ahead"
        } else {
            "well"
        }
    }

    /// Those that may lead, in the order in which they joined.
    fn succession(&self) -> Vec<&Member> {
        let mut heirs: Vec<_> =
            self.members.values().filter(|member| member.persona.kind == Kind::Member).collect();
        heirs.sort_by_key(|member| member.number);
        heirs
    }

    /// Whether a member that looks so is dead to one that has missed it since then.
    fn is_dead(state: &str, absent_since: u64, now: u64) -> bool {
        let missed_ms = now.checked_sub(absent_since).filter(|_| absent_since > 0);
        state == "expired" || (state == "absent" && missed_ms.is_some_and(|ms| ms >= GRACE_MS))
    }

    /// Place in the line of succession; whoever leads does not stand in it.
    fn rank(&self, me: Persona) -> i64 {
        let leader = self.office.holder.map(|(index, _)| index).filter(|leader| *leader != me.index);
        let mut line = self.succession().into_iter().filter(|member| Some(member.persona.index) != leader);
        line.position(|member| member.persona == me).map_or(-1, |rank| rank as i64)
    }
}
