//! One node or publisher under attack: a real process behind its own proxy.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::exit_code::REDIS;
use crate::proxy::Proxy;
use anyhow::{Context as _, Result, bail};
use estafeta::{Durability, Endpoint, MemberView, RingName, Snapshot};
use nix::sys::signal::Signal;

use super::LEASE;
use crate::child_process::{self, ChildProcess};

/// The ids of all processes that chaos has started. Any other member of the ring is foreign.
pub type Pids = Arc<Mutex<BTreeSet<u32>>>;

/// What all nodes have in common.
#[derive(Clone)]
pub struct NodeTemplate {
    pub directory: PathBuf,
    pub endpoint: Endpoint,
    /// Where a step must be stored before a process reports it.
    pub durability: Durability,
    /// The ring, or the rings of a pipeline in their order.
    pub rings: Vec<RingName>,
    pub pids: Pids,
    /// Set at the end of a run. No more processes are started then.
    pub closed: Arc<AtomicBool>,
    /// How many single commands were started.
    pub commands: Arc<AtomicUsize>,
}

impl NodeTemplate {
    /// The ring to which nodes and publishers belong, or the first ring of a pipeline.
    pub fn first_ring(&self) -> &RingName {
        &self.rings[0]
    }

    /// The option of nodes, publishers and readers that decides where their steps must be stored.
    pub fn durability_args(&self) -> Vec<String> {
        match self.durability {
            // Another build may not know the option.
            Durability::Memory => Vec::new(),
            level => vec!["--durability".to_owned(), level.to_string()],
        }
    }

    /// The path of the file that feeds a pipeline.
    pub fn feed(&self) -> PathBuf {
        self.directory.join("feed")
    }

    /// Starts a child process of this program, or of another build of it, for this ring.
    pub fn start(
        &self,
        ring: &RingName,
        program: Option<&Path>,
        args: &[&str],
        url: &str,
        stdout: &Path,
        stderr: &Path,
    ) -> Result<ChildProcess> {
        let open = |path: &Path| File::options().append(true).create(true).open(path);
        let mut command = match program {
            Some(program) => child_process::program_at(program, ring, url),
            None => child_process::this_program(ring, url)?,
        };
        command.args(args).stdin(Stdio::null()).stdout(open(stdout)?).stderr(open(stderr)?);
        let mut pids = self.pids.lock().expect("no panic while held");
        if self.closed.load(Ordering::Relaxed) {
            bail!("chaos has ended");
        }
        let child = ChildProcess::spawn(command).context("cannot start a node of this program")?;
        pids.insert(child.pid());
        Ok(child)
    }

    /// Returns a member that chaos has not started. The host must match too, because machines that share a Redis may
    /// have the same process ids.
    pub fn foreign_member_in<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a MemberView> {
        let pids = self.pids.lock().expect("no panic while held");
        let host = nix::unistd::gethostname().unwrap_or_default();
        let is_ours = |member: &&MemberView| {
            let is_here = member.host == host.to_string_lossy();
            is_here && u32::try_from(member.pid).is_ok_and(|pid| pids.contains(&pid))
        };
        snapshot.members.iter().find(|member| !is_ours(member))
    }
}

/// What a process under attack does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessDuty {
    /// It is a node of the demo.
    DemoNode,
    /// It is a node whose handler follows the plan in each body.
    WorkNode,
    /// It is such a node in both rings of a pipeline.
    PipelineNode,
    /// It publishes from outside the ring, so it is no member.
    Publisher { number: usize, seed: u64 },
}

pub struct ChaosNode {
    pub index: usize,
    pub duty: ProcessDuty,
    pub proxy: Proxy,
    template: NodeTemplate,
    /// The build that is started. None is this program.
    program: Mutex<Option<PathBuf>>,
    child: Mutex<Option<ChildProcess>>,
}

impl ChaosNode {
    pub fn new(index: usize, duty: ProcessDuty, template: NodeTemplate, proxy: Proxy) -> Self {
        Self { index, duty, proxy, template, program: Mutex::default(), child: Mutex::new(None) }
    }

    /// Decides which build is started from now on. None is this program.
    pub fn set_program(&self, program: Option<PathBuf>) {
        *self.program.lock().expect("no panic while held") = program;
    }

    pub fn is_node(&self) -> bool {
        !matches!(self.duty, ProcessDuty::Publisher { .. })
    }

    /// Its name for people.
    pub fn name(&self) -> String {
        match self.duty {
            ProcessDuty::Publisher { number, .. } => format!("publisher {number}"),
            _ => format!("node {}", self.index + 1),
        }
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.template.directory.join(format!("{}.{kind}", self.name().replace(' ', "-")))
    }

    /// The paths of its records, one per ring that it uses. All processes of this node write the same ones.
    pub fn records(&self) -> Vec<PathBuf> {
        let kinds = ["record", "second-record"];
        let count = if self.duty == ProcessDuty::PipelineNode { 2 } else { 1 };
        kinds[..count].iter().map(|kind| self.file(kind)).collect()
    }

    fn log(&self) -> PathBuf {
        self.file("log")
    }

    /// Starts the process, unless it is running. With a `limit`, a node generates no more once the ring has published
    /// so many messages, and ends when each has its outcome.
    pub fn start(&self, limit: Option<u64>) -> Result<()> {
        let args = self.args(limit);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let url = self.template.endpoint.secret_url_through(self.proxy.ports());
        let mut child = self.child();
        // A second call finds the process running.
        let runs =
            child.as_mut().map(ChildProcess::exit_status).transpose()?.is_some_and(|ended| ended.is_none());
        if !runs {
            let program = self.program.lock().expect("no panic while held").clone();
            let (ring, log) = (self.template.first_ring(), self.log());
            *child = Some(self.template.start(ring, program.as_deref(), &args, &url, &log, &log)?);
        }
        Ok(())
    }

    /// The command line of the process.
    fn args(&self, limit: Option<u64>) -> Vec<String> {
        let shown = |path: &Path| path.display().to_string();
        let (records, lease) = (self.records(), format!("{}ms", LEASE.as_millis()));
        // The work is quick and runs in several lanes, so a node holds a few messages whenever it is killed. Every
        // second node has a single lane, because the steps of a single lane take another path.
        let lanes = if self.index.is_multiple_of(2) { "4" } else { "1" };
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut args = match self.duty {
            ProcessDuty::DemoNode => words(&["run", "--interval", "0", "--max-waiting", "1000", "--journal"]),
            ProcessDuty::WorkNode | ProcessDuty::PipelineNode => {
                words(&["chaos-worker", "node", "--lanes", lanes])
            }
            ProcessDuty::Publisher { number, seed } => {
                let (number, seed) = (number.to_string(), seed.to_string());
                words(&["chaos-worker", "publisher", "--number", &number, "--seed", &seed])
            }
        };
        if self.duty == ProcessDuty::DemoNode {
            args.extend(words(&["--work-per-char", "100us", "--lease", &lease, "--concurrency", lanes]));
        }
        args.extend(words(&["--record", &shown(&records[0])]));
        args.extend(self.template.durability_args());
        if let (ProcessDuty::PipelineNode, [_, second]) = (self.duty, &self.template.rings[..]) {
            args.extend(words(&["--feed", &shown(&self.template.feed()), "--next-ring", second.as_str()]));
            args.extend(words(&["--next-record", &shown(&records[1])]));
        }
        if let Some(limit) = limit {
            args.extend(words(&["--limit", &limit.to_string()]));
            if self.duty == ProcessDuty::DemoNode {
                args.push("--until-done".to_owned());
            }
        }
        args
    }

    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(ChildProcess::pid)
    }

    /// Kills all these nodes at once with SIGKILL, even frozen ones.
    pub fn kill_all<'a>(nodes: impl Iterator<Item = &'a Self>) -> Result<()> {
        // The children are taken out first, so that `ended` does not report them.
        let mut children: Vec<ChildProcess> = nodes.filter_map(|node| node.child().take()).collect();
        children.iter_mut().try_for_each(|child| child.signal(Signal::SIGKILL))?;
        children.iter_mut().try_for_each(|child| child.kill().map(drop))?;
        Ok(())
    }

    /// Asks the process to stop, and waits for its end. Meanwhile `ended` does not report it.
    pub async fn stop(&self, deadline: Instant) -> Result<()> {
        let Some(mut child) = self.child().take() else { return Ok(()) };
        child.signal(Signal::SIGTERM)?;
        loop {
            match child.exit_status()? {
                Some(status) if status.success() => return Ok(()),
                // It was just starting, and Redis was away.
                Some(status) if status.code() == Some(REDIS.into()) && !self.has_joined()? => return Ok(()),
                Some(status) => bail!("{} ended with {status}: {}", self.name(), self.last_line()),
                None if Instant::now() > deadline => bail!("{} did not stop in time", self.name()),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Puts its records aside. The next process begins new ones.
    pub fn forget(&self) -> Result<()> {
        for record in self.records() {
            std::fs::rename(&record, format!("{}.former", record.display()))?;
        }
        Ok(())
    }

    /// Sends a signal, unless the process has ended. Its id may belong to another process by then.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if let Some(child) = &mut *self.child() {
            child.signal(signal)?;
        }
        Ok(())
    }

    /// Returns the exit status of a process that ended although chaos did not kill it.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        Ok(match &mut *self.child() {
            Some(child) => child.exit_status()?,
            None => None,
        })
    }

    /// Whether the process that was started last has joined all of its rings.
    pub fn has_joined(&self) -> Result<bool> {
        for record in self.records() {
            let mut record = File::open(record)?;
            // A process that has joined and works has written more than this. A process that has not joined has written
            // less.
            record.seek(SeekFrom::Start(record.metadata()?.len().saturating_sub(4096)))?;
            let mut tail = Vec::new();
            record.read_to_end(&mut tail)?;
            let tail = String::from_utf8_lossy(&tail);
            if tail.rsplit_once(" started ").is_some_and(|(_, since)| !since.contains(" joined ")) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The sizes of its records. They grow with every step of the node.
    pub fn record_sizes(&self) -> Vec<u64> {
        let size = |record: PathBuf| std::fs::metadata(record).map_or(0, |record| record.len());
        self.records().into_iter().map(size).collect()
    }

    /// Whether it has made a step in each of its rings since its records had these sizes.
    pub fn has_worked_since(&self, sizes: &[u64]) -> bool {
        self.record_sizes().iter().zip(sizes).all(|(now, before)| now > before)
    }

    /// Waits until the process ends by itself. Fails if it ends with an error or after the deadline.
    pub async fn finish(&self, deadline: Instant) -> Result<()> {
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                // It was just starting, and Redis was away.
                Some(status) if status.code() == Some(REDIS.into()) && !self.has_joined()? => return Ok(()),
                Some(status) => bail!("{} ended with {status}: {}", self.name(), self.last_line()),
                None if Instant::now() > deadline => {
                    bail!("{} did not end in time: {}", self.name(), self.last_line())
                }
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// The last line that the node logged.
    pub fn last_line(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().next_back().unwrap_or("it logged nothing").to_owned()
    }

    fn child(&self) -> MutexGuard<'_, Option<ChildProcess>> {
        self.child.lock().expect("no panic while held")
    }
}
