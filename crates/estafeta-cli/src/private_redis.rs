//! The Redis of a user who has none: started in the background by the first copy, found by every further one.
//!
//! # One directory, one server
//!
//! Everything of the private server lives in one directory that only its user may enter: the socket, the
//! lock, the log and the append-only file. Two copies that agree on the directory agree on the server,
//! whatever else differs in their environments. The server listens on the unix socket alone; no other user of
//! the machine can reach it, which is why it needs no password.
//!
//! # Who may start it
//!
//! The holder of an exclusive `flock` on `redis.lock`. A copy takes it without waiting and hands it on: the
//! server inherits the open file, and the copy closes its own. `flock` belongs to the open file and not to a
//! process, so from then on the lock is held exactly as long as the server lives (or a child it forked to
//! rewrite its file). There is no pid to go stale, and nothing to clean up after any crash:
//!
//! | who dies, and when                    | what happens                                                             |
//! |---------------------------------------|--------------------------------------------------------------------------|
//! | a copy with the lock, before the fork | the lock is free; the next copy starts the server                        |
//! | a copy, after the fork                | the server goes on starting in a session of its own, lock in hand        |
//! | the server, while starting            | its copy reports the log's last line; a waiting copy gets the lock       |
//! | the server, later                     | the lock is free; the socket left behind is removed by whoever starts it |
//!
//! A copy that does not get the lock waits for the socket to answer, and tries the lock again each time it
//! does not. So among copies started in the same instant one starts the server and the others find it, and if
//! that one fails the next one tries. A server that is still reading its data back is alive: it is waited
//! for, not replaced.
//!
//! # How much to believe
//!
//! That the server answers is true only for the moment of the answer; it may be stopped right after.
//! [`ensure`] hence promises a server that did answer, and the caller treats a lost connection as with any
//! other Redis.
//!
//! What was written survives the end of the server process. The machine's own crash may cost the last second
//! (`appendfsync everysec`).
//!
//! [`ensure`]: PrivateRedis::ensure

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use directory::Prepared;
use probe::Probe;

pub use launch::cut_torn_tail;
pub use probe::url as socket_url;

mod directory;
mod launch;
mod probe;
#[cfg(test)]
mod tests;

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Why there is no private Redis. To the user each of these means that Redis is out of reach.
#[derive(Debug, thiserror::Error)]
pub enum PrivateRedisError {
    /// Neither `redis-server` nor `valkey-server` is on the PATH.
    #[error(
        "redis-server is not installed: install it with `apt install redis-server` (Debian, Ubuntu), \
         `brew install redis` (macOS) or `dnf install redis` (Fedora), or give --redis URL"
    )]
    NotInstalled,
    /// Neither `ESTAFETA_DATA` nor `HOME` says where the data belongs.
    #[error("no place for the private Redis: set HOME, or ESTAFETA_DATA to a directory of yours")]
    NoHome,
    /// The directory belongs to another user, who could read and change everything in it.
    #[error("{} belongs to another user (uid {owner}): set ESTAFETA_DATA to a directory of yours", .path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// The operating system limits the length of a socket's path.
    #[error(
        "{} is too long for a socket ({} bytes, at most {}): set ESTAFETA_DATA to a shorter directory",
        .path.display(), .path.as_os_str().len(), directory::MAX_SOCKET_PATH
    )]
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
    },
    /// The server ended before it answered.
    #[error("the private redis-server did not start: {reason} (log: {})", .log.display())]
    Died {
        /// The last line it wrote.
        reason: String,
        /// Where the others are.
        log: PathBuf,
    },
    /// A server holds the lock, and nothing answers at its socket.
    #[error("the private redis-server does not answer at {} after {} s", .socket.display(), PATIENCE.as_secs())]
    NoAnswer {
        /// Its socket.
        socket: PathBuf,
    },
    /// The server answered with an error.
    #[error("the private redis-server refused a command")]
    Refused(#[from] redis::RedisError),
    /// A file or a process operation failed.
    #[error("{what}")]
    Io {
        /// What was being done, with the file it was done to.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
}

/// A result of this module.
pub type Result<T> = std::result::Result<T, PrivateRedisError>;

/// What [`PrivateRedis::ensure`] did for a server to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// This call started the server.
    Started,
    /// It ran already, or another copy started it meanwhile.
    Found,
}

/// What the running server says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Its version, such as `7.0.15`.
    pub version: String,
    /// Since when it runs, in whole seconds.
    pub uptime: Duration,
    /// The memory its data takes, in bytes.
    pub used_memory: u64,
    /// How many clients are connected, the one that asks included.
    pub connected_clients: u64,
    /// Where it listens.
    pub socket: PathBuf,
    /// Where its data is.
    pub directory: PathBuf,
}

/// Where everything lies that this program keeps for its user.
pub fn data_directory() -> Result<PathBuf> {
    directory::locate_data(|name| std::env::var_os(name))
}

/// The server program on the search path.
pub fn find_program() -> Option<PathBuf> {
    launch::find(std::env::var_os("PATH").as_deref())
}

/// The private server of this user, running or not.
#[derive(Clone, Debug)]
pub struct PrivateRedis {
    directory: PathBuf,
}

impl PrivateRedis {
    /// Finds out where the server belongs; touches nothing on disk.
    pub fn locate() -> Result<Self> {
        Self::at(directory::locate(|name| std::env::var_os(name))?)
    }

    fn at(directory: PathBuf) -> Result<Self> {
        let this = Self { directory };
        directory::check_length(&this.socket())?;
        Ok(this)
    }

    /// Where everything of the server lives.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the server listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// The socket as a URL for a Redis client.
    pub fn url(&self) -> String {
        socket_url(&self.socket())
    }

    /// Whether a server answers right now.
    pub fn is_running(&self) -> bool {
        probe::probe(&self.socket()) == Probe::Ready
    }

    /// Returns when the server has answered, having started it if nobody else had.
    pub fn ensure(&self) -> Result<Ensured> {
        // Before anything is sent to the socket: a directory of somebody else may hold a server of somebody
        // else.
        let prepared = directory::prepare(&self.directory)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.is_running() {
                return Ok(Ensured::Found);
            }
            if self.start_if_nobody_does(&prepared, deadline)? {
                return Ok(Ensured::Started);
            }
            if Instant::now() >= deadline {
                return Err(PrivateRedisError::NoAnswer { socket: self.socket() });
            }
            thread::sleep(POLL);
        }
    }

    fn start_if_nobody_does(&self, prepared: &Prepared, deadline: Instant) -> Result<bool> {
        let Some(lock) = try_lock(prepared.open_lock()?, &self.lock_path())? else {
            return Ok(false);
        };
        // A server whose lock file was deleted by hand holds a lock that nobody can see any more.
        if probe::probe(&self.socket()) != Probe::Nothing {
            return Ok(false);
        }
        launch::launch(&self.directory, &self.socket(), lock, deadline)?;
        Ok(true)
    }

    /// What the server says about itself; `None` if there is none.
    pub fn status(&self) -> Result<Option<Status>> {
        let Some(mut connection) = probe::connect(&self.socket()) else {
            return Ok(None);
        };
        let info: redis::InfoDict = redis::cmd("INFO").query(&mut connection)?;
        let number = |name| info.get::<u64>(name).unwrap_or_default();
        Ok(Some(Status {
            pid: info.get("process_id").unwrap_or_default(),
            version: info.get("valkey_version").or_else(|| info.get("redis_version")).unwrap_or_default(),
            uptime: Duration::from_secs(number("uptime_in_seconds")),
            used_memory: number("used_memory"),
            connected_clients: number("connected_clients"),
            socket: self.socket(),
            directory: self.directory.clone(),
        }))
    }

    /// Ends the server and returns when it is gone; `false` if none ran.
    ///
    /// NOSAVE is about snapshots, which this server never takes: what is in memory reaches the append-only
    /// file, and that the disk, before it ends.
    pub fn stop(&self) -> Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        let mut ran = false;
        while self.lock_is_held()? {
            ran = true;
            if Instant::now() >= deadline {
                return Err(PrivateRedisError::NoAnswer { socket: self.socket() });
            }
            // One that is still starting has no socket yet, and is asked again.
            if let Some(mut connection) = probe::connect(&self.socket()) {
                let answer = redis::cmd("SHUTDOWN").arg("NOSAVE").exec(&mut connection);
                // Success is a connection that ends without an answer.
                if let Err(error) = answer
                    && error.code().is_some()
                {
                    return Err(error.into());
                }
            }
            thread::sleep(POLL);
        }
        Ok(ran)
    }

    fn lock_is_held(&self) -> Result<bool> {
        let path = self.lock_path();
        match File::open(&path) {
            Ok(file) => Ok(try_lock(file, &path)?.is_none()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error("opening", &path)(error)),
        }
    }

    fn lock_path(&self) -> PathBuf {
        self.directory.join(directory::LOCK)
    }
}

/// The standard library's lock, and not `nix`'s `Flock`: the latter unlocks when dropped, and that would take
/// the lock from the server which inherited it. This one ends with the last open copy of the file.
fn try_lock(file: File, path: &Path) -> Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(io_error("locking", path)(error)),
    }
}

fn io_error(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> PrivateRedisError {
    let what = format!("{doing} {}", path.display());
    |source| PrivateRedisError::Io { what, source }
}
