//! The processes that the runner starts, one after the other: installers and peers.
//!
//! Each leads a process group of its own, so that a signal meant for the runner reaches the runner alone. On Ctrl-C or
//! SIGTERM the group that runs is killed, and none is started any more. Whoever waits for it fails with [`Interrupted`],
//! and on the way out everything that was made is dropped: the server, and the directory for all temporary files.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

/// Somebody wants the runner to end.
#[derive(Debug)]
pub struct Interrupted {
    signal: i32,
}

impl Interrupted {
    /// What a shell would tell of a program that the signal ended.
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
struct State {
    signal: Option<i32>,
    /// The leader of the group that runs.
    running: Option<u32>,
}

pub struct Children {
    state: Arc<Mutex<State>>,
    scratch: TempDir,
}

impl Children {
    /// From here on signals do not end the runner at once.
    pub fn new() -> Result<Children> {
        let state = Arc::new(Mutex::new(State::default()));
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let mut state = lock(&shared);
                state.signal = Some(signal);
                state.running.into_iter().for_each(kill_group);
            }
        });
        Ok(Children { state, scratch: tempfile::tempdir()? })
    }

    /// A directory that ends with the runner.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Fails if somebody wants the runner to end.
    pub fn check(&self) -> Result<()> {
        match lock(&self.state).signal {
            Some(signal) => Err(Interrupted { signal }.into()),
            None => Ok(()),
        }
    }

    /// Starts a process, lets `attend` listen to it, and waits for its end. Whatever it started itself ends with it.
    pub fn run<T>(
        &self,
        command: &mut Command,
        attend: impl FnOnce(&mut Child) -> Result<T>,
    ) -> Result<(ExitStatus, T)> {
        let mut child = self.spawn(command)?;
        let outcome = attend(&mut child);
        if outcome.is_err() {
            kill_group(child.id());
        }
        end_group(&child)?;
        lock(&self.state).running = None;
        let status = child.wait()?;
        self.check()?;
        Ok((status, outcome?))
    }

    fn spawn(&self, command: &mut Command) -> Result<Child> {
        self.check()?;
        command.env("TMPDIR", self.scratch()).process_group(0);
        // Held meanwhile, so that a signal finds either nothing or the whole process.
        let mut state = lock(&self.state);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        state.running = Some(child.id());
        if state.signal.is_some() {
            kill_group(child.id());
        }
        Ok(child)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("nobody panics while holding it")
}

/// Waits for the end of a child, and ends what it left behind. Its exit status can still be asked for: until then its number
/// is nobody else's.
pub fn end_group(child: &Child) -> Result<()> {
    waitid(Id::Pid(pid(child.id())), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
    kill_group(child.id());
    Ok(())
}

/// Nothing happens if all of the group have ended.
fn kill_group(leader: u32) {
    let _ = killpg(pid(leader), Signal::SIGKILL);
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).expect("the kernel's own type"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use nix::sys::signal::kill;

    use super::*;

    /// One test, because a signal reaches all that is in the process.
    #[test]
    fn a_signal_ends_the_group_that_runs_and_whatever_would_follow() {
        let children = Children::new().unwrap();
        let mut shell = Command::new("sh");
        // The shell's own child holds stdout open as long as it lives.
        shell.args(["-c", "sleep 20 & echo up; wait"]).stdout(Stdio::piped());
        let outcome = children.run(&mut shell, |child| {
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "up");
            kill(Pid::this(), Signal::SIGTERM).unwrap();
            let start = Instant::now();
            assert!(lines.next().is_none());
            assert!(
                start.elapsed() < Duration::from_secs(15),
                "both were killed and did not end by themselves"
            );
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().downcast_ref::<Interrupted>().unwrap().exit_code(), 143);

        let next = children.run(&mut Command::new("true"), |_| Ok(()));
        assert!(next.unwrap_err().is::<Interrupted>());
    }
}
