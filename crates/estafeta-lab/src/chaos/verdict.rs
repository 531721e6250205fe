//! The verdict on a run of chaos, for people and for programs.

use std::io::{self, Write};
use std::time::Duration;

use estafeta::{Durability, Snapshot};
use serde_json::{Value, json};

use super::attack::InjectedFault;
use super::judge::{self, Breach, Evidence, Findings};
use super::losses::Losses;
use super::mixed::BuildUpgrade;
use super::plan::FaultKind;
use super::real_work::findings::WorkFindings;
use super::story::{cause, cause_of_take_over, story};
use super::watch::Seen;
use super::{ChaosOptions, DRAIN, LEASE, RECOVERY, RunTimes, Topology, Workload};
use crate::paint::{BAD, FAINT, GOOD, NOTABLE, Paint};
use crate::quantile::quantile;
use crate::text::{counted, figure, grouped};

/// How many broken promises the text lists.
const SHOWN: usize = 20;
/// How many messages get a story.
const STORIES: usize = 5;
/// How many broken promises the JSON lists.
const JSON_BREACHES: usize = 100;

/// One ring of a run: what it left behind, what chaos saw of it, and its last snapshot.
pub struct JudgedRing {
    pub evidence: Evidence,
    pub seen: Seen,
    pub last: Snapshot,
}

/// What is known about a message with a broken promise.
pub struct MessageStory {
    /// The ring of the message. None if the run has only one.
    pub ring: Option<String>,
    pub message: u64,
    pub lines: Vec<String>,
}

impl MessageStory {
    fn is_about(&self, ring: Option<&str>, message: u64) -> bool {
        self.ring.as_deref() == ring && self.message == message
    }

    /// The message, such as `#17`, or `#17 of lines`.
    pub fn subject(&self) -> String {
        let of = self.ring.as_ref().map(|ring| format!(" of {ring}"));
        format!("#{}{}", self.message, of.unwrap_or_default())
    }
}

pub struct Verdict {
    /// The command line that gives the same plan again.
    pub call: String,
    pub seed: u64,
    workload: Workload,
    work: Option<WorkFindings>,
    upgrade: Option<BuildUpgrade>,
    nodes: usize,
    /// The Redis under attack.
    place: String,
    topology: Option<Topology>,
    durability: Durability,
    lost: u64,
    outcomes_lost: u64,
    at_risk: Option<TimeAtRisk>,
    length: Duration,
    rows: Vec<FaultRow>,
    pub published: u64,
    pub errors: u64,
    bodies_compared: u64,
    terms: u64,
    snapshots: usize,
    unbalanced: usize,
    readers: usize,
    times: RunTimes,
    pub breaches: Vec<Breach>,
    /// What is known about the first messages with a broken promise.
    pub stories: Vec<MessageStory>,
}

/// For how long a promotion could lose what a process had reported.
#[derive(Clone, Copy, Debug)]
struct TimeAtRisk {
    at_risk_ms: u64,
    attack_ms: u64,
}

impl TimeAtRisk {
    /// None if nothing that a process reported may be lost.
    fn of(rings: &[JudgedRing], attack: Option<(u64, u64)>) -> Option<Self> {
        let (from_ms, until_ms) = attack?;
        // The rings of a pipeline are on the same server.
        let at_risk_ms = rings.first()?.evidence.losses.at_risk_ms(from_ms, until_ms)?;
        Some(Self { at_risk_ms, attack_ms: until_ms.saturating_sub(from_ms) })
    }

    fn percent(self) -> u64 {
        (self.at_risk_ms * 100).div_ceil(self.attack_ms.max(1))
    }

    fn fact(self) -> String {
        let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1000.0);
        let (at_risk, attack) = (seconds(self.at_risk_ms), seconds(self.attack_ms));
        format!(
            "a promotion could lose what was reported in {at_risk} of the attack, which took {attack} ({} %)",
            self.percent()
        )
    }

    fn json(self) -> Value {
        json!({"atRiskMs": self.at_risk_ms, "attackMs": self.attack_ms, "percent": self.percent()})
    }
}

/// One kind of fault and its effects. None: effects that no fault explains.
struct FaultRow {
    kind: Option<FaultKind>,
    injected: usize,
    /// How long no node published before each take-over, in ms, sorted.
    take_overs: Vec<u64>,
    repeats: usize,
}

impl JudgedRing {
    /// What is wrong with the ring as a whole.
    fn breaches(&self) -> Vec<Breach> {
        let Self { evidence, seen, last } = self;
        let mut breaches = Vec::new();
        let keeps_all = evidence.losses == Losses::Nothing;
        if let Some((before, after)) = seen.fell.filter(|_| keeps_all) {
            breaches.push(Breach::of_the_ring(format!(
                "Redis lost data: the count of published messages fell from {} to {}",
                grouped(before),
                grouped(after)
            )));
        }
        if let Some(first) = seen.unbalanced.first() {
            let count = counted(seen.unbalanced.len() as u64, "snapshot");
            breaches.push(Breach::of_the_ring(format!("{count} did not add up; the first: {first}")));
        }
        if last.lost > 0 && keeps_all {
            let lost = counted(last.lost, "message");
            breaches.push(Breach::of_the_ring(format!("the ring counts {lost} as lost")));
        }
        if evidence.complete && last.waiting + last.later + last.in_flight + last.errors_kept > 0 {
            breaches.push(Breach::of_the_ring(format!(
                "left at the end: {} waiting, {} in flight, {} kept",
                counted(last.waiting + last.later, "message"),
                grouped(last.in_flight),
                counted(last.errors_kept, "error")
            )));
        }
        breaches
    }
}

impl Verdict {
    /// `rings` are those of the options. `failure` is the reason why the run did not reach its end, if it did not.
    pub fn new(
        options: &ChaosOptions,
        rings: &[JudgedRing],
        faults: &[InjectedFault],
        times: RunTimes,
        failure: Option<String>,
    ) -> Self {
        let mut breaches: Vec<Breach> = failure.into_iter().map(Breach::of_the_ring).collect();
        let (mut findings, mut stories) = (Findings::default(), Vec::<MessageStory>::new());
        for (ring, name) in rings.iter().zip(&options.rings) {
            let mut found = judge::judge(&ring.evidence);
            let is_one_of_several = options.rings.len() > 1;
            let name = name.as_str().rsplit_once('/').filter(|_| is_one_of_several).map(|(_, name)| name);
            for breach in ring.breaches().into_iter().chain(std::mem::take(&mut found.breaches)) {
                let has_story = |message| stories.iter().any(|story| story.is_about(name, message));
                if let Some(message) = breach.message.filter(|message| !has_story(*message))
                    && stories.len() < STORIES
                {
                    let lines = story(&ring.evidence, faults, message);
                    stories.push(MessageStory { ring: name.map(ToOwned::to_owned), message, lines });
                }
                breaches.push(breach.in_ring(name));
            }
            findings.add(found);
        }
        let sum = |count: fn(&JudgedRing) -> usize| rings.iter().map(count).sum::<usize>();
        Self {
            call: options.call(),
            seed: options.seed,
            workload: options.workload,
            upgrade: None,
            nodes: options.nodes,
            place: options.place(),
            topology: options.topology,
            durability: options.durability,
            lost: findings.lost,
            outcomes_lost: findings.outcomes_lost,
            at_risk: TimeAtRisk::of(rings, times.attack),
            length: options.length,
            rows: rows(options, &findings, faults, times.recovered_ms.unwrap_or(u64::MAX)),
            work: findings.work,
            published: rings.iter().map(|ring| ring.evidence.published).sum(),
            errors: findings.errors,
            bodies_compared: findings.bodies_compared,
            terms: findings.epochs,
            snapshots: sum(|ring| ring.seen.samples.len()),
            unbalanced: sum(|ring| ring.seen.unbalanced.len()),
            readers: sum(|ring| ring.evidence.readers.len()),
            times,
            stories,
            breaches,
        }
    }

    /// Adds how the run got from another build to this one.
    pub fn add_upgrade(&mut self, upgrade: BuildUpgrade) {
        self.breaches.extend_from_slice(upgrade.breaches());
        self.upgrade = Some(upgrade);
    }

    pub fn is_good(&self) -> bool {
        self.breaches.is_empty()
    }

    pub fn kinds(&self) -> impl Iterator<Item = FaultKind> {
        self.rows.iter().filter_map(|row| row.kind)
    }

    pub fn injected(&self) -> usize {
        self.rows.iter().map(|row| row.injected).sum()
    }

    fn repeats(&self) -> usize {
        self.rows.iter().map(|row| row.repeats).sum()
    }

    fn take_overs(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.rows.iter().flat_map(|row| row.take_overs.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// The size, the place and the seed of the run.
    pub fn setting(&self) -> String {
        let seconds = figure(self.length.as_secs_f64(), 0);
        let publishers = match self.workload.publishers() {
            0 => String::new(),
            count => format!(" and {}", counted(count as u64, "publisher")),
        };
        let rings = if self.workload == Workload::Pipeline { " in each of two rings" } else { "" };
        let Self { nodes, place, seed, .. } = self;
        format!("{nodes} nodes{rings}{publishers} on {place} for {seconds} s, seed {seed}")
    }

    pub fn sentence(&self) -> String {
        match self.breaches.len() {
            0 => {
                let cancelled = self.work.map_or(0, |work| work.counts.cancelled);
                let messages = grouped(self.published.saturating_sub(cancelled + self.lost));
                let lost = match self.lost {
                    0 => String::new(),
                    lost => format!(", and {} counted as lost", are(lost)),
                };
                format!("each of {messages} messages has exactly one outcome{lost}")
            }
            count => {
                format!("{} broken; repeat the plan with: {}", counted(count as u64, "promise"), self.call)
            }
        }
    }

    /// The faults and their effects: a header, one row per kind, and a total.
    pub fn table(&self) -> Vec<[String; 7]> {
        let header = ["fault", "injected", "take-overs", "p50", "p99", "max", "repeats"];
        let shown = self.rows.iter().filter(|row| row.kind.is_some() || row.happened());
        let all = FaultRow {
            kind: None,
            injected: self.injected(),
            take_overs: self.take_overs(),
            repeats: self.repeats(),
        };
        let mut table = vec![header.map(str::to_owned)];
        table.extend(shown.map(|row| row.cells(row.kind.map_or("no fault", FaultKind::name))));
        table.push(all.cells("all"));
        table
    }

    /// What was checked, and the result. Each fact has a name and a sentence.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let balance = match self.unbalanced {
            0 => "and all of them added up".to_owned(),
            count => format!("and {} of them did NOT add up", grouped(count as u64)),
        };
        let within = |what: &str, since: &str, time: Option<Duration>, limit: Duration| {
            let limit = limit.as_secs();
            match time {
                Some(time) => {
                    format!("{what} {:.1} s after {since} (limit: {limit} s)", time.as_secs_f64())
                }
                None => format!("not {what} (limit: {limit} s after {since})"),
            }
        };
        // While the healthy ring is watched, messages are still published.
        let fault = "the last fault";
        let last = if self.workload.has_plans() { "the publishers were stopped" } else { fault };
        let (published, terms) = (grouped(self.published), counted(self.terms, "term"));
        let (errors, readers) = (grouped(self.errors), counted(self.readers as u64, "reader"));
        let repeats = counted(self.repeats() as u64, "time");
        let mut facts = vec![
            (
                "messages",
                format!("{published} published in {terms}; {errors} became errors, which {readers} took"),
            ),
            ("repeats", format!("handling began again {repeats} because the first node was lost")),
            ("snapshots", format!("{} checked, {balance}", grouped(self.snapshots as u64))),
            (
                "bodies",
                format!("{} seen by at least two witnesses and compared", grouped(self.bodies_compared)),
            ),
        ];
        if let Some(losses) = self.losses() {
            facts.push(("losses", losses));
        }
        facts.extend(self.at_risk.map(|at_risk| ("risk", at_risk.fact())));
        facts.extend(self.work.iter().flat_map(WorkFindings::facts));
        facts.extend(self.upgrade.iter().flat_map(BuildUpgrade::facts));
        facts.extend([
            ("recovery", within("all nodes at work", fault, self.times.recovery, RECOVERY)),
            ("queue", within("empty", last, self.times.drain, DRAIN)),
            (
                "settings",
                format!(
                    "workload {}, durability {}, lease {} s, 4 lanes or 1 lane per node, 1 to 3 ms of work per message",
                    self.workload.name(),
                    self.durability,
                    LEASE.as_secs()
                ),
            ),
        ]);
        let standstill = self.times.standstill.as_secs_f64();
        if standstill >= 1.0 {
            facts.push((
                "machine",
                format!("chaos could not run for {standstill:.1} s, and the times above include that"),
            ));
        }
        facts
    }

    /// What Redis lost, if it can lose anything in this topology.
    fn losses(&self) -> Option<String> {
        let can_lose = self.topology.is_some_and(|topology| topology != Topology::Single);
        let messages = counted(self.lost, "message");
        let outcomes = counted(self.outcomes_lost, "outcome");
        match self.durability {
            _ if !can_lose => None,
            Durability::Memory => Some(format!(
                "Redis lost {messages}, which the ring counted and reported, and {outcomes} of others"
            )),
            _ => Some(format!("Redis lost {messages} that no process had reported, and {outcomes}")),
        }
    }

    pub fn write(&self, out: &mut impl Write, paint: Paint) -> io::Result<()> {
        writeln!(out, "{}: {}\n", self.setting(), counted(self.injected() as u64, "fault"))?;
        for (index, [fault, injected, take_overs, p50, p99, max, repeats]) in self.table().iter().enumerate()
        {
            let row = format!(
                "{fault:<13} {injected:>8}  {take_overs:>10}  {p50:>9}  {p99:>9}  {max:>9}  {repeats:>7}"
            );
            let row = if index == 0 { paint.paint(FAINT, &row) } else { row };
            writeln!(out, "{row}")?;
        }
        let legend =
            "p50, p99, max: for how long no node published before a take-over, by the fault that caused it";
        writeln!(out, "{}\n", paint.paint(FAINT, legend))?;
        for (name, fact) in self.facts() {
            writeln!(out, "{name:<10} {fact}")?;
        }
        self.write_breaches(out, paint)?;
        let (style, word) = if self.is_good() { (GOOD, "GOOD") } else { (BAD, "BROKEN") };
        writeln!(out, "\n{} {}", paint.paint(style, &format!("{word}:")), self.sentence())
    }

    fn write_breaches(&self, out: &mut impl Write, paint: Paint) -> io::Result<()> {
        if !self.is_good() {
            writeln!(out)?;
        }
        for breach in self.breaches.iter().take(SHOWN) {
            writeln!(out, "{}", paint.paint(BAD, &breach.what))?;
        }
        if self.breaches.len() > SHOWN {
            writeln!(out, "... and {} more", grouped((self.breaches.len() - SHOWN) as u64))?;
        }
        for story in &self.stories {
            writeln!(out, "\n{}", paint.paint(NOTABLE, &format!("the story of {}", story.subject())))?;
            story.lines.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        }
        Ok(())
    }

    pub fn json(&self) -> Value {
        let take_overs = self.take_overs();
        let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
        let breach = |breach: &Breach| json!({"what": breach.what, "message": breach.message});
        let story = |story: &MessageStory| json!({"ring": story.ring, "message": story.message, "story": story.lines});
        json!({
            "verdict": if self.is_good() { "good" } else { "broken" },
            "call": self.call,
            "seed": self.seed,
            "workload": self.workload.name(),
            "nodes": self.nodes,
            "redis": self.place,
            "topology": self.topology.map(Topology::name),
            "durability": self.durability.to_string(),
            "forMs": self.length.as_millis() as u64,
            "messages": self.published,
            "errors": self.errors,
            "lost": self.lost,
            "outcomesLost": self.outcomes_lost,
            "risk": self.at_risk.map(TimeAtRisk::json),
            "terms": self.terms,
            "faultsInjected": self.injected(),
            "faults": self.rows.iter().map(FaultRow::json).collect::<Vec<_>>(),
            "repeats": self.repeats(),
            "takeovers": take_overs.len(),
            "takeoverMs": quantiles_json(&take_overs),
            "snapshots": self.snapshots,
            "unbalanced": self.unbalanced,
            "bodiesCompared": self.bodies_compared,
            "readers": self.readers,
            "work": self.work.as_ref().map(WorkFindings::json),
            "upgrade": self.upgrade.as_ref().map(BuildUpgrade::json),
            "recoveryMs": ms(self.times.recovery),
            "drainMs": ms(self.times.drain),
            "standstillMs": self.times.standstill.as_millis() as u64,
            "broken": self.breaches.len(),
            "breaches": self.breaches.iter().take(JSON_BREACHES).map(breach).collect::<Vec<_>>(),
            "stories": self.stories.iter().map(story).collect::<Vec<_>>(),
        })
    }
}

impl Breach {
    /// A breach that concerns no message in particular.
    fn of_the_ring(what: String) -> Self {
        Self { what, message: None }
    }

    /// The breach with the name of its ring, if it has one.
    fn in_ring(self, ring: Option<&str>) -> Self {
        let what = ring.map(|ring| format!("{ring}: {}", self.what));
        Self { what: what.unwrap_or(self.what), message: self.message }
    }
}

fn are(count: u64) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{} are", grouped(count)) }
}

fn rows(
    options: &ChaosOptions,
    findings: &Findings,
    faults: &[InjectedFault],
    until_ms: u64,
) -> Vec<FaultRow> {
    let kinds = options.kinds.iter().copied().map(Some).chain([None]);
    let empty = |kind| FaultRow { kind, injected: 0, take_overs: Vec::new(), repeats: 0 };
    let mut rows: Vec<FaultRow> = kinds.map(empty).collect();
    let place =
        |kind| options.kinds.iter().position(|known| Some(*known) == kind).unwrap_or(options.kinds.len());
    for fault in faults {
        rows[place(Some(fault.kind))].injected += 1;
    }
    // When the nodes stop, the office passes from one to the next. Those take-overs do not count.
    for take_over in findings.take_overs.iter().filter(|take_over| take_over.at_ms <= until_ms) {
        rows[place(cause_of_take_over(faults, take_over))].take_overs.push(take_over.silence_ms);
    }
    for repeat in &findings.repeats {
        rows[place(cause(faults, repeat.first, repeat.at_ms))].repeats += 1;
    }
    rows.iter_mut().for_each(|row| row.take_overs.sort_unstable());
    rows
}

impl FaultRow {
    fn happened(&self) -> bool {
        self.injected > 0 || !self.take_overs.is_empty() || self.repeats > 0
    }

    fn cells(&self, name: &str) -> [String; 7] {
        let ms = |share| {
            quantile(&self.take_overs, share).map_or("-".to_owned(), |ms| format!("{} ms", grouped(ms)))
        };
        let (injected, take_overs) = (grouped(self.injected as u64), grouped(self.take_overs.len() as u64));
        [name.to_owned(), injected, take_overs, ms(0.5), ms(0.99), ms(1.0), grouped(self.repeats as u64)]
    }

    fn json(&self) -> Value {
        json!({
            "kind": self.kind.map(FaultKind::name),
            "injected": self.injected,
            "takeovers": self.take_overs.len(),
            "takeoverMs": quantiles_json(&self.take_overs),
            "repeats": self.repeats,
        })
    }
}

fn quantiles_json(sorted: &[u64]) -> Value {
    json!({"p50": quantile(sorted, 0.5), "p99": quantile(sorted, 0.99), "max": quantile(sorted, 1.0)})
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
