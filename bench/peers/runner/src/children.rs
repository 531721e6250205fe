//! The processes that the runner starts: installers and peers.
//!
//! Each process leads its own process group, so a Ctrl-C in the terminal reaches only the runner. On Ctrl-C or SIGTERM
//! the runner kills all groups that run, and starts no other. The function that waits for a process then fails with
//! [`Interrupted`]. The runner returns that error, and on the way it drops the server and the directory of temporary
//! files.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context as _, Result};
use estafeta_lab::child_process::ChildProcess;
use estafeta_lab::scratch_dir::ScratchDir;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A signal asked the runner to end.
#[derive(Debug)]
pub struct Interrupted {
    signal: i32,
}

impl Interrupted {
    /// The exit code that a shell reports for a program that this signal ended.
    pub fn exit_code(&self) -> u8 {
        u8::try_from(128 + self.signal).unwrap_or(u8::MAX)
    }
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

#[derive(Default)]
struct GroupState {
    signal: Option<i32>,
    /// The leaders of all groups that run.
    running: Vec<u32>,
}

pub struct Children {
    state: Arc<Mutex<GroupState>>,
    scratch: ScratchDir,
}

impl Children {
    /// From now on, a signal does not end the runner at once.
    pub fn new() -> Result<Children> {
        let state = Arc::new(Mutex::new(GroupState::default()));
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let mut state = lock(&shared);
                state.signal = Some(signal);
                state.running.iter().copied().for_each(kill_group);
            }
        });
        Ok(Children { state, scratch: ScratchDir::new("peers")? })
    }

    /// A directory that the runner removes when it ends.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Fails with [`Interrupted`] if a signal asked the runner to end.
    pub fn check(&self) -> Result<()> {
        match lock(&self.state).signal {
            Some(signal) => Err(Interrupted { signal }.into()),
            None => Ok(()),
        }
    }

    /// Starts a process, lets `attend` read its output, and waits for its end. Then kills all processes that it started
    /// and left behind.
    pub fn run<T>(
        &self,
        command: Command,
        attend: impl FnOnce(&mut Child) -> Result<T>,
    ) -> Result<(ExitStatus, T)> {
        let mut group = self.start(command)?;
        let outcome = attend(group.child.inner());
        if outcome.is_err() {
            kill_group(group.child.pid());
        }
        let status = group.end()?;
        self.check()?;
        Ok((status, outcome?))
    }

    /// Starts a process, which may start others.
    pub fn start(&self, mut command: Command) -> Result<ProcessGroup<'_>> {
        self.check()?;
        command.env("TMPDIR", self.scratch());
        let program = command.get_program().to_owned();
        // The lock is held until the process id is stored. So the signal thread sees either no process or its id.
        let mut state = lock(&self.state);
        let child = ChildProcess::spawn(command).with_context(|| format!("cannot start {program:?}"))?;
        state.running.push(child.pid());
        if state.signal.is_some() {
            kill_group(child.pid());
        }
        Ok(ProcessGroup { child, children: self })
    }
}

/// A process that runs, and all processes that it started. Dropping this value kills them.
pub struct ProcessGroup<'a> {
    pub child: ChildProcess,
    children: &'a Children,
}

impl ProcessGroup<'_> {
    /// Waits for the end of the process, and kills all processes that it left behind.
    pub fn end(&mut self) -> Result<ExitStatus> {
        end_group(self.child.inner())?;
        self.forget();
        Ok(self.child.inner().wait()?)
    }

    /// From now on, the id of the process may belong to another one.
    fn forget(&self) {
        lock(&self.children.state).running.retain(|&pid| pid != self.child.pid());
    }
}

impl Drop for ProcessGroup<'_> {
    fn drop(&mut self) {
        // As long as it is in this list, nothing has waited for the process, so no other process can have its id.
        if lock(&self.children.state).running.contains(&self.child.pid()) {
            kill_group(self.child.pid());
            self.forget();
        }
    }
}

fn lock(state: &Mutex<GroupState>) -> MutexGuard<'_, GroupState> {
    state.lock().expect("no panic while held")
}

/// Waits for the end of a child, and kills all processes that it left behind. It does not reap the child, so no other
/// process can have its id yet.
pub fn end_group(child: &Child) -> Result<()> {
    waitid(Id::Pid(pid(child.id())), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
    kill_group(child.id());
    Ok(())
}

/// Kills a process group. Does nothing if all its processes have ended.
fn kill_group(leader: u32) {
    let _ = killpg(pid(leader), Signal::SIGKILL);
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).expect("a pid fits in an i32"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use nix::sys::signal::kill;

    use super::*;

    /// This is one test, because a signal reaches every `Children` of the test process.
    #[test]
    fn a_signal_kills_the_group_that_runs_and_no_process_starts_after_it() {
        let children = Children::new().unwrap();
        let mut shell = Command::new("sh");
        // The child of the shell keeps stdout open as long as it lives.
        shell.args(["-c", "sleep 20 & echo up; wait"]).stdout(Stdio::piped());
        let outcome = children.run(shell, |child| {
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "up");
            kill(Pid::this(), Signal::SIGTERM).unwrap();
            let start = Instant::now();
            assert!(lines.next().is_none());
            assert!(
                start.elapsed() < Duration::from_secs(15),
                "the shell and its child ended only by themselves"
            );
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().downcast_ref::<Interrupted>().unwrap().exit_code(), 143);

        let next = children.run(Command::new("true"), |_| Ok(()));
        assert!(next.unwrap_err().is::<Interrupted>());
    }
}
