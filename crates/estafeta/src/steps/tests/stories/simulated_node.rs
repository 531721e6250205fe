//! A simulated node: what it knows about itself from the answers that it received, and what it sends because of that.
//! If an answer is lost, the node sends the same call again until it receives one, as the store does.

use std::time::Duration;

use bytes::Bytes;

use super::super::{Applied, Fate, Hand};
use super::answer::Answer;
use super::call::{Asks, Persona, Publication, Settles, StoryCall, ids_in};
use super::simulated_publisher::KEYS;
use super::step::Flaw;
use crate::effects::Effect;
use crate::identity::Epoch;
use crate::message::{ENTRY, Message};
use crate::steps::{Known, LatencyGroup, SUSPICIOUS, Settlement};

pub(super) struct SimulatedNode {
    pub persona: Persona,
    /// The number that `join` returned.
    number: u64,
    /// It knows that it is no longer a member. A real node would join again under a new identity.
    pub gone: bool,
    pub term: Option<KnownTerm>,
    known: Known,
    /// The messages that it holds.
    hand: Hand,
    unanswered: Option<Asks>,
    /// The latencies that it hands over. It does so again until it hears of it.
    latencies: LatencyGroup,
    handed_over: bool,
    /// The errors that a reader holds.
    shows: KnownErrors,
}

pub(super) struct KnownTerm {
    pub epoch: u64,
    n: u64,
    next_id: u64,
    /// How many failures of its source it has reported.
    reports: u64,
    unanswered: Option<Publication>,
}

#[derive(Clone, Default)]
struct KnownErrors {
    cursor: u64,
    ids: Vec<u64>,
    unanswered: Option<Settles>,
}

/// Bodies that could be mistaken for something else.
pub(super) const BODIES: [&[u8]; 6] =
    [b"a", b"", b" ", b"1 2 3 4 5 6 7 8 nine", b"\r\n$3\r\n\x00\xff", b"!1 1 2 no body"];
/// The blocks of headers that a snooze may send. An empty one leaves the headers as they are.
const HEADERS: [&[u8]; 3] = [b"", b"14:estafeta-carry3:abc", b"1:a5: 1 2 "];
/// How long messages wait. None of them is due while a story lasts, unless time passes.
const WAITS: [u64; 4] = [0, 3_600_000, 7_200_000, 5_000_000];
/// The names of schedule entries. The first one skips ticks while messages of an earlier one are open.
pub(super) const ENTRIES: [&str; 2] = ["nightly", "0 1"];
const REASONS: [&str; 4] = ["no good", "", "2 no good", "!1 1 2 no body"];

/// A choice for the message at this place that says nothing about the fates of its neighbours.
fn mixed(fates: u64, at: usize) -> u64 {
    (fates ^ (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40
}

/// A snooze keeps the header of an open message.
fn headers_of_snooze(message: &Message, headers: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    if let Some(entry) = message.headers().get(ENTRY).filter(|_| !headers.is_empty()) {
        block.extend(format!("14:{ENTRY}{}:{entry}", entry.len()).as_bytes());
    }
    block.extend(headers);
    block
}

/// The ring to which some messages are forwarded.
pub(super) const NEXT_RING: &str = "estafeta/next";

/// The effects of one message. Few keys, so that effects meet values of other types, texts that are no numbers, and sums
/// that are too large. The laws find a message by its id in a stream, in its result and in what it forwards.
fn effects(choice: u64, id: u64) -> Vec<Effect> {
    let add = |key: &str, n| Effect::Add { key: key.into(), n };
    let set =
        |key: &str, value: &'static str| Effect::Set { key: key.into(), value: value.into(), ttl: None };
    let append = |stream: &str| {
        let field = ("id".into(), Bytes::from(id.to_string()));
        Effect::Append { stream: stream.into(), fields: vec![field], maxlen: Some(10_000) }
    };
    let forward = |ring: &str| Effect::forward(ring.parse().expect("a name"), format!("f{id}"));
    let ttl = std::time::Duration::from_secs(24 * 3600);
    let result = || Effect::Result { value: format!("r{id}").into(), ttl };
    match choice % 16 {
        0 => vec![add("n", 1)],
        1 => vec![add("n", -3), result()],
        2 => vec![set("n", "41"), add("n", 1), append("log")],
        3 => vec![append("log"), append("log")],
        4 => vec![set("text", "some text"), append("log")],
        5 => vec![append("log"), add("text", 1)],
        6 => vec![set("n", "999999999999999"), append("log"), result()],
        7 => vec![append("log"), add("n", 999_999_999_999_999), add("n", -999_999_999_999_999)],
        8 => vec![set("n", "007"), append("log")],
        // What the first effect would have written must not count, because the second one is always bad.
        9 => vec![set("n", ""), append("n")],
        10 => vec![forward(NEXT_RING)],
        11 => vec![result(), forward(NEXT_RING), add("text", 5), forward("estafeta")],
        12 => vec![forward("estafeta"), append("log")],
        13 => vec![forward(NEXT_RING), append("n")],
        14 => vec![set("log", "x"), forward(NEXT_RING)],
        _ => vec![set("text", "7"), add("text", -8), append("log"), forward(NEXT_RING)],
    }
}

impl SimulatedNode {
    pub fn new(persona: Persona) -> Self {
        Self {
            persona,
            number: 0,
            gone: false,
            term: None,
            known: Known::default(),
            hand: Hand::default(),
            unanswered: None,
            latencies: LatencyGroup::default(),
            handed_over: true,
            shows: KnownErrors::default(),
        }
    }

    pub fn leads(&self) -> bool {
        self.term.is_some()
    }

    /// In half of the cases it hands latencies over, unless it still has to repeat that.
    pub fn beat(&mut self, more_known: bool, times: u8) -> StoryCall {
        let n = self.latencies.n;
        if self.handed_over && times.is_multiple_of(2) {
            self.latencies = LatencyGroup { n: n + 1, ..LatencyGroup::default() };
            self.latencies.wait.record(Duration::from_millis(times.into()));
            self.latencies.handling.record(Duration::from_micros(u64::from(times).pow(4)));
            self.handed_over = false;
        }
        let nothing = LatencyGroup::default();
        let latencies = if self.handed_over { nothing } else { self.latencies.clone() };
        StoryCall::Beat { me: self.persona, known: self.known(more_known), latencies }
    }

    pub fn sample(&self) -> StoryCall {
        let epoch = self.term.as_ref().map_or(0, |term| term.epoch);
        StoryCall::Sample { me: self.persona, number: self.number, epoch, silence: 30 * self.number }
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

    pub fn complain(&self, pause_ms: u64) -> StoryCall {
        StoryCall::Complain { me: self.persona, pause_ms }
    }

    pub fn report(&self, in_a_row: u8) -> StoryCall {
        let (epoch, n) = self.term.as_ref().map_or((1, 1), |term| (term.epoch, term.reports + 1));
        let reason = REASONS[usize::from(in_a_row) % REASONS.len()];
        StoryCall::Report { me: self.persona, epoch, n, in_a_row: in_a_row.into(), reason }
    }

    /// `moves` has a bit for the checkpoint, one for each tick, one for the plan, one if the messages are those of an entry
    /// that may be open, and one if they have keys or delays. `is_open` is whether the entry is open.
    pub fn publish(
        &mut self,
        [count, moves, room]: [u8; 3],
        flaw: Flaw,
        interval: u64,
        is_open: bool,
    ) -> StoryCall {
        let me = self.persona;
        // A node that was never in office has no epoch. It may try to publish all the same.
        let (epoch, n, first) =
            self.term.as_ref().map_or((1, 0, 1), |term| (term.epoch, term.n, term.next_id));
        if let Some(same) = self.term.as_ref().and_then(|term| term.unanswered.clone()) {
            return StoryCall::Publish(same);
        }
        let has_terms = moves >> 5 & 1 == 1;
        // With few keys and few bodies, most keys are taken, by equal messages in most cases.
        let choice = |index: u8| room.wrapping_mul(31).wrapping_add(index.wrapping_mul(37)) >> 2;
        let terms = |index: u8| {
            let key = KEYS.get(usize::from(choice(index) & 3)).copied();
            (key, if choice(index) >> 2 & 1 == 1 { 10_000 * u64::from(room % 4 + 1) } else { 0 })
        };
        let body = |index: u8| {
            if has_terms && terms(index).0.is_some() {
                return vec![if choice(index) >> 3 & 7 == 7 { 0xb } else { 0xa }];
            }
            let body = BODIES[usize::from(room.wrapping_add(index)) % BODIES.len()];
            [body, format!("#{}", first + u64::from(index)).as_bytes()].concat()
        };
        let ticks = (1..).zip(ENTRIES).filter(|(bit, _)| moves >> bit & 1 == 1);
        let is_of_entry = moves >> 4 & 1 == 1;
        // While its messages are open, the tick of an entry has none.
        let count = if is_of_entry && is_open { 0 } else { count };
        let plan =
            || (0..u64::from(room % 3)).map(|at| (ENTRIES[at as usize % 2].to_owned(), format!("{n}.{at}")));
        let fresh = Publication {
            me,
            epoch,
            n,
            first,
            bodies: (0..count).map(body).collect(),
            terms: (0..count).filter(|_| has_terms).map(terms).collect(),
            // No two publishes of a story leave the same values.
            checkpoint: (moves & 1 == 1).then(|| format!("{epoch}.{n}.{first}.{count}")),
            ticks: ticks.map(|(bit, name)| (name.to_owned(), 1000 * (first + n) + bit)).collect(),
            entry: (is_of_entry && !is_open).then_some(ENTRIES[0]),
            plan: (moves >> 3 & 1 == 1).then(|| plan().collect()),
            intervals: match moves & 31 {
                0 => count.into(),
                8 => 0,
                _ => 1,
            },
            interval,
            catch_up: room.is_multiple_of(2),
            max_waiting: 4 + u64::from(room % 12),
            limit: if room.is_multiple_of(4) { 6 + u64::from(room % 16) } else { 0 },
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
            // Such a call may arrive when the entry is open.
            Flaw::TooMany => Publication { n: n + 1, entry: None, ..fresh },
        };
        StoryCall::Publish(flawed)
    }

    /// `wants` is how many lanes are free, how many messages each of them wants, and how many more the node takes.
    pub fn turn(&mut self, this_try: u64, fates: u64, wants: [usize; 3], flaw: Flaw) -> StoryCall {
        let asks = self.asks(fates, wants, flaw);
        StoryCall::Turn { me: self.persona, number: self.number, this_try, asks }
    }

    fn asks(&mut self, fates: u64, [lanes, each, reserve]: [usize; 3], flaw: Flaw) -> Asks {
        if let Some(same) = &self.unanswered {
            return same.clone();
        }
        let held = &self.hand.held;
        let fate = |at: usize| match fates >> (4 * (at % 16)) & 15 {
            0..=2 => Fate::Stays,
            3 => Fate::Done,
            4..=6 => Fate::Affects(effects(mixed(fates, at), held[at].message.id)),
            7..=8 => Fate::Fails(REASONS[at % 4].into()),
            9 => Fate::Perishes(REASONS[at % 4].into()),
            // It waits so long that it is not due while the story goes on.
            10 => Fate::Dies(WAITS[(at + fates as usize) % 4].max(40_000)),
            11..=12 => Fate::Retries(WAITS[(at + fates as usize) % 4]),
            13..=14 => {
                let headers = headers_of_snooze(&held[at].message, HEADERS[at % 3]);
                Fate::Snoozes(WAITS[(at + fates as usize) % 4], headers)
            }
            _ => Fate::Returns,
        };
        let gone = |at: &usize| !matches!(fate(*at), Fate::Stays);
        let means = (0..held.len()).filter(gone).map(|at| held[at].message.id).collect();
        let has_suspect = (0..held.len()).any(|at| !gone(&at) && held[at].message.deaths >= SUSPICIOUS);
        let wishes = |settlement| Settlement {
            has_suspect,
            want: lanes * each,
            each,
            reserve,
            listens: self.persona.presence,
            both: fates >> 63 == 1,
            stuck: (fates >> 60 & 7 == 7).then_some(lanes),
            // In one case of 16, messages are forwarded for another application.
            application: Some(if fates >> 56 & 15 == 9 { "third" } else { self.persona.application }.into()),
            partitions: self.persona.partitions,
            ..settlement
        };
        let fresh = wishes(self.hand.settlement(fate));
        // A call with a wrong claim lets go of nothing, because its sender does not learn what becomes of it.
        let wrong_claim = |seen| Settlement { seen, ..self.hand.settlement(|_| Fate::Stays) };
        let flawed = match flaw {
            Flaw::None => {
                let asks = Asks { settlement: fresh, means: Some(means) };
                self.unanswered = Some(asks.clone());
                return asks;
            }
            Flaw::Behind if fates.is_multiple_of(2) => wrong_claim(self.hand.seen.saturating_sub(1)),
            Flaw::Beyond if fates.is_multiple_of(2) => wrong_claim(self.hand.seen + 1),
            Flaw::Behind if fresh.cursor == 0 => wrong_claim(self.hand.seen),
            Flaw::Behind => Settlement { cursor: fresh.cursor - 1, ..fresh },
            Flaw::Beyond => Settlement { cursor: fresh.cursor + 1, ..fresh },
            // Its hand may hold some messages more than it knows of.
            Flaw::TooMany => Settlement { count: held.len() + 1000, ..fresh },
        };
        Asks { settlement: flawed, means: None }
    }

    pub fn take(&mut self, settles: u8, wants: u8, flaw: Flaw) -> StoryCall {
        let count = usize::from(settles) % (self.shows.ids.len() + 1);
        let settles = self.settles(count, wants, flaw);
        StoryCall::Take { me: self.persona, number: self.number, settles }
    }

    fn settles(&mut self, count: usize, wants: u8, flaw: Flaw) -> Settles {
        let shows = &mut self.shows;
        if let Some(same) = &shows.unanswered {
            return same.clone();
        }
        let means = Some(shows.ids[..count].to_vec());
        let fresh = Settles { cursor: shows.cursor, count, wants: wants.into(), means };
        let flawed = Settles { means: None, ..fresh.clone() };
        match flaw {
            Flaw::None => {
                shows.unanswered = Some(fresh.clone());
                fresh
            }
            Flaw::Behind => Settles { cursor: fresh.cursor.saturating_sub(1), ..flawed },
            Flaw::Beyond => Settles { cursor: fresh.cursor + 1, ..flawed },
            Flaw::TooMany => Settles { count: shows.ids.len() + 1, ..flawed },
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
                self.term = Some(KnownTerm { epoch, n, next_id, reports: 0, unanswered: None });
            }
            (StoryCall::Lead { .. }, Answer::Lost) if !self.persona.is_candidate() => {}
            (StoryCall::Turn { asks, .. }, Answer::Turn { cursor, claimed, waits, claims, .. }) => {
                let (cursor, claimed, waits, claims) = (*cursor, *claimed, *waits, claims.clone());
                let applied =
                    Applied { cursor, claimed, waits, due: None, paused: false, claims, bad: Vec::new() };
                self.hand.apply(&asks.settlement, &applied);
                self.unanswered = None;
            }
            (StoryCall::Take { .. }, Answer::Took { cursor, held }) => {
                let ids = held.iter().flat_map(|element| ids_in(element)).collect();
                self.shows = KnownErrors { cursor: *cursor, ids, unanswered: None };
            }
            (StoryCall::Publish(publication), answer) => self.receive_publish(publication, answer),
            (
                StoryCall::Beat { .. },
                Answer::Stands { office, epoch, counts: [published, _, born, _], .. },
            ) => {
                self.known.meet(*born, Epoch(*epoch), *published);
                self.handed_over = true;
                if office != "me" {
                    self.term = None;
                }
            }
            (StoryCall::Report { .. }, Answer::Noted) => {
                self.term.iter_mut().for_each(|term| term.reports += 1);
            }
            (StoryCall::Resign { .. } | StoryCall::Report { .. }, _) => self.term = None,
            (StoryCall::Leave(_), _) | (_, Answer::Lost | Answer::Application { .. }) => self.gone = true,
            _ => {}
        }
    }

    fn receive_publish(&mut self, publication: &Publication, answer: &Answer) {
        let Some(term) = &mut self.term else { return };
        term.unanswered = None;
        match answer {
            Answer::Published { first, duplicates, .. } | Answer::Already { first, duplicates, .. } => {
                term.n += 1;
                let unpublished = duplicates.split_whitespace().count() / 2;
                term.next_id = first + (publication.bodies.len() - unpublished) as u64;
                self.known.learn(Epoch(term.epoch), term.next_id - 1);
            }
            Answer::Limit { published } => term.next_id = published + 1,
            Answer::Fenced => self.term = None,
            _ => {}
        }
    }
}
