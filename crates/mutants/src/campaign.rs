//! Tries several mutants at the same time and keeps the outcome of each.
//!
//! Every test must pass on unchanged sources before its failure counts. A mutant of a script is tried in one binary
//! that reads its scripts from a directory. A mutant of a Rust file is tried in the build of all mutants, with the
//! tests that call its function. If it is not part of that build, it is planted in a copy of the sources and built
//! alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use crate::copy::{TreeCopy, plant};
use crate::equivalent::Equivalents;
use crate::mutant::{Change, Mutant};
use crate::planted::Bug;
use crate::reach::{TestBatch, TestReach};
use crate::results::{MutantOutcome, StoredResults, fingerprint};
use crate::suites::{self, SCRIPTS};
use crate::together::Together;
use crate::trial::{Built, Conditions, FIRST_LIMIT, Limits, Trial, TrialVerdict};
use crate::{print_line, root};

/// Tests wait up to half a minute for an event. A mutant under which nothing happens for longer than this hangs.
const LONGEST_WAIT: Duration = Duration::from_secs(45);

/// A mutant and what is known about it.
pub struct Case {
    /// The name of a planted bug. Other mutants are named by their change.
    pub bug: Option<String>,
    pub mutant: Mutant,
    pub change: Change,
    pub line: usize,
    tests: Vec<String>,
    fingerprint: u64,
    pub fate: CaseFate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseFate {
    NotTried,
    /// No test can catch it, for this reason.
    Equivalent(String),
    Tried(MutantOutcome),
}

impl Case {
    /// A systematic mutant. The area of its file determines which tests must notice it.
    pub fn systematic(
        (mutant, change): (Mutant, Change),
        source: &str,
        equivalents: &Equivalents,
        results: &StoredResults,
    ) -> Result<Self> {
        let (_, tests) =
            suites::of_file(&mutant.file).ok_or_else(|| anyhow!("{} is in no area", mutant.file))?;
        let tests = tests.iter().map(|tests| (*tests).to_owned()).collect();
        let reason = equivalents.reason(&change).map(ToOwned::to_owned);
        let mut case = Self::new(None, mutant, change, tests, source, results);
        case.fate = reason.map_or(case.fate, CaseFate::Equivalent);
        Ok(case)
    }

    /// A planted bug. Its entry determines which tests must notice it.
    pub fn planted(bug: Bug, source: &str, results: &StoredResults) -> Result<Self> {
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
        results: &StoredResults,
    ) -> Self {
        let fingerprint = fingerprint(&[&mutant.file, &mutant.apply(source)]);
        let fate = results.of(fingerprint).cloned().map_or(CaseFate::NotTried, CaseFate::Tried);
        Self { bug, line: mutant.line(source), mutant, change, tests, fingerprint, fate }
    }

    /// Where the mutant is, and its name if it is a planted bug.
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
    pub results: &'a StoredResults,
    pub limits: &'a Limits,
    pub jobs: usize,
    pub until: Option<Instant>,
    /// Runs only a sample of the stories, which are the longest of all tests.
    pub quick: bool,
}

/// One of several workers, with its own sources and scripts.
struct TrialWorker<'a> {
    copy: TreeCopy,
    trial: Trial,
    scripts: PathBuf,
    binary_for_scripts: Option<&'a Built>,
    together: Option<&'a (Together, TestReach)>,
}

impl Campaign<'_> {
    /// Tries all cases that have not been tried, until the time is over.
    pub fn run(&self, cases: &mut [Case]) -> Result<()> {
        let open: Vec<usize> =
            (0..cases.len()).filter(|case| cases[*case].fate == CaseFate::NotTried).collect();
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
                let outcome = MutantOutcome::from(worker.run(index, case, self)?);
                self.results.add(case.fingerprint, &outcome)?;
                if outcome == MutantOutcome::Survived {
                    print_line(&format!("survived  {}\n{}", case.title(), case.change.diff().trim_end()));
                }
                found.lock().expect("no panic while held").push((index, outcome));
                if (at + 1).is_multiple_of(50) {
                    print_line(&progress(at + 1, open.len(), started.elapsed()));
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
            cases[index].fate = CaseFate::Tried(outcome);
        }
        Ok(())
    }

    /// Runs all tests that mutants of the scripts need, on unchanged sources. A test that fails without a mutant proves
    /// nothing. [`TestReach`] does the same for mutants of Rust files.
    fn check_unchanged(&self, cases: &[Case], built: &Built) -> Result<()> {
        self.open_stages(cases, true).into_iter().try_for_each(|tests| self.check(built, tests))
    }

    /// All stages of cases that have not been tried.
    fn open_stages<'a>(&self, cases: &'a [Case], scripts: bool) -> BTreeSet<&'a str> {
        let open = cases.iter().filter(|case| case.fate == CaseFate::NotTried && case.is_script() == scripts);
        open.flat_map(|case| self.stages(case)).collect()
    }

    /// One build of all Rust mutants that have not been tried, and which functions the tests call in it.
    fn together(&self, cases: &[Case]) -> Result<Option<(Together, TestReach)>> {
        let open =
            cases.iter().enumerate().filter(|(_, case)| case.fate == CaseFate::NotTried && !case.is_script());
        let mutants: BTreeMap<usize, &Mutant> =
            open.map(|(index, case)| (number_of(index), &case.mutant)).collect();
        if mutants.is_empty() {
            return Ok(None);
        }
        print_line(&format!("building  {} mutants together", mutants.len()));
        let copy = TreeCopy::of(&root(), &self.target.join("sources-together"))?;
        let sources = copy.path().to_owned();
        let trial = Trial { sources, target: self.target.join("together"), optimised: true };
        let together = Together::build(&mutants, &copy, &trial)?;
        let reach =
            TestReach::of(&self.open_stages(cases, false), &together, &self.target.join("reach.json"))?;
        Ok(Some((together, reach)))
    }

    fn check(&self, built: &Built, tests: &str) -> Result<()> {
        let started = Instant::now();
        let verdict = built.run(tests, FIRST_LIMIT, &Conditions::default())?;
        ensure!(verdict == TrialVerdict::Passes, "on unchanged sources, {tests} does not pass: {verdict}");
        self.limits.learn(tests, started.elapsed());
        print_line(&format!("unchanged {tests} passes in {:.0} s", started.elapsed().as_secs_f64()));
        Ok(())
    }

    /// The stages of a mutant, in the order in which they run.
    fn stages<'a>(&self, case: &'a Case) -> impl Iterator<Item = &'a str> {
        let left_out = if self.quick && case.bug.is_none() { "stories" } else { "" };
        case.tests.iter().map(String::as_str).filter(move |tests| *tests != left_out)
    }

    /// A copy of the sources, and the place to build it in.
    fn trial(&self, number: usize) -> Result<(TreeCopy, Trial)> {
        let copy = TreeCopy::of(&root(), &self.target.join(format!("sources-{number}")))?;
        let (sources, target) = (copy.path().to_owned(), self.target.join("target"));
        Ok((copy, Trial { sources, target, optimised: false }))
    }

    /// The binary for mutants of scripts. It is always the same, so it is an optimised one.
    fn binary_for_scripts(&self) -> Result<Built> {
        let (_, trial) = self.trial(0)?;
        built(&Trial { target: self.target.join("optimised"), optimised: true, ..trial }, "scripts")
    }

    fn worker<'a>(
        &self,
        number: usize,
        binary_for_scripts: Option<&'a Built>,
        together: Option<&'a (Together, TestReach)>,
    ) -> Result<TrialWorker<'a>> {
        let (copy, trial) = self.trial(number)?;
        let scripts = self.target.join(format!("scripts-{number}"));
        for (file, text) in suites::scripts()? {
            let path = scripts.join(file.trim_start_matches(SCRIPTS));
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
            std::fs::write(path, text)?;
        }
        Ok(TrialWorker { copy, trial, scripts, binary_for_scripts, together })
    }
}

impl TrialWorker<'_> {
    /// Runs the tests of a mutant, stage by stage, until one fails.
    fn run(&self, index: usize, case: &Case, campaign: &Campaign<'_>) -> Result<TrialVerdict> {
        let file = &case.mutant.file;
        if let (true, Some(binary)) = (case.is_script(), self.binary_for_scripts) {
            let script = self.scripts.join(file.trim_start_matches(SCRIPTS));
            let _planted = plant(&script, |original| Ok(case.mutant.apply(original)))?;
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
            return first_failure(batches, |(stage, TestBatch { tests, time })| {
                let conditions =
                    Conditions { mutant: Some(number), only: Some(&tests), ..Conditions::default() };
                together.binary(stage)?.run(stage, LONGEST_WAIT + time * 2, &conditions)
            });
        }
        let _planted = plant(&self.copy.path().join(file), |original| Ok(case.mutant.apply(original)))?;
        first_failure(campaign.stages(case), |tests| self.trial.run(tests, campaign.limits))
    }
}

/// The first verdict that is not a pass.
fn first_failure<T>(
    stages: impl IntoIterator<Item = T>,
    mut run: impl FnMut(T) -> Result<TrialVerdict>,
) -> Result<TrialVerdict> {
    for stage in stages {
        let verdict = run(stage)?;
        if verdict != TrialVerdict::Passes {
            return Ok(verdict);
        }
    }
    Ok(TrialVerdict::Passes)
}

/// The number of a mutant in a build of many. 0 means none of them.
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
