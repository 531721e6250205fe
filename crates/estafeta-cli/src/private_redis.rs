//! The private Redis of a user who named no other. The first node starts it in the background, and later nodes find it.
//!
//! # One directory, one server
//!
//! All files of the server are in one directory that only its user may enter: the socket, the lock, the log and the
//! append-only file. Two nodes with the same directory have the same server, even if the rest of their environments
//! differs. The server listens only on the unix socket. No other user of the machine can reach it, so it needs no
//! password.
//!
//! # Who may start it
//!
//! Only the holder of an exclusive `flock` on `redis.lock` may start the server. A node takes the lock without waiting,
//! and hands it over: the server inherits the open file, and the node closes its own descriptor. A `flock` belongs to
//! the open file and not to a process. From then on, the lock is held exactly as long as the server lives, or a child
//! that it forked to rewrite its file. There is no pid that could be out of date, and no crash leaves anything to clean
//! up:
//!
//! | who dies, and when                    | what happens                                                             |
//! |---------------------------------------|--------------------------------------------------------------------------|
//! | a node with the lock, before the fork | the lock is free, and the next node starts the server                    |
//! | a node, after the fork                | the server has the lock and its own session, and continues to start      |
//! | the server, while it starts           | its node reports the last line of the log; a waiting node gets the lock  |
//! | the server, later                     | the lock is free; the next node to start a server removes the old socket |
//!
//! A node that does not get the lock waits until the socket answers. Each time no answer comes, the node tries the
//! lock again. So if several nodes start at the same moment, one of them starts the server and the others find it. If
//! that node fails, the next one tries. A server that still loads its data is alive: nodes wait for it and do not
//! replace it.
//!
//! If no server answers within 30 s, [`ensure`] fails with [`PrivateRedisError::NoAnswer`].
//!
//! # How long an answer is trusted
//!
//! An answer proves only that the server ran at that moment. It may be stopped right after. So [`ensure`] promises a
//! server that did answer, and the caller treats a lost connection as with any other Redis.
//!
//! Written data survives the end of the server process. A crash of the machine may lose the last second, because of
//! `appendfsync everysec`.
//!
//! [`ensure`]: PrivateRedis::ensure

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use directory::Prepared;
use probe::Probe;

use estafeta_lab::redis_program::{NotInstalled, socket_in, socket_url};

mod append_only_file;
mod directory;
mod launch;
mod probe;
#[cfg(test)]
mod tests;

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Why there is no private Redis. The program exits with the same code as for any Redis that cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum PrivateRedisError {
    /// Neither `redis-server` nor `valkey-server` is on the PATH.
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    /// None of `ESTAFETA_DATA`, `XDG_DATA_HOME` and `HOME` names a place for the data.
    #[error("no place for the private Redis: set HOME, or ESTAFETA_DATA to a directory of yours")]
    NoHome,
    /// The directory belongs to another user, who could read and change everything in it.
    #[error("{} belongs to another user (uid {owner}): set ESTAFETA_DATA to a directory of yours", .path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// The user id of its owner.
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
        /// The last line of its log, or its exit status if it logged nothing.
        reason: String,
        /// The path of the log.
        log: PathBuf,
    },
    /// A server holds the lock or is starting, and does not answer at its socket.
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
        /// The operation, and the path it was applied to.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// How [`PrivateRedis::ensure`] got a server that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// This call started the server.
    Started,
    /// The server was running already, or another node started it meanwhile.
    Found,
}

/// What the running server reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its process id.
    pub pid: u32,
    /// Its version, such as `7.0.15`.
    pub version: String,
    /// How long it has been running, in whole seconds.
    pub uptime: Duration,
    /// The memory in use, in bytes.
    pub used_memory: u64,
    /// The number of connected clients, including the one that asks.
    pub connected_clients: u64,
    /// Where it listens.
    pub socket: PathBuf,
    /// Where its data is.
    pub directory: PathBuf,
}

/// The directory in which this program keeps the data of its user.
pub fn data_directory() -> Result<PathBuf, PrivateRedisError> {
    directory::locate_data(|name| std::env::var_os(name))
}

/// The private server of this user, running or not.
#[derive(Clone, Debug)]
pub struct PrivateRedis {
    directory: PathBuf,
}

impl PrivateRedis {
    /// Finds the directory of the server. Touches nothing on disk.
    pub fn locate() -> Result<Self, PrivateRedisError> {
        Self::at(directory::locate(|name| std::env::var_os(name))?)
    }

    fn at(directory: PathBuf) -> Result<Self, PrivateRedisError> {
        let this = Self { directory };
        directory::check_length(&this.socket())?;
        Ok(this)
    }

    /// The directory with all files of the server.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the server listens.
    pub fn socket(&self) -> PathBuf {
        socket_in(&self.directory)
    }

    /// The socket as a URL for a Redis client.
    pub fn url(&self) -> String {
        socket_url(&self.socket())
    }

    /// Whether an earlier server left data.
    pub fn holds_data(&self) -> bool {
        append_only_file::holds_data(&self.directory)
    }

    /// Whether a server answers right now.
    pub fn is_running(&self) -> bool {
        probe::probe(&self.socket()) == Probe::Ready
    }

    /// Returns once the server has answered. Starts it if no other node has.
    pub fn ensure(&self) -> Result<Ensured, PrivateRedisError> {
        // This check comes before the first command to the socket. In a directory of another user, a server of that
        // user could answer.
        let prepared = directory::prepare(&self.directory)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.is_running() {
                return Ok(Ensured::Found);
            }
            if self.try_start(&prepared, deadline)? {
                return Ok(Ensured::Started);
            }
            if Instant::now() >= deadline {
                return Err(PrivateRedisError::NoAnswer { socket: self.socket() });
            }
            thread::sleep(POLL);
        }
    }

    /// Starts the server if the lock is free. Returns false if another node holds the lock or a server is alive.
    fn try_start(&self, prepared: &Prepared, deadline: Instant) -> Result<bool, PrivateRedisError> {
        let Some(lock) = try_lock(prepared.open_lock()?, &self.lock_path())? else {
            return Ok(false);
        };
        // If the lock file was deleted by hand, a server may hold a lock that no other process can see.
        if probe::probe(&self.socket()) != Probe::Nothing {
            return Ok(false);
        }
        launch::launch(&self.directory, &self.socket(), lock, deadline)?;
        Ok(true)
    }

    /// What the server reports about itself, or `None` if no server accepts connections.
    pub fn status(&self) -> Result<Option<Status>, PrivateRedisError> {
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

    /// Stops the server, and returns once it is gone. Returns `false` if none was running.
    ///
    /// NOSAVE skips only snapshots, which this server never takes. Before it ends, the server writes what is in memory
    /// to the append-only file, and that file to the disk.
    pub fn stop(&self) -> Result<bool, PrivateRedisError> {
        let deadline = Instant::now() + PATIENCE;
        let mut ran = false;
        while self.lock_is_held()? {
            ran = true;
            if Instant::now() >= deadline {
                return Err(PrivateRedisError::NoAnswer { socket: self.socket() });
            }
            // A server that is still starting has no socket yet. The next pass of the loop asks again.
            if let Some(mut connection) = probe::connect(&self.socket()) {
                let answer = redis::cmd("SHUTDOWN").arg("NOSAVE").exec(&mut connection);
                // On success, the server closes the connection without a reply.
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

    fn lock_is_held(&self) -> Result<bool, PrivateRedisError> {
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

/// Takes the lock, or returns None if it is held elsewhere.
///
/// This is the lock of the standard library, and not the `Flock` of `nix`. A `Flock` unlocks when it is dropped, and
/// that would take the lock away from the server that inherited it. This lock ends when the last descriptor of the open
/// file is closed.
fn try_lock(file: File, path: &Path) -> Result<Option<File>, PrivateRedisError> {
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
