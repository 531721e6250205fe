//! The report at the end of a run: which test caught each planted bug, every mutant that was not caught, and a score
//! per file and area.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::campaign::{Case, CaseFate};
use crate::results::MutantOutcome;
use crate::suites::{self, AREAS};

/// How many mutants of a file or an area had each fate.
#[derive(Clone, Copy, Default)]
struct AreaTally {
    caught: usize,
    survived: usize,
    equivalent: usize,
    unbuildable: usize,
    not_tried: usize,
}

impl AreaTally {
    fn count(&mut self, fate: &CaseFate) {
        *match fate {
            CaseFate::NotTried => &mut self.not_tried,
            CaseFate::Equivalent(_) => &mut self.equivalent,
            CaseFate::Tried(MutantOutcome::Caught(_)) => &mut self.caught,
            CaseFate::Tried(MutantOutcome::Survived) => &mut self.survived,
            CaseFate::Tried(MutantOutcome::Unbuildable) => &mut self.unbuildable,
        } += 1;
    }

    /// The share of caught mutants among those that were tried, in percent. None if no mutant was tried.
    fn score(&self) -> Option<f64> {
        let tried = self.caught + self.survived;
        (tried > 0).then(|| 100.0 * self.caught as f64 / tried as f64)
    }

    fn row(&self, name: &str, goal: &str) -> String {
        let score = self.score().map_or_else(|| "-".into(), |score| format!("{score:.1} %"));
        let Self { caught, survived, equivalent, unbuildable, not_tried } = self;
        format!("{name:<52} {caught:>6} {survived:>8} {equivalent:>10} {unbuildable:>11} {not_tried:>9} {score:>8} {goal}")
            .trim_end()
            .to_owned()
    }
}

/// The report as text, and whether every planted bug was caught and every area reached its goal.
pub fn report(cases: &[Case]) -> (String, bool) {
    let (bugs, systematic): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.bug.is_some());
    let ((about_bugs, all_caught), (about_areas, all_reached)) = (planted(&bugs), scores(&systematic));
    (about_bugs + &about_areas, all_caught && all_reached)
}

/// One row per bug, and whether all bugs that were tried were caught. A bug that does not build tests nothing, so it
/// counts as not caught.
fn planted(bugs: &[&Case]) -> (String, bool) {
    let (mut text, mut caught, mut tried) = (String::new(), 0, 0);
    for case in bugs {
        let by = match &case.fate {
            CaseFate::Tried(MutantOutcome::Caught(test)) => test,
            CaseFate::Tried(MutantOutcome::Survived) => "NOBODY",
            CaseFate::Tried(MutantOutcome::Unbuildable) => "NOBODY: it does not build",
            CaseFate::NotTried | CaseFate::Equivalent(_) => "not tried",
        };
        tried += usize::from(matches!(case.fate, CaseFate::Tried(_)));
        caught += usize::from(matches!(case.fate, CaseFate::Tried(MutantOutcome::Caught(_))));
        let _ = writeln!(text, "{:<68} {by}", case.bug.as_deref().unwrap_or_default());
    }
    if !bugs.is_empty() {
        let _ = writeln!(text, "{caught} of {} planted bugs were caught", bugs.len());
    }
    (text, caught == tried)
}

/// The equivalent mutants and the survivors, then one row per file and area. Also returns whether every area reached
/// its goal.
fn scores(cases: &[&Case]) -> (String, bool) {
    if cases.is_empty() {
        return (String::new(), true);
    }
    let (mut files, mut areas) = (BTreeMap::<_, AreaTally>::new(), BTreeMap::<_, AreaTally>::new());
    for case in cases {
        let file = case.mutant.file.as_str();
        files.entry(file).or_default().count(&case.fate);
        if let Some((area, _)) = suites::of_file(file) {
            areas.entry(area.name).or_default().count(&case.fate);
        }
    }
    let mut text = String::new();
    let of_fate = |text: &mut String, title: &str, reason: &dyn Fn(&CaseFate) -> Option<String>| {
        for case in cases {
            if let Some(reason) = reason(&case.fate) {
                let _ =
                    writeln!(text, "{title}  {}{reason}\n{}", case.title(), case.change.diff().trim_end());
            }
        }
    };
    of_fate(&mut text, "equivalent", &|fate| match fate {
        CaseFate::Equivalent(reason) => Some(format!("  {reason}")),
        _ => None,
    });
    of_fate(&mut text, "survived", &|fate| {
        (*fate == CaseFate::Tried(MutantOutcome::Survived)).then(String::new)
    });

    let _ = writeln!(
        text,
        "\n{:<52} {:>6} {:>8} {:>10} {:>11} {:>9} {:>8}",
        "file", "caught", "survived", "equivalent", "unbuildable", "not tried", "score"
    );
    for (file, tally) in &files {
        let short = file.trim_start_matches("crates/").replace("/src/", "/");
        let _ = writeln!(text, "{}", tally.row(&short, ""));
    }
    let mut reached = true;
    for area in AREAS {
        if let Some(tally) = areas.get(area.name) {
            reached &= tally.score().is_none_or(|score| score >= f64::from(area.goal));
            let _ = writeln!(text, "{}", tally.row(area.name, &format!("(goal {} %)", area.goal)));
        }
    }
    (text, reached)
}
