//! Which lines have changed since a revision, according to git.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Lines of the working tree that a revision did not have, by file. A line after which something was deleted counts,
/// too.
#[derive(Debug, Default)]
pub struct Changed(BTreeMap<String, Vec<RangeInclusive<usize>>>);

impl Changed {
    pub fn since(revision: &str, root: &Path) -> Result<Self> {
        let diff = ["diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-prefix", revision, "--"];
        let output = Command::new("git").args(diff).current_dir(root).output().context("cannot run git")?;
        ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Self::read(&String::from_utf8_lossy(&output.stdout)))
    }

    fn read(diff: &str) -> Self {
        let mut changed = Self::default();
        let mut file = None;
        for line in diff.lines() {
            if let Some(path) = line.strip_prefix("+++ ") {
                file = Some(path.to_owned());
            } else if let (Some(hunk), Some(file)) = (line.strip_prefix("@@ "), &file)
                && let Some((start, count)) = added(hunk)
            {
                let lines = start.max(1)..=(start + count.max(1) - 1).max(1);
                changed.0.entry(file.clone()).or_default().push(lines);
            }
        }
        changed
    }

    pub fn has_file(&self, file: &str) -> bool {
        self.0.contains_key(file)
    }

    /// Whether one of these lines has changed.
    pub fn has_lines(&self, file: &str, lines: &RangeInclusive<usize>) -> bool {
        let overlaps =
            |other: &RangeInclusive<usize>| other.start() <= lines.end() && lines.start() <= other.end();
        self.0.get(file).is_some_and(|ranges| ranges.iter().any(overlaps))
    }
}

/// The first line and the number of lines on the new side of a hunk: `-3,2 +4,0 @@ ...`.
fn added(hunk: &str) -> Option<(usize, usize)> {
    let side = hunk.split(' ').find_map(|side| side.strip_prefix('+'))?;
    let (start, count) = side.split_once(',').unwrap_or((side, "1"));
    Some((start.parse().ok()?, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_become_lines_of_the_new_side() {
        let diff = "diff --git a b\n--- a/x.rs\n+++ a/x.rs\n@@ -3,2 +4 @@ fn f() {\n-old\n-old\n+new\n@@ -9,2 +9,0 @@\n\
                    -gone\n-gone\n+++ b.rs\n@@ -0,0 +1,3 @@\n+1\n+2\n+3\n";
        let changed = Changed::read(diff);
        assert!(changed.has_file("a/x.rs") && changed.has_file("b.rs") && !changed.has_file("c.rs"));
        let has = |file, line| changed.has_lines(file, &(line..=line));
        assert_eq!([3, 4, 5, 9, 10].map(|line| has("a/x.rs", line)), [false, true, false, true, false]);
        assert_eq!([1, 3, 4].map(|line| has("b.rs", line)), [true, true, false]);
        assert!(changed.has_lines("b.rs", &(3..=9)));
    }
}
