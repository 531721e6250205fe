//! One small change of one source file, and its name.

use std::collections::BTreeMap;
use std::ops::Range;

/// A change that a test should notice: `replacement` takes the place of `span`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Path from the root of the workspace.
    pub file: String,
    /// The bytes of the file that the change replaces.
    pub span: Range<usize>,
    pub replacement: String,
}

/// The name of a mutant, for people and in the checked-in list: the changed lines, before and after, without their
/// indentation. It contains no line numbers, so that an edit elsewhere in the file does not rename the mutant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub file: String,
    pub from: String,
    pub to: String,
    /// Its number, counted from 1, among the changes of the file that would have the same name.
    pub nth: usize,
}

/// The mutants of one file with their names.
pub fn named(mutants: Vec<Mutant>, source: &str) -> Vec<(Mutant, Change)> {
    let mut times = BTreeMap::<Change, usize>::new();
    let name = |mutant: Mutant| {
        let mut change = mutant.change(source);
        let nth = times.entry(change.clone()).or_default();
        *nth += 1;
        change.nth = *nth;
        (mutant, change)
    };
    mutants.into_iter().map(name).collect()
}

impl Mutant {
    /// The whole file with the change in it.
    pub fn apply(&self, source: &str) -> String {
        format!("{}{}{}", &source[..self.span.start], self.replacement, &source[self.span.end..])
    }

    /// The first line that changes, counted from 1.
    pub fn line(&self, source: &str) -> usize {
        source[..self.span.start].matches('\n').count() + 1
    }

    /// The name of the mutant, provided that no other mutant has the same one.
    pub fn change(&self, source: &str) -> Change {
        let start = source[..self.span.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = source[self.span.end..].find('\n').map_or(source.len(), |newline| self.span.end + newline);
        let (before, after) = (&source[start..self.span.start], &source[self.span.end..end]);
        let to = format!("{before}{}{after}", self.replacement);
        Change { file: self.file.clone(), from: trimmed(&source[start..end]), to: trimmed(&to), nth: 1 }
    }
}

fn trimmed(lines: &str) -> String {
    let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

impl Change {
    /// The change as a diff without context.
    pub fn diff(&self) -> String {
        let marked = |mark: char, lines: &str| -> String {
            lines.lines().map(|line| format!("      {mark} {line}\n")).collect()
        };
        marked('-', &self.from) + &marked('+', &self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_whole_lines_without_indentation() {
        let source = "one\n  if a == b then\n    c()\n  end\nlast";
        let at = source.find("==").unwrap();
        let mutant = Mutant { file: "x".into(), span: at..at + 2, replacement: "~=".into() };
        assert_eq!(mutant.apply(source), "one\n  if a ~= b then\n    c()\n  end\nlast");
        assert_eq!(mutant.line(source), 2);
        let change = mutant.change(source);
        assert_eq!((change.from.as_str(), change.to.as_str()), ("if a == b then", "if a ~= b then"));

        let call = source.find("c()").unwrap();
        let deleted = Mutant { file: "x".into(), span: call..call + 3, replacement: String::new() };
        let change = deleted.change(source);
        assert_eq!((change.from.as_str(), change.to.as_str()), ("c()", ""));
        assert_eq!(change.diff(), "      - c()\n");
    }

    #[test]
    fn the_same_change_in_two_places_has_two_names() {
        let source = "x = 1\ny = 2\nx = 1\n";
        let at =
            |start: usize| Mutant { file: "x".into(), span: start..start + 5, replacement: String::new() };
        let names: Vec<_> =
            named(vec![at(0), at(6), at(12)], source).into_iter().map(|(_, name)| name.nth).collect();
        assert_eq!(names, [1, 1, 2]);
    }
}
