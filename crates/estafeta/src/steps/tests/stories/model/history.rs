//! `sample`: the history of the ring, and the latencies that are not in it yet.

use super::super::answer::Answer;
use super::super::call::Persona;
use super::{ModelClock, ModelRing};
use crate::latency::Latencies;
use crate::steps::LatencyGroup;

/// What the samples of each list cover, in ms, and how many are kept.
const LISTS: [(u64, usize); 3] = [(1_000, 300), (10_000, 360), (60_000, 1_440)];

/// One sample of the history.
#[derive(Clone)]
pub(in super::super) struct ModelSample {
    /// When it was last taken, and how long after the first time.
    pub time: u64,
    span: u64,
    /// Epoch, the number of the member that sampled, and how many members there were.
    member: u64,
    office: [u64; 2],
    /// Published, done, failed, retries, returned, buried, take-overs.
    counts: [u64; 7],
    later: u64,
    /// Waiting, in flight, age and silence: the highest ones of this sample.
    highest: [u64; 4],
    /// How long the queue was not seen empty, if it ever was.
    busy: Option<u64>,
    wait: Latencies,
    handling: Latencies,
}

impl ModelRing {
    pub(super) fn sample(
        &mut self,
        (me, number): (Persona, u64),
        epoch: u64,
        silence: u64,
        clock: &ModelClock,
    ) -> Answer {
        let now = clock.now();
        let last = self.history[0].last();
        let is_entitled = match self.office.holder {
            Some((holder, _)) => {
                holder == me.index && self.office.term.as_ref().is_some_and(|term| term.epoch == epoch)
            }
            None => epoch == 0 && self.succession().is_empty() && self.members.contains_key(&me.index),
        };
        if !is_entitled {
            return Answer::Fenced;
        }
        let is_other = |last: &ModelSample| last.member != number && now.abs_diff(last.time) < 2_500;
        if self.office.holder.is_none() && last.is_some_and(is_other) {
            self.effects.push("another member samples");
            return Answer::Other;
        }
        let waiting = self.ready.len() as u64;
        let busy_before = last.and_then(|last| Some(last.busy? + now.checked_sub(last.time)?));
        let in_queue = self.ready.first().map_or(0, |first| {
            let since_publish = now.saturating_sub(first.published_ms);
            busy_before.map_or(since_publish, |busy| busy.min(since_publish))
        });
        let past_due = self.soonest().map_or(0, |soonest| now.saturating_sub(soonest.from));
        let in_flight = self.members.values().map(|member| member.held() as u64).sum();
        let counts = ["published", "done", "failed", "retries", "returned", "buried", "takeovers"];
        let (wait, handling) = std::mem::take(&mut self.latencies);
        let fresh = ModelSample {
            time: now,
            span: 0,
            member: number,
            office: [self.office.term.as_ref().map_or(0, |term| term.epoch), self.members.len() as u64],
            counts: counts.map(|name| self.count(name)),
            later: self.later.len() as u64,
            highest: [waiting, in_flight, in_queue.max(past_due), silence],
            busy: if waiting == 0 { Some(0) } else { busy_before },
            wait,
            handling,
        };
        for (list, (width, length)) in self.history.iter_mut().zip(LISTS) {
            let before = list.len();
            list.retain(|sample| sample.time / width <= now / width);
            if list.len() < before {
                self.effects.push("later samples removed");
            }
            let mut fresh = fresh.clone();
            if let Some(same) = list.pop_if(|last| last.time / width == now / width) {
                fresh.join(&same);
                self.effects.push("samples joined");
            }
            list.push(fresh);
            list.drain(..list.len().saturating_sub(length));
        }
        Answer::Sampled
    }

    /// Adds latencies that a member hands over, unless it did so before.
    pub(super) fn note_latencies(&mut self, me: Persona, group: &LatencyGroup) {
        let Some(member) = self.members.get_mut(&me.index) else { return };
        if group.n > member.noted.unwrap_or(0) {
            member.noted = Some(group.n);
            self.latencies.0.merge(&group.wait);
            self.latencies.1.merge(&group.handling);
        } else if group.n > 0 {
            self.effects.push("latencies handed over before");
        }
    }

    /// The times of all samples move by this many ms.
    pub fn move_history(&mut self, ms: i64) {
        for sample in self.history.iter_mut().flatten() {
            sample.time = sample.time.saturating_add_signed(ms);
        }
    }
}

impl ModelSample {
    /// Adds what an earlier sample of the same time holds.
    fn join(&mut self, earlier: &Self) {
        self.span = (earlier.span + self.time).saturating_sub(earlier.time);
        for (highest, before) in self.highest.iter_mut().zip(earlier.highest) {
            *highest = before.max(*highest);
        }
        self.wait.merge(&earlier.wait);
        self.handling.merge(&earlier.handling);
    }

    /// The sample as Redis stores it.
    pub fn element(&self) -> String {
        let Self { time, span, member, office: [epoch, members], counts, later, .. } = self;
        let counts = counts.map(|count| count.to_string()).join(" ");
        let [waiting, in_flight, age, silence] = self.highest;
        let busy = self.busy.map_or("-1".to_owned(), |busy| busy.to_string());
        let (wait, handling) = (self.wait.text(), self.handling.text());
        format!(
            "{time} {span} {epoch} {member} {members} {counts} {waiting} {later} {in_flight} {age} {busy} {silence} \
             {wait} {handling}"
        )
    }
}
