use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use tempfile::TempDir;

use crate::Builder;

/// The wall clock of a [`RedisServer`](crate::RedisServer). A test can move it while the server runs.
///
/// The `cc` of the system compiles a small library, which is loaded into the server before all others. libfaketime
/// works in the same way, but it hangs Debian's redis-server.
#[derive(Debug)]
pub struct Clock(TempDir);

impl Clock {
    /// Creates a clock that shows the right time.
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

    /// Adds this clock to the options of a server.
    pub fn of(&self, server: Builder) -> Builder {
        server.env("LD_PRELOAD", self.library()).env("CLOCK_OFFSET", self.offset())
    }

    /// Sets the clock this many seconds ahead of the right time, or behind it if negative. It takes effect at once.
    pub fn set(&self, seconds: i64) {
        // The server has mapped this very file, so it is overwritten in place and in one write.
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
        let is_ahead_by = |seconds: i64| {
            let (server_time, _): (i64, i64) = redis::cmd("TIME").query(&mut server.connect()).unwrap();
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
            (server_time - i64::try_from(now).unwrap() - seconds).abs() < 60
        };
        assert!(is_ahead_by(0));
        for seconds in [3600, -3600, 0] {
            clock.set(seconds);
            assert!(is_ahead_by(seconds), "{seconds}");
        }
    }
}
