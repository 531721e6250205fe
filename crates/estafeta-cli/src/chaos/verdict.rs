//! What a run of chaos has shown, for people and for programs.

use std::io::{self, Write};
use std::time::Duration;

use estafeta::Snapshot;
use serde_json::{Value, json};

use super::attack::Blow;
use super::judge::{self, Breach, Evidence, Findings};
use super::plan::Kind;
use super::story::{cause, cause_of_take_over, story};
use super::watch::Seen;
use super::{DRAIN, LEASE, Order, RECOVERY, Times};
use crate::output::{BAD, FAINT, GOOD, NOTABLE, Paint, counted, grouped};
use crate::quantile::quantile;

/// Broken promises that are told in full, and messages whose story is.
const TOLD: usize = 20;
const STORIES: usize = 5;
const JSON_BREACHES: usize = 100;

pub struct Verdict {
    /// The call that plans the same again.
    pub call: String,
    pub seed: u64,
    pub copies: usize,
    /// Which Redis.
    pub place: String,
    pub length: Duration,
    rows: Vec<Row>,
    pub published: u64,
    pub errors: u64,
    bodies_compared: u64,
    terms: u64,
    snapshots: usize,
    unbalanced: usize,
    readers: usize,
    times: Times,
    pub breaches: Vec<Breach>,
    /// What is known of the first messages that something is wrong with.
    pub stories: Vec<(u64, Vec<String>)>,
}

/// One kind of fault and what came of it. None: what no fault explains.
struct Row {
    kind: Option<Kind>,
    struck: usize,
    /// For how long nobody published before each of them, in ms, sorted.
    take_overs: Vec<u64>,
    repeats: usize,
}

impl Verdict {
    /// `failure` says why the run did not come to its end, if it did not.
    pub fn new(
        order: &Order,
        evidence: &Evidence,
        seen: &Seen,
        last: &Snapshot,
        blows: &[Blow],
        times: Times,
        failure: Option<String>,
    ) -> Self {
        let findings = judge::judge(evidence);
        let rows = rows(order, &findings, blows, times.recovered_ms.unwrap_or(u64::MAX));
        let mut breaches: Vec<Breach> = failure.into_iter().map(Breach::of_the_ring).collect();
        if let Some((before, after)) = seen.fell {
            breaches.push(Breach::of_the_ring(format!(
                "Redis forgot what it had: {} messages were published, and then only {}",
                grouped(before),
                grouped(after)
            )));
        }
        if let Some(first) = seen.unbalanced.first() {
            let count = counted(seen.unbalanced.len() as u64, "snapshot");
            breaches.push(Breach::of_the_ring(format!("{count} did not add up, first: {first}")));
        }
        if evidence.complete && last.waiting + last.in_flight + last.errors_kept > 0 {
            let (waiting, in_flight, errors) = (last.waiting, last.in_flight, last.errors_kept);
            breaches.push(Breach::of_the_ring(format!(
                "at the end {waiting} messages wait, {in_flight} are in flight, {errors} errors are kept"
            )));
        }
        breaches.extend(findings.breaches);
        let mut broken: Vec<u64> = breaches.iter().filter_map(|breach| breach.message).collect();
        broken.dedup();
        Self {
            call: order.call(),
            seed: order.seed,
            copies: order.copies,
            place: order.place(),
            length: order.length,
            rows,
            published: evidence.published,
            errors: findings.errors,
            bodies_compared: findings.bodies_compared,
            terms: findings.epochs,
            snapshots: seen.samples.len(),
            unbalanced: seen.unbalanced.len(),
            readers: evidence.readers.len(),
            times,
            stories: broken.iter().take(STORIES).map(|id| (*id, story(evidence, blows, *id))).collect(),
            breaches,
        }
    }

    pub fn is_good(&self) -> bool {
        self.breaches.is_empty()
    }

    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.rows.iter().filter_map(|row| row.kind)
    }

    pub fn struck(&self) -> usize {
        self.rows.iter().map(|row| row.struck).sum()
    }

    fn repeats(&self) -> usize {
        self.rows.iter().map(|row| row.repeats).sum()
    }

    fn take_overs(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.rows.iter().flat_map(|row| row.take_overs.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    pub fn sentence(&self) -> String {
        match self.breaches.len() {
            0 => format!("each of {} messages has exactly one outcome", grouped(self.published)),
            count => {
                format!(
                    "{} broken; the same again is planned by: {}",
                    counted(count as u64, "promise"),
                    self.call
                )
            }
        }
    }

    /// The faults and what came of them: a header, a row for each kind, and a sum.
    pub fn table(&self) -> Vec<[String; 7]> {
        let header = ["fault", "struck", "take-overs", "p50", "p99", "max", "repeats"];
        let shown = self.rows.iter().filter(|row| row.kind.is_some() || row.happened());
        let all =
            Row { kind: None, struck: self.struck(), take_overs: self.take_overs(), repeats: self.repeats() };
        let mut table = vec![header.map(str::to_owned)];
        table.extend(shown.map(|row| row.cells(row.kind.map_or("none of them", Kind::name))));
        table.push(all.cells("all"));
        table
    }

    /// What was looked at, and with which result: a word and a sentence each.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let balance = match self.unbalanced {
            0 => "all of them added up".to_owned(),
            count => format!("{count} of them did NOT add up"),
        };
        let time = |time: Option<Duration>| {
            time.map_or_else(|| "never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        let (recovery, drain) = (time(self.times.recovery), time(self.times.drain));
        let (recovery_limit, drain_limit) = (RECOVERY.as_secs(), DRAIN.as_secs());
        let (published, terms) = (grouped(self.published), counted(self.terms, "term"));
        let (errors, readers) = (grouped(self.errors), counted(self.readers as u64, "reader"));
        let repeats = grouped(self.repeats() as u64);
        let mut facts = vec![
            (
                "messages",
                format!("{published} published in {terms}; {errors} became errors, taken by {readers}"),
            ),
            ("repeats", format!("{repeats} times handling began again because the first copy was lost")),
            ("snapshots", format!("{} looked at, {balance}", grouped(self.snapshots as u64))),
            ("bodies", format!("{} were seen by two or more and compared", grouped(self.bodies_compared))),
            (
                "recovery",
                format!("all worked again {recovery} after the last fault (at most {recovery_limit} s)"),
            ),
            ("queue", format!("empty {drain} after the last fault (at most {drain_limit} s)")),
            (
                "settings",
                format!("lease {} s, 4 lanes or 1 a copy, 1 to 3 ms of work a message", LEASE.as_secs()),
            ),
        ];
        let standstill = self.times.standstill.as_secs_f64();
        if standstill >= 1.0 {
            facts.push(("machine", format!("it stood still for {standstill:.1} s; the times contain that")));
        }
        facts
    }

    pub fn write(&self, out: &mut impl Write, paint: Paint) -> io::Result<()> {
        let (seconds, faults) = (self.length.as_secs_f64(), counted(self.struck() as u64, "fault"));
        let (copies, seed, place) = (self.copies, self.seed, &self.place);
        writeln!(out, "{copies} copies on {place} for {seconds:.0} s, seed {seed}: {faults}\n")?;
        for (index, [fault, struck, take_overs, p50, p99, max, repeats]) in self.table().iter().enumerate() {
            let row = format!(
                "{fault:<13} {struck:>6}  {take_overs:>10}  {p50:>8}  {p99:>8}  {max:>8}  {repeats:>7}"
            );
            let row = if index == 0 { paint.paint(FAINT, &row) } else { row };
            writeln!(out, "{row}")?;
        }
        let legend = "times: for how long nobody published before a take-over, by what hit its generator";
        writeln!(out, "{}\n", paint.paint(FAINT, legend))?;
        for (word, told) in self.facts() {
            writeln!(out, "{word:<10} {told}")?;
        }
        self.write_breaches(out, paint)?;
        let (style, word) = if self.is_good() { (GOOD, "GOOD") } else { (BAD, "BROKEN") };
        writeln!(out, "\n{} {}", paint.paint(style, &format!("{word}:")), self.sentence())
    }

    fn write_breaches(&self, out: &mut impl Write, paint: Paint) -> io::Result<()> {
        if !self.is_good() {
            writeln!(out)?;
        }
        for breach in self.breaches.iter().take(TOLD) {
            writeln!(out, "{}", paint.paint(BAD, &breach.what))?;
        }
        if self.breaches.len() > TOLD {
            writeln!(out, "... and {} more", grouped((self.breaches.len() - TOLD) as u64))?;
        }
        for (id, story) in &self.stories {
            writeln!(out, "\n{}", paint.paint(NOTABLE, &format!("the story of #{id}")))?;
            story.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        }
        Ok(())
    }

    pub fn json(&self) -> Value {
        let take_overs = self.take_overs();
        let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
        let breach = |breach: &Breach| json!({"what": breach.what, "message": breach.message});
        let story = |(id, story): &(u64, Vec<String>)| json!({"message": id, "story": story});
        json!({
            "verdict": if self.is_good() { "good" } else { "broken" },
            "call": self.call,
            "seed": self.seed,
            "copies": self.copies,
            "redis": self.place,
            "for_ms": self.length.as_millis() as u64,
            "messages": self.published,
            "errors": self.errors,
            "terms": self.terms,
            "faults_struck": self.struck(),
            "faults": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "repeats": self.repeats(),
            "takeovers": take_overs.len(),
            "takeover_ms": quantiles_json(&take_overs),
            "snapshots": self.snapshots,
            "unbalanced": self.unbalanced,
            "bodies_compared": self.bodies_compared,
            "readers": self.readers,
            "recovery_ms": ms(self.times.recovery),
            "drain_ms": ms(self.times.drain),
            "standstill_ms": self.times.standstill.as_millis() as u64,
            "broken": self.breaches.len(),
            "breaches": self.breaches.iter().take(JSON_BREACHES).map(breach).collect::<Vec<_>>(),
            "stories": self.stories.iter().map(story).collect::<Vec<_>>(),
        })
    }
}

impl Breach {
    /// One that is about no message in particular.
    fn of_the_ring(what: String) -> Self {
        Self { what, message: None }
    }
}

fn rows(order: &Order, findings: &Findings, blows: &[Blow], until_ms: u64) -> Vec<Row> {
    let kinds = order.kinds.iter().copied().map(Some).chain([None]);
    let empty = |kind| Row { kind, struck: 0, take_overs: Vec::new(), repeats: 0 };
    let mut rows: Vec<Row> = kinds.map(empty).collect();
    let place = |kind| order.kinds.iter().position(|known| Some(*known) == kind).unwrap_or(order.kinds.len());
    for blow in blows {
        rows[place(Some(blow.kind))].struck += 1;
    }
    // When the copies are told to stop, the office passes through many hands.
    for take_over in findings.take_overs.iter().filter(|take_over| take_over.at_ms <= until_ms) {
        rows[place(cause_of_take_over(blows, take_over))].take_overs.push(take_over.silence_ms);
    }
    for repeat in &findings.repeats {
        rows[place(cause(blows, repeat.first, repeat.at_ms))].repeats += 1;
    }
    rows.iter_mut().for_each(|row| row.take_overs.sort_unstable());
    rows
}

impl Row {
    fn happened(&self) -> bool {
        self.struck > 0 || !self.take_overs.is_empty() || self.repeats > 0
    }

    fn cells(&self, name: &str) -> [String; 7] {
        let ms = |share| quantile(&self.take_overs, share).map_or("-".to_owned(), |ms| format!("{ms} ms"));
        let (struck, take_overs) = (grouped(self.struck as u64), grouped(self.take_overs.len() as u64));
        [name.to_owned(), struck, take_overs, ms(0.5), ms(0.99), ms(1.0), grouped(self.repeats as u64)]
    }

    fn json(&self) -> Value {
        json!({
            "kind": self.kind.map(Kind::name),
            "struck": self.struck,
            "takeovers": self.take_overs.len(),
            "takeover_ms": quantiles_json(&self.take_overs),
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
