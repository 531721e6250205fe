//! Builds and runs tests of the copy, until the first failure or the end.
//!
//! Tests are named `suite` or `suite:filter`, the suites being
//!
//! - `stories`: random stories told to the scripts,
//! - `scripts`: all of the library's inner tests,
//! - `library`: members inside a test process,
//! - `commands`: the real program.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Generous, for a bug may also show as something that never happens, and tests wait half a minute for that.
const LIMIT: Duration = Duration::from_secs(300);
/// The first build of all builds everything that the program is made of.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

pub struct Trial {
    pub sources: PathBuf,
    pub target: PathBuf,
}

#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// The test that failed first.
    Caught(String),
    /// Nothing failed, and nothing came to an end.
    Hangs,
    Passes,
    DoesNotBuild(String),
}

impl Trial {
    pub fn run(&self, tests: &str) -> Result<Verdict> {
        let build = self.tests(tests, &["--no-run"])?;
        let mut output = Vec::new();
        let built = Run::start(build)?.watch(BUILD_LIMIT, |line| {
            output.push(line.to_owned());
            None::<()>
        });
        if built != Ending::Exit(true) {
            return Ok(Verdict::DoesNotBuild(output.join("\n")));
        }
        let failed = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
        Ok(match Run::start(self.tests(tests, &[])?)?.watch(LIMIT, failed) {
            Ending::Seen(test) => Verdict::Caught(test),
            Ending::Exit(true) => Verdict::Passes,
            Ending::Exit(false) => Verdict::Caught("the tests came to a bad end".into()),
            Ending::OutOfTime => Verdict::Hangs,
        })
    }

    fn tests(&self, tests: &str, further: &[&str]) -> Result<Command> {
        let (suite, filter) = tests.split_once(':').unwrap_or((tests, ""));
        let (package, binary): (_, &[_]) = match suite {
            "stories" | "scripts" => ("estafeta", &["--lib"]),
            "library" => ("estafeta", &["--test", "it"]),
            "commands" => ("estafeta-cli", &["--test", "it"]),
            other => bail!("there are no tests called {other}"),
        };
        let filter = if suite == "stories" { "every_story_ends_well" } else { filter };
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["test", "--locked", "--package", package]).args(binary).args(further);
        if !filter.is_empty() {
            command.args(["--", filter]);
        }
        command.current_dir(&self.sources).env("CARGO_TARGET_DIR", &self.target);
        // That a story fails is enough; nobody will read it.
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("RUST_BACKTRACE", "0");
        Ok(command)
    }
}

/// A command in a process group of its own, which ends as a whole when this is dropped.
struct Run {
    child: Child,
    lines: Receiver<String>,
}

#[derive(Debug, PartialEq)]
enum Ending<T> {
    Seen(T),
    Exit(bool),
    OutOfTime,
}

impl Run {
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

    /// Waits for a line that is looked for, for the end, or until the time is over.
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

impl Drop for Run {
    fn drop(&mut self) {
        // The group lives as long as its leader was not waited for, so its number cannot be anybody else's.
        if let (Ok(None), Ok(group)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(test) => f.write_str(test),
            Self::Hangs => write!(f, "the time limit of {} s", LIMIT.as_secs()),
            Self::Passes => f.write_str("NOBODY"),
            Self::DoesNotBuild(output) => write!(f, "it does not build:\n{output}"),
        }
    }
}
