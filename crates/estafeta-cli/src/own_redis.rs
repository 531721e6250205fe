//! A Redis of the program's own, for what is better not done to anybody else's: it is attacked by chaos, measured by
//! bench, and ends with them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::Endpoint;
use nix::sys::signal::Signal;

use crate::offspring;
use crate::private_redis::{PrivateRedisError, cut_torn_tail, find_program, socket_url};

/// How long a start may take. A disk that is busy with other things can hold it up for long.
const START: Duration = Duration::from_secs(60);

/// What a server puts on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Nothing.
    Nothing,
    /// Everything, before it is acknowledged: what Redis acknowledged outlives its own kill -9, and that is what the ring's
    /// promise is about.
    Everything,
}

/// A server of our own. It ends with this value.
pub struct OwnRedis {
    directory: PathBuf,
    program: PathBuf,
    disk: Disk,
    server: Mutex<Child>,
}

impl OwnRedis {
    pub fn start(directory: &Path, disk: Disk) -> Result<Self> {
        let program = find_program().ok_or(PrivateRedisError::NotInstalled)?;
        let server = launch(&program, directory, disk).context("cannot start redis-server")?;
        let redis = Self { directory: directory.to_owned(), program, disk, server: Mutex::new(server) };
        redis.wait_until_it_answers()?;
        Ok(redis)
    }

    pub fn socket(&self) -> PathBuf {
        socket_in(&self.directory)
    }

    pub fn endpoint(&self) -> Result<Endpoint> {
        Ok(socket_url(&self.socket()).parse()?)
    }

    /// A connection for what only an administrator does.
    pub fn connect(&self) -> redis::RedisResult<redis::Connection> {
        let connection = redis::Client::open(socket_url(&self.socket()))?.get_connection()?;
        connection.set_read_timeout(Some(START))?;
        Ok(connection)
    }

    /// kill -9.
    pub fn kill(&self) -> io::Result<()> {
        let mut server = self.server.lock().expect("no panic while held");
        server.kill()?;
        server.wait().map(drop)
    }

    /// Starts it, unless it runs.
    pub fn start_again(&self) -> Result<()> {
        let mut server = self.server.lock().expect("no panic while held");
        if server.try_wait()?.is_some() {
            cut_torn_tail(&self.program, &self.directory);
            *server = launch(&self.program, &self.directory, self.disk)?;
        }
        drop(server);
        self.wait_until_it_answers()
    }

    /// Brings it back, whatever was done to it.
    pub fn revive(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)?;
        self.start_again()
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        offspring::signal(&mut self.server.lock().expect("no panic while held"), signal)
    }

    fn wait_until_it_answers(&self) -> Result<()> {
        let deadline = Instant::now() + START;
        let answers = || self.connect().and_then(|mut connection| redis::cmd("PING").exec(&mut connection));
        while let Err(error) = answers() {
            if let Some(status) = self.server.lock().expect("no panic while held").try_wait()? {
                bail!("redis-server ended ({status}); see {}", self.directory.join(LOG).display());
            }
            if Instant::now() > deadline {
                return Err(error).context("redis-server does not answer");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

const LOG: &str = "redis.log";

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("redis.sock")
}

fn launch(program: &Path, directory: &Path, disk: Disk) -> io::Result<Child> {
    let log = File::options().append(true).create(true).open(directory.join(LOG))?;
    let append = match disk {
        Disk::Nothing => ["--appendonly", "no", "--appendfsync", "everysec"],
        Disk::Everything => ["--appendonly", "yes", "--appendfsync", "always"],
    };
    let mut command = Command::new(program);
    command
        .args(["--port", "0", "--daemonize", "no", "--save", ""])
        .args(append)
        .arg("--unixsocket")
        .arg(socket_in(directory))
        .arg("--dir")
        .arg(directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    offspring::spawn(command)
}
