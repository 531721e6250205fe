//! The ring as it must be, in plain Rust: the executable specification of the scripts.
//!
//! Each step is a function of the ring before it, the call and Redis' time. It changes the ring and returns what Redis
//! must answer. The model follows `docs/protocol.md`, not the scripts. Only `image` knows how Redis stores a ring. The
//! other parts know neither keys nor Lua.
//!
//! Redis' clock runs while a step is made. So the model gets the times right before and right after the step, and the
//! exact time if the answer contains it. A time that Redis stamped in between is a [`Span`] until [`ModelRing::learn`] finds
//! it in Redis.

mod brakes;
mod effects;
mod farewell;
mod history;
mod image;
mod line;
mod office;
mod publication;
mod queue;
mod submission;
mod time;

use std::collections::{BTreeMap, BTreeSet};

use super::answer::Answer;
use super::call::{GRACE_MS, Persona, StoryCall};
pub(super) use brakes::ModelRate;
pub(super) use effects::UserValue;
use effects::Written;
use history::ModelSample;
pub(super) use line::Called;
use submission::{LastCall, TakenKey};
pub(super) use time::{ModelClock, Span};

use crate::latency::Latencies;
use crate::source::Plan;

#[derive(Clone, Default)]
pub(super) struct ModelRing {
    pub schema: Option<&'static str>,
    pub application: Option<&'static str>,
    /// How many partitions its requirements state.
    pub partitions: Option<u32>,
    /// By their number in the story.
    pub members: BTreeMap<usize, Member>,
    pub office: ModelOffice,
    pub epoch: Option<u64>,
    pub ready: Vec<ModelMessage>,
    /// The messages that wait for a time, by id.
    pub later: BTreeMap<u64, Delayed>,
    /// The idle members, by their number in the story. The longest idle member is the first.
    pub idle: Vec<usize>,
    /// When producing and handling resume. A pause that is over may still be stored.
    pub producing_end: Option<u64>,
    pub handling_end: Option<u64>,
    /// How many messages members may hold together, and how many they hold.
    pub in_flight_limit: Option<(u64, u64)>,
    pub rate_limit: Option<ModelRate>,
    pub errors: Vec<Failed>,
    /// What the last generators left for the next one: where to continue, and the last tick of each schedule entry.
    pub checkpoint: Option<String>,
    pub ticks: BTreeMap<String, u64>,
    /// The messages of schedule entries that have no outcome yet, and the entry of each.
    pub open: BTreeMap<u64, &'static str>,
    /// The definition of each schedule entry.
    pub plan: Plan,
    pub ledger: BTreeMap<&'static str, u64>,
    /// The samples of seconds, of ten seconds and of minutes.
    pub history: [Vec<ModelSample>; 3],
    /// Waiting and handling times that are not in a sample yet.
    pub latencies: (Latencies, Latencies),
    pub events: Vec<String>,
    pub journal: Vec<String>,
    pub publishers: BTreeMap<usize, LastCall>,
    /// The keys that are taken.
    pub keys: BTreeMap<&'static str, TakenKey>,
    /// What effects have written.
    pub written: Written,
    /// The single names that are taken, and the message that waits with each.
    pub singles: BTreeMap<&'static str, u64>,
    /// The ids of messages that were handled without an error. Redis only counts them.
    pub done: Vec<u64>,
    /// The ids of errors that were taken or dropped. Redis only counts them.
    pub taken: Vec<u64>,
    /// The ids of messages that were cancelled. Redis only counts them.
    pub cancelled: Vec<u64>,
    /// The identities that are connected, by their number in the story, whether they are members or not.
    pub connected: BTreeSet<usize>,
    /// The nodes that were called since the last comparison, and to what.
    pub called: Vec<(Persona, Called)>,
    /// What happened that no answer shows.
    pub effects: Vec<&'static str>,
    /// What the first in line knew before this step: that it was the first, and when it has to make a turn.
    known: (Option<usize>, Option<Span>),
}

/// A message that waits for a time.
#[derive(Clone)]
pub(super) struct Delayed {
    pub due: Span,
    pub message: ModelMessage,
}

#[derive(Clone)]
pub(super) struct Member {
    pub persona: Persona,
    pub number: u64,
    /// Its place in the line of succession. Higher than its number, if members before it gave way.
    pub place: u64,
    pub started: u64,
    pub deadline: Span,
    /// Its hash was deleted. Only its entry in the member list and what it holds are left.
    pub is_forgotten: bool,
    /// How many messages or errors it has let go of.
    pub cursor: Option<u64>,
    pub last_try: Option<u64>,
    /// The number of its last claim.
    pub claimed: u64,
    /// What a handler holds, in the order of its claims.
    pub hand: Vec<ModelClaim>,
    /// The errors that a reader holds.
    pub shows: Vec<Failed>,
    /// Running totals. Each exists from the first message of its kind on.
    pub generated: Option<u64>,
    pub failed: Option<u64>,
    pub back: Option<u64>,
    /// How many of its lanes are stuck, if it ever reported that.
    pub stuck: Option<u64>,
    /// When it last complained of its handler.
    pub complained: Option<u64>,
    /// The last turn with bad effects: its cursor, and what Redis answered about them.
    pub bad: Option<(u64, String)>,
    /// The number of the last latencies that it handed over.
    pub noted: Option<u64>,
}

/// One element in a hand.
#[derive(Clone)]
pub(super) struct ModelClaim {
    pub number: u64,
    /// Its place in its pack, if the pack was opened in the hand.
    pub index: Option<usize>,
    pub messages: Vec<ModelMessage>,
}

impl ModelClaim {
    pub fn name(&self) -> String {
        let Self { number, index, messages } = self;
        match (index, messages.len()) {
            (Some(index), _) => format!("{number}.{index}"),
            (None, 1) => number.to_string(),
            (None, size) => format!("{number}*{size}"),
        }
    }
}

impl Member {
    /// How many messages are in its hand.
    pub fn held(&self) -> usize {
        self.hand.iter().map(|claim| claim.messages.len()).sum()
    }
}

#[derive(Clone, Default)]
pub(super) struct ModelOffice {
    /// The member in office: its number in the story, and its number as a member.
    pub holder: Option<(usize, u64)>,
    /// The term of the holder. If the office is vacant, the last term.
    pub term: Option<ModelTerm>,
    pub due: Option<u64>,
    /// The last publish whose ids were not those of the call: its epoch, its number in that term, its first id, and the
    /// duplicates.
    pub renumbered: Option<(u64, u64, u64, String)>,
    pub last: Option<u64>,
    /// The member whose source failed too often, until another member leads.
    pub yielded: Option<usize>,
    /// How many failures of its source the member in office has reported.
    pub reported: u64,
    pub vacated: Option<Span>,
}

#[derive(Clone)]
pub(super) struct ModelTerm {
    pub epoch: u64,
    /// How many messages were published when it began.
    pub base: u64,
    pub sent: u64,
    pub lease_ms: u64,
    pub since: u64,
    pub presence: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelMessage {
    pub id: u64,
    pub epoch: u64,
    pub published_ms: u64,
    /// How often it was delivered before, how often its handler failed, how many members died with it, and how often its
    /// handler snoozed it.
    pub deliveries: u32,
    pub failures: u32,
    pub deaths: u32,
    pub snoozes: u32,
    /// As Redis stores them.
    pub headers: Vec<u8>,
    pub body: Vec<u8>,
    /// The first message of its pack, if it is in one. Messages of a pack are neighbours.
    pub pack: Option<u64>,
}

impl ModelMessage {
    /// A message that was just published, alone and without headers.
    fn new(id: u64, epoch: u64, published_ms: u64, body: Vec<u8>) -> Self {
        let (deliveries, failures, deaths, snoozes) = (0, 0, 0, 0);
        let (headers, pack) = (Vec::new(), None);
        Self { id, epoch, published_ms, deliveries, failures, deaths, snoozes, headers, body, pack }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failed {
    pub message: ModelMessage,
    pub failed_ms: u64,
    pub member: u64,
    pub reason: String,
}

impl ModelRing {
    /// Makes one step and returns the answer that Redis must give.
    pub fn apply(&mut self, call: &StoryCall, clock: &ModelClock) -> Answer {
        // While there is a rate, the first in line learns the time with every step, unless the ring is paused.
        let is_paused = self.handling_end.is_some_and(|end| end > clock.now());
        let known = self.known_alarm().filter(|_| is_paused || self.rate_limit.is_none());
        self.known = (self.idle.first().copied(), known);
        match call {
            StoryCall::Join(me) => self.join(*me, clock),
            StoryCall::Beat { me, known, latencies } => self.beat(*me, *known, latencies, clock),
            StoryCall::Lead { .. } => self.lead(call, clock),
            StoryCall::Resign { me, epoch } => self.resign(*me, *epoch, clock),
            StoryCall::Report { .. } => self.report(call, clock),
            StoryCall::Complain { me, pause_ms } => self.complain(*me, *pause_ms, clock),
            StoryCall::Publish(publication) => self.publish(publication, clock),
            StoryCall::Submit(submission) => self.submit(submission, clock),
            StoryCall::Cancel(cancellation) => self.cancel(cancellation),
            // A late join may bring a member back with a new number. A sender that knows only the former number is
            // lost.
            StoryCall::Turn { me, number, .. } | StoryCall::Take { me, number, .. }
                if !self.knows(*me, *number) =>
            {
                Answer::Lost
            }
            StoryCall::Turn { me, this_try, asks, .. } => self.turn(*me, *this_try, &asks.settlement, clock),
            StoryCall::Take { me, settles, .. } => self.take(*me, settles),
            StoryCall::Suspects { lease_ms } => self.suspects(*lease_ms, clock),
            StoryCall::Bury { victim, detector, absent_since } => {
                self.bury(*victim, *detector, *absent_since, clock)
            }
            StoryCall::Leave(me) => self.leave(*me, clock),
            StoryCall::Wake => {
                self.end_pause(clock);
                self.wake(None, self.is_due(clock), clock);
                Answer::Woken
            }
            StoryCall::Pause { producing, handling } => self.pause(*producing, *handling, clock),
            StoryCall::Limit { in_flight, rate, roll } => self.limit(*in_flight, *rate, roll, clock),
            StoryCall::Resolve { drops, elements } => self.resolve(*drops, elements, clock),
            StoryCall::Sample { me, number, epoch, silence } => {
                self.sample((*me, *number), *epoch, *silence, clock)
            }
            StoryCall::Snapshot { roll } => self.snapshot(roll, clock),
        }
    }

    fn knows(&self, me: Persona, number: u64) -> bool {
        self.whole(me).is_some_and(|member| member.number == number)
    }

    /// A member whose hash was not deleted.
    fn whole(&self, who: Persona) -> Option<&Member> {
        self.members.get(&who.index).filter(|member| !member.is_forgotten)
    }

    pub fn forget(&mut self, who: Persona) {
        if let Some(member) = self.members.get_mut(&who.index) {
            (member.is_forgotten, member.generated, member.failed, member.back) = (true, None, None, None);
            (member.stuck, member.bad, member.noted, member.complained) = (None, None, None, None);
            (member.cursor, member.last_try, member.claimed) = (None, None, 0);
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        self.ledger.get(name).copied().unwrap_or(0)
    }

    fn add(&mut self, name: &'static str, count: usize) {
        *self.ledger.entry(name).or_default() += count as u64;
    }

    /// A message got its outcome. If it was open, it is so no longer.
    fn end(&mut self, id: u64, how: &'static str) {
        if self.open.remove(&id).is_some() {
            self.effects.push(how);
        }
    }

    fn announce(&mut self, event: String) {
        self.events.push(format!("kind|{event}"));
    }

    /// The time at which the next delayed message is due.
    fn soonest(&self) -> Option<Span> {
        self.later.values().map(|delayed| delayed.due).min_by_key(|due| due.from)
    }

    fn is_due(&self, clock: &ModelClock) -> bool {
        self.soonest().is_some_and(|soonest| soonest.from <= clock.now())
    }

    /// The first `count` messages that wait for a time, by time and id.
    pub fn earliest(&self, count: usize) -> Vec<u64> {
        let mut ids: Vec<u64> = self.later.keys().copied().collect();
        ids.sort_by_key(|id| (self.later[id].due.from, *id));
        ids.truncate(count);
        ids
    }

    /// Whether a node with presence is not connected.
    pub fn misses(&self, who: Persona) -> bool {
        who.presence && !self.connected.contains(&who.index)
    }

    /// The health of a member, as others see it. If its hash was deleted, only the office still shows whether it has
    /// presence.
    pub fn health(&self, member: &Member, now: u64) -> &'static str {
        let is_missed = self.misses(member.persona) && !member.is_forgotten;
        self.health_if(member, is_missed, now)
    }

    fn health_if(&self, member: &Member, is_missed: bool, now: u64) -> &'static str {
        if member.deadline.from < now {
            "expired"
        } else if is_missed {
            "absent"
        } else if member.deadline.from > now + member.persona.lease_ms() {
            "ahead"
        } else {
            "alive"
        }
    }

    /// The members that may lead, in the order in which they joined or gave way.
    fn succession(&self) -> Vec<&Member> {
        let mut heirs: Vec<_> =
            self.members.values().filter(|member| member.persona.is_candidate()).collect();
        heirs.sort_by_key(|member| member.place);
        heirs
    }

    /// The place behind the last member in the line of succession.
    fn end_of_line(&self) -> u64 {
        self.succession().last().map_or(0, |last| last.place) + 1
    }

    /// Whether a member in this state is dead to an observer that has missed it since `absent_since`.
    fn is_dead(state: &str, absent_since: u64, now: u64) -> bool {
        let missed_ms = now.checked_sub(absent_since).filter(|_| absent_since > 0);
        state == "expired" || (state == "absent" && missed_ms.is_some_and(|ms| ms >= GRACE_MS))
    }

    /// The place in the line of succession, or -1. The generator does not count, except for its own place.
    fn rank(&self, me: Persona) -> i64 {
        let leader = self.office.holder.map(|(index, _)| index).filter(|leader| *leader != me.index);
        let mut line = self.succession().into_iter().filter(|member| Some(member.persona.index) != leader);
        line.position(|member| member.persona == me).map_or(-1, |rank| rank as i64)
    }
}
