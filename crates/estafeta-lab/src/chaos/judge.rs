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
//!
//! **Losses.** A Redis whose replicas are promoted may lose what it has acknowledged ([`Losses`]). The journal and the
//! ledger then tell the history that survived: each step is in them as a whole, or not at all. The rules are the same,
//! except for the following:
//!
//! - As many ids have no outcome as the ring counts as lost or cancelled. The events report each lost message once.
//! - If all steps were confirmed, no process has recorded anything about an id that was lost.
//! - Otherwise a record may contain a step that did not survive, but only from a time in which it could be lost. This
//!   holds for publishes, attempts, outcomes, receipts, cancellations and printed errors. The same message may then be
//!   handed out again under the same delivery, and settled again.
//! - An id may belong to two messages of different epochs. All signs of one of them are from such times. An epoch and an
//!   id together never belong to two messages.
//! - What messages write to Redis and what the ring counts follow from the surviving history alone, exactly.
//! - Two nodes may have the same number, because joining is not confirmed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use estafeta::JournalEntry;

use super::losses::Losses;
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
    /// How many of them Redis has lost, by the ledger.
    pub lost: u64,
    /// How many lost messages the events have reported.
    pub reported_losses: u64,
    /// How many messages were cancelled, by the ledger.
    pub cancelled: u64,
    /// What Redis may have lost.
    pub losses: Losses,
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
    pub errors: Vec<PrintedLetter>,
    pub letters: Vec<Letter>,
    /// The reader reached its end and exited with success.
    pub whole: bool,
    /// When it was started, and when it ended.
    pub from_ms: u64,
    pub until_ms: u64,
}

/// An error that a reader printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrintedLetter {
    pub id: u64,
    /// 0 if an older build printed it, without an epoch.
    pub epoch: u64,
    /// The digest of its body.
    pub digest: u64,
}

#[cfg(test)]
impl PrintedLetter {
    /// An error that a reader printed with an epoch of 0.
    pub fn sample(id: u64, digest: u64) -> Self {
        Self { id, epoch: 0, digest }
    }
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
    /// How many messages Redis has lost, by the ledger.
    pub lost: u64,
    /// How many outcomes nodes recorded that Redis lost later.
    pub outcomes_lost: u64,
}

impl Findings {
    /// Adds the findings about another ring, except its breaches.
    pub fn add(&mut self, other: Self) {
        self.errors += other.errors;
        self.repeats.extend(other.repeats);
        self.take_overs.extend(other.take_overs);
        self.bodies_compared += other.bodies_compared;
        self.epochs += other.epochs;
        self.lost += other.lost;
        self.outcomes_lost += other.outcomes_lost;
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

/// Redis has acknowledged that a generator published a message.
#[derive(Clone, Copy)]
struct Publish {
    /// The node, if it could record that.
    node: Option<usize>,
    epoch: u64,
    at_ms: u64,
}

#[derive(Default)]
struct Judge {
    findings: Findings,
    losses: Losses,
    /// The outcome in the journal, and the number of the member.
    outcomes: HashMap<u64, (JournalOutcome, u64)>,
    /// Which nodes had this member number.
    numbers: HashMap<u64, Vec<usize>>,
    /// The numbers of members that left in good order.
    left: HashSet<u64>,
    /// When each message was settled, by the records.
    settled: HashMap<u64, Vec<u64>>,
    /// The publishes of each id.
    published: BTreeMap<u64, Vec<Publish>>,
    /// Messages that publishers outside the ring have published. Their epoch is the time of the publish.
    outside: HashSet<u64>,
    /// The digest of each body by id and epoch, and whether a second witness saw it.
    bodies: HashMap<(u64, u64), (u64, bool)>,
    began: HashMap<u64, Vec<Began>>,
    /// The epochs of the messages with outcomes, where an id may have two messages.
    survivors: HashMap<u64, u64>,
    /// The times of all publishes.
    publishes: Vec<u64>,
    epochs: HashMap<u64, usize>,
}

pub fn judge(evidence: &Evidence) -> Findings {
    let (mut judge, publications) = (Judge::default(), Publications::of(evidence));
    judge.losses = evidence.losses.clone();
    judge.findings.lost = evidence.lost;
    judge.read_journal(evidence, &publications);
    let records = || evidence.records.iter().enumerate();
    records().for_each(|(node, record)| judge.read_numbers(node, record));
    records().for_each(|(node, record)| judge.read_record(node, record));
    judge.compare_settled();
    judge.compare_epochs(evidence);
    judge.compare_losses(evidence, &publications);
    judge.compare_outcomes(evidence);
    judge.note_survivors();
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
        if evidence.complete && self.losses == Losses::Nothing {
            for id in self.missing(evidence, publications) {
                self.breach(id, format!("#{id} has no outcome"));
            }
        }
    }

    /// The ids without an outcome that were not cancelled, as far as anyone knows.
    fn missing(&self, evidence: &Evidence, publications: &Publications<'_>) -> Vec<u64> {
        let is_missing = |id: &u64| !self.outcomes.contains_key(id) && !publications.may_be_cancelled(*id);
        (1..=evidence.published).filter(is_missing).collect()
    }

    /// The counts of what Redis has lost agree with the journal, and nothing else is lost.
    fn compare_losses(&mut self, evidence: &Evidence, publications: &Publications<'_>) {
        let Evidence { published, lost, reported_losses, cancelled, .. } = *evidence;
        if lost != reported_losses {
            let what =
                format!("the ring counts {lost} lost messages, but its events report {reported_losses}");
            self.breach(None, what);
        }
        if self.losses == Losses::Nothing || !evidence.complete {
            return;
        }
        let known = (1..=published).filter(|id| self.outcomes.contains_key(id)).count() as u64;
        let without = published - known;
        if without != lost + cancelled {
            self.breach(
                None,
                format!(
                    "{without} messages have no outcome, but the ring counts {lost} as lost and {cancelled} as \
                     cancelled"
                ),
            );
        }
        for id in self.missing(evidence, publications) {
            if let Some(at_ms) = self.seen_at(id, publications).into_iter().find(|at| !self.losses.cover(*at))
            {
                let why = match self.losses {
                    Losses::Unconfirmed => "although a process reported it".to_owned(),
                    _ => format!("although a process reported it at {at_ms} ms, when nothing could be lost"),
                };
                self.breach(id, format!("#{id} has no outcome, {why}"));
            }
        }
    }

    /// The times at which processes recorded anything about an id.
    fn seen_at(&self, id: u64, publications: &Publications<'_>) -> Vec<u64> {
        let mut times: Vec<u64> =
            self.published.get(&id).into_iter().flatten().map(|publish| publish.at_ms).collect();
        times.extend(self.began.get(&id).into_iter().flatten().map(|began| began.at_ms));
        times.extend(self.settled.get(&id).into_iter().flatten());
        times.extend(publications.receipts_of(id));
        times
    }

    fn read_numbers(&mut self, node: usize, record: &[RecordLine]) {
        let mut number = 0;
        for line in record {
            match line.step {
                Step::Joined { member } => {
                    number = member;
                    let nodes = self.numbers.entry(member).or_default();
                    nodes.push(node);
                    if nodes.len() > 1 && self.losses == Losses::Nothing {
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
                    if let Some(from) = from.and_then(|from| self.numbers.get(&from)?.last()) {
                        let take_over = TakeOver { at_ms: *at_ms, from: *from, silence_ms: 0 };
                        self.findings.take_overs.push(take_over);
                    }
                }
                Step::Published { epoch, messages } => {
                    self.publishes.push(*at_ms);
                    for (id, digest) in messages {
                        let publish = Publish { node: Some(node), epoch: *epoch, at_ms: *at_ms };
                        let others = self.published.entry(*id).or_default();
                        let is_contradiction = |other: &Publish| {
                            other.epoch == *epoch
                                || !self.losses.cover(other.at_ms) && !self.losses.cover(*at_ms)
                        };
                        let contradiction = others.iter().copied().find(is_contradiction);
                        others.push(publish);
                        if let Some(Publish { epoch: other, .. }) = contradiction {
                            self.breach(
                                *id,
                                format!("#{id} was published in epoch {other} and in epoch {epoch}"),
                            );
                        }
                        self.see_body(*id, *epoch, *digest);
                    }
                }
                Step::Began { id, delivery, epoch, digest } => {
                    self.see_body(*id, *epoch, *digest);
                    let (delivery, epoch, stage) = (*delivery, *epoch, Stage::default());
                    let began = Began { at_ms: *at_ms, node, delivery, epoch, stage };
                    self.began.entry(*id).or_default().push(began);
                }
                Step::Attempt { id, delivery, epoch, failures, snoozes, body, .. } => {
                    self.see_body(*id, *epoch, digest(body.as_bytes()));
                    if is_from_outside(body) {
                        self.outside.insert(*id);
                    }
                    let stage = Stage { snoozes: *snoozes, failures: *failures };
                    let began = Began { at_ms: *at_ms, node, delivery: *delivery, epoch: *epoch, stage };
                    self.began.entry(*id).or_default().push(began);
                }
                Step::Settled { member, done, failed } => {
                    let outcomes = done.iter().map(|id| (*id, JournalOutcome::Done));
                    let outcomes = outcomes.chain(failed.iter().map(|id| (*id, JournalOutcome::Failed)));
                    outcomes.for_each(|(id, outcome)| self.check_settled(id, outcome, *member, *at_ms));
                }
                _ => {}
            }
        }
    }

    fn check_settled(&mut self, id: u64, outcome: JournalOutcome, number: u64, at_ms: u64) {
        self.settled.entry(id).or_default().push(at_ms);
        let what = match self.outcomes.get(&id) {
            Some(found) if *found == (outcome, number) => return,
            Some((found, by)) => {
                format!(
                    "#{id}: member {number} recorded {outcome}, but the journal has {found} by member {by}"
                )
            }
            None => format!("#{id} was settled by member {number}, but is not in the journal"),
        };
        if self.losses.cover(at_ms) {
            self.findings.outcomes_lost += 1;
        } else {
            self.breach(id, what);
        }
    }

    fn compare_settled(&mut self) {
        let is_sure = |at: &&u64| !self.losses.cover(**at);
        let twice: Vec<u64> = self
            .settled
            .iter()
            .filter(|(_, times)| times.iter().filter(is_sure).count() > 1)
            .map(|(id, _)| *id)
            .collect();
        for id in twice {
            self.breach(id, format!("#{id} was settled twice, according to the records of the nodes"));
        }
    }

    fn see_body(&mut self, id: u64, epoch: u64, digest: u64) {
        // An id has one message, unless Redis lost the first one.
        let key = (id, if self.losses.are_reported() { epoch } else { 0 });
        match self.bodies.get_mut(&key) {
            None => {
                self.bodies.insert(key, (digest, false));
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

    /// The epoch of the message with this id that has the outcome. None if its handler is not known.
    fn surviving_epoch(&self, id: u64) -> Option<u64> {
        let (_, member) = self.outcomes.get(&id)?;
        let nodes = self.numbers.get(member);
        let is_its = |began: &&Began| nodes.is_none_or(|nodes| nodes.contains(&began.node));
        let began = self.began.get(&id)?.iter().filter(is_its);
        began.max_by_key(|began| began.at_ms).map(|began| began.epoch)
    }

    fn note_survivors(&mut self) {
        if self.losses.are_reported() {
            let epoch = |id: &u64| Some((*id, self.surviving_epoch(*id)?));
            self.survivors = self.outcomes.keys().filter_map(epoch).collect();
        }
    }

    fn compare_epochs(&mut self, evidence: &Evidence) {
        let mut breaches = Vec::new();
        for (id, began) in &self.began {
            for began in began {
                let Began { epoch, at_ms, .. } = *began;
                let publishes = self.published.entry(*id).or_default();
                if publishes.is_empty() {
                    publishes.push(Publish { node: None, epoch, at_ms });
                }
                let is_sure = |other: &&Publish| !self.losses.cover(other.at_ms) || other.epoch == epoch;
                match publishes.iter().rev().find(is_sure) {
                    Some(other) if other.epoch != epoch && !self.losses.cover(at_ms) => {
                        let of = other.epoch;
                        let what =
                            format!("#{id} was published in epoch {of}, but handed out with epoch {epoch}");
                        breaches.push((*id, what));
                    }
                    // Its generator was killed before it could record the publish.
                    None => publishes.push(Publish { node: None, epoch, at_ms }),
                    _ => {}
                }
            }
        }
        let mut latest = 0;
        let of_the_generators = self.published.iter().filter(|(id, _)| !self.outside.contains(id));
        for (id, publishes) in of_the_generators {
            let survived = match &publishes[..] {
                [only] if !self.losses.cover(only.at_ms) => Some(only.epoch),
                _ => self.surviving_epoch(*id),
            };
            if let Some(epoch) = survived {
                if epoch < latest {
                    let what =
                        format!("#{id} was published in epoch {epoch}, after epoch {latest} had begun");
                    breaches.push((*id, what));
                }
                latest = latest.max(epoch);
            }
            for Publish { node, epoch, at_ms } in publishes {
                if *id > evidence.published && !self.losses.cover(*at_ms) {
                    breaches.push((*id, format!("#{id} was published, but the ledger does not count it")));
                }
                // A node may be killed after it published and before it recorded its office.
                if let Some(publisher) = node
                    && self.epochs.entry(*epoch).or_insert(*publisher) != publisher
                {
                    breaches.push((
                        *id,
                        format!("#{id} was published in epoch {epoch} by a node that was not in office"),
                    ));
                }
            }
        }
        self.findings.epochs = self.epochs.len() as u64;
        breaches.into_iter().for_each(|(id, what)| self.breach(id, what));
    }

    fn compare_outcomes(&mut self, evidence: &Evidence) {
        let mut breaches = Vec::new();
        for (id, (_, number)) in &self.outcomes {
            let is_one_node = self.numbers.get(number).is_some_and(|nodes| nodes.len() == 1);
            if self.left.contains(number) && is_one_node && !self.settled.contains_key(id) {
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
            let nodes = self.numbers.get(&entry.member.0);
            let is_its = |began: &Began| nodes.is_none_or(|nodes| nodes.contains(&began.node));
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
            began.sort_by_key(|began| (began.epoch, began.delivery, began.at_ms));
            for pair in began.windows(2) {
                let (first, second) = (&pair[0], &pair[1]);
                if first.epoch != second.epoch {
                    continue;
                }
                // One of the two may be lost: a server that was replaced may hand out messages after its successor.
                let is_sure = !self.losses.cover(first.at_ms) && !self.losses.cover(second.at_ms);
                if first.delivery == second.delivery && is_sure {
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
        let (findings, breaches) = rules::judge(evidence, work, publications, &outcomes, &self.survivors);
        self.findings.work = Some(findings);
        self.findings.breaches.extend(breaches);
    }

    fn check_readers(&mut self, evidence: &Evidence) {
        let (mut printed, mut taken) = (HashSet::new(), HashSet::new());
        for reading in &evidence.readers {
            let is_sure = !self.losses.cover_some_of(reading.from_ms, reading.until_ms);
            for PrintedLetter { id, epoch, digest } in &reading.errors {
                if is_sure && !matches!(self.outcomes.get(id), Some((JournalOutcome::Failed, _))) {
                    self.breach(*id, format!("getErrors printed #{id}, which is no error"));
                }
                if taken.contains(id) {
                    self.breach(*id, format!("getErrors printed the error #{id} again"));
                }
                self.see_body(*id, *epoch, *digest);
                printed.insert(*id);
            }
            if reading.whole && is_sure {
                taken.extend(reading.errors.iter().map(|letter| letter.id));
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
