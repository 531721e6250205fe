//! What earlier runs found out, so that a run that was stopped goes on where it was.
//!
//! A result belongs to the text of the mutated file. A mutant that was caught stays caught while that text stays the same.
//! One that survived is tried again when any test has changed since.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::suites;
use crate::trial::Verdict;

pub struct Results {
    file: Mutex<File>,
    known: HashMap<u64, Entry>,
    /// A fingerprint of all tests as they are now.
    tests: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    /// A fingerprint of the mutated file and its path.
    mutant: u64,
    tests: u64,
    outcome: Outcome,
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// By this test.
    Caught(String),
    Survived,
    /// The compiler caught it, which says nothing about the tests.
    Unbuildable,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Passes => Self::Survived,
            Verdict::DoesNotBuild(_) => Self::Unbuildable,
            caught => Self::Caught(caught.to_string()),
        }
    }
}

impl Results {
    /// The results in this file, which is made if need be. `fresh` forgets what is in there.
    pub fn open(path: &Path, tests: u64, fresh: bool) -> Result<Self> {
        let mut known = HashMap::new();
        if !fresh && let Ok(text) = std::fs::read_to_string(path) {
            // A run that was killed may have left half a line.
            let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
            known.extend(entries.map(|entry| (entry.mutant, entry)));
        }
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(!fresh).truncate(fresh);
        let mut file = options.open(path).with_context(|| format!("cannot write {}", path.display()))?;
        // Whatever follows begins on a line of its own.
        writeln!(file)?;
        Ok(Self { file: file.into(), known, tests })
    }

    pub fn of(&self, mutant: u64) -> Option<&Outcome> {
        let entry = self.known.get(&mutant)?;
        let is_settled = entry.outcome != Outcome::Survived || entry.tests == self.tests;
        is_settled.then_some(&entry.outcome)
    }

    pub fn add(&self, mutant: u64, outcome: &Outcome) -> Result<()> {
        let entry = Entry { mutant, tests: self.tests, outcome: outcome.clone() };
        let mut file = self.file.lock().expect("no panic while held");
        Ok(writeln!(file, "{}", serde_json::to_string(&entry)?)?)
    }
}

pub fn fingerprint(parts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// A fingerprint of all files that are tests or that only tests use.
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
    fn a_survivor_is_tried_again_when_tests_have_changed_and_a_caught_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        let (one, other, third) = (fingerprint(&["1"]), fingerprint(&["2"]), fingerprint(&["3"]));
        let results = Results::open(&path, 7, false).unwrap();
        results.add(one, &Outcome::Caught("a test".into())).unwrap();
        results.add(other, &Outcome::Survived).unwrap();

        let again = Results::open(&path, 7, false).unwrap();
        assert_eq!(again.of(one), Some(&Outcome::Caught("a test".into())));
        assert_eq!(again.of(other), Some(&Outcome::Survived));
        assert_eq!(again.of(third), None);

        let with_new_tests = Results::open(&path, 8, false).unwrap();
        assert_eq!(with_new_tests.of(one), Some(&Outcome::Caught("a test".into())));
        assert_eq!(with_new_tests.of(other), None);

        assert_eq!(Results::open(&path, 7, true).unwrap().of(one), None);
        assert_eq!(Results::open(&path, 7, false).unwrap().of(one), None);
    }

    #[test]
    fn half_a_line_of_a_killed_run_spoils_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        std::fs::write(&path, "{\"mutant\":1,\"te").unwrap();
        Results::open(&path, 7, false).unwrap().add(5, &Outcome::Unbuildable).unwrap();
        assert_eq!(Results::open(&path, 7, false).unwrap().of(5), Some(&Outcome::Unbuildable));
    }
}
