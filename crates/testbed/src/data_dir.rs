use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A private directory for the user's data. A test passes it to one or several nodes as `ESTAFETA_DATA`.
///
/// A node that finds no Redis starts one in the background, in `redis/` below this directory. That server is meant to
/// outlive the node. It would outlive the test as well, so dropping the directory shuts it down.
#[derive(Debug)]
pub struct DataDir(TempDir);

impl DataDir {
    /// Creates an empty directory. Its path is short enough for a unix socket inside.
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("est-").tempdir().unwrap())
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn background_redis(&self) -> PathBuf {
        self.path().join("redis")
    }
}

impl Default for DataDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for DataDir {
    /// The server holds a lock on `redis.lock` as long as it lives. So the lock also shows a server that is still
    /// starting and has no socket yet.
    fn drop(&mut self) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        while is_locked(&self.background_redis().join("redis.lock")) && Instant::now() < deadline {
            let url = format!("redis+unix://{}", self.background_redis().join("redis.sock").display());
            let _ = redis::Client::open(url)
                .and_then(|client| client.get_connection())
                .and_then(|mut connection| redis::cmd("SHUTDOWN").arg("NOSAVE").exec(&mut connection));
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_err())
}
