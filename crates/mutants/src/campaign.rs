//! Tries mutants side by side and keeps what became of each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use crate::copy::{Copy, plant};
use crate::equivalent::Equivalents;
use crate::mutant::{Change, Mutant};
use crate::results::{Outcome, Results, fingerprint};
use crate::suites::{self, SCRIPTS};
use crate::trial::{Built, Limits, Trial, Verdict};
use crate::{root, say};

/// A mutant and what is known about it.
pub struct Case {
    pub mutant: Mutant,
    pub change: Change,
    pub line: usize,
    pub tests: &'static [&'static str],
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
    pub fn new(
        (mutant, change): (Mutant, Change),
        source: &str,
        equivalents: &Equivalents,
        results: &Results,
    ) -> Result<Self> {
        let (_, tests) =
            suites::of_file(&mutant.file).ok_or_else(|| anyhow!("{} is in no area", mutant.file))?;
        let fingerprint = fingerprint(&[&mutant.file, &mutant.apply(source)]);
        let known = results.of(fingerprint).cloned().map_or(Fate::NotTried, Fate::Tried);
        let fate = equivalents.reason(&change).map_or(known, |reason| Fate::Equivalent(reason.into()));
        Ok(Self { line: mutant.line(source), mutant, change, tests, fingerprint, fate })
    }

    fn is_script(&self) -> bool {
        self.mutant.file.starts_with(SCRIPTS)
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
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let started = Instant::now();
        let read_only: &[Case] = cases;
        let work = |number: usize| -> Result<()> {
            let worker = self.worker(number, binary.as_ref())?;
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let is_over = self.until.is_some_and(|until| Instant::now() >= until);
                let Some(index) = open.get(at).copied().filter(|_| !is_over) else { return Ok(()) };
                let case = &read_only[index];
                let outcome = Outcome::from(worker.try_out(case, self)?);
                self.results.add(case.fingerprint, &outcome)?;
                if outcome == Outcome::Survived {
                    say(&format!(
                        "survived  {}:{}\n{}",
                        case.mutant.file,
                        case.line,
                        case.change.diff().trim_end()
                    ));
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

    /// Runs on unchanged sources all tests that will be needed: a test that fails without a mutant proves nothing. `further`
    /// names tests that no case needs.
    pub fn check_unchanged(&self, cases: &[Case], further: BTreeSet<String>) -> Result<()> {
        let of_cases = |scripts: bool| -> BTreeSet<String> {
            let open = cases.iter().filter(|case| case.fate == Fate::NotTried && case.is_script() == scripts);
            open.flat_map(|case| self.stages(case)).map(ToOwned::to_owned).collect()
        };
        let for_scripts = of_cases(true);
        if !for_scripts.is_empty() {
            let built = self.binary_for_scripts()?;
            for tests in for_scripts {
                self.check(&built, &tests)?;
            }
        }
        let (_, trial) = self.trial(0)?;
        for tests in of_cases(false).union(&further) {
            self.check(&built(&trial, tests)?, tests)?;
        }
        Ok(())
    }

    fn check(&self, built: &Built, tests: &str) -> Result<()> {
        let started = Instant::now();
        let verdict = built.run(tests, self.limits, None)?;
        ensure!(verdict == Verdict::Passes, "on unchanged sources, {tests} does not pass: {verdict}");
        self.limits.learn(tests, started.elapsed());
        say(&format!("unchanged {tests} passes in {:.0} s", started.elapsed().as_secs_f64()));
        Ok(())
    }

    /// The tests of a mutant, one stage after another.
    fn stages(&self, case: &Case) -> impl Iterator<Item = &'static str> {
        let quick = self.quick;
        case.tests.iter().copied().filter(move |tests| !(quick && *tests == "stories"))
    }

    /// A copy of the sources and the place to build it in.
    pub fn trial(&self, number: usize) -> Result<(Copy, Trial)> {
        let copy = Copy::of(&root(), &self.target.join(format!("sources-{number}")))?;
        let (sources, target) = (copy.path().to_owned(), self.target.join("target"));
        Ok((copy, Trial { sources, target, optimised: false }))
    }

    /// The binary in which scripts are tried: always the same, so a fast one.
    fn binary_for_scripts(&self) -> Result<Built> {
        let (_, trial) = self.trial(0)?;
        built(&Trial { target: self.target.join("optimised"), optimised: true, ..trial }, "scripts")
    }

    fn worker<'a>(&self, number: usize, binary_for_scripts: Option<&'a Built>) -> Result<Worker<'a>> {
        let (copy, trial) = self.trial(number)?;
        let scripts = self.target.join(format!("scripts-{number}"));
        for (file, text) in suites::scripts()? {
            let path = scripts.join(file.trim_start_matches(SCRIPTS));
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
            std::fs::write(path, text)?;
        }
        Ok(Worker { copy, trial, scripts, binary_for_scripts })
    }
}

impl Worker<'_> {
    /// Runs the tests of a mutant, stage by stage, until one fails.
    fn try_out(&self, case: &Case, campaign: &Campaign<'_>) -> Result<Verdict> {
        let file = &case.mutant.file;
        let path = match case.is_script() {
            true => self.scripts.join(file.trim_start_matches(SCRIPTS)),
            false => self.copy.path().join(file),
        };
        let planted = plant(&path, |sound| Ok(case.mutant.apply(sound)))?;
        let mut verdict = Verdict::Passes;
        for tests in campaign.stages(case) {
            verdict = match self.binary_for_scripts {
                Some(binary) if case.is_script() => {
                    binary.run(tests, campaign.limits, Some(&self.scripts))?
                }
                _ => self.trial.run(tests, campaign.limits)?,
            };
            if verdict != Verdict::Passes {
                break;
            }
        }
        drop(planted);
        Ok(verdict)
    }
}

fn built(trial: &Trial, tests: &str) -> Result<Built> {
    trial.build(tests)?.map_err(|output| anyhow!("the unchanged sources do not build:\n{output}"))
}

fn progress(tried: usize, all: usize, time: Duration) -> String {
    let minutes = time.as_secs_f64() / 60.0;
    let left = minutes / tried as f64 * (all - tried) as f64;
    format!("tried     {tried} of {all} mutants in {minutes:.0} min, about {left:.0} min to go")
}
