//! Compares what the copies wrote down themselves with what Redis has, and finds every contradiction.
//!
//! Three witnesses are heard: the ring's journal (which outcomes Redis recorded), the record of each copy (what it did,
//! written before and after each step), and what the readers of errors printed. A copy that was killed may have failed to
//! write down its very last step, and one that was declared dead never learns how its last step ended; nobody else may
//! miss anything. The rules:
//!
//! - ids 1..n have exactly one outcome each in the journal, and there are no others;
//! - each epoch belongs to one copy, an id was published once, by the copy in office, and in the order of ids the epochs
//!   never fall: nobody published after a later term began. Where the publisher was killed before it could write, those
//!   who handled the message know its epoch;
//! - what a copy has settled by its own record, the journal has under that copy's number with the same outcome; and what
//!   the journal has under the number of a copy that left in good order, its record has, too;
//! - whoever settled a message had begun to handle it;
//! - no message was handed out twice under the same attempt;
//! - all who saw a body saw the same one, the readers of errors included;
//! - each error came out of a reader, and never again after one that ended well.
//!
//! A run that broke off is judged by what it left: nothing may contradict, but not everything needs to be there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

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
    /// In the order in which they ended.
    pub readers: Vec<Reading>,
    /// The ring came to rest, so that nothing may be missing.
    pub complete: bool,
}

/// What one `getErrors` printed.
#[derive(Debug, Default)]
pub struct Reading {
    /// Id and digest of the body.
    pub errors: Vec<(u64, u64)>,
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "an error",
        })
    }
}

/// One beginning of one message.
struct Began {
    at_ms: u64,
    copy: usize,
    attempt: u32,
    epoch: u64,
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
    /// By which copy, if it could write that down, and in which epoch.
    published: BTreeMap<u64, (Option<usize>, u64)>,
    bodies: HashMap<u64, (u64, bool)>,
    began: HashMap<u64, Vec<Began>>,
    /// When something was published.
    publishes: Vec<u64>,
    epochs: HashMap<u64, usize>,
}

pub fn judge(evidence: &Evidence) -> Findings {
    let mut judge = Judge::default();
    judge.hear_journal(evidence);
    let records = || evidence.records.iter().enumerate();
    records().for_each(|(copy, record)| judge.hear_numbers(copy, record));
    records().for_each(|(copy, record)| judge.hear_record(copy, record));
    judge.compare_epochs(evidence);
    judge.compare_outcomes(evidence);
    judge.compare_attempts();
    judge.time_take_overs();
    judge.hear_readers(evidence);
    judge.findings.breaches.sort_by_key(|breach| breach.message);
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
                self.findings.errors += u64::from(failed);
                if let Some((_, first)) = self.outcomes.insert(*id, (outcome, entry.member.0)) {
                    let second = entry.member;
                    self.breach(
                        *id,
                        format!("#{id} has two outcomes, by member {first} and by member {second}"),
                    );
                }
                if !(1..=evidence.published).contains(id) {
                    self.breach(*id, format!("#{id} has an outcome but was never published"));
                }
            }
        }
        for id in 1..=evidence.published {
            if evidence.complete && !self.outcomes.contains_key(&id) {
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
        for Line { at_ms, step } in record {
            match step {
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
                        if let Some((_, other)) = self.published.insert(*id, (Some(copy), *epoch)) {
                            self.breach(
                                *id,
                                format!("#{id} was published in epoch {other} and in epoch {epoch}"),
                            );
                        }
                        self.see_body(*id, *digest);
                    }
                }
                Step::Began { id, attempt, epoch, digest } => {
                    self.see_body(*id, *digest);
                    let began = Began { at_ms: *at_ms, copy, attempt: *attempt, epoch: *epoch };
                    self.began.entry(*id).or_default().push(began);
                }
                Step::Settled { member, done, failed } => {
                    done.iter().for_each(|id| self.hear_settled(*id, Outcome::Done, *member));
                    failed.iter().for_each(|id| self.hear_settled(*id, Outcome::Failed, *member));
                }
                _ => {}
            }
        }
    }

    fn hear_settled(&mut self, id: u64, outcome: Outcome, number: u64) {
        if !self.settled.insert(id) {
            self.breach(id, format!("#{id} was settled twice, by the records of the copies"));
        }
        match self.outcomes.get(&id) {
            Some(found) if *found == (outcome, number) => {}
            Some((found, by)) => {
                let what = format!(
                    "#{id}: member {number} wrote down {outcome}, the journal has {found} by member {by}"
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
                    // Told once.
                    *first = digest;
                    self.breach(id, format!("#{id} changed its body on the way"));
                }
            }
        }
    }

    fn compare_epochs(&mut self, evidence: &Evidence) {
        let mut breaches = Vec::new();
        for (id, began) in &self.began {
            for began in began {
                let (_, epoch) = self.published.entry(*id).or_insert((None, began.epoch));
                if *epoch != began.epoch {
                    let what = format!(
                        "#{id} was published in epoch {epoch} and handed out as of epoch {}",
                        began.epoch
                    );
                    breaches.push((*id, what));
                }
            }
        }
        let mut latest = 0;
        for (id, (publisher, epoch)) in &self.published {
            if *epoch < latest {
                breaches.push((
                    *id,
                    format!("#{id} was published in epoch {epoch}, after epoch {latest} had begun"),
                ));
            }
            latest = latest.max(*epoch);
            if *id > evidence.published {
                breaches.push((*id, format!("#{id} was published, and the ledger does not count it")));
            }
            // A copy may be killed after it published, and before it wrote down that it was in office.
            if let Some(publisher) = publisher
                && self.epochs.entry(*epoch).or_insert(*publisher) != publisher
            {
                breaches.push((
                    *id,
                    format!("#{id} was published in epoch {epoch} by a copy that was not in office"),
                ));
            }
        }
        self.findings.epochs = self.epochs.len() as u64;
        breaches.into_iter().for_each(|(id, what)| self.breach(id, what));
    }

    fn compare_outcomes(&mut self, evidence: &Evidence) {
        let mut breaches = Vec::new();
        for (id, (_, number)) in &self.outcomes {
            if self.left.contains(number) && !self.settled.contains(id) {
                let what = format!(
                    "#{id} was settled by member {number}, which left in good order and knows nothing of it"
                );
                breaches.push((*id, what));
            }
        }
        // What became an error because its handlers died was settled by nobody.
        let settled = evidence.journal.iter().filter(|entry| entry.ids != entry.errors);
        for (entry, id) in settled.flat_map(|entry| entry.ids.iter().map(move |id| (entry, id))) {
            // A copy may be killed before it wrote down its number.
            let copy = self.numbers.get(&entry.member.0);
            let is_its = |began: &Began| copy.is_none_or(|copy| *copy == began.copy);
            if !self.began.get(id).is_some_and(|began| began.iter().any(is_its)) {
                let what =
                    format!("#{id} was settled by member {}, which never began to handle it", entry.member);
                breaches.push((*id, what));
            }
        }
        breaches.into_iter().for_each(|(id, what)| self.breach(id, what));
    }

    fn compare_attempts(&mut self) {
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
    }

    fn time_take_overs(&mut self) {
        self.publishes.sort_unstable();
        for take_over in &mut self.findings.take_overs {
            let before = self.publishes.partition_point(|at_ms| *at_ms <= take_over.at_ms);
            let last = before.checked_sub(1).map_or(take_over.at_ms, |last| self.publishes[last]);
            take_over.silence_ms = take_over.at_ms - last;
        }
        self.findings.take_overs.sort_by_key(|take_over| take_over.at_ms);
    }

    fn hear_readers(&mut self, evidence: &Evidence) {
        let (mut printed, mut let_go) = (HashSet::new(), HashSet::new());
        for reading in &evidence.readers {
            for (id, digest) in &reading.errors {
                if !matches!(self.outcomes.get(id), Some((Outcome::Failed, _))) {
                    self.breach(*id, format!("#{id} came out of getErrors and is no error"));
                }
                if let_go.contains(id) {
                    self.breach(*id, format!("the error #{id} came out of getErrors again"));
                }
                self.see_body(*id, *digest);
                printed.insert(*id);
            }
            if reading.whole {
                let_go.extend(reading.errors.iter().map(|(id, _)| *id));
            }
        }
        let failed = self.outcomes.iter().filter(|(_, (outcome, _))| *outcome == Outcome::Failed);
        let missing: Vec<u64> = failed.map(|(id, _)| *id).filter(|id| !printed.contains(id)).collect();
        for id in missing.into_iter().filter(|_| evidence.complete) {
            self.breach(id, format!("the error #{id} never came out of getErrors"));
        }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
