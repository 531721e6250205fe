//! A Redis of our own: nothing else writes to it, and nothing of the user's is touched.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::Connection;

pub struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Starts redis-server, or valkey-server, on loopback and without persistence.
    ///
    /// TCP, because every peer can use that, and a Unix socket only some.
    pub fn start(directory: &Path) -> Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
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
        let server = Server { process, url: format!("redis://127.0.0.1:{port}") };
        server.connect()?;
        Ok(server)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Connects, and waits for the server if it is only starting.
    pub fn connect(&self) -> Result<Connection> {
        let client = redis::Client::open(self.url.as_str())?;
        let start = Instant::now();
        loop {
            match client.get_connection() {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    ensure!(start.elapsed() < Duration::from_secs(10), "no answer from Redis: {error}")
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
