use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use tempfile::TempDir;

use crate::Builder;

/// The wall clock of a [`RedisServer`](crate::RedisServer), which can be moved while the server runs.
///
/// A small library, compiled with the system's `cc`, is loaded into the server before all others. (libfaketime does the
/// same, and hangs Debian's redis-server.)
#[derive(Debug)]
pub struct Clock(TempDir);

impl Clock {
    /// A clock that is right.
    pub fn new() -> Self {
        let clock = Self(tempfile::Builder::new().prefix("est-").tempdir().unwrap());
        let source = clock.0.path().join("shim.c");
        fs::write(&source, include_str!("clock/shim.c")).unwrap();
        fs::write(clock.offset(), 0_i64.to_ne_bytes()).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(clock.library()).arg(&source);
        let output =
            compiler.output().unwrap_or_else(|error| panic!("tests need a C compiler installed: {error}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        clock
    }

    /// Options for a server with this clock.
    pub fn of(&self, server: Builder) -> Builder {
        server.env("LD_PRELOAD", self.library()).env("CLOCK_OFFSET", self.offset())
    }

    /// Sets the clock so many seconds ahead of the right time, or behind it, at once.
    pub fn set(&self, seconds: i64) {
        // Written in place and in one piece: the server has mapped this very file.
        let file = OpenOptions::new().write(true).open(self.offset()).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    fn library(&self) -> std::path::PathBuf {
        self.0.path().join("shim.so")
    }

    fn offset(&self) -> std::path::PathBuf {
        self.0.path().join("offset")
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[test]
    fn a_running_server_sees_the_time_that_was_set() {
        let clock = Clock::new();
        let server = clock.of(RedisServer::builder()).start();
        let ahead = |seconds: i64| {
            let (told, _): (i64, i64) = redis::cmd("TIME").query(&mut server.connect()).unwrap();
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
            (told - i64::try_from(now).unwrap() - seconds).abs() < 60
        };
        assert!(ahead(0));
        for seconds in [3600, -3600, 0] {
            clock.set(seconds);
            assert!(ahead(seconds), "{seconds}");
        }
    }
}
