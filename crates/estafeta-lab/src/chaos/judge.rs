//! Compares what the nodes recorded with what Redis holds, and finds every contradiction.
//!
//! There are three witnesses. The journal of the ring holds the outcomes that Redis recorded. The record of each node
//! holds what the node did, written before and after each step. The output of the readers holds the errors they took.
//! Two gaps are allowed. A killed node may have failed to record its very last step. A node that was declared dead
//! never learns how its last step ended. Nothing else may be missing. The rules:
//!
//! - The ids 1..n have exactly one outcome each in the journal, and no other id has one.
//! - Each epoch belongs to one node.
//! - Each id was published once: by the node in office, or by a publisher outside the ring. In the order of ids, the
//!   epochs of the generators' messages never fall, so no node published after a later term had begun. If a generator
//!   was killed before it could record a publish, the handlers of the message know its epoch.
//! - If a node recorded that it settled a message, the journal has the same outcome under the number of that node. If
//!   the journal has an outcome under the number of a node that left in good order, so does its record.
//! - The node that settled a message had begun to handle it.
//! - No message was handed out twice under the same delivery.
//! - All witnesses that saw a body saw the same one, including the readers.
//! - A reader printed each error. No reader printed an error again after a reader that ended well had printed it.
//!
//! The workloads `work` and `pipeline` have more rules: see [`rules`]. Each ring of a pipeline is judged on its own. What
//! the first ring forwards is a part of the evidence about the second one.
//!
//! If a run broke off, the evidence may have gaps, but no contradictions.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use estafeta::JournalEntry;

use super::real_work::evidence::{Letter, WorkEvidence};
use super::real_work::findings::WorkFindings;
use super::real_work::message_plan::Stage;
use super::real_work::publications::{Publications, is_from_outside};
use super::real_work::rules;
use crate::record::{RecordLine, Step, digest};

/// What a run left behind.
#[derive(Debug, Default)]
pub struct Evidence {
    /// How many messages were ever published, by the ledger.
    pub published: u64,
    pub journal: Vec<JournalEntry>,
    /// One record per node.
    pub records: Vec<Vec<RecordLine>>,
    /// In the order in which they ended.
    pub readers: Vec<ReaderOutput>,
    /// The run reached its end, so nothing may be missing.
    pub complete: bool,
    /// What a workload with plans left besides. None for the demo.
    pub work: Option<WorkEvidence>,
}

/// What one `getErrors` printed.
#[derive(Debug, Default)]
pub struct ReaderOutput {
    /// The id of each error, and the digest of its body.
    pub errors: Vec<(u64, u64)>,
    pub letters: Vec<Letter>,
    /// The reader reached its end and exited with success.
    pub whole: bool,
}

/// A broken promise, and the message that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub what: String,
    pub message: Option<u64>,
}

/// A message that a node began to handle although it had been begun before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    pub at_ms: u64,
    /// The node that began it before and did not finish it.
    pub first: usize,
}

/// The office passed from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    pub at_ms: u64,
    pub from: usize,
    /// For how long no node had published anything, by all records.
    pub silence_ms: u64,
}

#[derive(Debug, Default)]
pub struct Findings {
    pub breaches: Vec<Breach>,
    pub errors: u64,
    pub repeats: Vec<Repeat>,
    pub take_overs: Vec<TakeOver>,
    /// How many messages have a body that at least two witnesses saw.
    pub bodies_compared: u64,
    pub epochs: u64,
    pub work: Option<WorkFindings>,
}

impl Findings {
    /// Adds the findings about another ring, except its breaches.
    pub fn add(&mut self, other: Self) {
        self.errors += other.errors;
        self.repeats.extend(other.repeats);
        self.take_overs.extend(other.take_overs);
        self.bodies_compared += other.bodies_compared;
        self.epochs += other.epochs;
        if let Some(work) = other.work {
            *self.work.get_or_insert_default() += work;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalOutcome {
    Done,
    Failed,
}

impl fmt::Display for JournalOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "an error",
        })
    }
}

/// A node began to handle a message.
struct Began {
    at_ms: u64,
    node: usize,
    delivery: u32,
    epoch: u64,
    stage: Stage,
}

#[derive(Default)]
struct Judge {
    findings: Findings,
    /// The outcome in the journal, and the number of the member.
    outcomes: HashMap<u64, (JournalOutcome, u64)>,
    /// Which node had this member number.
    numbers: HashMap<u64, usize>,
    /// The numbers of members that left in good order.
    left: HashSet<u64>,
    settled: HashSet<u64>,
    /// The publisher, if it could record that, and the epoch.
    published: BTreeMap<u64, (Option<usize>, u64)>,
    /// Messages that publishers outside the ring have published. Their epoch is the time of the publish.
    outside: HashSet<u64>,
    /// The digest of each body, and whether a second witness saw it.
    bodies: HashMap<u64, (u64, bool)>,
    began: HashMap<u64, Vec<Began>>,
    /// The times of all publishes.
    publishes: Vec<u64>,
    epochs: HashMap<u64, usize>,
}

pub fn judge(evidence: &Evidence) -> Findings {
    let (mut judge, publications) = (Judge::default(), Publications::of(evidence));
    judge.read_journal(evidence, &publications);
    let records = || evidence.records.iter().enumerate();
    records().for_each(|(node, record)| judge.read_numbers(node, record));
    records().for_each(|(node, record)| judge.read_record(node, record));
    judge.compare_epochs(evidence);
    judge.compare_outcomes(evidence);
    judge.compare_deliveries();
    judge.time_take_overs();
    judge.check_readers(evidence);
    judge.apply_rules_of_work(evidence, &publications);
    judge.findings.breaches.sort_by_key(|breach| breach.message);
    judge.findings
}

impl Judge {
    fn breach(&mut self, message: impl Into<Option<u64>>, what: String) {
        self.findings.breaches.push(Breach { what, message: message.into() });
    }

    fn read_journal(&mut self, evidence: &Evidence, publications: &Publications<'_>) {
        for entry in &evidence.journal {
            for id in &entry.ids {
                let failed = entry.errors.contains(id);
                let outcome = if failed { JournalOutcome::Failed } else { JournalOutcome::Done };
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
            let is_missing = !self.outcomes.contains_key(&id) && !publications.may_be_cancelled(id);
            if evidence.complete && is_missing {
                self.breach(id, format!("#{id} has no outcome"));
            }
        }
    }

    fn read_numbers(&mut self, node: usize, record: &[RecordLine]) {
        let mut number = 0;
        for line in record {
            match line.step {
                Step::Joined { member } => {
                    number = member;
                    if self.numbers.insert(member, node).is_some() {
                        self.breach(None, format!("two nodes joined as member {member}"));
                    }
                }
                Step::Left => {
                    self.left.insert(number);
                }
                _ => {}
            }
        }
    }

    fn read_record(&mut self, node: usize, record: &[RecordLine]) {
        for RecordLine { at_ms, step } in record {
            match step {
                Step::TookOffice { epoch, from, .. } => {
                    if let Some(other) = self.epochs.insert(*epoch, node) {
                        let (other, node) = (other + 1, node + 1);
                        self.breach(
                            None,
                            format!("nodes {other} and {node} were both in office in epoch {epoch}"),
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
                        if let Some((_, other)) = self.published.insert(*id, (Some(node), *epoch)) {
                            self.breach(
                                *id,
                                format!("#{id} was published in epoch {other} and in epoch {epoch}"),
                            );
                        }
                        self.see_body(*id, *digest);
                    }
                }
                Step::Began { id, delivery, epoch, digest } => {
                    self.see_body(*id, *digest);
                    let (delivery, epoch, stage) = (*delivery, *epoch, Stage::default());
                    let began = Began { at_ms: *at_ms, node, delivery, epoch, stage };
                    self.began.entry(*id).or_default().push(began);
                }
                Step::Attempt { id, delivery, epoch, failures, snoozes, body, .. } => {
                    self.see_body(*id, digest(body.as_bytes()));
                    if is_from_outside(body) {
                        self.outside.insert(*id);
                    }
                    let stage = Stage { snoozes: *snoozes, failures: *failures };
                    let began = Began { at_ms: *at_ms, node, delivery: *delivery, epoch: *epoch, stage };
                    self.began.entry(*id).or_default().push(began);
                }
                Step::Settled { member, done, failed } => {
                    done.iter().for_each(|id| self.check_settled(*id, JournalOutcome::Done, *member));
                    failed.iter().for_each(|id| self.check_settled(*id, JournalOutcome::Failed, *member));
                }
                _ => {}
            }
        }
    }

    fn check_settled(&mut self, id: u64, outcome: JournalOutcome, number: u64) {
        if !self.settled.insert(id) {
            self.breach(id, format!("#{id} was settled twice, according to the records of the nodes"));
        }
        match self.outcomes.get(&id) {
            Some(found) if *found == (outcome, number) => {}
            Some((found, by)) => {
                let what = format!(
                    "#{id}: member {number} recorded {outcome}, but the journal has {found} by member {by}"
                );
                self.breach(id, what);
            }
            None => {
                self.breach(id, format!("#{id} was settled by member {number}, but is not in the journal"));
            }
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
                    // Each change is reported once.
                    *first = digest;
                    self.breach(id, format!("the body of #{id} has changed"));
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
                        "#{id} was published in epoch {epoch}, but handed out with epoch {}",
                        began.epoch
                    );
                    breaches.push((*id, what));
                }
            }
        }
        let mut latest = 0;
        let of_the_generators = self.published.iter().filter(|(id, _)| !self.outside.contains(id));
        for (id, (publisher, epoch)) in of_the_generators {
            if *epoch < latest {
                breaches.push((
                    *id,
                    format!("#{id} was published in epoch {epoch}, after epoch {latest} had begun"),
                ));
            }
            latest = latest.max(*epoch);
            if *id > evidence.published {
                breaches.push((*id, format!("#{id} was published, but the ledger does not count it")));
            }
            // A node may be killed after it published and before it recorded its office.
            if let Some(publisher) = publisher
                && self.epochs.entry(*epoch).or_insert(*publisher) != publisher
            {
                breaches.push((
                    *id,
                    format!("#{id} was published in epoch {epoch} by a node that was not in office"),
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
                    "#{id} was settled by member {number}, which left in good order but did not record that"
                );
                breaches.push((*id, what));
            }
        }
        // No node settled a message that became an error because its handlers died.
        let settled = evidence.journal.iter().filter(|entry| entry.ids != entry.errors);
        for (entry, id) in settled.flat_map(|entry| entry.ids.iter().map(move |id| (entry, id))) {
            // A node may be killed before it recorded its number.
            let node = self.numbers.get(&entry.member.0);
            let is_its = |began: &Began| node.is_none_or(|node| *node == began.node);
            if !self.began.get(id).is_some_and(|began| began.iter().any(is_its)) {
                let what =
                    format!("#{id} was settled by member {}, which never began to handle it", entry.member);
                breaches.push((*id, what));
            }
        }
        breaches.into_iter().for_each(|(id, what)| self.breach(id, what));
    }

    fn compare_deliveries(&mut self) {
        for (id, mut began) in std::mem::take(&mut self.began) {
            began.sort_by_key(|began| (began.delivery, began.at_ms));
            for pair in began.windows(2) {
                let (first, second) = (&pair[0], &pair[1]);
                if first.delivery == second.delivery {
                    let delivery = first.delivery;
                    self.breach(id, format!("#{id} was handed out twice under delivery {delivery}"));
                }
                // A message that was retried or snoozed comes again as planned.
                if first.stage == second.stage {
                    self.findings.repeats.push(Repeat { at_ms: second.at_ms, first: first.node });
                }
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

    fn apply_rules_of_work(&mut self, evidence: &Evidence, publications: &Publications<'_>) {
        let Some(work) = &evidence.work else { return };
        let is_error =
            |(id, (outcome, _)): (&u64, &(JournalOutcome, u64))| (*id, *outcome == JournalOutcome::Failed);
        let outcomes = self.outcomes.iter().map(is_error).collect();
        let (findings, breaches) = rules::judge(evidence, work, publications, &outcomes);
        self.findings.work = Some(findings);
        self.findings.breaches.extend(breaches);
    }

    fn check_readers(&mut self, evidence: &Evidence) {
        let (mut printed, mut taken) = (HashSet::new(), HashSet::new());
        for reading in &evidence.readers {
            for (id, digest) in &reading.errors {
                if !matches!(self.outcomes.get(id), Some((JournalOutcome::Failed, _))) {
                    self.breach(*id, format!("getErrors printed #{id}, which is no error"));
                }
                if taken.contains(id) {
                    self.breach(*id, format!("getErrors printed the error #{id} again"));
                }
                self.see_body(*id, *digest);
                printed.insert(*id);
            }
            if reading.whole {
                taken.extend(reading.errors.iter().map(|(id, _)| *id));
            }
        }
        let failed = self.outcomes.iter().filter(|(_, (outcome, _))| *outcome == JournalOutcome::Failed);
        let missing: Vec<u64> = failed.map(|(id, _)| *id).filter(|id| !printed.contains(id)).collect();
        for id in missing.into_iter().filter(|_| evidence.complete) {
            self.breach(id, format!("getErrors never printed the error #{id}"));
        }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
