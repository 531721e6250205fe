//! A ring of real processes on a private Redis.

pub mod line;
pub mod monitored;
pub mod recovery;

use std::fs::File;
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ChildStdin;
use std::time::Duration;

use estafeta_testbed::{DataDir, Output, Process, RedisServer, eventually};
use serde_json::Value;

/// A generous limit for events that must happen, if the test does not check how fast they are.
pub const SOON: Duration = Duration::from_secs(30);

/// A file with a text, which is removed at the end of the test.
pub struct TextFile(tempfile::NamedTempFile);

impl TextFile {
    pub fn new(text: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Self(file)
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

/// A ring for processes of the real program.
pub struct ProgramRing {
    pub redis: RedisServer,
    url: String,
}

impl ProgramRing {
    pub fn new() -> Self {
        Self::on(RedisServer::start())
    }

    pub fn on(redis: RedisServer) -> Self {
        let url = redis.url();
        Self::at(url, redis)
    }

    /// A ring whose nodes connect to `url`. The test reads the journal from `redis`, and sends its Redis commands
    /// there.
    pub fn at(url: String, redis: RedisServer) -> Self {
        Self { redis, url }
    }

    /// Starts the program with these arguments against this ring's Redis.
    pub fn start(&self, args: &[&str]) -> Process {
        start(args, &[("REDIS_URL", &self.url)])
    }

    /// Starts the program with a pipe as stdin, which the test writes.
    pub fn start_fed(&self, args: &[&str]) -> (Process, ChildStdin) {
        let program = Path::new(env!("CARGO_BIN_EXE_estafeta"));
        Process::spawn_fed(program, args, [("REDIS_URL", &self.url)])
    }

    /// Starts a node and waits until it has joined.
    pub fn node(&self, args: &[&str]) -> Process {
        let node = self.start(&[&["run"], args].concat());
        node.wait_for_line(SOON, |line| {
            line.starts_with("joined as member") || line.contains("createdTaskId")
        });
        node
    }

    pub fn nodes(&self, count: usize, args: &[&str]) -> Vec<Process> {
        let nodes: Vec<_> = (0..count).map(|_| self.start(&[&["run"], args].concat())).collect();
        for node in &nodes {
            node.wait_for_line(SOON, |line| {
                line.starts_with("joined as member") || line.contains("createdTaskId")
            });
        }
        nodes
    }

    /// Runs a command to its end.
    pub fn command(&self, args: &[&str]) -> Output {
        self.start(args).output(SOON)
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub fn success(&self, args: &[&str]) -> String {
        let output = self.command(args);
        assert!(output.status.success(), "{args:?} failed: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The current state of the ring, as the program prints it. Its balance must add up.
    pub fn status(&self) -> Value {
        let text = self.success(&["status", "--json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// None if no node has joined the ring yet.
    fn status_if_any(&self) -> Option<Value> {
        let output = self.command(&["status", "--json"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("there is no ring") {
            return None;
        }
        assert!(stderr.is_empty(), "{stderr}");
        Some(serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Waits until the ring looks as described.
    pub fn eventually(&self, limit: Duration, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        eventually(limit, what, || self.status_if_any().filter(&fits))
    }

    /// The process of the generator, as soon as one of these nodes is in office and runs.
    pub fn generator<'a>(&self, nodes: &'a [Process]) -> &'a Process {
        eventually(SOON, "a generator among the nodes", || {
            let pid = self.status()["generator"]["pid"].as_u64()?;
            nodes.iter().find(|node| u64::from(node.pid()) == pid && node.is_running())
        })
    }

    /// The ids of every outcome in the journal, sorted.
    pub fn journal(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.outcomes().iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Every outcome in the journal: the id of the message and the number of the member that settled it.
    pub fn outcomes(&self) -> Vec<(u64, u64)> {
        let mut connection = self.redis.connect();
        let mut outcomes = Vec::new();
        let mut from = "-".to_owned();
        loop {
            let mut call = redis::cmd("XRANGE");
            call.arg("{estafeta}:journal").arg(&from).arg("+").arg("COUNT").arg(1000);
            let entries: Vec<(String, Vec<String>)> = call.query(&mut connection).unwrap();
            for (entry, fields) in &entries {
                let after = |name| &fields[fields.iter().position(|field| field == name).unwrap() + 1];
                let member: u64 = after("member").parse().unwrap();
                outcomes.extend(after("ids").split(' ').map(|id| (id.parse().unwrap(), member)));
                from = format!("({entry}");
            }
            if entries.is_empty() {
                return outcomes;
            }
        }
    }

    /// Asserts that every message from 1 to `count` has exactly one outcome in the journal.
    pub fn assert_each_once(&self, count: u64) {
        self.assert_each_once_but(count, 0);
    }

    /// Like [`assert_each_once`](Self::assert_each_once), if Redis has lost this many of the messages.
    pub fn assert_each_once_but(&self, count: u64, lost: u64) {
        let journal = self.journal();
        let twice: Vec<_> =
            journal.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert!(twice.is_empty(), "settled more than once: {twice:?}");
        let missing: Vec<_> = (1..=count).filter(|id| journal.binary_search(id).is_err()).collect();
        assert_eq!(missing.len() as u64, lost, "never settled: {missing:?}");
        assert_eq!(journal.len() as u64 + lost, count, "settled without being published: {journal:?}");
    }

    /// Sends a command to Redis, past the program.
    pub fn redis_cli(&self, words: &[&str]) -> redis::Value {
        let mut call = redis::cmd(words[0]);
        for word in &words[1..] {
            call.arg(*word);
        }
        call.query(&mut self.redis.connect()).unwrap()
    }
}

impl ProgramRing {
    /// Puts errors into the ring, as if this many messages had been published and had failed.
    pub fn plant_errors(&self, ids: RangeInclusive<u64>, body: impl Fn(u64) -> Vec<u8>) {
        self.plant_failures(ids, "planted", body);
    }

    /// Like [`plant_errors`](Self::plant_errors), with this reason.
    pub fn plant_failures(&self, ids: RangeInclusive<u64>, reason: &str, body: impl Fn(u64) -> Vec<u8>) {
        let mut connection = self.redis.connect();
        let ids: Vec<u64> = ids.collect();
        for chunk in ids.chunks(1000) {
            let mut push = redis::cmd("RPUSH");
            push.arg("{estafeta}:errors");
            for id in chunk {
                let header = format!("!2000 3 {} {reason} {id} 7 1000 0 1 0 0 0 ", reason.len());
                push.arg([header.into_bytes(), body(*id)].concat());
            }
            let mut step = redis::pipe();
            step.atomic().add_command(push);
            for count in ["published", "failed"] {
                step.cmd("HINCRBY").arg("{estafeta}:ledger").arg(count).arg(chunk.len());
            }
            step.exec(&mut connection).unwrap();
        }
    }

    /// Starts the program with a pipe as stdout, which the test reads.
    pub fn start_unread(&self, args: &[&str]) -> (Process, File) {
        let scratch = tempfile::tempdir().unwrap();
        let pipe = scratch.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let script = r#"pipe=$1; shift; exec "$@" > "$pipe""#;
        let words = ["-c", script, "sh", pipe.to_str().unwrap(), env!("CARGO_BIN_EXE_estafeta")];
        let envs = [("REDIS_URL", &self.url)];
        let process = Process::spawn(Path::new("/bin/sh"), words.iter().chain(args), envs);
        (process, File::open(&pipe).unwrap())
    }
}

/// Starts the program with a clean environment and these variables.
pub fn start(args: &[&str], envs: &[(&str, &str)]) -> Process {
    Process::spawn(Path::new(env!("CARGO_BIN_EXE_estafeta")), args, envs.iter().copied())
}

/// Runs the program to its end.
pub fn run(args: &[&str], envs: &[(&str, &str)]) -> Output {
    start(args, envs).output(SOON)
}

/// The command line that starts the program where no Redis answers at 127.0.0.1:6379. If this machine has a Redis
/// there, the program gets a separate network. Sockets in the file system are the same in both cases.
pub fn command_away_from_the_usual_redis() -> Vec<&'static str> {
    let program = env!("CARGO_BIN_EXE_estafeta");
    match TcpStream::connect("127.0.0.1:6379") {
        Err(_) => vec![program],
        Ok(_) => vec!["/usr/bin/unshare", "--map-root-user", "--net", "--", program],
    }
}

/// The JSON reports that a node with `--json` has printed so far.
pub fn reports(node: &Process) -> Vec<Value> {
    node.stdout_lines().iter().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// The ids of the messages in an element of the queue. A pack has several.
pub fn ids_in(element: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(element);
    let header: Vec<u64> =
        text.trim_start_matches('*').split(' ').map_while(|word| word.parse().ok()).take(4).collect();
    let count = if text.starts_with('*') { header[3] } else { 1 };
    (header[0]..header[0] + count).collect()
}

/// The processes whose command line names this directory.
pub fn processes_of(place: &DataDir) -> Vec<u32> {
    let directory = place.path().to_str().unwrap();
    let names =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let is_of = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.contains(directory))
    };
    names.filter_map(|name| name.parse().ok()).filter(is_of).collect()
}
