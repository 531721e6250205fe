//! Builds tests and runs them until the first failure.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;

use crate::suites::{self, Suite};
use crate::surroundings::Surroundings;

/// The shortest time limit of a run. A mutant may prevent the end of a test, and tests themselves wait up to half a
/// minute for an event.
const SHORTEST_LIMIT: Duration = Duration::from_secs(60);
/// The time limit of a run on unchanged sources, which shows how long the tests take on this machine.
pub const FIRST_LIMIT: Duration = Duration::from_secs(900);
/// The time limit of a build. The very first one builds all dependencies.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

pub struct Trial {
    pub sources: PathBuf,
    /// Several trials may share a target directory. cargo lets one of them build at a time.
    pub target: PathBuf,
    /// Whether the compiler optimises. That pays if one binary is run thousands of times.
    pub optimised: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TrialVerdict {
    /// The test that failed first.
    Caught(String),
    /// Nothing failed, and the tests did not end in time.
    Hangs,
    Passes,
    DoesNotBuild(String),
}

/// A test binary.
#[derive(Clone)]
pub struct Built {
    executable: PathBuf,
    directory: PathBuf,
}

/// The errors of a build that failed.
pub struct Refusal {
    pub output: String,
    /// The places that each error names.
    pub errors: Vec<Vec<SourceLine>>,
}

/// A line in a file. The path begins at the root of the workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceLine {
    pub file: String,
    pub line: usize,
}

/// The conditions of a run of tests.
#[derive(Default)]
pub struct Conditions<'a> {
    /// A directory with scripts to use instead of those in the binary.
    pub scripts: Option<&'a Path>,
    /// The number of the mutant to run, of those in the binary.
    pub mutant: Option<usize>,
    /// The file for the numbers of all functions that are called.
    pub reached: Option<&'a Path>,
    /// The names of the tests to run, unless all of them run.
    pub only: Option<&'a [String]>,
}

/// How long each suite takes on unchanged sources, by the name of its tests.
#[derive(Default)]
pub struct Limits(Mutex<HashMap<String, Duration>>);

impl Limits {
    pub fn learn(&self, tests: &str, time: Duration) {
        self.0.lock().expect("no panic while held").insert(tests.to_owned(), time);
    }

    /// A suite that takes four times as long as usual hangs.
    pub fn of(&self, tests: &str) -> Duration {
        let usual = self.0.lock().expect("no panic while held").get(tests).copied().unwrap_or_default();
        SHORTEST_LIMIT.max(usual * 4)
    }
}

impl Trial {
    /// Builds the tests and runs them.
    pub fn run(&self, tests: &str, limits: &Limits) -> Result<TrialVerdict> {
        match self.build(tests)? {
            Ok(built) => built.run(tests, limits.of(tests), &Conditions::default()),
            Err(refusal) => Ok(TrialVerdict::DoesNotBuild(refusal.output)),
        }
    }

    /// Builds the binary of these tests. Returns the errors if the compiler refuses it.
    pub fn build(&self, tests: &str) -> Result<Result<Built, Refusal>> {
        let Suite { package, directory, target, .. } = suites::suite(tests)?;
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(["test", "--no-run", "--locked", "--message-format=json", "--package", package])
            .args(target);
        command.current_dir(&self.sources).env("CARGO_TARGET_DIR", &self.target);
        // These binaries need no debugger, and they link faster without debug information.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", if self.optimised { "1" } else { "0" });
        let (mut output, mut errors, mut executable) = (Vec::new(), Vec::new(), None);
        let ending = TestRun::start(command)?.watch(BUILD_LIMIT, |line| {
            match serde_json::from_str::<CargoMessage>(line) {
                Ok(CargoMessage {
                    executable: Some(found), profile: Some(Profile { test: true }), ..
                }) => {
                    executable = Some(found);
                }
                Ok(CargoMessage { message: Some(message), .. }) => {
                    if message.level == "error" {
                        errors.push(message.spans.iter().flat_map(CompilerSpan::places).collect());
                    }
                    output.extend(message.rendered);
                }
                Ok(_) => {}
                Err(_) => output.push(line.to_owned()),
            }
            None::<()>
        });
        match (ending, executable) {
            (Ending::Exit(true), Some(executable)) => {
                Ok(Ok(Built { executable, directory: self.sources.join(directory) }))
            }
            (Ending::Exit(true), None) => bail!("cargo built no tests for {tests}"),
            _ => Ok(Err(Refusal { output: output.join("\n"), errors })),
        }
    }
}

impl Built {
    /// The names of these tests.
    pub fn names(&self, tests: &str) -> Result<Vec<String>> {
        let mut command = Command::new(&self.executable);
        command.args(suites::suite(tests)?.arguments).args(["--list", "--format", "terse"]);
        let output = command.current_dir(&self.directory).output().context("cannot list the tests")?;
        ensure!(output.status.success(), "{tests} cannot be listed");
        let lines = String::from_utf8_lossy(&output.stdout);
        Ok(lines.lines().filter_map(|line| line.strip_suffix(": test")).map(ToOwned::to_owned).collect())
    }

    /// Runs the tests.
    pub fn run(&self, tests: &str, limit: Duration, conditions: &Conditions<'_>) -> Result<TrialVerdict> {
        let suite = suites::suite(tests)?;
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory);
        match conditions.only {
            Some(names) => command.arg("--exact").args(names),
            None => command.args(suite.arguments),
        };
        if let Some(calls) = suite.calls {
            command.env("ESTAFETA_STORIES_CALLS", calls.to_string());
        }
        // It is enough that a story fails, so it need not be shrunk.
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("RUST_BACKTRACE", "0");
        if let Some(scripts) = conditions.scripts {
            command.env("ESTAFETA_SCRIPTS", scripts);
        }
        if let Some(mutant) = conditions.mutant {
            command.env("MUTANT", mutant.to_string());
        }
        if let Some(reached) = conditions.reached {
            command.env("REACHED", reached);
        }
        let surroundings = Surroundings::new()?;
        surroundings.surround(&mut command);
        let failed = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
        Ok(match TestRun::start(command)?.watch(limit, failed) {
            Ending::Seen(test) => TrialVerdict::Caught(test),
            Ending::Exit(true) => TrialVerdict::Passes,
            Ending::Exit(false) => TrialVerdict::Caught("the test process ended badly".into()),
            Ending::OutOfTime => TrialVerdict::Hangs,
        })
    }
}

/// The useful parts of a line that cargo writes while it builds.
#[derive(Deserialize)]
struct CargoMessage {
    executable: Option<PathBuf>,
    profile: Option<Profile>,
    message: Option<CompilerMessage>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct CompilerMessage {
    level: String,
    rendered: Option<String>,
    spans: Vec<CompilerSpan>,
}

#[derive(Deserialize)]
struct CompilerSpan {
    file_name: String,
    line_start: usize,
    is_primary: bool,
    expansion: Option<Expansion>,
}

/// The call of the macro that produced the code.
#[derive(Deserialize)]
struct Expansion {
    span: Box<CompilerSpan>,
}

impl CompilerSpan {
    /// The places of the error itself, without those that only explain it.
    fn places(&self) -> Vec<SourceLine> {
        let mut places = Vec::new();
        let mut span = Some(self).filter(|span| span.is_primary);
        while let Some(Self { file_name, line_start, expansion, .. }) = span {
            places.push(SourceLine { file: file_name.clone(), line: *line_start });
            span = expansion.as_ref().map(|expansion| &*expansion.span);
        }
        places
    }
}

/// A command in its own process group. The whole group is killed when this is dropped.
struct TestRun {
    child: Child,
    lines: Receiver<String>,
}

#[derive(Debug, PartialEq)]
enum Ending<T> {
    Seen(T),
    Exit(bool),
    OutOfTime,
}

impl TestRun {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("cannot start cargo")?;
        let (sender, lines) = channel();
        let out = child.stdout.take().map(|out| Box::new(out) as Box<dyn std::io::Read + Send>);
        let err = child.stderr.take().map(|err| Box::new(err) as Box<dyn std::io::Read + Send>);
        for stream in out.into_iter().chain(err) {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self { child, lines })
    }

    /// Waits for a line that `seen` accepts, for the end of the command, or until the time is over.
    fn watch<T>(mut self, limit: Duration, mut seen: impl FnMut(&str) -> Option<T>) -> Ending<T> {
        let deadline = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(found) = seen(&line) {
                        return Ending::Seen(found);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ending::OutOfTime,
                Err(RecvTimeoutError::Disconnected) => {
                    return Ending::Exit(self.child.wait().is_ok_and(|status| status.success()));
                }
            }
        }
    }
}

impl Drop for TestRun {
    fn drop(&mut self) {
        // Nothing has waited for the leader yet, so no other group can have its number.
        if let (Ok(None), Ok(group)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

impl fmt::Display for TrialVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(test) => f.write_str(test),
            Self::Hangs => f.write_str("the time limit"),
            Self::Passes => f.write_str("NOBODY"),
            Self::DoesNotBuild(output) => write!(f, "it does not build:\n{output}"),
        }
    }
}
