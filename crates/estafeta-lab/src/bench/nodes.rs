//! Real nodes of this program in one ring, and their reports.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::{Ring, RingName, Snapshot};
use nix::sys::signal::Signal;
use tokio::sync::mpsc::UnboundedReceiver;

use super::env::BenchEnv;
use crate::child_process;
use crate::fleet::{Fleet, FromNode, NodeKey};
use crate::report::Report;

/// How long to wait for a change that a ring makes at once, unless the machine is overloaded.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// After this much silence, the nodes are checked for one that has ended.
const SILENCE: Duration = Duration::from_millis(200);

/// The nodes of one ring. Dropping this value kills them.
pub struct BenchNodes<'a> {
    env: &'a BenchEnv<'a>,
    name: RingName,
    pub ring: Ring,
    options: Vec<String>,
    fleet: Fleet,
    received: UnboundedReceiver<FromNode>,
    /// The path of the record of each node, if the nodes write records.
    records: Option<BTreeMap<NodeKey, PathBuf>>,
}

impl<'a> BenchNodes<'a> {
    /// Creates a ring whose nodes will have these options of `run`.
    pub async fn new(env: &'a BenchEnv<'a>, options: &[&str]) -> Result<Self> {
        let name = env.ring()?;
        let ring = Ring::connect(env.endpoint.clone(), name.clone()).await?;
        let lease = format!("{}ms", env.options.lease.as_millis());
        let usual = ["run", "--json", "--error-rate", "0", "--lease", &lease];
        let options = usual.iter().chain(options).map(|&option| option.to_owned()).collect();
        let (fleet, received) = Fleet::new();
        Ok(Self { env, name, ring, options, fleet, received, records: None })
    }

    /// Lets every node write a record.
    pub fn with_records(mut self) -> Self {
        self.records = Some(BTreeMap::new());
        self
    }

    pub fn start(&mut self) -> Result<NodeKey> {
        let env = self.env;
        let mut command = child_process::this_program(&self.name, &env.endpoint.secret_url())?;
        command.args(&self.options);
        let ring = self.name.as_str().replace('/', "-");
        let record = env.directory.join(format!("{ring}-{}.record", self.fleet.next_key().0));
        if self.records.is_some() {
            command.arg("--record").arg(&record);
        }
        command.stderr(File::options().append(true).create(true).open(log(env))?);
        let node = self.fleet.start(command)?;
        if let Some(records) = &mut self.records {
            records.insert(node, record);
        }
        Ok(node)
    }

    /// Starts nodes one after another. Returns how many milliseconds each one took to join.
    pub async fn start_many(&mut self, count: usize) -> Result<Vec<f64>> {
        let mut took = Vec::new();
        for _ in 0..count {
            let start = Instant::now();
            let node = self.start()?;
            let joined = |from: &FromNode| {
                from.node == node && matches!(from.report, Some(Report::CreatedTaskId { .. }))
            };
            let joined = self.wait_for(joined, "a node to join").await?;
            took.push((joined.at - start).as_secs_f64() * 1e3);
        }
        Ok(took)
    }

    /// The next report of any node. None if there is none before `until`.
    pub async fn next(&mut self, until: Instant) -> Option<FromNode> {
        tokio::time::timeout_at(until.into(), self.received.recv()).await.ok().flatten()
    }

    pub async fn wait_for(&mut self, wanted: impl Fn(&FromNode) -> bool, what: &str) -> Result<FromNode> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.next(Instant::now() + SILENCE).await {
                Some(from) if wanted(&from) => return Ok(from),
                Some(_) => {}
                None => self.check_that_all_run()?,
            }
        }
        Err(self.time_out(what))
    }

    fn check_that_all_run(&mut self) -> Result<()> {
        match self.fleet.reap().first() {
            Some((_, status)) => {
                bail!("a node exited unexpectedly ({status}); {}", last_line(&log(self.env)))
            }
            None => Ok(()),
        }
    }

    pub fn time_out(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!("waited {} s for {what}; {}", PATIENCE.as_secs(), last_line(&log(self.env)))
    }

    pub fn signal(&mut self, node: NodeKey, signal: Signal) {
        self.fleet.signal(node, signal);
    }

    /// Forgets a node, and kills it if it still runs.
    pub fn remove(&mut self, node: NodeKey) {
        self.fleet.remove(node);
    }

    /// Waits until the ring has all of the nodes, no other members, and a generator. Returns the generator.
    pub async fn until_whole(&mut self) -> Result<NodeKey> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.check_that_all_run()?;
            if let Some(generator) = self.generator_of(&self.ring.snapshot(0).await?) {
                return Ok(generator);
            }
            tokio::time::sleep(POLL).await;
        }
        Err(self.time_out("the ring to be whole"))
    }

    fn generator_of(&self, snapshot: &Snapshot) -> Option<NodeKey> {
        let whole = snapshot.members.len() == self.fleet.keys().count()
            && snapshot.members.iter().all(|member| self.fleet.with_pid(member.pid).is_some());
        self.fleet.with_pid(snapshot.generator.as_ref()?.pid).filter(|_| whole)
    }

    pub fn keys(&self) -> impl Iterator<Item = NodeKey> {
        self.fleet.keys()
    }

    /// The process ids of all nodes.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.fleet.keys().filter_map(|node| self.fleet.pid(node))
    }

    pub fn record_of(&self, node: NodeKey) -> Result<&Path> {
        let record = self.records.as_ref().and_then(|records| records.get(&node));
        record.map(PathBuf::as_path).context("a node without a record")
    }

    /// Kills all nodes and erases the ring.
    pub async fn end(mut self) -> Result<()> {
        self.fleet.kill_all();
        self.env.erase(&self.name).await
    }
}

pub fn log(env: &BenchEnv<'_>) -> PathBuf {
    env.directory.join("nodes.log")
}

/// The last line that any node logged.
pub fn last_line(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.lines()
        .next_back()
        .map_or("no node logged anything".to_owned(), |line| format!("a node logged: {line}"))
}
