//! A Redis for one test. It ends with the test, however the test ends.
//!
//! A shell script starts the server and watches over it (`guard.sh`). It ends the server as soon as its standard input
//! is closed, and only this process can write to that. So the server ends even if this process is killed. That works on
//! every Unix, and needs neither unsafe code nor a thread that outlives the test. Only a `kill -9` of the guard itself
//! leaves a server behind.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::redis::Endpoint;

const GUARD: &str = include_str!("guard.sh");
/// The exit code of the guard if no server is installed.
const NOT_INSTALLED: i32 = 127;
/// How many lines of the log an error shows.
const LINES: usize = 10;

/// A `redis-server` or `valkey-server` with a socket in a private directory. It keeps nothing on disk.
pub(super) struct TestServer {
    guard: Child,
    directory: TempDir,
}

impl TestServer {
    /// Starts a server. It does not answer yet.
    pub fn start() -> Result<Self> {
        // The whole path of a socket has room for about 100 bytes, hence the short names.
        let directory = tempfile::Builder::new().prefix("est-").tempdir();
        let directory = directory.map_err(|error| {
            Error::TestRing(format!("cannot create a directory for its Redis (see TMPDIR): {error}"))
        })?;
        let guard = spawn_guard(directory.path());
        let guard = guard.map_err(|error| Error::TestRing(format!("cannot start a shell: {error}")))?;
        Ok(Self { guard, directory })
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::unix(socket_in(self.directory.path()))
    }

    /// Fails if the server has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.guard.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) if status.code() == Some(NOT_INSTALLED) => Err(Error::TestRing(
                "redis-server is not installed: install it with `apt install redis-server` (Debian, Ubuntu), `brew \
                 install redis` (macOS) or `dnf install redis` (Fedora), or use a running one with `TestRing::on`"
                    .to_owned(),
            )),
            Ok(Some(_)) => {
                let log = std::fs::read(self.directory.path().join("redis.log")).unwrap_or_default();
                Err(Error::TestRing(format!("its Redis ended at once:\n{}", last_lines(&log))))
            }
            Err(error) => Err(Error::TestRing(format!("cannot watch over its Redis: {error}"))),
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn spawn_guard(directory: &Path) -> std::io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", GUARD, "guard"]).arg(directory);
    command.args(["--port", "0", "--daemonize", "no", "--save", "", "--appendonly", "no"]);
    command.arg("--unixsocket").arg(socket_in(directory)).arg("--dir").arg(directory);
    // In its own process group, keys that the user presses in the terminal do not reach it.
    command.process_group(0).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("redis.sock")
}

fn last_lines(log: &[u8]) -> String {
    let log = String::from_utf8_lossy(log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
