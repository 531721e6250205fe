//! Tests the tests: plants known bugs in a copy of the sources, one at a time, and runs the tests that have to catch each.
//!
//! The bugs are data, in `mutants.toml`. The copy and what is built from it live under `target/mutants`, so that nothing
//! of the working tree is touched and every run after the first builds little. The unchanged copy has to pass first.
//!
//!     make mutants                 # all of them
//!     make mutants ONLY=publish    # those whose bug or file has this word in it
//!
//! It prints a table and exits with 1 if a bug went unnoticed.

mod bugs;
mod copy;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use bugs::Bug;
use copy::Copy;
use trial::{Trial, Verdict};

fn main() -> Result<ExitCode> {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let bugs: Vec<Bug> = bugs::all()?.into_iter().filter(|bug| bug.is_meant_by(&only)).collect();
    ensure!(!bugs.is_empty(), "no bug has {only:?} in its name or file");

    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let copy = Copy::of(&root(), &target.join("mutants/sources"))?;
    let trial = Trial { sources: copy.path().to_owned(), target: target.join("mutants/target") };
    say("The unchanged copy first.");
    for tests in bugs::every_test(&bugs) {
        match trial.run(&tests)? {
            Verdict::Passes => {}
            verdict => anyhow::bail!("without any bug, {tests} does not pass: {verdict}"),
        }
    }

    say(&row("bug", "where", "caught by", "time"));
    let start = Instant::now();
    let mut unnoticed = 0;
    for bug in &bugs {
        let (verdict, time) = plant(bug, &copy, &trial)?;
        unnoticed += usize::from(verdict == Verdict::Passes);
        let file = bug.file.strip_prefix("crates/").unwrap_or(&bug.file).replace("/src/", "/");
        say(&row(&bug.bug, &file, &verdict.to_string(), &seconds(time)));
    }
    let caught = bugs.len() - unnoticed;
    say(&format!("{caught} of {} bugs were caught, in {}", bugs.len(), seconds(start.elapsed())));
    Ok(ExitCode::from(u8::from(unnoticed > 0)))
}

/// Tries the tests with this bug, the first that fails has caught it.
fn plant(bug: &Bug, copy: &Copy, trial: &Trial) -> Result<(Verdict, Duration)> {
    let start = Instant::now();
    let _planted = copy.plant(bug)?;
    for tests in &bug.tests {
        let verdict = trial.run(tests)?;
        ensure!(!matches!(verdict, Verdict::DoesNotBuild(_)), "{}: {verdict}", bug.bug);
        if verdict != Verdict::Passes {
            return Ok((verdict, start.elapsed()));
        }
    }
    Ok((Verdict::Passes, start.elapsed()))
}

/// The root of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().and_then(Path::parent).map_or_else(PathBuf::new, Path::to_owned)
}

fn row(bug: &str, place: &str, caught: &str, time: &str) -> String {
    format!("{bug:<62} {place:<38} {time:>6}  {caught}")
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}
