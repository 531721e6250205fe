use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::owned_child::OwnedChild;

mod builder;
#[cfg(test)]
mod tests;

pub use builder::{Builder, Fsync};

const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
const PORT_TRIES: usize = 10;

/// A `redis-server` (or `valkey-server`) for one test, with a unix socket in a private directory.
///
/// Without options it keeps nothing on disk. All methods take `&self`, so a test can kill a server while its other
/// threads use it. A dropped server is killed, and its directory is removed.
pub struct RedisServer {
    dir: TempDir,
    options: Builder,
    port: Option<u16>,
    child: Mutex<OwnedChild>,
}

enum Startup {
    Answers,
    PortTaken,
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
            let port = options.tcp.then(free_port);
            let mut child = launch(dir.path(), &options, port);
            match wait_until_up(dir.path(), &options, &mut child) {
                Startup::Answers => {
                    let child = Mutex::new(child);
                    return Self { dir, options, port, child };
                }
                Startup::PortTaken => drop(child),
            }
        }
        panic!("{PORT_TRIES} free ports were taken by others before redis-server could listen on them");
    }

    /// The URL that tests should use: TCP if the test requested it, otherwise the socket.
    pub fn url(&self) -> String {
        match self.port {
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
        self.port.expect("this server was started without .tcp()")
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

    /// Opens a new connection through the socket.
    #[track_caller]
    pub fn connect(&self) -> redis::Connection {
        redis::Client::open(self.options.socket_url(&self.socket()))
            .and_then(|client| client.get_connection())
            .unwrap_or_else(|error| {
                panic!("cannot connect to redis-server: {error}\n{}", log_tail(self.dir()))
            })
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
        self.cut_torn_tail();
        for _ in 0..PORT_TRIES {
            *child = launch(self.dir(), &self.options, self.port);
            match wait_until_up(self.dir(), &self.options, &mut child) {
                Startup::Answers => return,
                // The clients know this port, so no other one will do. The process that took it may release it soon.
                Startup::PortTaken => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        panic!("port {:?} was taken while redis-server was down", self.port);
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

    /// Cuts an incomplete transaction off the append-only file, as an operator would after a crash.
    ///
    /// A server that is killed may have written only a part of a transaction. Redis skips this part at the next start,
    /// but leaves it in the file. At the start after that, Redis executes it in part (seen on 7.0.15).
    fn cut_torn_tail(&self) {
        let manifest = self.data().join("appendonlydir/appendonly.aof.manifest");
        if !manifest.exists() {
            return;
        }
        let start = |tool: &str| {
            let mut command = Command::new(tool);
            command.arg("--fix").arg(&manifest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        };
        let mut check =
            start("redis-check-aof").or_else(|_| start("valkey-check-aof")).unwrap_or_else(|error| {
                panic!("tests need redis-check-aof or valkey-check-aof installed: {error}")
            });
        // The tool asks before it cuts. If there is nothing to cut, it does not read the answer.
        let _ = check.stdin.take().unwrap().write_all(b"y\n");
        let output = check.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// Stops the server with SIGSTOP. Connections stay open and new ones are accepted, but the server answers nothing.
    pub fn freeze(&self) {
        self.child().freeze();
    }

    /// Lets a frozen server continue, with SIGCONT.
    pub fn thaw(&self) {
        self.child().thaw();
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

fn launch(dir: &Path, options: &Builder, port: Option<u16>) -> OwnedChild {
    // Each start has a new log. Otherwise a message of an earlier start could be taken for the reason why this one
    // failed.
    let log = fs::File::create(log_in(dir)).unwrap();
    let start = |program: &str| {
        let mut command = Command::new(program);
        command
            .args(arguments(dir, options, port))
            .envs(options.envs.iter().map(|(name, value)| (name, value)))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log.try_clone().unwrap());
        OwnedChild::spawn(command)
    };
    start("redis-server")
        .or_else(|_| start("valkey-server"))
        .unwrap_or_else(|error| panic!("tests need redis-server or valkey-server installed: {error}"))
}

fn arguments(dir: &Path, options: &Builder, port: Option<u16>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    add("--port", port.unwrap_or(0).to_string().into());
    add("--bind", "127.0.0.1".into());
    add("--unixsocket", socket_in(dir).into());
    add("--dir", options.data.as_deref().unwrap_or(dir).into());
    add("--daemonize", "no".into());
    // Snapshots are on, so that no node warns of a Redis without persistence. None is due while a test lasts.
    add("--save", "3600 1".into());
    for (name, value) in options.settings() {
        add(&name, value.into());
    }
    arguments
}

/// Waits until the server answers. While Redis loads its data, it answers PING with an error. So an answer also means
/// that the data is loaded.
fn wait_until_up(dir: &Path, options: &Builder, child: &mut OwnedChild) -> Startup {
    let deadline = Instant::now() + START_TIMEOUT;
    let url = options.socket_url(&socket_in(dir));
    loop {
        let pong = redis::Client::open(url.as_str())
            .and_then(|client| client.get_connection())
            .and_then(|mut connection| redis::cmd("PING").exec(&mut connection));
        let Err(error) = pong else { return Startup::Answers };
        if let Some(status) = child.exit_status() {
            let log = log_tail(dir);
            if options.tcp && log.contains("Address already in use") {
                return Startup::PortTaken;
            }
            panic!("redis-server ended while starting ({status}):\n{log}");
        }
        if Instant::now() >= deadline {
            panic!("redis-server does not answer after {START_TIMEOUT:?} ({error}):\n{}", log_tail(dir));
        }
        std::thread::sleep(POLL);
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port()
}

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

fn log_in(dir: &Path) -> PathBuf {
    dir.join("redis.log")
}

fn log_tail(dir: &Path) -> String {
    let log = fs::read(log_in(dir)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
