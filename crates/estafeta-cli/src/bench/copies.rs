//! Real copies of the program on one ring, and what they say with the moment at which they said it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::{Ring, RingName, Snapshot};
use nix::sys::signal::Signal;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::stand::Stand;
use crate::offspring;

/// How long something may take that a ring does at once, if the machine is not overloaded.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);
/// After so much silence somebody looks whether all copies still run.
const DEATHS: Duration = Duration::from_millis(200);

/// The process id of a copy.
pub type Pid = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "msg", rename_all = "camelCase")]
pub enum Said {
    CreatedTaskId,
    SwitchedToGeneratorMode,
    GeneratedMessage,
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Debug)]
pub struct Heard {
    pub pid: Pid,
    pub at: Instant,
    pub said: Said,
}

/// They end with this value.
pub struct Copies<'a> {
    stand: &'a Stand<'a>,
    name: RingName,
    pub ring: Ring,
    options: Vec<String>,
    children: BTreeMap<Pid, Child>,
    started: usize,
    /// Where each one writes its record, if they do.
    records: Option<BTreeMap<Pid, PathBuf>>,
    sender: UnboundedSender<Heard>,
    heard: UnboundedReceiver<Heard>,
}

impl<'a> Copies<'a> {
    /// A ring whose copies will have these options of `run`.
    pub async fn new(stand: &'a Stand<'a>, options: &[&str]) -> Result<Self> {
        let name = stand.ring()?;
        let ring = Ring::connect(stand.endpoint.clone(), name.clone()).await?;
        let lease = format!("{}ms", stand.order.lease.as_millis());
        let usual = ["run", "--json", "--error-rate", "0", "--lease", &lease];
        let options = usual.iter().chain(options).map(|&option| option.to_owned()).collect();
        let (sender, heard) = unbounded_channel();
        let (children, started) = (BTreeMap::new(), 0);
        Ok(Self { stand, name, ring, options, children, started, records: None, sender, heard })
    }

    /// All of them will write down what they do.
    pub fn with_records(mut self) -> Self {
        self.records = Some(BTreeMap::new());
        self
    }

    pub fn start(&mut self) -> Result<Pid> {
        let stand = self.stand;
        let mut command = offspring::of_this_program(&self.name, &stand.endpoint.secret_url())?;
        command.args(&self.options);
        let record = stand.directory.join(format!("{}-{}.record", self.name, self.started));
        if self.records.is_some() {
            command.arg("--record").arg(&record);
        }
        let log = File::options().append(true).create(true).open(log(stand))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = offspring::spawn(command).context("cannot start a copy of this program")?;
        self.started += 1;
        let (pid, stdout) = (child.id(), child.stdout.take());
        self.children.insert(pid, child);
        if let Some(records) = &mut self.records {
            records.insert(pid, record);
        }
        let stdout = Receiver::from_owned_fd(OwnedFd::from(stdout.context("it has no stdout")?))?;
        tokio::spawn(listen(pid, stdout, self.sender.clone()));
        Ok(pid)
    }

    /// Starts so many, one after the other; says in milliseconds how long each took to join.
    pub async fn start_many(&mut self, count: usize) -> Result<Vec<f64>> {
        let mut took = Vec::new();
        for _ in 0..count {
            let start = Instant::now();
            let pid = self.start()?;
            let joined = |heard: &Heard| heard.pid == pid && heard.said == Said::CreatedTaskId;
            let joined = self.hear(joined, "a copy to join").await?;
            took.push((joined.at - start).as_secs_f64() * 1e3);
        }
        Ok(took)
    }

    /// The next thing that any of them says; None if that is not before `until`.
    pub async fn next(&mut self, until: Instant) -> Option<Heard> {
        tokio::time::timeout_at(until.into(), self.heard.recv()).await.ok().flatten()
    }

    pub async fn hear(&mut self, wanted: impl Fn(&Heard) -> bool, what: &str) -> Result<Heard> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.next(Instant::now() + DEATHS).await {
                Some(heard) if wanted(&heard) => return Ok(heard),
                Some(_) => {}
                None => self.check_that_all_run()?,
            }
        }
        Err(self.complaint(what))
    }

    fn check_that_all_run(&mut self) -> Result<()> {
        for (pid, child) in &mut self.children {
            if let Some(status) = child.try_wait()? {
                bail!("copy {pid} ended by itself ({status}); {}", last_words(&log(self.stand)));
            }
        }
        Ok(())
    }

    pub fn complaint(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!("waited {} s for {what}; {}", PATIENCE.as_secs(), last_words(&log(self.stand)))
    }

    pub fn signal(&mut self, pid: Pid, signal: Signal) -> Result<()> {
        let child = self.children.get_mut(&pid).context("no such copy")?;
        Ok(offspring::signal(child, signal)?)
    }

    /// Forgets a copy, with kill -9 if it still runs.
    pub fn remove(&mut self, pid: Pid) -> Result<()> {
        if let Some(mut child) = self.children.remove(&pid) {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Waits until the ring has all of the copies, no others, and a generator; says who that is.
    pub async fn until_whole(&mut self) -> Result<Pid> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.check_that_all_run()?;
            if let Some(generator) = self.generator_of(&self.ring.snapshot(0).await?) {
                return Ok(generator);
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(self.complaint("the ring to be whole"))
    }

    fn generator_of(&self, snapshot: &Snapshot) -> Option<Pid> {
        let is_ours = |pid: u64| Pid::try_from(pid).ok().filter(|pid| self.children.contains_key(pid));
        let whole = snapshot.members.len() == self.children.len()
            && snapshot.members.iter().all(|member| is_ours(member.pid).is_some());
        is_ours(snapshot.generator.as_ref()?.pid).filter(|_| whole)
    }

    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        self.children.keys().copied()
    }

    pub fn record_of(&self, pid: Pid) -> Option<&Path> {
        self.records.as_ref()?.get(&pid).map(PathBuf::as_path)
    }

    /// Ends all of them and erases the ring.
    pub async fn end(mut self) -> Result<()> {
        self.kill();
        self.stand.erase(&self.name.clone()).await
    }

    fn kill(&mut self) {
        for child in self.children.values_mut() {
            let _ = child.kill();
        }
        for child in self.children.values_mut() {
            let _ = child.wait();
        }
        self.children.clear();
    }
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

fn log(stand: &Stand<'_>) -> PathBuf {
    stand.directory.join("copies.log")
}

/// The last line that a copy complained in.
fn last_words(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.lines().next_back().map_or("no copy complained".to_owned(), |line| format!("a copy said: {line}"))
}

async fn listen(pid: Pid, stdout: Receiver, sender: UnboundedSender<Heard>) {
    let mut lines = BufReader::new(stdout);
    let mut line = Vec::new();
    while let Ok(1..) = lines.read_until(b'\n', &mut line).await {
        let at = Instant::now();
        if let Ok(said) = serde_json::from_slice(line.trim_ascii())
            && said != Said::Other
        {
            let _ = sender.send(Heard { pid, at, said });
        }
        line.clear();
    }
}
