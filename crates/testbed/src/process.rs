use std::ffi::OsStr;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::capture::{Capture, OutputLine, Stream};
use crate::data_dir::DataDir;
use crate::owned_child::OwnedChild;

#[cfg(test)]
mod tests;

/// No additional environment, for [`Process::spawn`].
pub const NO_ENV: [(&str, &str); 0] = [];

const POLL: Duration = Duration::from_millis(2);
/// How long to wait for the last output of a process that has ended.
const LAST_LINES: Duration = Duration::from_secs(2);

/// A running program, usually a node of estafeta. It is killed and reaped when dropped.
///
/// The program sees none of the user's settings. `ESTAFETA_*`, `REDIS_URL` and the XDG directories are removed from its
/// environment. `ESTAFETA_DATA` and `HOME` point to a private directory. Nodes that share their data get the path of a
/// common [`DataDir`] as `ESTAFETA_DATA`.
pub struct Process {
    child: Mutex<OwnedChild>,
    capture: Arc<Capture>,
    name: String,
    // Declared after the child, so dropped after it. It shuts down a Redis that a living node would start again.
    _data: DataDir,
}

/// How a program ended, and everything that it wrote.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// The bytes of standard output.
    pub stdout: Vec<u8>,
    /// The bytes of standard error.
    pub stderr: Vec<u8>,
}

impl Process {
    /// Starts `program`. `envs` is added to the cleaned environment and overrides the directories set here.
    #[track_caller]
    pub fn spawn<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        envs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let data = DataDir::new();
        let mut command = private_command(program, &data);
        command.args(args).envs(envs).stdin(Stdio::null());
        Self::start(program, command, data)
    }

    /// Like [`spawn`](Self::spawn), with a pipe as standard input. Dropping the pipe ends the input.
    #[track_caller]
    pub fn spawn_fed<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        envs: impl IntoIterator<Item = (K, V)>,
    ) -> (Self, ChildStdin) {
        let data = DataDir::new();
        let mut command = private_command(program, &data);
        command.args(args).envs(envs).stdin(Stdio::piped());
        let process = Self::start(program, command, data);
        let input = process.child().inner().stdin.take().expect("stdin is piped");
        (process, input)
    }

    #[track_caller]
    fn start(program: &Path, mut command: Command, data: DataDir) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = OwnedChild::spawn(command)
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let capture = Arc::new(Capture::default());
        capture.read(Stream::Out, child.inner().stdout.take().expect("stdout is piped"));
        capture.read(Stream::Err, child.inner().stderr.take().expect("stderr is piped"));
        let name = format!("{} (pid {})", program.display(), child.pid());
        Self { child: Mutex::new(child), capture, name, _data: data }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child().pid()
    }

    /// Whether the process has not ended. A frozen process counts as running.
    pub fn is_running(&self) -> bool {
        self.child().exit_status().is_none()
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: Signal) {
        self.child().signal(signal);
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(&self) -> ExitStatus {
        self.child().kill()
    }

    /// Stops the process with SIGSTOP, and returns when it has stopped.
    pub fn freeze(&self) {
        self.child().freeze();
    }

    /// Lets a frozen process continue, with SIGCONT.
    pub fn thaw(&self) {
        self.child().thaw();
    }

    /// Waits for the end of the process. Panics with its output if the process does not end in time.
    #[track_caller]
    pub fn wait(&self, timeout: Duration) -> ExitStatus {
        let deadline = Instant::now() + timeout;
        loop {
            let ended = self.child().exit_status();
            if let Some(status) = ended {
                self.await_last_lines();
                return status;
            }
            if Instant::now() >= deadline {
                panic!("{} still runs after {timeout:?}\n{}", self.name, self.all_output());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits for the last output of a program that has ended. The wait is bounded, because another process may hold the
    /// output open.
    fn await_last_lines(&self) {
        let deadline = Instant::now() + LAST_LINES;
        for stream in [Stream::Out, Stream::Err] {
            self.capture.wait_until(stream, deadline, |c| c.ended.then_some(()));
        }
    }

    /// Waits until the process and its output have ended. Panics if that takes too long.
    #[track_caller]
    pub fn output(&self, timeout: Duration) -> Output {
        let deadline = Instant::now() + timeout;
        let status = self.wait(timeout);
        let whole = |stream| {
            let bytes = self.capture.wait_until(stream, deadline, |c| c.ended.then(|| c.bytes.clone()));
            bytes.unwrap_or_else(|| panic!("{} ended, and something else holds its output open", self.name))
        };
        Output { status, stdout: whole(Stream::Out), stderr: whole(Stream::Err) }
    }

    /// The lines of standard output so far.
    pub fn stdout_lines(&self) -> Vec<String> {
        self.texts(Stream::Out)
    }

    /// The lines of standard error so far.
    pub fn stderr_lines(&self) -> Vec<String> {
        self.texts(Stream::Err)
    }

    /// The lines of standard output so far, each with the time at which it was read.
    pub fn timed_stdout_lines(&self) -> Vec<OutputLine> {
        self.capture.with(Stream::Out, |captured| captured.lines.clone())
    }

    /// Returns the first line of standard output that satisfies `predicate`, printed already or later. Panics with all
    /// output if no such line comes in time, or if the output ends without one.
    #[track_caller]
    pub fn wait_for_line(&self, timeout: Duration, predicate: impl FnMut(&str) -> bool) -> String {
        self.wait_for(Stream::Out, timeout, predicate)
    }

    /// Like [`wait_for_line`](Self::wait_for_line), on standard error.
    #[track_caller]
    pub fn wait_for_stderr_line(&self, timeout: Duration, predicate: impl FnMut(&str) -> bool) -> String {
        self.wait_for(Stream::Err, timeout, predicate)
    }

    #[track_caller]
    fn wait_for(&self, stream: Stream, timeout: Duration, mut predicate: impl FnMut(&str) -> bool) -> String {
        let mut seen = 0;
        let found = self.capture.wait_until(stream, Instant::now() + timeout, |captured| {
            let new = &captured.lines[seen..];
            seen = captured.lines.len();
            new.iter().find(|line| predicate(&line.text)).map(|line| line.text.clone())
        });
        found.unwrap_or_else(|| {
            let ended = self.child().exit_status();
            let when = ended
                .map_or_else(|| format!("within {timeout:?}"), |status| format!("before its end ({status})"));
            panic!("{}: no such line {when}\n{}", self.name, self.all_output())
        })
    }

    fn texts(&self, stream: Stream) -> Vec<String> {
        self.capture.with(stream, |captured| captured.lines.iter().map(|line| line.text.clone()).collect())
    }

    fn all_output(&self) -> String {
        let of = |stream| self.capture.with(stream, |c| String::from_utf8_lossy(&c.bytes).into_owned());
        format!("--- stdout\n{}\n--- stderr\n{}", of(Stream::Out), of(Stream::Err))
    }

    fn child(&self) -> MutexGuard<'_, OwnedChild> {
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// A command that sees none of the user's settings, as described at [`Process`].
pub(crate) fn private_command(program: &Path, data: &DataDir) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ESTAFETA_") || text.starts_with("XDG_") || text == "REDIS_URL" {
            command.env_remove(&name);
        }
    }
    command.env("ESTAFETA_DATA", data.path()).env("HOME", data.path());
    command
}
