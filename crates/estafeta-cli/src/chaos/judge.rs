//! Compares what the copies wrote down themselves with what Redis has, and finds every contradiction.
//!
//! Three witnesses are heard: the ring's journal (which outcomes Redis recorded), the record of each copy (what it did,
//! written before and after each step), and what the readers of errors printed. A copy that was killed may have failed to
//! write down its very last step, and one that was declared dead never learns how its last step ended; nobody else may
//! miss anything. The rules:
//!
//! - ids 1..n have exactly one outcome each in the journal, and there are no others;
//! - an id was published once, and in the order of ids the epochs never fall: nobody published after a later term began;
//! - each epoch belongs to one copy;
//! - what a copy has settled by its own record, the journal has under that copy's number with the same outcome; and what
//!   the journal has under the number of a copy that left in good order, its record has, too;
//! - no message was handed out twice under the same attempt;
//! - all who saw a body saw the same one;
//! - each error came out of one reader; a second time only if the reader before was cut short.

use std::collections::{BTreeMap, HashMap, HashSet};

use estafeta::JournalEntry;

use crate::record::{Line, Step};

/// What the ring left behind.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Messages ever published, by the ledger.
    pub published: u64,
    pub journal: Vec<JournalEntry>,
    /// The records, a copy each.
    pub records: Vec<Vec<Line>>,
    pub readers: Vec<Reading>,
}

/// What one `getErrors` printed.
#[derive(Debug, Default)]
pub struct Reading {
    pub ids: Vec<u64>,
    /// It came to its end and said so.
    pub whole: bool,
}

/// A broken promise, and the message it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub what: String,
    pub message: Option<u64>,
}

/// A message that a handler began although another one had begun it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    pub at_ms: u64,
    /// The copy that began it first and did not bring it to its end.
    pub first: usize,
}

/// An office that passed from one copy to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    pub at_ms: u64,
    pub from: usize,
    /// For how long nobody had published anything, by the records of all.
    pub silence_ms: u64,
}

#[derive(Debug, Default)]
pub struct Findings {
    pub breaches: Vec<Breach>,
    pub outcomes: u64,
    pub errors: u64,
    pub repeats: Vec<Repeat>,
    pub take_overs: Vec<TakeOver>,
    /// Messages of which at least two witnesses saw the body.
    pub bodies_compared: u64,
    pub epochs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
}

/// One beginning of one message.
struct Began {
    at_ms: u64,
    copy: usize,
    attempt: u32,
}

#[derive(Default)]
struct Judge {
    findings: Findings,
    /// The journal's word: outcome, and the number of the member.
    outcomes: HashMap<u64, (Outcome, u64)>,
    /// Which copy had this number.
    numbers: HashMap<u64, usize>,
    /// Numbers under which a copy left in good order.
    left: HashSet<u64>,
    settled: HashSet<u64>,
    published: BTreeMap<u64, u64>,
    bodies: HashMap<u64, (u64, bool)>,
    began: HashMap<u64, Vec<Began>>,
    /// When something was published.
    publishes: Vec<u64>,
    epochs: HashMap<u64, usize>,
}

pub fn judge(evidence: &Evidence) -> Findings {
    let mut judge = Judge::default();
    judge.hear_journal(evidence);
    for (copy, record) in evidence.records.iter().enumerate() {
        judge.hear_numbers(copy, record);
    }
    for (copy, record) in evidence.records.iter().enumerate() {
        judge.hear_record(copy, record);
    }
    judge.compare(evidence);
    judge.hear_readers(evidence);
    judge.findings
}

impl Judge {
    fn breach(&mut self, message: impl Into<Option<u64>>, what: String) {
        self.findings.breaches.push(Breach { what, message: message.into() });
    }

    fn hear_journal(&mut self, evidence: &Evidence) {
        for entry in &evidence.journal {
            for id in &entry.ids {
                let failed = entry.errors.contains(id);
                let outcome = if failed { Outcome::Failed } else { Outcome::Done };
                self.findings.outcomes += 1;
                self.findings.errors += u64::from(failed);
                if let Some((_, first)) = self.outcomes.insert(*id, (outcome, entry.member.0)) {
                    let second = entry.member;
                    self.breach(
                        *id,
                        format!("#{id} has two outcomes: from member {first} and member {second}"),
                    );
                }
                if !(1..=evidence.published).contains(id) {
                    self.breach(*id, format!("#{id} has an outcome but was never published"));
                }
            }
        }
        for id in 1..=evidence.published {
            if !self.outcomes.contains_key(&id) {
                self.breach(id, format!("#{id} has no outcome"));
            }
        }
    }

    fn hear_numbers(&mut self, copy: usize, record: &[Line]) {
        let mut number = 0;
        for line in record {
            match line.step {
                Step::Joined { member } => {
                    number = member;
                    if self.numbers.insert(member, copy).is_some() {
                        self.breach(None, format!("two copies joined as member {member}"));
                    }
                }
                Step::Left => {
                    self.left.insert(number);
                }
                _ => {}
            }
        }
    }

    fn hear_record(&mut self, copy: usize, record: &[Line]) {
        let mut number = 0;
        for Line { at_ms, step } in record {
            match step {
                Step::Joined { member } => number = *member,
                Step::TookOffice { epoch, from, .. } => {
                    if let Some(other) = self.epochs.insert(*epoch, copy) {
                        let (other, copy) = (other + 1, copy + 1);
                        self.breach(
                            None,
                            format!("copies {other} and {copy} were both in office in epoch {epoch}"),
                        );
                    }
                    if let Some(from) = from.and_then(|from| self.numbers.get(&from)) {
                        let take_over = TakeOver { at_ms: *at_ms, from: *from, silence_ms: 0 };
                        self.findings.take_overs.push(take_over);
                    }
                }
                Step::Published { epoch, messages } => {
                    self.publishes.push(*at_ms);
                    for (id, digest) in messages {
                        if let Some(other) = self.published.insert(*id, *epoch) {
                            self.breach(
                                *id,
                                format!("#{id} was published in epoch {other} and in epoch {epoch}"),
                            );
                        }
                        self.see_body(*id, *digest);
                    }
                }
                Step::Began { id, attempt, digest, .. } => {
                    self.see_body(*id, *digest);
                    let began = Began { at_ms: *at_ms, copy, attempt: *attempt };
                    self.began.entry(*id).or_default().push(began);
                }
                Step::Settled { done, failed } => {
                    done.iter().for_each(|id| self.hear_settled(*id, Outcome::Done, number));
                    failed.iter().for_each(|id| self.hear_settled(*id, Outcome::Failed, number));
                }
                Step::Started { .. } | Step::BecameHandler | Step::DeclaredDead | Step::Left => {}
            }
        }
    }

    fn hear_settled(&mut self, id: u64, outcome: Outcome, number: u64) {
        if !self.settled.insert(id) {
            self.breach(id, format!("#{id} was settled by two copies, by their own records"));
        }
        match self.outcomes.get(&id) {
            Some(found) if *found == (outcome, number) => {}
            Some((found, by)) => {
                let what = format!(
                    "#{id}: member {number} wrote down {outcome:?}, the journal has {found:?} by member {by}"
                );
                self.breach(id, what);
            }
            None => self
                .breach(id, format!("#{id} was settled by member {number}, and the journal does not know")),
        }
    }

    fn see_body(&mut self, id: u64, digest: u64) {
        match self.bodies.get_mut(&id) {
            None => {
                self.bodies.insert(id, (digest, false));
            }
            Some((first, compared)) => {
                if !std::mem::replace(compared, true) {
                    self.findings.bodies_compared += 1;
                }
                if *first != digest {
                    self.breach(id, format!("#{id} changed its body on the way"));
                }
            }
        }
    }

    fn compare(&mut self, evidence: &Evidence) {
        self.findings.epochs = self.epochs.len() as u64;
        let mut latest = 0;
        for (id, epoch) in std::mem::take(&mut self.published) {
            if epoch < latest {
                self.breach(
                    id,
                    format!("#{id} was published in epoch {epoch}, after epoch {latest} had begun"),
                );
            }
            latest = latest.max(epoch);
            if id > evidence.published {
                self.breach(id, format!("#{id} was published, and the ledger does not count it"));
            }
        }
        let mut unwritten: Vec<(u64, u64)> = Vec::new();
        for (id, (_, number)) in &self.outcomes {
            if self.left.contains(number) && !self.settled.contains(id) {
                unwritten.push((*id, *number));
            }
        }
        for (id, number) in unwritten {
            let what = format!(
                "#{id} was settled by member {number}, which left in good order and knows nothing of it"
            );
            self.breach(id, what);
        }
        for (id, mut began) in std::mem::take(&mut self.began) {
            began.sort_by_key(|began| (began.attempt, began.at_ms));
            for pair in began.windows(2) {
                let (first, second) = (&pair[0], &pair[1]);
                if first.attempt == second.attempt {
                    let attempt = first.attempt;
                    self.breach(id, format!("#{id} was handed out twice under attempt {attempt}"));
                }
                self.findings.repeats.push(Repeat { at_ms: second.at_ms, first: first.copy });
            }
        }
        self.publishes.sort_unstable();
        for take_over in &mut self.findings.take_overs {
            let before = self.publishes.partition_point(|at_ms| *at_ms <= take_over.at_ms);
            let last = before.checked_sub(1).map_or(take_over.at_ms, |last| self.publishes[last]);
            take_over.silence_ms = take_over.at_ms - last;
        }
        self.findings.take_overs.sort_by_key(|take_over| take_over.at_ms);
        self.findings.breaches.sort_by_key(|breach| breach.message);
    }

    fn hear_readers(&mut self, evidence: &Evidence) {
        let mut printed: HashMap<u64, u32> = HashMap::new();
        for reading in &evidence.readers {
            for id in &reading.ids {
                if !matches!(self.outcomes.get(id), Some((Outcome::Failed, _))) {
                    self.breach(*id, format!("#{id} came out of getErrors and is no error"));
                }
                let times = printed.entry(*id).or_default();
                // What one that was cut short had printed may come again.
                *times += u32::from(reading.whole);
                if *times > 1 {
                    self.breach(*id, format!("the error #{id} came out of getErrors twice"));
                }
            }
        }
        let failed = self.outcomes.iter().filter(|(_, (outcome, _))| *outcome == Outcome::Failed);
        let mut missing: Vec<u64> =
            failed.map(|(id, _)| *id).filter(|id| !printed.contains_key(id)).collect();
        missing.sort_unstable();
        for id in missing {
            self.breach(id, format!("the error #{id} never came out of getErrors"));
        }
    }
}

/// Everything the witnesses know of one message, in order of time.
pub fn story(evidence: &Evidence, id: u64) -> Vec<(u64, String)> {
    let mut story = Vec::new();
    for (copy, record) in evidence.records.iter().enumerate() {
        let copy = copy + 1;
        for Line { at_ms, step } in record {
            let told = match step {
                Step::Published { epoch, messages } if messages.iter().any(|(other, _)| *other == id) => {
                    format!("copy {copy} has published it in epoch {epoch}")
                }
                Step::Began { id: other, attempt, .. } if *other == id => {
                    format!("copy {copy} begins to handle it, attempt {attempt}")
                }
                Step::Settled { done, .. } if done.contains(&id) => {
                    format!("copy {copy} has settled it as done")
                }
                Step::Settled { failed, .. } if failed.contains(&id) => {
                    format!("copy {copy} has settled it as an error")
                }
                _ => continue,
            };
            story.push((*at_ms, told));
        }
    }
    story.sort();
    for entry in evidence.journal.iter().filter(|entry| entry.ids.contains(&id)) {
        let outcome = if entry.errors.contains(&id) { "an error" } else { "done" };
        story.push((u64::MAX, format!("the journal has it as {outcome}, by member {}", entry.member)));
    }
    story
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
