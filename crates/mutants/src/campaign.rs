//! Tries mutants side by side and keeps what became of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use crate::copy::{Copy, plant};
use crate::equivalent::Equivalents;
use crate::mutant::{Change, Mutant};
use crate::planted::Bug;
use crate::reach::{Batch, Reach};
use crate::results::{Outcome, Results, fingerprint};
use crate::suites::{self, SCRIPTS};
use crate::together::Together;
use crate::trial::{Built, Conditions, Limits, Trial, Verdict};
use crate::{root, say};

/// Tests wait half a minute for what must happen. A mutant under which nothing happens for longer hangs.
const LONGEST_WAIT: Duration = Duration::from_secs(45);

/// A mutant and what is known about it.
pub struct Case {
    /// What a planted bug is called; other mutants are named by their change.
    pub bug: Option<String>,
    pub mutant: Mutant,
    pub change: Change,
    pub line: usize,
    tests: Vec<String>,
    fingerprint: u64,
    pub fate: Fate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    NotTried,
    /// For this reason no test can catch it.
    Equivalent(String),
    Tried(Outcome),
}

impl Case {
    /// One of the systematic mutants. The area of its file says which tests have to notice it.
    pub fn systematic(
        (mutant, change): (Mutant, Change),
        source: &str,
        equivalents: &Equivalents,
        results: &Results,
    ) -> Result<Self> {
        let (_, tests) =
            suites::of_file(&mutant.file).ok_or_else(|| anyhow!("{} is in no area", mutant.file))?;
        let tests = tests.iter().map(|tests| (*tests).to_owned()).collect();
        let reason = equivalents.reason(&change).map(ToOwned::to_owned);
        let mut case = Self::new(None, mutant, change, tests, source, results);
        case.fate = reason.map_or(case.fate, Fate::Equivalent);
        Ok(case)
    }

    /// One of the planted bugs, which says itself which tests have to notice it.
    pub fn planted(bug: Bug, source: &str, results: &Results) -> Result<Self> {
        let mutant = bug.mutant(source)?;
        let change = mutant.change(source);
        Ok(Self::new(Some(bug.bug), mutant, change, bug.tests, source, results))
    }

    fn new(
        bug: Option<String>,
        mutant: Mutant,
        change: Change,
        tests: Vec<String>,
        source: &str,
        results: &Results,
    ) -> Self {
        let fingerprint = fingerprint(&[&mutant.file, &mutant.apply(source)]);
        let fate = results.of(fingerprint).cloned().map_or(Fate::NotTried, Fate::Tried);
        Self { bug, line: mutant.line(source), mutant, change, tests, fingerprint, fate }
    }

    /// Where the mutant is, and what it is called if it is a planted bug.
    pub fn title(&self) -> String {
        let place = format!("{}:{}", self.mutant.file, self.line);
        match &self.bug {
            Some(bug) => format!("{bug} ({place})"),
            None => place,
        }
    }

    fn is_script(&self) -> bool {
        suites::is_script(&self.mutant.file)
    }
}

pub struct Campaign<'a> {
    pub target: PathBuf,
    pub results: &'a Results,
    pub limits: &'a Limits,
    pub jobs: usize,
    pub until: Option<Instant>,
    /// Leaves out all of the stories but a sample, which are the longest tests of all.
    pub quick: bool,
}

/// One of those that work side by side, with sources and scripts of its own.
struct Worker<'a> {
    copy: Copy,
    trial: Trial,
    scripts: PathBuf,
    binary_for_scripts: Option<&'a Built>,
    together: Option<&'a (Together, Reach)>,
}

impl Campaign<'_> {
    /// Tries all cases that have not been tried, until the time is over.
    pub fn run(&self, cases: &mut [Case]) -> Result<()> {
        let open: Vec<usize> = (0..cases.len()).filter(|case| cases[*case].fate == Fate::NotTried).collect();
        if open.is_empty() {
            return Ok(());
        }
        let any_script = open.iter().any(|case| cases[*case].is_script());
        let binary = if any_script { Some(self.binary_for_scripts()?) } else { None };
        if let Some(binary) = &binary {
            self.check_unchanged(cases, binary)?;
        }
        let together = self.together(cases)?;
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let started = Instant::now();
        let read_only: &[Case] = cases;
        let work = |number: usize| -> Result<()> {
            let worker = self.worker(number, binary.as_ref(), together.as_ref())?;
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let is_over = self.until.is_some_and(|until| Instant::now() >= until);
                let Some(index) = open.get(at).copied().filter(|_| !is_over) else { return Ok(()) };
                let case = &read_only[index];
                let outcome = Outcome::from(worker.try_out(index, case, self)?);
                self.results.add(case.fingerprint, &outcome)?;
                if outcome == Outcome::Survived {
                    say(&format!("survived  {}\n{}", case.title(), case.change.diff().trim_end()));
                }
                found.lock().expect("no panic while held").push((index, outcome));
                if (at + 1).is_multiple_of(50) {
                    say(&progress(at + 1, open.len(), started.elapsed()));
                }
            }
        };
        std::thread::scope(|scope| -> Result<()> {
            let work = &work;
            let workers: Vec<_> = (0..self.jobs).map(|number| scope.spawn(move || work(number))).collect();
            for worker in workers {
                worker.join().map_err(|_| anyhow!("a worker panicked"))??;
            }
            Ok(())
        })?;
        for (index, outcome) in found.into_inner().expect("no panic while held") {
            cases[index].fate = Fate::Tried(outcome);
        }
        Ok(())
    }

    /// Runs on unchanged sources all tests that mutants of the scripts need: a test that fails without a mutant proves
    /// nothing. [`Reach`] does the same for mutants of the Rust sources.
    fn check_unchanged(&self, cases: &[Case], built: &Built) -> Result<()> {
        self.open_stages(cases, true).into_iter().try_for_each(|tests| self.check(built, tests))
    }

    /// All stages of cases that have not been tried.
    fn open_stages<'a>(&self, cases: &'a [Case], scripts: bool) -> BTreeSet<&'a str> {
        let open = cases.iter().filter(|case| case.fate == Fate::NotTried && case.is_script() == scripts);
        open.flat_map(|case| self.stages(case)).collect()
    }

    /// One build of all Rust mutants that have not been tried, and what the tests call in it.
    fn together(&self, cases: &[Case]) -> Result<Option<(Together, Reach)>> {
        let open =
            cases.iter().enumerate().filter(|(_, case)| case.fate == Fate::NotTried && !case.is_script());
        let mutants: BTreeMap<usize, &Mutant> =
            open.map(|(index, case)| (number_of(index), &case.mutant)).collect();
        if mutants.is_empty() {
            return Ok(None);
        }
        say(&format!("building  {} mutants together", mutants.len()));
        let copy = Copy::of(&root(), &self.target.join("sources-together"))?;
        let sources = copy.path().to_owned();
        let trial = Trial { sources, target: self.target.join("together"), optimised: true };
        let together = Together::build(&mutants, &copy, &trial)?;
        let reach = Reach::of(&self.open_stages(cases, false), &together, &self.target.join("reach.json"))?;
        Ok(Some((together, reach)))
    }

    fn check(&self, built: &Built, tests: &str) -> Result<()> {
        let started = Instant::now();
        let verdict = built.run(tests, self.limits.of(tests), &Conditions::default())?;
        ensure!(verdict == Verdict::Passes, "on unchanged sources, {tests} does not pass: {verdict}");
        self.limits.learn(tests, started.elapsed());
        say(&format!("unchanged {tests} passes in {:.0} s", started.elapsed().as_secs_f64()));
        Ok(())
    }

    /// The tests of a mutant, one stage after another.
    fn stages<'a>(&self, case: &'a Case) -> impl Iterator<Item = &'a str> {
        let left_out = if self.quick && case.bug.is_none() { "stories" } else { "" };
        case.tests.iter().map(String::as_str).filter(move |tests| *tests != left_out)
    }

    /// A copy of the sources and the place to build it in.
    fn trial(&self, number: usize) -> Result<(Copy, Trial)> {
        let copy = Copy::of(&root(), &self.target.join(format!("sources-{number}")))?;
        let (sources, target) = (copy.path().to_owned(), self.target.join("target"));
        Ok((copy, Trial { sources, target, optimised: false }))
    }

    /// The binary in which scripts are tried: always the same, so a fast one.
    fn binary_for_scripts(&self) -> Result<Built> {
        let (_, trial) = self.trial(0)?;
        built(&Trial { target: self.target.join("optimised"), optimised: true, ..trial }, "scripts")
    }

    fn worker<'a>(
        &self,
        number: usize,
        binary_for_scripts: Option<&'a Built>,
        together: Option<&'a (Together, Reach)>,
    ) -> Result<Worker<'a>> {
        let (copy, trial) = self.trial(number)?;
        let scripts = self.target.join(format!("scripts-{number}"));
        for (file, text) in suites::scripts()? {
            let path = scripts.join(file.trim_start_matches(SCRIPTS));
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
            std::fs::write(path, text)?;
        }
        Ok(Worker { copy, trial, scripts, binary_for_scripts, together })
    }
}

impl Worker<'_> {
    /// Runs the tests of a mutant, stage by stage, until one fails.
    fn try_out(&self, index: usize, case: &Case, campaign: &Campaign<'_>) -> Result<Verdict> {
        let file = &case.mutant.file;
        if let (true, Some(binary)) = (case.is_script(), self.binary_for_scripts) {
            let script = self.scripts.join(file.trim_start_matches(SCRIPTS));
            let _planted = plant(&script, |sound| Ok(case.mutant.apply(sound)))?;
            let conditions = Conditions { scripts: Some(&self.scripts), ..Conditions::default() };
            return first_failure(campaign.stages(case), |tests| {
                binary.run(tests, campaign.limits.of(tests), &conditions)
            });
        }
        let number = number_of(index);
        if let Some((together, reach)) = self.together
            && let Some(function) = together.function_of(number)
        {
            let batches = campaign.stages(case).flat_map(|stage| {
                reach.batches(stage, function).into_iter().map(move |batch| (stage, batch))
            });
            return first_failure(batches, |(stage, Batch { tests, time })| {
                let conditions =
                    Conditions { mutant: Some(number), only: Some(&tests), ..Conditions::default() };
                together.binary(stage)?.run(stage, LONGEST_WAIT + time * 2, &conditions)
            });
        }
        let _planted = plant(&self.copy.path().join(file), |sound| Ok(case.mutant.apply(sound)))?;
        first_failure(campaign.stages(case), |tests| self.trial.run(tests, campaign.limits))
    }
}

/// The first verdict that is not a pass.
fn first_failure<T>(
    stages: impl IntoIterator<Item = T>,
    mut run: impl FnMut(T) -> Result<Verdict>,
) -> Result<Verdict> {
    for stage in stages {
        let verdict = run(stage)?;
        if verdict != Verdict::Passes {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Passes)
}

/// The number of a mutant in a build of many; 0 means none of them.
fn number_of(index: usize) -> usize {
    index + 1
}

fn built(trial: &Trial, tests: &str) -> Result<Built> {
    let built = trial.build(tests)?;
    built.map_err(|refusal| anyhow!("the unchanged sources do not build:\n{}", refusal.output))
}

fn progress(tried: usize, all: usize, time: Duration) -> String {
    let minutes = time.as_secs_f64() / 60.0;
    let left = minutes / tried as f64 * (all - tried) as f64;
    format!("tried     {tried} of {all} mutants in {minutes:.0} min, about {left:.0} min to go")
}
