//! Gives each run of tests a directory, as its home and for temporary files. The directory is removed after the run.
//!
//! A mutant may start a server that leaves its process group and then forget to stop it. Every process that a run
//! starts inherits a variable that names the run. When the run is over, every process that still has the variable is
//! killed, on systems with `/proc`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const MARK: &str = "ESTAFETA_MUTANTS_RUN";

pub struct Surroundings {
    directory: TempDir,
}

impl Surroundings {
    pub fn new() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("mutant-").tempdir();
        Ok(Self { directory: directory.context("cannot create a directory for a run of tests")? })
    }

    /// Lets a command run in these surroundings.
    pub fn surround(&self, command: &mut Command) {
        let directory = self.directory.path();
        command.env("HOME", directory).env("TMPDIR", directory).env(MARK, directory);
    }

    /// The processes that the run left behind. Empty on systems without `/proc`.
    fn processes(&self) -> Vec<Pid> {
        let mark = [MARK.as_bytes(), b"=", self.directory.path().as_os_str().as_encoded_bytes()].concat();
        let has_mark = |process: PathBuf| {
            let pid = process.file_name()?.to_str()?.parse().ok()?;
            let environment = std::fs::read(process.join("environ")).ok()?;
            environment.split(|byte| *byte == 0).any(|variable| variable == mark).then(|| Pid::from_raw(pid))
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten();
        processes.flatten().filter_map(|process| has_mark(process.path())).collect()
    }
}

impl Drop for Surroundings {
    fn drop(&mut self) {
        for process in self.processes() {
            let _ = kill(process, Signal::SIGKILL);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_process_that_left_its_group_ends_with_the_run() {
        let surroundings = Surroundings::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 600 > /dev/null 2>&1 & touch $HOME/file $TMPDIR/file"]);
        surroundings.surround(&mut command);
        assert!(command.status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(30);
        while surroundings.processes().is_empty() {
            assert!(Instant::now() < deadline, "the process never started");
            std::thread::yield_now();
        }
        let (processes, directory) = (surroundings.processes(), surroundings.directory.path().to_owned());
        drop(surroundings);
        while processes.iter().any(|process| kill(*process, None).is_ok() && !is_zombie(*process)) {
            assert!(Instant::now() < deadline, "a process is left");
            std::thread::yield_now();
        }
        assert!(!directory.exists());
    }

    /// An orphan that ended stays visible until the system's first process collects it.
    fn is_zombie(process: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
    }
}
