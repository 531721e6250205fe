//! Which tests call which functions, and how long each test takes.
//!
//! A mutant can fail only tests that call its function. To find these, every test runs once, alone, without a mutant.
//! If several tests remain for a mutant, the quick ones run first.
//!
//! The findings are kept. A test that has changed since is not run again for this purpose, because the findings only
//! decide which tests run. In the worst case a mutant survives that would have been caught, and people look at
//! survivors. A function that is newer than the findings may be called by any test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::print_line;
use crate::suites;
use crate::together::Together;
use crate::trial::{Conditions, Limits, TrialVerdict};

/// Tests that together take no longer than this run before all others.
const QUICK: Duration = Duration::from_secs(5);
/// How many tests run at the same time. Most of them wait most of the time.
const SIDE_BY_SIDE: usize = 4;

/// What is known about the tests, by suite and name.
#[derive(Default, Serialize, Deserialize)]
pub struct TestReach {
    tests: BTreeMap<String, BTreeMap<String, Test>>,
    /// The functions that existed when the first test ran.
    functions: BTreeSet<String>,
    /// The tests of each stage.
    #[serde(skip)]
    stages: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Serialize, Deserialize)]
struct Test {
    time: Duration,
    functions: BTreeSet<String>,
}

/// Tests of one run, and how long they take one after another.
#[derive(Default, Debug, PartialEq)]
pub struct TestBatch {
    pub tests: Vec<String>,
    pub time: Duration,
}

impl TestReach {
    /// What is known about the tests of these stages. Tests that are not in the file at `path` are run.
    pub fn of(stages: &BTreeSet<&str>, together: &Together, path: &Path) -> Result<Self> {
        let kept = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok());
        let mut reach: Self = kept.unwrap_or_else(|| Self {
            functions: together.functions.iter().cloned().collect(),
            ..Self::default()
        });
        for stage in stages {
            let names = together.binary(stage)?.names(stage)?;
            let known = reach.tests.entry(suites::name(stage).to_owned()).or_default();
            let new: Vec<&String> = names.iter().filter(|name| !known.contains_key(*name)).collect();
            if !new.is_empty() {
                print_line(&format!(
                    "running   {} tests of {stage}, each alone, to see what they call",
                    new.len()
                ));
                known.extend(run_each_alone(&new, stage, together)?);
                std::fs::write(path, serde_json::to_string(&reach)?)?;
            }
            reach.stages.insert((*stage).to_owned(), names.into_iter().collect());
        }
        Ok(reach)
    }

    /// The tests of a stage that call this function, the quick ones first.
    pub fn batches(&self, stage: &str, function: &str) -> Vec<TestBatch> {
        let (names, is_new) = (&self.stages[stage], !self.functions.contains(function));
        let of_suite = self.tests[suites::name(stage)].iter();
        let mut tests: Vec<_> = of_suite
            .filter(|(name, test)| names.contains(*name) && (is_new || test.functions.contains(function)))
            .collect();
        tests.sort_by_key(|(_, test)| test.time);
        let (mut quick, mut others) = (TestBatch::default(), TestBatch::default());
        for (name, test) in tests {
            let batch = if quick.time + test.time <= QUICK { &mut quick } else { &mut others };
            batch.tests.push(name.clone());
            batch.time += test.time;
        }
        [quick, others].into_iter().filter(|batch| !batch.tests.is_empty()).collect()
    }
}

/// Runs each of these tests alone. All of them must pass, because a test that fails without a mutant proves nothing.
fn run_each_alone(names: &[&String], stage: &str, together: &Together) -> Result<Vec<(String, Test)>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        let directory = tempfile::tempdir()?;
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let reached = directory.path().join("reached");
            std::fs::write(&reached, "")?;
            let only = [(*name).clone()];
            let conditions =
                Conditions { reached: Some(&reached), only: Some(&only), ..Conditions::default() };
            let started = Instant::now();
            let verdict = together.binary(stage)?.run(stage, Limits::default().of(stage), &conditions)?;
            let time = started.elapsed();
            ensure!(verdict == TrialVerdict::Passes, "without a mutant, {name} does not pass: {verdict}");
            let numbers = std::fs::read_to_string(&reached)?;
            let function = |number: &str| -> Result<String> {
                let number: usize = number.parse().with_context(|| format!("{name} wrote {number}"))?;
                Ok(together.functions[number].clone())
            };
            let functions = numbers.lines().map(function).collect::<Result<_>>()?;
            let mut found = found.lock().expect("no panic while held");
            found.push(((*name).clone(), Test { time, functions }));
        }
        Ok(())
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a worker panicked"))??;
        }
        Ok(())
    })?;
    Ok(found.into_inner().expect("no panic while held"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(seconds: u64, functions: &[&str]) -> Test {
        let functions = functions.iter().map(|name| (*name).to_owned()).collect();
        Test { time: Duration::from_secs(seconds), functions }
    }

    #[test]
    fn only_tests_that_call_the_function_run_and_the_quick_ones_run_first() {
        let tests = BTreeMap::from([
            ("slow".to_owned(), test(60, &["f", "g"])),
            ("quick".to_owned(), test(1, &["f"])),
            ("quicker".to_owned(), test(0, &["f", "g"])),
            ("stranger".to_owned(), test(1, &["h"])),
            ("of another stage".to_owned(), test(1, &["f"])),
        ]);
        let stage = ["slow", "quick", "quicker", "stranger"].map(ToOwned::to_owned).into();
        let reach = TestReach {
            functions: ["f", "g", "nowhere"].map(ToOwned::to_owned).into(),
            tests: BTreeMap::from([("commands".to_owned(), tests)]),
            stages: BTreeMap::from([("commands:some".to_owned(), stage)]),
        };
        let names = |function: &str| -> Vec<Vec<String>> {
            let batches = reach.batches("commands:some", function);
            batches.into_iter().map(|batch| batch.tests).collect()
        };
        assert_eq!(names("f"), [vec!["quicker", "quick"], vec!["slow"]]);
        assert_eq!(names("g"), [["quicker"], ["slow"]]);
        assert!(names("nowhere").is_empty());
        let all: usize = names("new").iter().map(Vec::len).sum();
        assert_eq!(all, 4, "any test may call a function that was not there yet");
    }
}
