//! A Redis server that the program starts for itself. Chaos attacks it, and bench and `make peers` measure it, so no
//! Redis that other programs use is at risk. The server ends with the run.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::Endpoint;
use nix::sys::signal::Signal;

use crate::child_process::ChildProcess;
use crate::redis_program::{self, cut_torn_tail, socket_in, socket_url};

/// How long the server may take to start. A busy disk can delay it for long.
const START: Duration = Duration::from_secs(60);
/// How long a server may take to answer a question about itself. It may be stalled or frozen for some seconds.
const ANSWER: Duration = Duration::from_secs(10);
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

/// What kind of server it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// An ordinary server.
    Server,
    /// A node of a cluster.
    ClusterNode,
    /// A sentinel with these lines in its configuration.
    Sentinel(String),
}

/// A Redis server. Dropping this value kills it.
pub struct EphemeralRedis {
    directory: PathBuf,
    program: PathBuf,
    kind: ServerKind,
    settings: Vec<(String, String)>,
    /// The TCP port that it keeps for life. None if it listens only on its socket.
    port: Option<u16>,
    /// The port on which nodes of a cluster talk to each other.
    bus: Option<u16>,
    server: Mutex<ServerProcess>,
}

struct ServerProcess {
    child: ChildProcess,
    is_frozen: bool,
    /// The run is over, so the server is not started again.
    is_over: bool,
}

impl EphemeralRedis {
    /// Starts an ordinary server that listens only on its socket.
    pub fn start(directory: &Path, disk: Disk) -> Result<Self> {
        Self::launch(directory, ServerKind::Server, disk_settings(disk), None, None)
    }

    /// Starts a server that also listens on a free port of the loopback interface.
    pub fn on_port(directory: &Path, kind: ServerKind, settings: &[(&str, &str)]) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let text = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let settings: Vec<(String, String)> = settings.iter().map(text).collect();
        let mut attempts = 1;
        loop {
            // Redis does not choose a port itself. Both listeners are open together, so that the ports differ.
            let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
            let [port, bus] = listeners.map(|listener| listener.and_then(|listener| listener.local_addr()));
            let (port, bus) = (port?.port(), bus?.port());
            let bus = (kind == ServerKind::ClusterNode).then_some(bus);
            match Self::launch(directory, kind.clone(), settings.clone(), Some(port), bus) {
                Err(_) if attempts < PORT_ATTEMPTS && is_port_taken(directory) => attempts += 1,
                launched => return launched,
            }
        }
    }

    fn launch(
        directory: &Path,
        kind: ServerKind,
        settings: Vec<(String, String)>,
        port: Option<u16>,
        bus: Option<u16>,
    ) -> Result<Self> {
        let program = redis_program::find()?;
        let settings = with_ports(&kind, settings, port, bus);
        if let ServerKind::Sentinel(lines) = &kind {
            redis_program::write_sentinel_file(directory, &settings, lines)?;
        }
        let child = launch(&program, directory, &kind, &settings).context("cannot start redis-server")?;
        let server = Mutex::new(ServerProcess { child, is_frozen: false, is_over: false });
        let redis = Self { directory: directory.to_owned(), program, kind, settings, port, bus, server };
        redis.wait_until_ready()?;
        Ok(redis)
    }

    /// Its TCP port. 0 if it has none.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(0)
    }

    /// The port on which nodes of a cluster talk to it. 0 if it is none.
    pub fn bus_port(&self) -> u16 {
        self.bus.unwrap_or(0)
    }

    /// Sends one command, and waits for the answer only for a moment.
    pub fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(socket_url(&self.socket()))?;
        let mut connection = client.get_connection_with_timeout(ANSWER)?;
        connection.set_read_timeout(Some(ANSWER))?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
    }

    /// Whether it runs and is not frozen.
    pub fn can_answer(&self) -> bool {
        let mut server = self.process();
        !server.is_frozen && server.child.exit_status().is_ok_and(|status| status.is_none())
    }

    pub fn socket(&self) -> PathBuf {
        socket_in(&self.directory)
    }

    pub fn endpoint(&self) -> Result<Endpoint> {
        Ok(socket_url(&self.socket()).parse()?)
    }

    /// Opens a connection for administrative commands.
    pub fn connect(&self) -> redis::RedisResult<redis::Connection> {
        let client = redis::Client::open(socket_url(&self.socket()))?;
        let connection = client.get_connection_with_timeout(START)?;
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
        let mut server = self.process();
        server.is_frozen = false;
        server.child.kill().map(drop)
    }

    /// Kills the server with SIGKILL. It is never started again.
    pub fn end(&self) -> io::Result<()> {
        self.process().is_over = true;
        self.kill()
    }

    /// Starts the server again, unless it is running.
    pub fn start_again(&self) -> Result<()> {
        let mut server = self.process();
        if server.is_over {
            bail!("the run is over");
        }
        if server.child.exit_status()?.is_some() {
            cut_torn_tail(&self.program, &self.directory);
            server.child = launch(&self.program, &self.directory, &self.kind, &self.settings)?;
        }
        drop(server);
        self.wait_until_ready()
    }

    /// Brings the server back after any fault: thaws it if it is frozen, starts it if it was killed, and ends a script
    /// that never ends.
    pub fn revive(&self) -> Result<()> {
        self.thaw()?;
        // Redis refuses this if no script runs. A server that was killed does not answer.
        let _ =
            self.connect().and_then(|mut connection| redis::cmd("SCRIPT").arg("KILL").exec(&mut connection));
        self.start_again()
    }

    /// Stops the server with SIGSTOP.
    pub fn freeze(&self) -> io::Result<()> {
        let mut server = self.process();
        server.is_frozen = true;
        server.child.signal(Signal::SIGSTOP)
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) -> io::Result<()> {
        let mut server = self.process();
        server.is_frozen = false;
        server.child.signal(Signal::SIGCONT)
    }

    fn process(&self) -> MutexGuard<'_, ServerProcess> {
        self.server.lock().expect("no panic while held")
    }

    fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + START;
        let answers = || self.connect().and_then(|mut connection| redis::cmd("PING").exec(&mut connection));
        while let Err(error) = answers() {
            let ended = self.process().child.exit_status()?;
            if let Some(status) = ended {
                bail!("redis-server ended ({status}); see {}", self.directory.join(LOG).display());
            }
            if Instant::now() > deadline {
                return Err(error).context("redis-server does not answer");
            }
            if error.code() == Some("BUSY") {
                // A script that began only now would never end.
                let _ = self.ask::<()>(&["SCRIPT", "KILL"]);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

const LOG: &str = "redis.log";

/// How the disk is used, as settings of the server.
fn disk_settings(disk: Disk) -> Vec<(String, String)> {
    let (append, sync) = match disk {
        Disk::Nothing => ("no", "everysec"),
        Disk::Everything => ("yes", "always"),
    };
    [("appendonly", append), ("appendfsync", sync)].map(|(name, value)| (name.into(), value.into())).into()
}

fn with_ports(
    kind: &ServerKind,
    mut settings: Vec<(String, String)>,
    port: Option<u16>,
    bus: Option<u16>,
) -> Vec<(String, String)> {
    let mut add = |name: &str, value: String| settings.push((name.to_owned(), value));
    add("bind", Ipv4Addr::LOCALHOST.to_string());
    port.into_iter().for_each(|port| add("port", port.to_string()));
    if *kind == ServerKind::ClusterNode {
        add("cluster-enabled", "yes".to_owned());
        bus.into_iter().for_each(|bus| add("cluster-port", bus.to_string()));
    }
    settings
}

fn launch(
    program: &Path,
    directory: &Path,
    kind: &ServerKind,
    settings: &[(String, String)],
) -> io::Result<ChildProcess> {
    let log = File::options().append(true).create(true).open(directory.join(LOG))?;
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let mut command = match kind {
        ServerKind::Sentinel(_) => redis_program::sentinel_command(program, directory),
        _ => redis_program::command(program, directory, &settings),
    };
    command.stdout(log.try_clone()?).stderr(log);
    ChildProcess::spawn(command)
}

/// Whether a server could not start because another program had its port.
fn is_port_taken(directory: &Path) -> bool {
    let log = std::fs::read_to_string(directory.join(LOG)).unwrap_or_default();
    log.contains("Address already in use")
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
        let pid = |redis: &EphemeralRedis| redis.process().child.pid();
        assert_eq!([&url, &own].map(|url| process_id(url)), [&first, &second].map(pid));
    }
}
