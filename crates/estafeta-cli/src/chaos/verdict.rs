//! What a run of chaos has shown, for people and for programs.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::attack::Blow;
use super::judge::{self, Breach, Evidence};
use super::plan::Kind;
use super::watch::Seen;
use super::{DRAIN, LEASE, Order, RECOVERY, Times};
use crate::output::{BAD, FAINT, GOOD, NOTABLE, Paint, counted, grouped};

/// Broken promises that are told in full.
const TOLD: usize = 5;

pub struct Verdict {
    pub seed: u64,
    pub copies: usize,
    pub length: Duration,
    pub rows: Vec<Row>,
    pub published: u64,
    pub errors: u64,
    pub bodies_compared: u64,
    pub epochs: u64,
    pub snapshots: usize,
    pub readers: usize,
    pub times: Times,
    pub breaches: Vec<Breach>,
    /// What is known of the first messages that something is wrong with.
    pub stories: Vec<(u64, Vec<String>)>,
}

/// One kind of fault and what came of it. None: what no fault explains, or several.
pub struct Row {
    pub kind: Option<Kind>,
    pub struck: usize,
    /// For how long nobody published before each of them, in ms, sorted.
    pub take_overs: Vec<u64>,
    pub repeats: usize,
}

impl Verdict {
    pub fn new(order: &Order, evidence: &Evidence, seen: &Seen, blows: &[Blow], times: Times) -> Self {
        let mut findings = judge::judge(evidence);
        for told in &seen.unbalanced {
            let what = format!("a snapshot did not add up: {told}");
            findings.breaches.push(Breach { what, message: None });
        }
        if times.recovery.is_none() {
            let what = format!("{} s after the last fault the ring did not work again", RECOVERY.as_secs());
            findings.breaches.push(Breach { what, message: None });
        }
        if times.drain.is_none() {
            let what = format!("the queue was not empty after {} s", DRAIN.as_secs());
            findings.breaches.push(Breach { what, message: None });
        }
        let mut rows: Vec<Row> = order.kinds.iter().map(|kind| Row::new(Some(*kind))).collect();
        rows.push(Row::new(None));
        let place =
            |kind| order.kinds.iter().position(|known| Some(*known) == kind).unwrap_or(order.kinds.len());
        for blow in blows {
            rows[place(Some(blow.kind))].struck += 1;
        }
        for take_over in &findings.take_overs {
            let kind = cause(blows, take_over.from, take_over.at_ms);
            rows[place(kind)].take_overs.push(take_over.silence_ms);
        }
        for repeat in &findings.repeats {
            rows[place(cause(blows, repeat.first, repeat.at_ms))].repeats += 1;
        }
        rows.iter_mut().for_each(|row| row.take_overs.sort_unstable());
        let mut broken: Vec<u64> = findings.breaches.iter().filter_map(|breach| breach.message).collect();
        broken.dedup();
        let tell = |id: &u64| (*id, story(evidence, blows, *id));
        Self {
            seed: order.seed,
            copies: order.copies,
            length: order.length,
            rows,
            published: evidence.published,
            errors: findings.errors,
            bodies_compared: findings.bodies_compared,
            epochs: findings.epochs,
            snapshots: seen.samples.len(),
            readers: evidence.readers.len(),
            times,
            stories: broken.iter().take(TOLD).map(tell).collect(),
            breaches: findings.breaches,
        }
    }

    pub fn is_good(&self) -> bool {
        self.breaches.is_empty()
    }

    pub fn take_overs(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.rows.iter().flat_map(|row| row.take_overs.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    pub fn struck(&self) -> usize {
        self.rows.iter().map(|row| row.struck).sum()
    }

    pub fn repeats(&self) -> usize {
        self.rows.iter().map(|row| row.repeats).sum()
    }

    pub fn sentence(&self) -> String {
        match self.breaches.len() {
            0 => format!("each of {} messages has exactly one outcome", grouped(self.published)),
            count => format!(
                "{} broken; chaos --seed {} plans the same again",
                counted(count as u64, "promise"),
                self.seed
            ),
        }
    }

    /// A word about the machine, if it was too busy for the times to mean much.
    pub fn standstill(&self) -> Option<String> {
        let seconds = self.times.standstill.as_secs_f64();
        (seconds >= 1.0)
            .then(|| format!("this machine stood still for {seconds:.1} s; the times contain that"))
    }

    pub fn write(&self, out: &mut impl Write, paint: Paint) -> io::Result<()> {
        let (seconds, faults) = (self.length.as_secs_f64(), counted(self.struck() as u64, "fault"));
        writeln!(out, "{} copies, {seconds:.0} s, seed {}: {faults}\n", self.copies, self.seed)?;
        let header = format!(
            "{:<13} {:>6}  {:>10}  {:>8}  {:>8}  {:>8}  {:>9}",
            "fault", "struck", "take-overs", "p50", "p99", "max", "repeats"
        );
        writeln!(out, "{}", paint.paint(FAINT, &header))?;
        for row in self.rows.iter().filter(|row| row.kind.is_some() || row.happened()) {
            let name = row.kind.map_or("none of them", Kind::name);
            write_row(out, name, Some(row.struck), &row.take_overs, row.repeats)?;
        }
        write_row(out, "all", Some(self.struck()), &self.take_overs(), self.repeats())?;
        writeln!(
            out,
            "\nmessages   {} published in {}; {} became errors, taken by {}",
            grouped(self.published),
            counted(self.epochs, "term"),
            grouped(self.errors),
            counted(self.readers as u64, "reader"),
        )?;
        writeln!(
            out,
            "repeats    {}: handling began again after its copy was lost",
            grouped(self.repeats() as u64)
        )?;
        let unbalanced = self.breaches.iter().filter(|breach| breach.what.starts_with("a snapshot")).count();
        let balance =
            if unbalanced == 0 { "all balanced".to_owned() } else { format!("{unbalanced} did not balance") };
        writeln!(out, "snapshots  {}, {balance}", grouped(self.snapshots as u64))?;
        writeln!(out, "bodies     {} compared", grouped(self.bodies_compared))?;
        let time = |time: Option<Duration>| {
            time.map_or("never".into(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        writeln!(
            out,
            "recovery   working again {} after the last fault (at most {} s), queue empty in {} (at most {} s)",
            time(self.times.recovery),
            RECOVERY.as_secs(),
            time(self.times.drain),
            DRAIN.as_secs()
        )?;
        if let Some(told) = self.standstill() {
            writeln!(out, "{}", paint.paint(NOTABLE, &format!("note       {told}")))?;
        }
        self.write_breaches(out, paint)?;
        let (style, word) = if self.is_good() { (GOOD, "GOOD") } else { (BAD, "BROKEN") };
        writeln!(out, "\n{} {}", paint.paint(style, &format!("{word}:")), self.sentence())
    }

    fn write_breaches(&self, out: &mut impl Write, paint: Paint) -> io::Result<()> {
        if !self.is_good() {
            writeln!(out)?;
        }
        for breach in self.breaches.iter().take(4 * TOLD) {
            writeln!(out, "{}", paint.paint(BAD, &breach.what))?;
        }
        if self.breaches.len() > 4 * TOLD {
            writeln!(out, "... and {} more", self.breaches.len() - 4 * TOLD)?;
        }
        for (id, story) in &self.stories {
            writeln!(out, "\n{}", paint.paint(NOTABLE, &format!("the story of #{id}")))?;
            story.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        }
        Ok(())
    }

    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let take_overs = self.take_overs();
        let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
        json!({
            "verdict": if self.is_good() { "good" } else { "broken" },
            "seed": self.seed,
            "copies": self.copies,
            "for_ms": self.length.as_millis() as u64,
            "messages": self.published,
            "errors": self.errors,
            "terms": self.epochs,
            "faults_struck": self.struck(),
            "faults": rows,
            "repeats": self.repeats(),
            "takeovers": take_overs.len(),
            "takeover_ms": quantiles_json(&take_overs),
            "snapshots": self.snapshots,
            "bodies_compared": self.bodies_compared,
            "readers": self.readers,
            "recovery_ms": ms(self.times.recovery),
            "drain_ms": ms(self.times.drain),
            "standstill_ms": self.times.standstill.as_millis() as u64,
            "breaches": self.breaches.iter().map(|breach| json!({"what": breach.what, "message": breach.message})).collect::<Vec<_>>(),
            "stories": self.stories.iter().map(|(id, story)| json!({"message": id, "story": story})).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn new(kind: Option<Kind>) -> Self {
        Self { kind, struck: 0, take_overs: Vec::new(), repeats: 0 }
    }

    pub fn happened(&self) -> bool {
        self.struck > 0 || !self.take_overs.is_empty() || self.repeats > 0
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

fn write_row(
    out: &mut impl Write,
    name: &str,
    struck: Option<usize>,
    take_overs: &[u64],
    repeats: usize,
) -> io::Result<()> {
    let ms = |share| quantile(take_overs, share).map_or("-".to_owned(), |ms| format!("{ms} ms"));
    let struck = struck.map_or_else(String::new, |struck| struck.to_string());
    writeln!(
        out,
        "{name:<13} {struck:>6}  {:>10}  {:>8}  {:>8}  {:>8}  {:>9}",
        take_overs.len(),
        ms(0.5),
        ms(0.99),
        ms(1.0),
        grouped(repeats as u64)
    )
}

/// The smallest value that this share of the sorted values does not exceed.
pub fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

fn quantiles_json(sorted: &[u64]) -> Value {
    json!({"p50": quantile(sorted, 0.5), "p99": quantile(sorted, 0.99), "max": quantile(sorted, 1.0)})
}

/// The fault that most likely made this copy lose what it had: the last one that hit it, or else Redis.
fn cause(blows: &[Blow], copy: usize, at_ms: u64) -> Option<Kind> {
    // A fault is felt for some time after its end.
    let aftermath = 4 * u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
    let felt = |blow: &&Blow| blow.from_ms <= at_ms && at_ms <= blow.until_ms + aftermath;
    let own = |blow: &&Blow| blow.victims.contains(&copy);
    let of_redis = |blow: &&Blow| blow.victims.is_empty();
    let last = blows.iter().filter(felt).rfind(own).or_else(|| blows.iter().filter(felt).rfind(of_redis));
    last.map(|blow| blow.kind)
}

/// What the witnesses know of a message, and what was done to them meanwhile.
fn story(evidence: &Evidence, blows: &[Blow], id: u64) -> Vec<String> {
    let mut story = judge::story(evidence, id);
    let first = story.first().map_or(0, |(at, _)| *at);
    let last = story.iter().map(|(at, _)| *at).filter(|at| *at < u64::MAX).max().unwrap_or(0);
    let near = blows.iter().filter(|blow| blow.until_ms + 2000 > first && blow.from_ms < last + 2000);
    story.extend(near.map(|blow| (blow.from_ms, format!("({})", blow.what))));
    story.sort();
    let tell = |(at, told): (u64, String)| match at {
        u64::MAX => format!("at the end: {told}"),
        at => format!("{:+.3} s: {told}", (at as f64 - first as f64) / 1000.0),
    };
    story.into_iter().map(tell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| quantile(&hundred, share)), [Some(50), Some(99), Some(100)]);
        assert_eq!(quantile(&[7], 0.5), Some(7));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_loss_is_put_down_to_what_hit_its_copy_last() {
        let blow = |kind, from_ms, victims: &[usize]| Blow {
            kind,
            from_ms,
            until_ms: from_ms + 10,
            victims: victims.to_vec(),
            what: String::new(),
        };
        let blows = [
            blow(Kind::Kill, 1000, &[1]),
            blow(Kind::Freeze, 2000, &[1, 2]),
            blow(Kind::RedisKill, 3000, &[]),
            blow(Kind::Cut, 9000, &[1]),
        ];
        assert_eq!(cause(&blows, 1, 1500), Some(Kind::Kill));
        assert_eq!(cause(&blows, 1, 3500), Some(Kind::Freeze));
        assert_eq!(cause(&blows, 0, 3500), Some(Kind::RedisKill));
        assert_eq!(cause(&blows, 0, 900), None);
        assert_eq!(cause(&blows, 2, 8900), None, "too long ago");
    }
}
