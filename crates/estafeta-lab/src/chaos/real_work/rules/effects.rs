//! The rules about effects: what must be in Redis after all messages have their outcomes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rules, list};
use crate::chaos::real_work::effects::{self, KEPT, LAST, STREAM};

impl Rules<'_> {
    pub(super) fn check_effects(&mut self) {
        self.findings.effects = self.done().map(effects::count).sum();
        if self.evidence.complete {
            self.check_totals();
            self.check_stream();
            self.check_last();
            self.check_results();
        }
    }

    fn done(&self) -> impl Iterator<Item = u64> {
        self.outcomes.iter().filter(|(_, is_error)| !**is_error).map(|(id, _)| *id)
    }

    fn check_totals(&mut self) {
        let mut expected = BTreeMap::<String, i64>::new();
        for (total, n) in self.done().map(effects::contribution) {
            *expected.entry(total).or_default() += n;
        }
        let work = self.work;
        let names: BTreeSet<&String> = expected.keys().chain(work.written.totals.keys()).collect();
        for name in names {
            let of = |totals: &BTreeMap<String, i64>| totals.get(name).copied().unwrap_or(0);
            let (found, sum) = (of(&work.written.totals), of(&expected));
            if found != sum {
                let what =
                    format!("{name} is {found} in Redis, but the messages that are done add up to {sum}");
                self.breach(None, what);
            }
        }
    }

    /// The done messages of each step for which this holds, the newest step first. The order within a step is unknown.
    fn newest_first(&self, holds: fn(u64) -> bool) -> impl Iterator<Item = BTreeSet<u64>> {
        let steps = self.evidence.journal.iter().rev().map(move |entry| {
            let done = entry.ids.iter().copied().filter(|id| !entry.errors.contains(id));
            done.filter(|id| holds(*id)).collect::<BTreeSet<u64>>()
        });
        steps.filter(|step| !step.is_empty())
    }

    /// The stream holds the newest entries. Only older ones may be missing.
    fn check_stream(&mut self) {
        let mut left = &self.work.written.stream[..];
        let (mut appended, mut wrong) = (0, None);
        for step in self.newest_first(effects::is_appended) {
            appended += step.len();
            let (older, newest) = left.split_at(left.len().saturating_sub(step.len()));
            let found: BTreeSet<u64> = newest.iter().copied().collect();
            if found.len() < newest.len() || !found.is_subset(&step) {
                let (newest, step) = (list(newest), list(&step));
                wrong.get_or_insert(format!("{STREAM} holds {newest} where one step appended {step}"));
            }
            left = older;
        }
        let held = self.work.written.stream.len();
        if held < appended.min(KEPT) || held > appended {
            let what = format!("{STREAM} has {held} entries, but {appended} were appended");
            self.breach(None, what);
        }
        wrong.into_iter().for_each(|what| self.breach(None, what));
    }

    fn check_last(&mut self) {
        let found = self.work.written.last;
        let expected = self.newest_first(effects::is_set).next().unwrap_or_default();
        if found.map_or(!expected.is_empty(), |id| !expected.contains(&id)) {
            let found = list(&found);
            self.breach(None, format!("{LAST} holds {found}, but the last step set {}", list(&expected)));
        }
    }

    fn check_results(&mut self) {
        let work = self.work;
        let expected: BTreeSet<u64> = self.done().filter(|id| effects::has_result(*id)).collect();
        for id in expected.iter().filter(|id| !work.written.results.contains_key(id)) {
            self.breach(*id, format!("#{id} is done, but its result is missing"));
        }
        for (id, result) in &work.written.results {
            if !expected.contains(id) || *result != id.to_string() {
                self.breach(*id, format!("#{id} has the result '{result}', which no handler gave it"));
            }
        }
    }
}
