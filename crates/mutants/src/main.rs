//! Tests the tests: changes the sources in one small way at a time, and runs the tests that must notice.
//!
//! There are three kinds of changes:
//!
//! - *planted*: bugs with a name, listed in `planted.toml`. All of them must be caught.
//! - *lua*: the mistakes that [`lua`] makes in every line of every script. They need no build, because a test binary
//!   reads its scripts from a directory.
//! - *rust*: the mistakes that cargo-mutants finds in the files of [`suites`].
//!
//! Changes of Rust files are built [`together`].
//!
//! The sources are changed in copies under `target/mutants`. The working tree is never touched, and every run after the
//! first builds little. The results are kept there, too. If a run is stopped, the next run continues where it was.
//!
//! ```text
//! make mutants                       # all of them: hours
//! make mutants KIND=lua              # one kind, or several: KIND='planted rust'
//! make mutants ONLY=publish          # those with this word in their file, or in the name of the bug
//! make mutants SINCE=HEAD~1          # those in lines that have changed since
//! make mutants FOR=20m               # as many as fit into 20 minutes; the next run continues
//! make mutants SHARD=1/4             # every fourth one
//! make mutants QUICK=1               # run only a sample of the stories
//! make mutants FRESH=1               # discard the results of earlier runs
//! make mutants REPORT=1              # only print the results of earlier runs
//! make mutants BUGS=more.toml        # plant the bugs of this file, which has the form of planted.toml
//! ```
//!
//! The exit code is 1 if a planted bug went unnoticed or an area missed its goal.

mod campaign;
mod changed;
mod copy;
mod equivalent;
mod lua;
mod mutant;
mod planted;
mod reach;
mod report;
mod results;
mod rust;
mod suites;
mod surroundings;
mod together;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

use campaign::{Campaign, Case};
use changed::Changed;
use equivalent::Equivalents;
use mutant::Mutant;
use planted::Bug;
use results::StoredResults;
use trial::Limits;

/// Changes the sources in small ways, one at a time, and runs the tests that have to notice.
#[derive(Parser)]
struct MutantsOptions {
    /// Only these kinds
    #[arg(long, value_enum)]
    kind: Vec<MutantKind>,
    /// Only those with one of these words in their file, or in the name of the bug
    only: Vec<String>,
    /// Only those in lines that have changed since this revision
    #[arg(long, value_name = "REV")]
    since: Option<String>,
    /// Only every Nth, beginning with the Kth
    #[arg(long, value_name = "K/N", value_parser = shard)]
    shard: Option<Shard>,
    /// Stop after this time; the next run goes on
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Try so many side by side
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Leave out all of the stories but a sample
    #[arg(long)]
    quick: bool,
    /// Forget what earlier runs found out
    #[arg(long)]
    fresh: bool,
    /// Plant the bugs of this file instead of those in planted.toml
    #[arg(long, value_name = "FILE")]
    bugs: Option<PathBuf>,
    /// Only print the report of what earlier runs found out
    #[arg(long)]
    report: bool,
    /// The program cargo-mutants
    #[arg(long, value_name = "PATH", default_value = "cargo-mutants")]
    cargo_mutants: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MutantKind {
    Planted,
    Lua,
    Rust,
}

/// Part `which`, counted from 1, of `of` parts.
#[derive(Clone, Copy)]
struct Shard {
    which: usize,
    of: usize,
}

fn shard(text: &str) -> Result<Shard, String> {
    let parsed = text.split_once('/').and_then(|(which, of)| Some((which.parse().ok()?, of.parse().ok()?)));
    match parsed {
        Some((which, of)) if (1..=of).contains(&which) => Ok(Shard { which, of }),
        _ => Err(format!("expected K/N such as 1/4, got {text}")),
    }
}

impl MutantsOptions {
    fn wants(&self, kind: MutantKind) -> bool {
        match &self.kind[..] {
            [] => self.bugs.is_none() || kind == MutantKind::Planted,
            wanted => wanted.contains(&kind),
        }
    }

    fn is_in_shard(&self, index: usize) -> bool {
        self.shard.is_none_or(|shard| index % shard.of == shard.which - 1)
    }
}

fn main() -> Result<ExitCode> {
    let options = MutantsOptions::parse();
    let changed = options.since.as_deref().map(|since| Changed::since(since, &root())).transpose()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let target = target.join("mutants");
    std::fs::create_dir_all(&target)?;
    // Two runs at the same time would change the same copies.
    let lock = std::fs::File::create(target.join("lock"))?;
    ensure!(lock.try_lock().is_ok(), "another run is at work in {}", target.display());
    // A mutant that survived a part of the tests has to be tried again with all of them.
    let tests = fingerprint_of_tests()? ^ u64::from(options.quick);
    let results = StoredResults::open(&target.join("results.jsonl"), tests, options.fresh)?;
    let limits = Limits::default();
    let campaign = Campaign {
        target,
        results: &results,
        limits: &limits,
        jobs: options.jobs.max(1),
        until: options.time.map(|time| Instant::now() + time),
        quick: options.quick,
    };
    let mut cases = bugs(&options, changed.as_ref(), &results)?;
    cases.extend(systematic(&options, changed.as_ref(), &results)?);
    ensure!(!cases.is_empty(), "there is nothing to try: no mutant has {:?}", options.only);
    if !options.report {
        campaign.run(&mut cases)?;
    }
    let (report, is_good) = report::report(&cases);
    print_line(&report);
    Ok(ExitCode::from(u8::from(!is_good)))
}

fn bugs(options: &MutantsOptions, changed: Option<&Changed>, results: &StoredResults) -> Result<Vec<Case>> {
    if !options.wants(MutantKind::Planted) {
        return Ok(Vec::new());
    }
    let is_selected = |bug: &Bug| {
        bug.is_selected_by(&options.only) && changed.is_none_or(|changed| changed.has_file(&bug.file))
    };
    let all = match &options.bugs {
        Some(file) => planted::read(&std::fs::read_to_string(file)?)?,
        None => planted::all()?,
    };
    let bugs =
        all.into_iter().filter(is_selected).enumerate().filter(|(index, _)| options.is_in_shard(*index));
    bugs.map(|(_, bug)| {
        let source = std::fs::read_to_string(root().join(&bug.file))?;
        Case::planted(bug, &source, results)
    })
    .collect()
}

fn systematic(
    options: &MutantsOptions,
    changed: Option<&Changed>,
    results: &StoredResults,
) -> Result<Vec<Case>> {
    let mut mutants = BTreeMap::<String, Vec<Mutant>>::new();
    if options.wants(MutantKind::Lua) {
        for (file, source) in suites::scripts()? {
            mutants.insert(file.clone(), lua::mutants_of(&file, &source)?);
        }
    }
    if options.wants(MutantKind::Rust) {
        for mutant in rust::mutants(&options.cargo_mutants, &root())? {
            mutants.entry(mutant.file.clone()).or_default().push(mutant);
        }
    }
    let is_selected =
        |file: &str| options.only.is_empty() || options.only.iter().any(|word| file.contains(word));
    let equivalents = Equivalents::read()?;
    let mut cases = Vec::new();
    for (file, mutants) in mutants.into_iter().filter(|(file, _)| is_selected(file)) {
        let source = std::fs::read_to_string(root().join(&file))?;
        for named in mutant::named(mutants, &source) {
            let first = named.0.line(&source);
            let lines = first..=first + source[named.0.span.clone()].matches('\n').count();
            if changed.is_none_or(|changed| changed.has_lines(&file, &lines)) {
                cases.push(Case::systematic(named, &source, &equivalents, results)?);
            }
        }
    }
    let in_shard = cases.into_iter().enumerate().filter(|(index, _)| options.is_in_shard(*index));
    Ok(in_shard.map(|(_, case)| case).collect())
}

fn fingerprint_of_tests() -> Result<u64> {
    let mut files = BTreeSet::new();
    copy::list(&root(), Path::new(""), &mut files)?;
    results::fingerprint_of_tests(&root(), &files.into_iter().collect::<Vec<_>>())
}

/// The root of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().and_then(Path::parent).map_or_else(PathBuf::new, Path::to_owned)
}

#[allow(clippy::print_stdout)]
fn print_line(line: &str) {
    println!("{line}");
}
