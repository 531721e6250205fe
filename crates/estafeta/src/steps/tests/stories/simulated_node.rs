//! A simulated node: what it knows about itself from the answers that it received, and what it sends because of that.
//! If an answer is lost, the node sends the same call again until it receives one, as the store does.

use super::answer::Answer;
use super::call::{Persona, Publication, Settles, StoryCall, ids_in};
use super::step::Flaw;
use crate::identity::Epoch;
use crate::steps::{Known, MemberKind};

pub(super) struct SimulatedNode {
    pub persona: Persona,
    /// The number that `join` returned.
    number: u64,
    /// It knows that it is no longer a member. A real node would join again under a new identity.
    pub gone: bool,
    pub term: Option<KnownTerm>,
    known: Known,
    lanes: Vec<KnownLane>,
}

pub(super) struct KnownTerm {
    pub epoch: u64,
    n: u64,
    next_id: u64,
    unanswered: Option<Publication>,
}

#[derive(Clone, Default)]
struct KnownLane {
    cursor: u64,
    /// The ids of the messages that it holds.
    holds: Vec<u64>,
    /// How many elements contain these messages.
    elements: usize,
    unanswered: Option<Settles>,
}

/// Bodies that could be mistaken for something else.
const BODIES: [&[u8]; 6] =
    [b"a", b"", b" ", b"1 2 3 4 5 6 7 8 nine", b"\r\n$3\r\n\x00\xff", b"!1 1 2 no body"];
const REASONS: [&str; 4] = ["no good", "", "2 no good", "!1 1 2 no body"];

impl SimulatedNode {
    pub fn new(persona: Persona) -> Self {
        let lanes = vec![KnownLane::default(); persona.lanes];
        Self { persona, number: 0, gone: false, term: None, known: Known::default(), lanes }
    }

    pub fn leads(&self) -> bool {
        self.term.is_some()
    }

    pub fn beat(&self, more_known: bool) -> StoryCall {
        StoryCall::Beat { me: self.persona, known: self.known(more_known) }
    }

    pub fn lead(&self, renew: bool, more_known: bool, interval: u64, absent_since: u64) -> StoryCall {
        let replaces = self.term.as_ref().filter(|_| renew).map_or(0, |term| term.epoch);
        let known = self.known(more_known);
        StoryCall::Lead { me: self.persona, replaces, known, interval, silence: 150, absent_since }
    }

    /// What the node knows to be published. `more` is knowledge of messages that Redis has lost since.
    fn known(&self, more: bool) -> Known {
        let published = self.known.published + if more { 5 } else { 0 };
        Known { published, ..self.known }
    }

    pub fn resign(&self) -> StoryCall {
        let epoch = self.term.as_ref().map_or(1, |term| term.epoch);
        StoryCall::Resign { me: self.persona, epoch }
    }

    pub fn publish(&mut self, count: u8, room: u8, flaw: Flaw, interval: u64) -> StoryCall {
        let me = self.persona;
        // A node that was never in office has no epoch. It may try to publish all the same.
        let (epoch, n, first) =
            self.term.as_ref().map_or((1, 0, 1), |term| (term.epoch, term.n, term.next_id));
        if let Some(same) = self.term.as_ref().and_then(|term| term.unanswered.clone()) {
            return StoryCall::Publish(same);
        }
        let body = |index: u8| {
            let body = BODIES[usize::from(room.wrapping_add(index)) % BODIES.len()];
            [body, format!("#{}", first + u64::from(index)).as_bytes()].concat()
        };
        let fresh = Publication {
            me,
            epoch,
            n,
            first,
            bodies: (0..count).map(body).collect(),
            interval,
            catch_up: room.is_multiple_of(2),
            max_waiting: 4 + u64::from(room % 12),
            limit: if room.is_multiple_of(5) { 10 + u64::from(room % 20) } else { 0 },
        };
        let flawed = match flaw {
            Flaw::None => {
                if let Some(term) = &mut self.term {
                    term.unanswered = Some(fresh.clone());
                }
                fresh
            }
            Flaw::Behind => Publication { epoch: epoch - 1, ..fresh },
            Flaw::Beyond => Publication { first: first + 1, ..fresh },
            Flaw::TooMany => Publication { n: n + 1, ..fresh },
        };
        StoryCall::Publish(flawed)
    }

    pub fn turn(
        &mut self,
        lane: u8,
        this_try: u64,
        settles: u8,
        fails: u8,
        wants: u8,
        flaw: Flaw,
    ) -> StoryCall {
        let lane = usize::from(lane) % self.lanes.len();
        let count = usize::from(settles) % (self.lanes[lane].holds.len() + 1);
        let failures =
            (0..count).filter(|index| fails >> (index % 8) & 1 == 1).map(|i| (i, REASONS[i % 4])).collect();
        let settles = self.settles(lane, count, failures, wants, flaw);
        StoryCall::Turn { me: self.persona, number: self.number, lane, this_try, settles }
    }

    pub fn take(&mut self, settles: u8, wants: u8, flaw: Flaw) -> StoryCall {
        let count = usize::from(settles) % (self.lanes[0].holds.len() + 1);
        let settles = self.settles(0, count, Vec::new(), wants, flaw);
        StoryCall::Take { me: self.persona, number: self.number, settles }
    }

    fn settles(
        &mut self,
        lane: usize,
        count: usize,
        failures: Vec<(usize, &'static str)>,
        wants: u8,
        flaw: Flaw,
    ) -> Settles {
        let lane = &mut self.lanes[lane];
        if let Some(same) = &lane.unanswered {
            return same.clone();
        }
        let means = Some(lane.holds[..count].to_vec());
        let elements = if count == lane.holds.len() { lane.elements } else { 0 };
        let fresh = Settles { cursor: lane.cursor, count, elements, failures, wants: wants.into(), means };
        let flawed = Settles { means: None, ..fresh.clone() };
        match flaw {
            Flaw::None => {
                lane.unanswered = Some(fresh.clone());
                fresh
            }
            Flaw::Behind => Settles { cursor: fresh.cursor.saturating_sub(1), ..flawed },
            Flaw::Beyond => Settles { cursor: fresh.cursor + 1, ..flawed },
            Flaw::TooMany => Settles { count: lane.holds.len() + 1, failures: Vec::new(), ..flawed },
        }
    }

    /// Updates what the node knows after it received the answer to a call.
    pub fn receive(&mut self, call: &StoryCall, answer: &Answer) {
        match (call, answer) {
            (StoryCall::Join(_), Answer::Joined { number }) if *number != self.number => {
                *self = Self { number: *number, known: self.known, ..Self::new(self.persona) };
            }
            (StoryCall::Lead { .. }, Answer::Leads { epoch, sent, published, .. }) => {
                let (epoch, n, next_id) = (*epoch, *sent, published + 1);
                self.known.learn(Epoch(epoch), *published);
                self.term = Some(KnownTerm { epoch, n, next_id, unanswered: None });
            }
            (StoryCall::Lead { .. }, Answer::Lost) if self.persona.kind == MemberKind::Reader => {}
            (StoryCall::Turn { .. } | StoryCall::Take { .. }, Answer::Turn { cursor, held }) => {
                let lane = if let StoryCall::Turn { lane, .. } = call { *lane } else { 0 };
                let holds = held.iter().flat_map(|element| ids_in(element)).collect();
                let elements = held.len();
                self.lanes[lane] = KnownLane { cursor: *cursor, holds, elements, unanswered: None };
            }
            (StoryCall::Publish(publication), answer) => self.receive_publish(publication, answer),
            (StoryCall::Beat { .. }, Answer::Stands { office, epoch, counts: [published, _, born], .. }) => {
                self.known.meet(*born, Epoch(*epoch), *published);
                if office != "me" {
                    self.term = None;
                }
            }
            (StoryCall::Resign { .. }, _) => self.term = None,
            (StoryCall::Leave(_), _) | (_, Answer::Lost | Answer::Application { .. }) => self.gone = true,
            _ => {}
        }
    }

    fn receive_publish(&mut self, publication: &Publication, answer: &Answer) {
        let Some(term) = &mut self.term else { return };
        term.unanswered = None;
        match answer {
            Answer::Published { .. } | Answer::Already { .. } => {
                term.n += 1;
                term.next_id += publication.bodies.len() as u64;
                self.known.learn(Epoch(term.epoch), term.next_id - 1);
            }
            Answer::Expected { next } => term.next_id = *next,
            Answer::Fenced => self.term = None,
            _ => {}
        }
    }
}
