//! The results of earlier runs, so that a stopped run can continue.
//!
//! A result belongs to the text of the mutated file. A mutant that was caught stays caught while that text stays the
//! same. A mutant that survived is tried again when any test has changed.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::suites;
use crate::trial::TrialVerdict;

pub struct StoredResults {
    file: Mutex<File>,
    known: HashMap<u64, ResultLine>,
    /// A fingerprint of all tests as they are now.
    tests: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ResultLine {
    /// A fingerprint of the mutated file and its path.
    mutant: u64,
    tests: u64,
    outcome: MutantOutcome,
}

/// The outcome of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MutantOutcome {
    /// This test failed.
    Caught(String),
    Survived,
    /// The compiler refused it, which proves nothing about the tests.
    Unbuildable,
}

impl From<TrialVerdict> for MutantOutcome {
    fn from(verdict: TrialVerdict) -> Self {
        match verdict {
            TrialVerdict::Passes => Self::Survived,
            TrialVerdict::DoesNotBuild(_) => Self::Unbuildable,
            caught => Self::Caught(caught.to_string()),
        }
    }
}

impl StoredResults {
    /// Opens the results in this file, or creates it. `fresh` discards what is in it.
    pub fn open(path: &Path, tests: u64, fresh: bool) -> Result<Self> {
        let mut known = HashMap::new();
        if !fresh && let Ok(text) = std::fs::read_to_string(path) {
            // A killed run may have left a partial line.
            let entries = text.lines().filter_map(|line| serde_json::from_str::<ResultLine>(line).ok());
            known.extend(entries.map(|entry| (entry.mutant, entry)));
        }
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(!fresh).truncate(fresh);
        let mut file = options.open(path).with_context(|| format!("cannot write {}", path.display()))?;
        // The next entry begins on a new line.
        writeln!(file)?;
        Ok(Self { file: file.into(), known, tests })
    }

    pub fn of(&self, mutant: u64) -> Option<&MutantOutcome> {
        let entry = self.known.get(&mutant)?;
        let is_settled = entry.outcome != MutantOutcome::Survived || entry.tests == self.tests;
        is_settled.then_some(&entry.outcome)
    }

    pub fn add(&self, mutant: u64, outcome: &MutantOutcome) -> Result<()> {
        let entry = ResultLine { mutant, tests: self.tests, outcome: outcome.clone() };
        let mut file = self.file.lock().expect("no panic while held");
        Ok(writeln!(file, "{}", serde_json::to_string(&entry)?)?)
    }
}

pub fn fingerprint(parts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// A fingerprint of all files that contain tests or code that only tests use.
pub fn fingerprint_of_tests(root: &Path, files: &[PathBuf]) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for file in files.iter().filter(|file| suites::is_test(&file.to_string_lossy())) {
        (file, std::fs::read(root.join(file))?).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_is_tried_again_when_tests_have_changed_and_a_caught_mutant_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        let (one, other, third) = (fingerprint(&["1"]), fingerprint(&["2"]), fingerprint(&["3"]));
        let results = StoredResults::open(&path, 7, false).unwrap();
        results.add(one, &MutantOutcome::Caught("a test".into())).unwrap();
        results.add(other, &MutantOutcome::Survived).unwrap();

        let again = StoredResults::open(&path, 7, false).unwrap();
        assert_eq!(again.of(one), Some(&MutantOutcome::Caught("a test".into())));
        assert_eq!(again.of(other), Some(&MutantOutcome::Survived));
        assert_eq!(again.of(third), None);

        let with_new_tests = StoredResults::open(&path, 8, false).unwrap();
        assert_eq!(with_new_tests.of(one), Some(&MutantOutcome::Caught("a test".into())));
        assert_eq!(with_new_tests.of(other), None);

        assert_eq!(StoredResults::open(&path, 7, true).unwrap().of(one), None);
        assert_eq!(StoredResults::open(&path, 7, false).unwrap().of(one), None);
    }

    #[test]
    fn a_partial_line_of_a_killed_run_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        std::fs::write(&path, "{\"mutant\":1,\"te").unwrap();
        StoredResults::open(&path, 7, false).unwrap().add(5, &MutantOutcome::Unbuildable).unwrap();
        assert_eq!(StoredResults::open(&path, 7, false).unwrap().of(5), Some(&MutantOutcome::Unbuildable));
    }
}
