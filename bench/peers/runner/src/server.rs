//! A Redis of our own: nothing else writes to it, and nothing of the user's is touched.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis::Connection;

const PATIENCE: Duration = Duration::from_secs(10);
/// How often somebody else may be faster to take a port that was free.
const TRIES: usize = 5;

pub struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Starts redis-server, or valkey-server, on loopback and without persistence.
    ///
    /// TCP, because every peer can use that, and a Unix socket only some.
    pub fn start(directory: &Path) -> Result<Server> {
        for _ in 0..TRIES {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut server = Server::launch(directory, port)?;
            if server.is_the_one_that_answers()? {
                return Ok(server);
            }
        }
        bail!("somebody else took the port, {TRIES} times");
    }

    fn launch(directory: &Path, port: u16) -> Result<Server> {
        let spawn = |program: &str| {
            Command::new(program)
                .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
                .arg("--dir")
                .arg(directory)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                // Ctrl-C is for the runner, which then ends the server.
                .process_group(0)
                .spawn()
        };
        let process = spawn("redis-server").or_else(|_| spawn("valkey-server"));
        let process = process.context("neither redis-server nor valkey-server can be started")?;
        Ok(Server { process, url: format!("redis://127.0.0.1:{port}") })
    }

    /// Waits for an answer. A server of somebody else's may give it, which must not be emptied or measured.
    fn is_the_one_that_answers(&mut self) -> Result<bool> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.process.try_wait()?.is_some() {
                return Ok(false);
            }
            if let Ok(info) = self.connect().and_then(|mut connection| server_info(&mut connection)) {
                return Ok(field(&info, "process_id") == Some(&self.process.id().to_string()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("no answer from Redis within {} s", PATIENCE.as_secs());
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn connect(&self) -> Result<Connection> {
        let client = redis::Client::open(self.url.as_str())?;
        client.get_connection().context("no answer from Redis")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a server says of itself.
pub fn server_info(connection: &mut Connection) -> Result<String> {
    Ok(redis::cmd("INFO").arg("server").query(connection)?)
}

/// One field of that.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .filter_map(|line| line.trim().split_once(':'))
        .find_map(|(key, value)| (key == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_on_the_port_is_not_taken_for_ours() {
        let directory = tempfile::tempdir().unwrap();
        let first = Server::start(directory.path()).unwrap();
        let port = first.url().rsplit(':').next().unwrap().parse().unwrap();
        let mut second = Server::launch(directory.path(), port).unwrap();
        assert!(!second.is_the_one_that_answers().unwrap());
    }
}
