//! Mutants of the Rust sources, as cargo-mutants makes them.
//!
//! cargo-mutants knows which mistakes can be made in Rust. This crate uses only its list and makes the trials itself.
//! Each file needs other tests first, a trial ends at the first failure, and the results are kept together with those
//! of the scripts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::mutant::Mutant;
use crate::suites;

#[derive(Deserialize)]
struct ListedMutant {
    file: String,
    span: SourceSpan,
    replacement: String,
}

#[derive(Deserialize)]
struct SourceSpan {
    start: LineColumn,
    end: LineColumn,
}

/// A position in a file. Both numbers are counted from 1, the column in characters.
#[derive(Deserialize)]
struct LineColumn {
    line: usize,
    column: usize,
}

/// All mutants of the Rust files in all areas. `tool` is the path of cargo-mutants.
pub fn mutants(tool: &Path, root: &Path) -> Result<Vec<Mutant>> {
    let mut command = Command::new(tool);
    command.args(["mutants", "--list", "--json", "--no-times", "--config"]);
    command.arg(root.join("crates/mutants/cargo-mutants.toml"));
    for glob in suites::rust_globs() {
        command.args(["--file", &glob]);
    }
    let output = command.current_dir(root).output().with_context(|| {
        format!("cannot run {}: start this with `make mutants`, which installs it", tool.display())
    })?;
    ensure!(output.status.success(), "cargo-mutants: {}", String::from_utf8_lossy(&output.stderr).trim());
    read(&output.stdout, |file| Ok(std::fs::read_to_string(root.join(file))?))
}

fn read(list: &[u8], source_of: impl Fn(&str) -> Result<String>) -> Result<Vec<Mutant>> {
    let listed: Vec<ListedMutant> = serde_json::from_slice(list).context("the list of cargo-mutants")?;
    let mut mutants = Vec::with_capacity(listed.len());
    for ListedMutant { file, span, replacement } in listed {
        let source = source_of(&file)?;
        let at = |position: &LineColumn| {
            byte_at(&source, position).with_context(|| format!("{file} has no line {}", position.line))
        };
        let mutant = Mutant { span: at(&span.start)?..at(&span.end)?, file: file.clone(), replacement };
        // A function may already do what the mutant makes it do.
        if mutant.apply(&source) != source {
            mutants.push(mutant);
        }
    }
    Ok(mutants)
}

fn byte_at(source: &str, position: &LineColumn) -> Option<usize> {
    let mut start = 0;
    for _ in 1..position.line {
        start += source[start..].find('\n')? + 1;
    }
    let column = source[start..].char_indices().nth(position.column - 1);
    Some(column.map_or(source.len(), |(offset, _)| start + offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_become_byte_offsets() {
        let source = "fn a() {}\nfn ä() -> u8 { 7 }\n";
        let list = r#"[{"package":"p","file":"f.rs","genre":"FnValue","replacement":"0",
            "span":{"start":{"line":2,"column":16},"end":{"line":2,"column":17}}}]"#;
        let mutants = read(list.as_bytes(), |_| Ok(source.into())).unwrap();
        assert_eq!(mutants[0].apply(source), "fn a() {}\nfn ä() -> u8 { 0 }\n");
    }
}
