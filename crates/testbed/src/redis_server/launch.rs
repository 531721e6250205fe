//! Starts a server process, and waits until it answers.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Builder, ServerKind};
use crate::owned_child::OwnedChild;

const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

/// Names the server program of all tests.
const PROGRAM: &str = "ESTAFETA_TEST_REDIS";

pub(super) enum Startup {
    Answers,
    PortTaken,
}

/// The TCP ports of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) client: Option<u16>,
    pub(super) bus: Option<u16>,
}

impl Ports {
    /// Ports that are free at this moment. If another process takes one first, the server says so.
    pub(super) fn free(options: &Builder) -> Self {
        let is_cluster_node = matches!(options.kind, ServerKind::ClusterNode);
        // Both listeners are open together, so that the ports differ.
        let client = options.tcp.then(listen);
        let bus = is_cluster_node.then(listen);
        let port = |listener: TcpListener| listener.local_addr().unwrap().port();
        Self { client: client.map(port), bus: bus.map(port) }
    }
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Writes the configuration file of a sentinel, which needs one to keep what it learns.
pub(super) fn prepare(dir: &Path, options: &Builder, ports: Ports) {
    let ServerKind::Sentinel(monitor) = &options.kind else { return };
    let mut lines = String::new();
    for (name, words) in settings(dir, options, ports) {
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        lines.push_str(&format!("{} {}\n", name.trim_start_matches('-'), words.join(" ")));
    }
    fs::write(sentinel_file(dir), lines + monitor).unwrap();
}

fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

pub(super) fn launch(dir: &Path, options: &Builder, ports: Ports) -> OwnedChild {
    // Each start has a new log. Otherwise a message of an earlier start could be taken for the reason why this one
    // failed.
    let log = fs::File::create(log_in(dir)).unwrap();
    let arguments = arguments(dir, options, ports);
    let start = |program: OsString| {
        let mut command = Command::new(program);
        command
            .args(&arguments)
            .envs(options.envs.iter().map(|(name, value)| (name, value)))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log.try_clone().unwrap());
        OwnedChild::spawn(command)
    };
    with_program(start)
}

/// Calls `start` with the server program that the tests use.
fn with_program<T>(start: impl Fn(OsString) -> std::io::Result<T>) -> T {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return start(program.clone())
            .unwrap_or_else(|error| panic!("cannot start {program:?}, which {PROGRAM} names: {error}"));
    }
    start("redis-server".into())
        .or_else(|_| start("valkey-server".into()))
        .unwrap_or_else(|error| panic!("tests need redis-server or valkey-server installed: {error}"))
}

fn arguments(dir: &Path, options: &Builder, ports: Ports) -> Vec<OsString> {
    if let ServerKind::Sentinel(_) = options.kind {
        return vec![sentinel_file(dir).into(), "--sentinel".into()];
    }
    let settings = settings(dir, options, ports);
    settings
        .into_iter()
        .flat_map(|(name, words)| std::iter::once(name).chain(words))
        .map(Into::into)
        .collect()
}

fn settings(dir: &Path, options: &Builder, ports: Ports) -> Vec<(String, Vec<String>)> {
    let text = |path: &Path| path.to_str().expect("paths of tests are text").to_owned();
    let mut settings: Vec<(String, Vec<String>)> = Vec::new();
    let mut add = |name: &str, value: String| settings.push((name.into(), vec![value]));
    add("--bind", "127.0.0.1".into());
    add("--unixsocket", text(&socket_in(dir)));
    add("--dir", text(options.data.as_deref().unwrap_or(dir)));
    add("--daemonize", "no".into());
    // Snapshots are on, so that no node warns of a Redis without persistence. None is due while a test lasts.
    add("--save", "3600 1".into());
    settings.extend(options.settings(ports.client, ports.bus));
    settings
}

/// Waits until the server answers. While Redis loads its data, it answers PING with an error. So an answer also means
/// that the data is loaded.
pub(super) fn wait_until_up(dir: &Path, options: &Builder, child: &mut OwnedChild) -> Startup {
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

/// Cuts an incomplete transaction off the append-only file in `data`, as an operator would after a crash.
///
/// A server that is killed may have written only a part of a transaction. Redis skips this part at the next start, but
/// leaves it in the file. At the start after that, Redis executes it in part (seen on 7.0.15).
pub(super) fn cut_torn_tail(data: &Path) {
    // The file that the server appended to last. The tool of Valkey 9 does not know the format of the base file.
    let files = data.join("appendonlydir");
    let manifest = fs::read_to_string(files.join("appendonly.aof.manifest")).unwrap_or_default();
    let appended = manifest.lines().rfind(|line| line.ends_with(" type i"));
    let Some(name) = appended.and_then(|line| line.split(' ').nth(1)) else { return };
    let last = files.join(name);
    if fs::metadata(&last).is_ok_and(|file| file.len() == 0) {
        return;
    }
    // A server program that is called by one of these names is the tool that checks its own files.
    let mut check = with_program(|program| {
        let mut command = Command::new(program);
        command.arg0("redis-check-aof valkey-check-aof").arg("--fix").arg(&last);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    });
    // The tool asks before it cuts. If there is nothing to cut, it does not read the answer.
    let _ = check.stdin.take().unwrap().write_all(b"y\n");
    let output = check.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

pub(super) fn socket_in(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

fn sentinel_file(dir: &Path) -> PathBuf {
    dir.join("sentinel.conf")
}

fn log_in(dir: &Path) -> PathBuf {
    dir.join("redis.log")
}

pub(super) fn log_tail(dir: &Path) -> String {
    let log = fs::read(log_in(dir)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
