//! What must have happened to the messages of the workloads `work` and `pipeline`. The judge applies these rules besides
//! its own, to each ring.
//!
//! - Every message went through the stages of its plan, one after another, and ended as planned. It repeats a stage
//!   only if its node was lost. Its error, if it became one, has the planned counts and reason.
//! - A message came no earlier than its delay, its snooze or its wait after a failure allows. On the healthy ring it
//!   came no later than [`LATE`] after that.
//! - Each message of a publisher was published once, however often its call was repeated. All receipts name the same id,
//!   and one of them is no duplicate. A call was applied as a whole or not at all.
//! - A key has one message. It has another one only after the first was cancelled.
//! - A cancelled message reached no handler and has no outcome. A message that was not due could be cancelled.
//! - Each effect of the messages that are done was applied once, and no other (`effects`). Totals are exact sums. A
//!   stream has the newest entries, each once. A key that was set has the value of the last step that set it. Each result
//!   is there.
//! - Each line of a file was published once, and in the order of ids the lines have the order of the file (`pipeline`).
//!   The checkpoint is the end of the file.
//! - Each message that was forwarded to this ring was published once, and each done message of the ring before that
//!   forwards one has done so.
//! - The ring counted as many retries, snoozes, cancelled messages and messages of publishers as the records show.
//!
//! If Redis may have lost what it acknowledged, these rules hold for the messages that survived. A message can go back to
//! an earlier stage if every attempt at a later one may have been lost. It skips no stage, and it still ends as planned.
//! It waits as planned between two attempts that cannot have been lost.

mod effects;
mod pipeline;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::evidence::{Letter, WorkEvidence};
use super::findings::{LATE, WorkFindings};
use super::message_plan::{MessagePlan, Stage};
use super::publications::{CancelCall, Publications, is_from_outside};
use crate::chaos::judge::{Breach, Evidence, ReaderOutput};
use crate::chaos::losses::Losses;
use crate::record::{RecordLine, Step};
use crate::text::counted;

/// What is due in the first moments after the recovery may still wait behind other messages.
const BACKLOG_MS: u64 = 500;
/// Redis counts whole milliseconds, and so do the records.
const ROUNDING_MS: u64 = 2;

/// A node began to handle a message.
struct RecordedAttempt<'a> {
    at_ms: u64,
    delivery: u32,
    stage: Stage,
    published_ms: u64,
    body: &'a str,
}

struct Rules<'a> {
    evidence: &'a Evidence,
    work: &'a WorkEvidence,
    publications: &'a Publications<'a>,
    /// Whether each message with an outcome became an error.
    outcomes: &'a HashMap<u64, bool>,
    attempts: BTreeMap<u64, Vec<RecordedAttempt<'a>>>,
    findings: WorkFindings,
    breaches: Vec<Breach>,
}

/// Applies the rules. `outcomes` has the ids of all messages in the journal, and whether they became errors. `survivors` has
/// their epochs, if an id may have two messages.
pub fn judge<'a>(
    evidence: &'a Evidence,
    work: &'a WorkEvidence,
    publications: &'a Publications<'a>,
    outcomes: &'a HashMap<u64, bool>,
    survivors: &HashMap<u64, u64>,
) -> (WorkFindings, Vec<Breach>) {
    let mut attempts = BTreeMap::<u64, Vec<RecordedAttempt<'_>>>::new();
    for RecordLine { at_ms, step } in evidence.records.iter().flatten() {
        if let Step::Attempt { id, delivery, epoch, failures, snoozes, published_ms, body } = step {
            let is_lost = match survivors.get(id) {
                Some(survivor) => survivor != epoch,
                None => evidence.losses.cover(*at_ms),
            };
            if is_lost {
                continue;
            }
            let stage = Stage { snoozes: *snoozes, failures: *failures };
            let (at_ms, delivery, published_ms) = (*at_ms, *delivery, *published_ms);
            attempts.entry(*id).or_default().push(RecordedAttempt {
                at_ms,
                delivery,
                stage,
                published_ms,
                body,
            });
        }
    }
    attempts.values_mut().for_each(|of_one| of_one.sort_by_key(|attempt| (attempt.delivery, attempt.at_ms)));
    let (findings, breaches) = (WorkFindings::default(), Vec::new());
    let mut rules = Rules { evidence, work, publications, outcomes, attempts, findings, breaches };
    rules.check_plans();
    rules.check_letters();
    rules.check_feed();
    rules.check_forwards();
    rules.check_publications();
    rules.check_cancellations();
    rules.check_effects();
    rules.check_counts();
    (rules.findings, rules.breaches)
}

impl<'a> Rules<'a> {
    fn breach(&mut self, message: impl Into<Option<u64>>, what: String) {
        self.breaches.push(Breach { what, message: message.into() });
    }

    fn check_plans(&mut self) {
        for (id, attempts) in std::mem::take(&mut self.attempts) {
            match MessagePlan::parse(attempts[0].body) {
                Some(plan) => self.check_plan(id, &plan, &attempts),
                None => self.breach(id, format!("#{id} has a body that is no plan: {}", attempts[0].body)),
            }
            self.attempts.insert(id, attempts);
        }
    }

    fn check_plan(&mut self, id: u64, plan: &MessagePlan, attempts: &[RecordedAttempt<'_>]) {
        let stages: Vec<Stage> = plan.stages().collect();
        self.check_first_time(id, plan, &attempts[0]);
        let mut at = 0;
        for (index, attempt) in attempts.iter().enumerate() {
            let earlier = &attempts[..index];
            let is_next = index > 0 && stages.get(at + 1) == Some(&attempt.stage);
            let known = stages[..=at].iter().position(|stage| *stage == attempt.stage);
            let stage = match known {
                _ if is_next => at + 1,
                Some(known) if known == at || self.may_go_back(earlier, &stages[..=known]) => known,
                _ => {
                    let (was, is) = (shown(stages[at]), shown(attempt.stage));
                    let what = format!(
                        "#{id} came with {is} where its plan, {plan}, allows {was} or the next stage"
                    );
                    return self.breach(id, what);
                }
            };
            at = at.max(stage);
            // If Redis may have lost one of the two attempts, nobody knows when the wait began.
            let is_kept = |attempt: &&RecordedAttempt<'_>| !self.evidence.losses.cover(attempt.at_ms);
            if let Some(before) = earlier.last().filter(is_kept).filter(|_| is_kept(&attempt))
                && stage > 0
                && before.stage == stages[stage - 1]
            {
                self.check_wait(id, plan, before, attempt);
            }
        }
        self.findings.delayed += u64::from(plan.delay_ms > 0);
        match self.outcomes.get(&id) {
            Some(failed) if *failed != plan.becomes_error() => {
                let outcome = if *failed { "an error" } else { "done" };
                self.breach(id, format!("#{id} is {outcome}, against its plan, {plan}"));
            }
            Some(_) if at + 1 < stages.len() => {
                let (is, last) = (shown(stages[at]), shown(stages[stages.len() - 1]));
                let what = format!("#{id} got its outcome with {is}, but its plan, {plan}, ends with {last}");
                self.breach(id, what);
            }
            Some(_) => {
                self.findings.counts.retries += u64::from(plan.retries);
                self.findings.counts.snoozes += u64::from(plan.snoozes);
            }
            None => {}
        }
    }

    /// Whether Redis may have lost every attempt at a later stage than `stages`, and then handed the message out as it was
    /// before.
    fn may_go_back(&self, earlier: &[RecordedAttempt<'_>], stages: &[Stage]) -> bool {
        let mut later = earlier.iter().filter(|attempt| !stages.contains(&attempt.stage));
        later.all(|attempt| self.evidence.losses.cover(attempt.at_ms))
    }

    /// A delayed message waits for its time, by Redis' clock.
    fn check_first_time(&mut self, id: u64, plan: &MessagePlan, first: &RecordedAttempt<'_>) {
        if plan.delay_ms == 0 {
            return;
        }
        let due = first.published_ms + plan.delay_ms;
        let at_most = first.at_ms.saturating_add_signed(self.work.clock_ahead_ms);
        self.check_time(id, (due, due), at_most, at_most.saturating_sub(first.at_ms));
    }

    /// A message that failed or was snoozed waits from the end of an attempt to the beginning of the next one.
    fn check_wait(
        &mut self,
        id: u64,
        plan: &MessagePlan,
        before: &RecordedAttempt<'_>,
        after: &RecordedAttempt<'_>,
    ) {
        if let Some((least, most)) = plan.wait_after(before.stage) {
            let then = |wait: Duration| before.at_ms + u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            self.check_time(id, (then(least), then(most)), after.at_ms, 0);
        }
    }

    /// `due` is the earliest and the latest moment at which the message was due. `ahead_ms` is how far the clock of these
    /// times is ahead of the clock of this machine.
    fn check_time(&mut self, id: u64, due: (u64, u64), came: u64, ahead_ms: u64) {
        if came + ROUNDING_MS < due.0 {
            self.breach(id, format!("#{id} came {} ms before its time", due.0 - came));
        }
        let Some((from, until)) = self.work.healthy else { return };
        let late = u64::try_from(LATE.as_millis()).unwrap_or(u64::MAX);
        let is_timed = due.0 >= from + ahead_ms + BACKLOG_MS
            && due.1 + late + self.work.standstill_ms <= until + ahead_ms;
        if is_timed {
            let by = came.saturating_sub(due.1);
            self.findings.timed += 1;
            self.findings.latest_ms = self.findings.latest_ms.max(by);
            if by > late + self.work.standstill_ms {
                self.breach(id, format!("#{id} came {by} ms late on the healthy ring (limit: {late} ms)"));
            }
        }
    }

    fn check_letters(&mut self) {
        let is_sure =
            |reader: &&ReaderOutput| !self.evidence.losses.cover_some_of(reader.from_ms, reader.until_ms);
        for letter in self.evidence.readers.iter().filter(is_sure).flat_map(|reader| &reader.letters) {
            let Some(plan) = self.plan(letter.id) else { continue };
            let expected = (plan.retries + 1, plan.snoozes, plan.reason());
            if (letter.failures, letter.snoozes, &letter.reason[..]) != expected {
                let Letter { id, failures, snoozes, reason } = letter;
                let what = format!(
                    "the error #{id} has {failures} failures, {snoozes} snoozes and the reason '{reason}', against its \
                     plan, {plan}"
                );
                self.breach(*id, what);
            }
        }
    }

    fn plan(&self, id: u64) -> Option<MessagePlan> {
        MessagePlan::parse(self.attempts.get(&id)?.first()?.body)
    }

    fn check_publications(&mut self) {
        let handled = self.attempts.iter().map(|(id, attempts)| (attempts[0].body, *id));
        let handled: Vec<(&str, u64)> = handled.filter(|(body, _)| is_from_outside(body)).collect();
        // Which ids each body has, by the handlers and by the receipts.
        let mut ids: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for (body, id) in &handled {
            ids.entry(body).or_default().insert(*id);
        }
        let mut answers: BTreeMap<&str, Answers<'_>> = BTreeMap::new();
        for call in &self.publications.calls {
            let receipts = call.receipts.unwrap_or_default();
            for (index, (key, body)) in call.messages.iter().enumerate() {
                let answer = answers.entry(body).or_default();
                answer.key = key.as_deref();
                match receipts.get(index) {
                    None => answer.open += 1,
                    Some((id, is_duplicate)) => {
                        ids.entry(body).or_default().insert(*id);
                        self.findings.duplicates += u64::from(*is_duplicate);
                        answer.new += u64::from(!is_duplicate);
                        answer.repeated += u64::from(*is_duplicate);
                    }
                }
            }
        }
        for (_, body) in &self.work.forwards {
            answers.entry(body).or_default();
        }
        let unsent: Vec<u64> =
            handled.iter().filter(|(body, _)| !answers.contains_key(body)).map(|(_, id)| *id).collect();
        unsent.into_iter().for_each(|id| self.breach(id, format!("#{id} has a body that nobody sent")));
        let mut of_keys: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (body, answer) in &answers {
            let its = ids.get(body).cloned().unwrap_or_default();
            let first = its.first().copied();
            if its.len() > 1 {
                self.breach(
                    first,
                    format!("{body} was published {}: as {}", counted(its.len() as u64, "time"), list(&its)),
                );
            }
            if answer.new > 1 || (answer.new == 0 && answer.repeated > 0 && answer.open == 0) {
                let Answers { new, repeated, .. } = answer;
                let what = format!("{body} has {new} receipts of a publish and {repeated} of duplicates");
                self.breach(first, what);
            }
            if let Some(key) = answer.key {
                let left = its.iter().filter(|id| !self.publications.may_be_cancelled(**id));
                of_keys.entry(key).or_default().extend(left);
            }
        }
        for (key, its) in of_keys.into_iter().filter(|(_, its)| its.len() > 1) {
            let its: BTreeSet<u64> = its.into_iter().collect();
            self.breach(its.first().copied(), format!("the key {key} has several messages: {}", list(&its)));
        }
        self.check_calls(&ids);
        let all: BTreeSet<u64> = ids.values().flatten().copied().collect();
        self.findings.counts.submitted = match self.evidence.losses.are_reported() {
            false => all.len() as u64,
            // Only publishers' messages can be cancelled, and nobody may know of one any more.
            true => {
                let survived = handled.iter().filter(|(_, id)| self.outcomes.contains_key(id));
                survived.count() as u64 + self.work.counts.cancelled
            }
        };
    }

    /// A receipt names the message that was published. A call was applied as a whole or not at all.
    fn check_calls(&mut self, ids: &BTreeMap<&str, BTreeSet<u64>>) {
        let publications = self.publications;
        for call in &publications.calls {
            let (count, first) = (call.messages.len(), &call.messages[0].1);
            match call.receipts {
                Some(receipts) => {
                    if receipts.len() != count {
                        self.breach(
                            None,
                            format!("{count} messages from {first} on have {} receipts", receipts.len()),
                        );
                    }
                    for ((_, body), (id, _)) in call.messages.iter().zip(receipts) {
                        let handled = self.attempts.get(id).map(|attempts| attempts[0].body);
                        if let Some(other) = handled.filter(|other| other != body) {
                            self.breach(*id, format!("the receipt of {body} names #{id}, which is {other}"));
                        }
                    }
                }
                None if self.evidence.complete => {
                    let there = call.messages.iter().filter(|(_, body)| ids.contains_key(&body[..])).count();
                    if there != 0 && there != count {
                        let what = format!(
                            "of {count} messages in one call from {first} on, {there} were published"
                        );
                        self.breach(None, what);
                    }
                }
                None => {}
            }
        }
    }

    fn check_cancellations(&mut self) {
        let (publications, mut sure) = (self.publications, 0);
        for (id, cancellations) in &publications.cancellations {
            let attempts = self.attempts.get(id);
            if publications.was_cancelled(*id) && attempts.is_some() {
                self.breach(*id, format!("#{id} was cancelled, but a node began to handle it"));
            }
            if publications.was_cancelled(*id) && self.outcomes.contains_key(id) {
                self.breach(*id, format!("#{id} was cancelled, but has an outcome"));
            }
            if let ([CancelCall { answer: Some((at_ms, false)) }], Some(plan)) =
                (&cancellations[..], self.plan(*id))
            {
                let published_ms = self.attempts[id][0].published_ms;
                // Redis lost the message that was to be cancelled, and gave its id to another one.
                let is_another = self.evidence.losses.are_reported()
                    && at_ms.saturating_add_signed(self.work.clock_ahead_ms) < published_ms;
                if is_another {
                    continue;
                }
                let (due, at_ms) =
                    (published_ms + plan.delay_ms, at_ms.saturating_add_signed(self.work.clock_ahead_ms));
                if at_ms + ROUNDING_MS < due {
                    let what = format!("#{id} could not be cancelled {} ms before its time", due - at_ms);
                    self.breach(*id, what);
                }
            }
            let is_gone = publications.may_be_cancelled(*id) && !self.outcomes.contains_key(id);
            self.findings.counts.cancelled += u64::from(is_gone);
            sure += u64::from(is_gone && publications.was_cancelled(*id));
        }
        for call in &publications.refused {
            let what =
                format!("call {call} was refused, although the earlier message with its key was cancelled");
            self.breach(None, what);
        }
        // Some of those that may be cancelled were lost instead.
        let ring = self.work.counts.cancelled;
        if self.evidence.losses != Losses::Nothing && (sure..=self.findings.counts.cancelled).contains(&ring)
        {
            self.findings.counts.cancelled = ring;
        }
    }

    fn check_counts(&mut self) {
        let (ring, records) = (self.work.counts, self.findings.counts);
        if !self.evidence.complete || ring == records {
            return;
        }
        let pairs = [
            ("retries", ring.retries, records.retries),
            ("snoozes", ring.snoozes, records.snoozes),
            ("cancelled messages", ring.cancelled, records.cancelled),
            ("messages of publishers", ring.submitted, records.submitted),
        ];
        for (what, counted, recorded) in
            pairs.into_iter().filter(|(_, counted, recorded)| counted != recorded)
        {
            self.breach(None, format!("the ring counts {counted} {what}, but the records show {recorded}"));
        }
    }
}

/// The answers to all calls with one message.
#[derive(Default)]
struct Answers<'a> {
    key: Option<&'a str>,
    /// Calls without an answer.
    open: u64,
    new: u64,
    repeated: u64,
}

fn shown(stage: Stage) -> String {
    format!("{} and {}", counted(stage.snoozes.into(), "snooze"), counted(stage.failures.into(), "failure"))
}

fn list<'a>(ids: impl IntoIterator<Item = &'a u64>) -> String {
    let ids: Vec<String> = ids.into_iter().map(|id| format!("#{id}")).collect();
    if ids.is_empty() { "nothing".to_owned() } else { ids.join(" and ") }
}

#[cfg(test)]
mod tests;
