//! A Redis server that the program starts for itself. Chaos attacks it, and bench and `make peers` measure it, so no
//! Redis that other programs use is at risk. The server ends with the run.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::Endpoint;
use nix::sys::signal::Signal;

use crate::child_process::ChildProcess;
use crate::redis_program::{self, cut_torn_tail, socket_in, socket_url};

/// How long the server may take to start. A busy disk can delay it for long.
const START: Duration = Duration::from_secs(60);
/// How many ports to try. Another program may take a free port before the server does.
const PORT_ATTEMPTS: usize = 5;

/// What the server writes to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    Nothing,
    /// Every write, before the server acknowledges it. So each acknowledged write survives a kill -9 of Redis. The
    /// promises of a ring assume this.
    Everything,
}

/// A Redis server. Dropping this value kills it.
pub struct EphemeralRedis {
    directory: PathBuf,
    program: PathBuf,
    disk: Disk,
    server: Mutex<ChildProcess>,
}

impl EphemeralRedis {
    pub fn start(directory: &Path, disk: Disk) -> Result<Self> {
        let program = redis_program::find()?;
        let server = launch(&program, directory, disk).context("cannot start redis-server")?;
        let redis = Self { directory: directory.to_owned(), program, disk, server: Mutex::new(server) };
        redis.wait_until_ready()?;
        Ok(redis)
    }

    pub fn socket(&self) -> PathBuf {
        socket_in(&self.directory)
    }

    pub fn endpoint(&self) -> Result<Endpoint> {
        Ok(socket_url(&self.socket()).parse()?)
    }

    /// Opens a connection for administrative commands.
    pub fn connect(&self) -> redis::RedisResult<redis::Connection> {
        let connection = redis::Client::open(socket_url(&self.socket()))?.get_connection()?;
        connection.set_read_timeout(Some(START))?;
        Ok(connection)
    }

    /// Lets the server also listen on a free TCP port of the loopback interface, for clients that cannot use its unix
    /// socket. Returns its URL. The port is open until the server ends.
    pub fn open_port(&self) -> Result<String> {
        let mut attempts = 1;
        loop {
            // Redis does not choose a port itself.
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            match self.listen_on(port) {
                Ok(()) => return Ok(format!("redis://{}:{port}", Ipv4Addr::LOCALHOST)),
                Err(_) if attempts < PORT_ATTEMPTS => attempts += 1,
                Err(error) => return Err(error).context("redis-server does not open a TCP port"),
            }
        }
    }

    /// The command reaches this server over its unix socket. So a success means that this server has the port, and not
    /// another one that listened there before.
    fn listen_on(&self, port: u16) -> redis::RedisResult<()> {
        redis::cmd("CONFIG").arg("SET").arg("port").arg(port).exec(&mut self.connect()?)
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&self) -> io::Result<()> {
        self.server.lock().expect("no panic while held").kill().map(drop)
    }

    /// Starts the server again, unless it is running.
    pub fn start_again(&self) -> Result<()> {
        let mut server = self.server.lock().expect("no panic while held");
        if server.exit_status()?.is_some() {
            cut_torn_tail(&self.program, &self.directory);
            *server = launch(&self.program, &self.directory, self.disk)?;
        }
        drop(server);
        self.wait_until_ready()
    }

    /// Brings the server back after any fault: thaws it if it is frozen, starts it if it was killed, and ends a script
    /// that never ends.
    pub fn revive(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)?;
        // Redis refuses this if no script runs. A server that was killed does not answer.
        let _ =
            self.connect().and_then(|mut connection| redis::cmd("SCRIPT").arg("KILL").exec(&mut connection));
        self.start_again()
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.server.lock().expect("no panic while held").signal(signal)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + START;
        let answers = || self.connect().and_then(|mut connection| redis::cmd("PING").exec(&mut connection));
        while let Err(error) = answers() {
            if let Some(status) = self.server.lock().expect("no panic while held").exit_status()? {
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

const LOG: &str = "redis.log";

fn launch(program: &Path, directory: &Path, disk: Disk) -> io::Result<ChildProcess> {
    let log = File::options().append(true).create(true).open(directory.join(LOG))?;
    let (append, sync) = match disk {
        Disk::Nothing => ("no", "everysec"),
        Disk::Everything => ("yes", "always"),
    };
    let settings = [("appendonly", append), ("appendfsync", sync), ("bind", "127.0.0.1")];
    let mut command = redis_program::command(program, directory, &settings);
    command.stdout(log.try_clone()?).stderr(log);
    ChildProcess::spawn(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_opens_a_port_of_its_own_and_never_answers_for_the_port_of_another() {
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [first, second] = directories
            .each_ref()
            .map(|directory| EphemeralRedis::start(directory.path(), Disk::Nothing).unwrap());
        let url = first.open_port().unwrap();
        let port = url.rsplit(':').next().unwrap().parse().unwrap();
        assert!(second.listen_on(port).is_err(), "the first server has this port");

        let own = second.open_port().unwrap();
        let process_id = |url: &str| -> u32 {
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            let info: redis::InfoDict = redis::cmd("INFO").arg("server").query(&mut connection).unwrap();
            info.get("process_id").unwrap()
        };
        let pid = |redis: &EphemeralRedis| redis.server.lock().unwrap().pid();
        assert_eq!([&url, &own].map(|url| process_id(url)), [&first, &second].map(pid));
    }
}
