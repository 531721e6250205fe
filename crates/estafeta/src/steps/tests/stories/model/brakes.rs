//! Pauses and limits.

use super::super::answer::Answer;
use super::super::call::Persona;
use super::{Member, ModelClock, ModelRing, Span};
use crate::steps::NEVER;

/// A limit of one message per hour. So nothing comes in while a story lasts, unless its time passes by an accident.
#[derive(Clone, Copy)]
pub(in super::super) struct ModelRate {
    /// Whether the message of the last hour may still be claimed.
    pub is_open: bool,
    /// What was left of the rate at the time `since`. A message costs `PER_MS`, and each ms adds 1.
    pub credit: Span,
    pub since: Span,
}

impl ModelRate {
    pub const PER_MS: u64 = 3_600_000;
    /// How many ms can be saved up besides one message.
    const SAVED_MS: u64 = 100;

    /// A rate of which nothing is saved up.
    fn used_up(clock: &ModelClock) -> Self {
        Self { is_open: false, credit: Span::exactly(0), since: clock.in_ms(0) }
    }

    /// When the next message may be claimed.
    pub fn opens(self) -> Span {
        let Span { from, to } = self.since.plus(Self::PER_MS);
        Span { from: from - self.credit.to, to: to - self.credit.from }
    }
}

impl ModelRing {
    /// How many messages may be claimed now. None if any number may be.
    pub(super) fn room(&self) -> Option<usize> {
        if self.handling_end.is_some() { Some(0) } else { self.limited_room() }
    }

    /// How many messages the limits allow.
    pub(super) fn limited_room(&self) -> Option<usize> {
        let in_flight = self.in_flight_limit.map(|(most, held)| most.saturating_sub(held) as usize);
        let rate = self.rate_limit.map(|rate| usize::from(rate.is_open));
        in_flight.into_iter().chain(rate).min()
    }

    /// Counts what members have claimed and let go of, as far as a limit needs it.
    pub(super) fn count_hands(&mut self, claimed: usize, gone: usize, clock: &ModelClock) {
        if let Some((_, held)) = &mut self.in_flight_limit {
            *held = (*held + claimed as u64).saturating_sub(gone as u64);
        }
        if claimed > 0
            && let Some(rate) = &mut self.rate_limit
        {
            // What came in since the message was saved up is left.
            let credit = Span { from: 0, to: ModelRate::SAVED_MS };
            *rate = ModelRate { credit, ..ModelRate::used_up(clock) };
        }
    }

    /// None leaves a limit as it is, and 0 removes it.
    pub(super) fn limit(
        &mut self,
        in_flight: Option<u64>,
        rate: Option<u64>,
        roll: &[Persona],
        clock: &ModelClock,
    ) -> Answer {
        if self.schema.is_none() {
            return Answer::Missing;
        }
        if roll.len() != self.members.len() || roll.iter().any(|who| !self.members.contains_key(&who.index)) {
            return Answer::Changed;
        }
        self.end_pause(clock);
        let before = (self.in_flight_limit.map(|(most, _)| most), self.rate_limit.is_some());
        if let Some(most) = in_flight {
            let hands = self.members.values().filter(|member| !member.is_forgotten);
            let held = hands.map(Member::held).sum::<usize>() as u64;
            self.in_flight_limit = (most > 0).then_some((most, held));
        }
        match (rate, self.rate_limit) {
            (Some(0), _) => self.rate_limit = None,
            (Some(_), None) => {
                self.rate_limit = Some(ModelRate::used_up(clock));
            }
            _ => {}
        }
        let most = self.in_flight_limit.map_or(0, |(most, _)| most);
        let (rate, per) = self.rate_limit.map_or((0, 0), |_| (1, ModelRate::PER_MS));
        if before != (self.in_flight_limit.map(|(most, _)| most), self.rate_limit.is_some()) {
            let text = |count: u64| if count > 0 { count.to_string() } else { String::new() };
            self.announce(format!("limited|in-flight|{}|rate|{}|per|{per}", text(most), text(rate)));
        }
        self.wake(None, self.is_due(clock), clock);
        Answer::Limited { in_flight: most, rate }
    }

    /// Forgets pauses that are over. Returns whether one of handling was among them.
    pub(super) fn end_pause(&mut self, clock: &ModelClock) -> bool {
        self.producing_end = self.producing_end.filter(|end| *end > clock.now());
        let is_over = self.handling_end.is_some_and(|end| end <= clock.now());
        if is_over {
            self.handling_end = None;
        }
        is_over
    }

    /// Each pause gets this end, 0 resumes, and None leaves it as it is.
    pub(super) fn pause(
        &mut self,
        producing: Option<u64>,
        handling: Option<u64>,
        clock: &ModelClock,
    ) -> Answer {
        if self.schema.is_none() {
            return Answer::Missing;
        }
        let now = clock.now();
        let mut ends = [self.producing_end, self.handling_end].map(|end| end.filter(|end| *end > now));
        for ((end, wanted), what) in ends.iter_mut().zip([producing, handling]).zip(["producing", "handling"])
        {
            match wanted {
                Some(0) if end.take().is_some() => self.announce(format!("resumed|what|{what}|by|ops")),
                Some(later) if later > now && *end != Some(later) => {
                    *end = Some(later);
                    let length = if later == NEVER { String::new() } else { (later - now).to_string() };
                    self.announce(format!("paused|what|{what}|for|{length}|by|ops"));
                }
                _ => {}
            }
        }
        [self.producing_end, self.handling_end] = ends;
        self.wake(None, self.is_due(clock), clock);
        Answer::Pauses { producing: ends[0].unwrap_or(0), handling: ends[1].unwrap_or(0) }
    }
}
