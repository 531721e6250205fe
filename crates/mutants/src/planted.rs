//! Bugs with a name, listed in `planted.toml`. Each one breaks a promise on purpose.

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::mutant::Mutant;
use crate::suites;

const LIST: &str = include_str!("../planted.toml");

/// One bug: a piece of text in one file of the workspace, and what to put in its place.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    pub bug: String,
    pub file: String,
    pub from: String,
    pub to: String,
    /// The tests that must catch it, in the order in which they run. [`suites`] explains their names. If none is named,
    /// the tests of its file run first, then all others.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Who is harmed by it, and how. It is for people.
    #[serde(default)]
    #[expect(dead_code, reason = "it is for people who read the list")]
    harm: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BugList {
    mutant: Vec<Bug>,
}

impl Bug {
    /// Whether one of these words is in its name or file. Without words, every bug is selected.
    pub fn is_selected_by(&self, words: &[String]) -> bool {
        words.is_empty() || words.iter().any(|word| self.bug.contains(word) || self.file.contains(word))
    }

    /// The bug as a change of its file.
    pub fn mutant(&self, source: &str) -> Result<Mutant> {
        let places: Vec<usize> = source.match_indices(&self.from).map(|(place, _)| place).collect();
        let &[start] = &places[..] else {
            bail!("{}: expected its text once in {}, got it {} times", self.bug, self.file, places.len())
        };
        let span = start..start + self.from.len();
        Ok(Mutant { file: self.file.clone(), span, replacement: self.to.clone() })
    }
}

pub fn all() -> Result<Vec<Bug>> {
    read(LIST)
}

pub fn read(list: &str) -> Result<Vec<Bug>> {
    let mut bugs = toml::from_str::<BugList>(list)?.mutant;
    for bug in bugs.iter_mut().filter(|bug| bug.tests.is_empty()) {
        // The tests of its file come first, then all others.
        let own = suites::of_file(&bug.file).map_or(&[][..], |(_, tests)| tests);
        let others = suites::ALL.iter().filter(|suite| !own.contains(suite));
        bug.tests = own.iter().chain(others).map(|tests| (*tests).to_owned()).collect();
    }
    Ok(bugs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_bug_can_be_planted_in_the_current_sources() {
        let bugs = all().unwrap();
        assert!(bugs.len() >= 16, "only {}", bugs.len());
        for bug in &bugs {
            let source = std::fs::read_to_string(crate::root().join(&bug.file)).unwrap();
            assert_ne!(bug.mutant(&source).unwrap().apply(&source), source, "{}", bug.bug);
            assert!(!bug.tests.is_empty(), "{}", bug.bug);
            for tests in &bug.tests {
                suites::suite(tests).unwrap();
            }
        }
    }

    #[test]
    fn no_bug_is_listed_twice() {
        let bugs = all().unwrap();
        let names: BTreeSet<_> = bugs.iter().map(|bug| &bug.bug).collect();
        let changes: BTreeSet<_> = bugs.iter().map(|bug| (&bug.file, &bug.from, &bug.to)).collect();
        assert_eq!((names.len(), changes.len()), (bugs.len(), bugs.len()));
    }

    #[test]
    fn words_select_bugs_by_name_and_file() {
        let bugs = all().unwrap();
        let chosen = |word: &str| bugs.iter().filter(|bug| bug.is_selected_by(&[word.to_owned()])).count();
        assert!((1..bugs.len()).contains(&chosen("publish.lua")));
        assert_eq!(chosen("no such word"), 0);
        assert!(bugs.iter().all(|bug| bug.is_selected_by(&[])));
    }
}
