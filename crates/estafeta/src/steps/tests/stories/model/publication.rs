//! `publish`: what the generator publishes, at once or for later, and what moves with it.

use std::collections::BTreeMap;

use super::super::answer::Answer;
use super::super::call::{LATE_MS, PUBLISHED_MS, Publication};
use super::super::simulated_publisher::fingerprint;
use super::submission::TakenKey;
use super::{Delayed, ModelClock, ModelMessage, ModelRing};

/// What becomes of the messages of a publish.
#[derive(Default)]
struct Sorted {
    at_once: Vec<ModelMessage>,
    delayed: Vec<Delayed>,
    taken: BTreeMap<&'static str, TakenKey>,
    duplicates: String,
    /// The positions of messages with keys of others.
    reused: Vec<String>,
}

impl ModelRing {
    pub(super) fn publish(&mut self, call: &Publication, clock: &ModelClock) -> Answer {
        let now = clock.now();
        let holds = self.office.holder.is_some_and(|(holder, _)| holder == call.me.index);
        let (Some(term), Some(due)) = (&self.office.term, self.office.due) else {
            return self.fence();
        };
        if !holds || term.epoch != call.epoch || term.sent < call.n {
            return self.fence();
        }
        if term.sent > call.n {
            let changed = self.office.renumbered.clone();
            let changed = changed.filter(|(epoch, n, ..)| (*epoch, *n) == (call.epoch, call.n));
            let (.., first, mut duplicates) = changed.unwrap_or((0, 0, call.first, String::new()));
            if call.terms.is_empty() {
                // Another call with this number had them.
                duplicates.clear();
            }
            return Answer::Already { first, due, duplicates };
        }
        let published = self.ledger.get("published").copied().unwrap_or(0);
        if call.first > published + 1 {
            return Answer::Behind;
        }
        if let Some(end) = self.producing_end.filter(|end| *end > now) {
            return Answer::Paused { end };
        }
        let first = published + 1;
        let Sorted { at_once, delayed, taken, duplicates, reused } = self.sort(call, first, clock);
        if !reused.is_empty() {
            return Answer::Reused { positions: reused.join(" ") };
        }
        // A publish without messages needs no room, and what waits for a time needs none in the queue.
        let count = at_once.len() + delayed.len();
        if count > 0 && call.limit > 0 && published + count as u64 > call.limit {
            return Answer::Limit { published };
        }
        if !at_once.is_empty() && (self.ready.len() + at_once.len()) as u64 > call.max_waiting {
            return Answer::Full;
        }

        self.office.term.as_mut().expect("there is a term").sent += 1;
        let due = next_due(due, call, now);
        self.office.due = Some(due);
        if first != call.first || !duplicates.is_empty() {
            self.office.renumbered = Some((call.epoch, call.n, first, duplicates.clone()));
            self.effects.push(if first == call.first { "duplicates left out" } else { "numbered anew" });
        }
        let was_empty = self.ready.is_empty();
        self.ready.extend(at_once);
        self.keys.extend(taken);
        let soonest = self.soonest();
        for one in delayed {
            self.later.insert(one.message.id, one);
            self.effects.push("generated for later");
        }
        self.add("published", count);
        self.move_along(call, first, count);
        let generator = self.members.get_mut(&call.me.index).expect("the leader is a member");
        if !generator.is_forgotten {
            *generator.generated.get_or_insert(0) += count as u64;
        }
        self.extend_lease(call.me, clock);
        // If messages waited before, a member was called for them, unless handling was paused.
        if self.end_pause(clock) || was_empty || self.soonest() != soonest {
            self.wake(None, false, clock);
        }
        Answer::Published { first, due, duplicates }
    }

    fn sort(&self, call: &Publication, first: u64, clock: &ModelClock) -> Sorted {
        let mut sorted = Sorted::default();
        let born = self.count("born");
        let headers = call.entry.map(|entry| format!("14:estafeta-entry{}:{entry}", entry.len()));
        let headers = headers.unwrap_or_default().into_bytes();
        // A message with headers is alone in its element, and so are all messages if some have keys or delays.
        let is_alone = call.bodies.len() == 1 || !headers.is_empty() || !call.terms.is_empty();
        let (pack, mut id) = ((!is_alone).then_some(first), first);
        for (at, body) in call.bodies.iter().enumerate() {
            let (key, delay_ms) = call.terms.get(at).copied().unwrap_or_default();
            if let Some(key) = key {
                let former = self.keys.get(key).filter(|former| former.born == born);
                match sorted.taken.get(key).or(former) {
                    Some(former) if former.fingerprint == fingerprint(body) => {
                        sorted.duplicates.push_str(&format!("{} {} ", at + 1, former.id));
                        continue;
                    }
                    Some(_) => {
                        sorted.reused.push((at + 1).to_string());
                        continue;
                    }
                    None => {}
                }
                sorted.taken.insert(key, TakenKey { id, born, fingerprint: fingerprint(body) });
            }
            let headers = headers.clone();
            let message = ModelMessage::new(id, call.epoch, PUBLISHED_MS, body.clone());
            let message = ModelMessage { pack, headers, ..message };
            match delay_ms {
                0 => sorted.at_once.push(message),
                ms => sorted.delayed.push(Delayed { due: clock.in_ms(ms), message }),
            }
            id += 1;
        }
        sorted
    }

    /// The checkpoint and what belongs to a schedule move with the messages of their publish.
    fn move_along(&mut self, call: &Publication, first: u64, count: usize) {
        if let Some(checkpoint) = &call.checkpoint {
            self.checkpoint = Some(checkpoint.clone());
            self.effects.push("checkpoint moved");
        }
        if !call.ticks.is_empty() {
            self.ticks.extend(call.ticks.iter().cloned());
            self.effects.push("ticks moved");
        }
        if let Some(entry) = call.entry {
            let before = self.open.len();
            self.open.retain(|_, other| *other != entry);
            self.effects.extend((self.open.len()..before).map(|_| "lost open message removed"));
            self.open.extend((first..).take(count).map(|id| (id, entry)));
            self.effects.push("open messages published");
        }
        if let Some(plan) = &call.plan {
            self.plan = plan.clone();
            self.effects.push("plan replaced");
        }
        if count == 0 {
            self.effects.push("published without messages");
        }
    }

    /// A fenced publish is counted, and changes nothing else.
    fn fence(&mut self) -> Answer {
        self.add("fenced", 1);
        Answer::Fenced
    }
}

/// The ticks keep their phase. A tick further ahead than one interval is left over from a clock that jumped back.
/// Missed ticks are skipped, or made up for if `catch_up` is set.
fn next_due(due: u64, call: &Publication, now: u64) -> u64 {
    let interval = call.interval;
    if interval == 0 {
        return due;
    }
    if call.intervals == 0 {
        return due.min(now + interval);
    }
    let due = due.min(now + interval) + interval * call.intervals as u64;
    let was_missed = due + LATE_MS < now;
    if was_missed && !call.catch_up { due + interval * ((now - due) / interval + 1) } else { due }
}
