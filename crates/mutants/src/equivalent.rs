//! Mutants that change nothing that a test could see. `equivalent.toml` lists each with its reason.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::mutant::Change;

const LIST: &str = include_str!("../equivalent.toml");

/// The reason for each change.
pub struct Equivalents(BTreeMap<Change, String>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EquivalentList {
    #[serde(default)]
    equivalent: Vec<EquivalentEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EquivalentEntry {
    file: String,
    from: String,
    to: String,
    /// Its number among the changes of the file that would have the same name.
    #[serde(default = "first")]
    nth: usize,
    reason: String,
}

fn first() -> usize {
    1
}

impl Equivalents {
    pub fn read() -> Result<Self> {
        let mut reasons = BTreeMap::new();
        for EquivalentEntry { file, from, to, nth, reason } in
            toml::from_str::<EquivalentList>(LIST)?.equivalent
        {
            ensure!(!reason.trim().is_empty(), "{file}: {from}: no reason is given");
            let change = Change { file, from: from.trim().into(), to: to.trim().into(), nth };
            ensure!(!reasons.contains_key(&change), "listed twice: {change:?}");
            reasons.insert(change, reason);
        }
        Ok(Self(reasons))
    }

    pub fn reason(&self, change: &Change) -> Option<&str> {
        self.0.get(change).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{lua, mutant, suites};

    /// An entry whose lines are gone excuses nothing any more, and must be removed.
    #[test]
    fn every_entry_is_a_mutant_of_the_current_sources() {
        let mut of_scripts = BTreeSet::new();
        for (file, source) in suites::scripts().unwrap() {
            let mutants = mutant::named(lua::mutants_of(&file, &source).unwrap(), &source);
            of_scripts.extend(mutants.into_iter().map(|(_, name)| name));
        }
        for change in Equivalents::read().unwrap().0.keys() {
            assert!(suites::of_file(&change.file).is_some(), "{} is not mutated", change.file);
            if change.file.ends_with(".lua") {
                assert!(of_scripts.contains(change), "no such mutant: {change:?}");
                continue;
            }
            // Only cargo-mutants knows the mutants of Rust files. But this test can check that the lines exist.
            let source = std::fs::read_to_string(crate::root().join(&change.file)).unwrap();
            let lines: Vec<&str> = source.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let from: Vec<&str> = change.from.lines().collect();
            assert!(lines.windows(from.len()).any(|lines| lines == from), "no such lines: {change:?}");
        }
    }
}
