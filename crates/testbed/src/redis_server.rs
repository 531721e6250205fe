use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tempfile::TempDir;

use crate::eventually;
use crate::owned_child::OwnedChild;
use crate::question::{field, info};

mod builder;
mod launch;
#[cfg(test)]
mod tests;

use builder::ServerKind;
pub use builder::{Builder, Fsync};
pub(crate) use builder::{credentials, percent_encoded};
use launch::{Ports, Startup, cut_torn_tail, launch, log_tail, prepare, socket_in, wait_until_up};

const PORT_TRIES: usize = 10;

/// A replica of a test has little to load, but a busy machine may be slow.
const LONGEST_SYNC: Duration = Duration::from_secs(30);

/// A `redis-server` (or `valkey-server`) for one test, with a unix socket in a private directory.
///
/// The variable `ESTAFETA_TEST_REDIS` names another server program, so that the same tests run on other servers.
///
/// Without options it keeps nothing on disk. All methods take `&self`, so a test can kill a server while its other
/// threads use it. A dropped server is killed, and its directory is removed.
pub struct RedisServer {
    dir: TempDir,
    options: Builder,
    ports: Ports,
    child: Mutex<OwnedChild>,
    frozen: AtomicBool,
}

impl RedisServer {
    /// Starts a server with a socket only, without persistence.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Options for a server that differs from the default one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    #[track_caller]
    fn start_with(options: Builder) -> Self {
        // The whole path of a socket has room for about 100 bytes, hence the short names.
        let dir = tempfile::Builder::new().prefix("est-").tempdir().unwrap();
        for _ in 0..PORT_TRIES {
            let ports = Ports::free(&options);
            prepare(dir.path(), &options, ports);
            let mut child = launch(dir.path(), &options, ports);
            match wait_until_up(dir.path(), &options, &mut child) {
                Startup::Answers => {
                    let (child, frozen) = (Mutex::new(child), AtomicBool::new(false));
                    return Self { dir, options, ports, child, frozen };
                }
                Startup::PortTaken => drop(child),
            }
        }
        panic!("{PORT_TRIES} free ports were taken by others before redis-server could listen on them");
    }

    /// The URL that tests should use: TCP if the test requested it, otherwise the socket.
    pub fn url(&self) -> String {
        match self.ports.client {
            Some(port) => self.options.tcp_url(port),
            None => self.options.socket_url(&self.socket()),
        }
    }

    /// The URL of the TCP port. Panics without [`Builder::tcp`].
    #[track_caller]
    pub fn tcp_url(&self) -> String {
        self.options.tcp_url(self.port())
    }

    /// The TCP port. Panics without [`Builder::tcp`].
    #[track_caller]
    pub fn port(&self) -> u16 {
        self.ports.client.expect("this server was started without .tcp()")
    }

    /// The URL of the TCP port, as another user. Panics without [`Builder::tcp`].
    #[track_caller]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let options = &self.options;
        let (scheme, host) = (options.scheme(), options.host());
        format!("{scheme}://{}{host}:{}", credentials(user, password), self.port())
    }

    pub(crate) fn options(&self) -> &Builder {
        &self.options
    }

    /// The port for other nodes of a cluster.
    pub(crate) fn bus_port(&self) -> u16 {
        self.ports.bus.expect("this server is a node of a cluster")
    }

    /// The path of the unix socket.
    pub fn socket(&self) -> PathBuf {
        socket_in(self.dir())
    }

    /// The directory of the server. It holds the socket and the log. It also holds the data of a server with
    /// persistence, unless [`Builder::data_in`] names another directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn data(&self) -> &Path {
        self.options.data.as_deref().unwrap_or(self.dir())
    }

    /// The process id of the server that was started last.
    pub fn pid(&self) -> u32 {
        self.child().pid()
    }

    /// Whether the server has not ended. A frozen server counts as running.
    pub fn is_running(&self) -> bool {
        self.child().exit_status().is_none()
    }

    /// Whether the server runs and is not frozen.
    pub fn can_answer(&self) -> bool {
        self.is_running() && !self.frozen.load(Ordering::SeqCst)
    }

    /// Opens a new connection through the socket.
    #[track_caller]
    pub fn connect(&self) -> redis::Connection {
        self.try_connect().unwrap_or_else(|error| {
            panic!("cannot connect to redis-server: {error}\n{}", log_tail(self.dir()))
        })
    }

    pub(crate) fn try_connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.options.socket_url(&self.socket()))?.get_connection()
    }

    /// Becomes a replica, and waits until it has the data of its master. See
    /// [`Builder::with_replicas`].
    #[track_caller]
    pub fn follow(&self, master: &Self) {
        let port = master.port().to_string();
        redis::cmd("REPLICAOF")
            .arg("127.0.0.1")
            .arg(port)
            .exec(&mut self.connect())
            .expect("REPLICAOF works");
        eventually(LONGEST_SYNC, "the replica follows", || {
            (field(&info(self, "replication"), "master_link_status") == "up").then_some(())
        });
    }

    /// Kills the server with SIGKILL and waits for its end. What was not on disk is lost.
    pub fn kill(&self) {
        self.child().kill();
    }

    /// Starts the server again with the same options, directory and port, and waits until it answers. A
    /// server that still runs is killed first.
    #[track_caller]
    pub fn restart(&self) {
        let mut child = self.child();
        child.kill();
        cut_torn_tail(self.data());
        for _ in 0..PORT_TRIES {
            *child = launch(self.dir(), &self.options, self.ports);
            match wait_until_up(self.dir(), &self.options, &mut child) {
                Startup::Answers => {
                    self.frozen.store(false, Ordering::SeqCst);
                    return;
                }
                // The clients know this port, so no other one will do. The process that took it may release it soon.
                Startup::PortTaken => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        panic!("{:?} were taken while redis-server was down", self.ports);
    }

    /// The append-only file that Redis currently writes. Panics without [`Builder::append_only`].
    #[track_caller]
    pub fn append_only_file(&self) -> PathBuf {
        let files = fs::read_dir(self.data().join("appendonlydir")).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "aof"));
        files.sort();
        files.pop().expect("an append-only file")
    }

    /// Stops the server with SIGSTOP. Connections stay open and new ones are accepted, but the server answers nothing.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
        self.child().freeze();
    }

    /// Lets a frozen server continue, with SIGCONT.
    pub fn thaw(&self) {
        self.child().thaw();
        self.frozen.store(false, Ordering::SeqCst);
    }

    fn child(&self) -> MutexGuard<'_, OwnedChild> {
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl std::fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "redis-server (pid {}) in {}", self.pid(), self.dir().display())
    }
}
