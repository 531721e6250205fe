//! The rules of a pipeline: what must have happened to the lines of a file, and to messages that the first ring
//! forwards.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Rules, list};
use crate::chaos::real_work::effects::FED;
use crate::chaos::real_work::feed::FeedEvidence;
use crate::chaos::real_work::message_plan::MessagePlan;
use crate::chaos::real_work::publications::is_from_outside;
use crate::text::counted;

impl Rules<'_> {
    /// Each line of the file is one message, and in the order of ids the lines have the order of the file.
    pub(super) fn check_feed(&mut self) {
        let work = self.work;
        let Some(feed) = &work.feed else { return };
        let numbers: HashMap<&str, u64> = feed.lines.iter().map(String::as_str).zip(1..).collect();
        let handled = self.attempts.iter().map(|(id, attempts)| (*id, attempts[0].body));
        let generated: Vec<(u64, &str)> = handled.filter(|(_, body)| !is_from_outside(body)).collect();
        let (mut ids, mut latest) = (BTreeMap::<u64, BTreeSet<u64>>::new(), 0);
        for (id, body) in generated {
            let Some(number) = numbers.get(body) else {
                self.breach(id, format!("#{id} has a body that is no line of the file: {body}"));
                continue;
            };
            let its = ids.entry(*number).or_default();
            its.insert(id);
            if its.len() == 1 && *number < latest {
                self.breach(id, format!("#{id} is line {number} of the file, but came after line {latest}"));
            }
            latest = latest.max(*number);
        }
        for (number, its) in ids.iter().filter(|(_, its)| its.len() > 1) {
            let (times, all) = (counted(its.len() as u64, "time"), list(its));
            self.breach(its.first().copied(), format!("line {number} was published {times}: as {all}"));
        }
        self.findings.lines = ids.len() as u64;
        if self.evidence.complete {
            self.check_end_of_feed(feed, &ids);
        }
    }

    fn check_end_of_feed(&mut self, feed: &FeedEvidence, ids: &BTreeMap<u64, BTreeSet<u64>>) {
        let FeedEvidence { lines, size, checkpoint } = feed;
        for number in (1..=lines.len() as u64).filter(|number| !ids.contains_key(number)) {
            self.breach(None, format!("line {number} of the file reached no handler"));
        }
        if *checkpoint != Some(*size) {
            let found = checkpoint.map_or("missing".to_owned(), |checkpoint| checkpoint.to_string());
            self.breach(None, format!("the checkpoint is {found}, but the file has {size} bytes"));
        }
        let is_done = |line: &str| MessagePlan::parse(line).is_some_and(|plan| !plan.becomes_error());
        let done = lines.iter().zip(1_i64..).filter(|(line, _)| is_done(line));
        let (found, sum) = (self.work.written.fed, done.map(|(_, number)| number).sum::<i64>());
        if found != sum {
            self.breach(
                None,
                format!("{FED} is {found} in Redis, but the lines that end as done add up to {sum}"),
            );
        }
    }

    /// Each done message of the ring before that forwards another one has forwarded it.
    pub(super) fn check_forwards(&mut self) {
        let work = self.work;
        let handled: HashSet<&str> = self.attempts.values().map(|attempts| attempts[0].body).collect();
        let (arrived, missing): (Vec<_>, Vec<_>) =
            work.forwards.iter().partition(|(_, body)| handled.contains(&body[..]));
        self.findings.forwarded = arrived.len() as u64;
        let missing = if self.evidence.complete { missing } else { Vec::new() };
        for (from, body) in missing {
            self.breach(
                None,
                format!(
                    "#{from} of the ring before is done, but what it forwards, {body}, reached no handler"
                ),
            );
        }
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
