//! One copy under attack: a real process behind a proxy of its own, and what is known of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::{Endpoint, MemberView, RingName, Snapshot};
use estafeta_proxy::{Proxy, Upstream};
use nix::sys::signal::Signal;

use super::LEASE;
use crate::offspring;

/// The ids of all processes that chaos has started: whoever else is in the ring is a stranger.
pub type Pids = Arc<Mutex<BTreeSet<u32>>>;

/// What is the same for all copies.
#[derive(Clone)]
pub struct Family {
    pub directory: PathBuf,
    pub endpoint: Endpoint,
    pub ring: RingName,
    pub pids: Pids,
    /// Nobody is started any more.
    pub closed: Arc<AtomicBool>,
}

impl Family {
    /// A child of this program.
    pub fn start(&self, args: &[&str], url: &str, stdout: &Path, stderr: &Path) -> Result<Child> {
        let open = |path: &Path| File::options().append(true).create(true).open(path);
        let mut command = offspring::of_this_program(&self.ring, url)?;
        command.args(args).stdin(Stdio::null()).stdout(open(stdout)?).stderr(open(stderr)?);
        let mut pids = self.pids.lock().expect("no panic while held");
        if self.closed.load(Ordering::Relaxed) {
            bail!("chaos has ended");
        }
        let child = offspring::spawn(command).context("cannot start a copy of this program")?;
        pids.insert(child.id());
        Ok(child)
    }

    /// A member that chaos has not started. Machines that share a Redis may have the same process ids.
    pub fn stranger_in<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a MemberView> {
        let pids = self.pids.lock().expect("no panic while held");
        let host = nix::unistd::gethostname().unwrap_or_default();
        let is_ours = |member: &&MemberView| {
            let is_here = member.host == host.to_string_lossy();
            is_here && u32::try_from(member.pid).is_ok_and(|pid| pids.contains(&pid))
        };
        snapshot.members.iter().find(|member| !is_ours(member))
    }
}

pub struct Copy {
    pub index: usize,
    pub proxy: Proxy,
    family: Family,
    child: Mutex<Option<Child>>,
}

impl Copy {
    pub async fn new(index: usize, family: Family, upstream: Upstream) -> Result<Self> {
        let proxy = Proxy::start(upstream).await.context("cannot listen on a port of this machine")?;
        Ok(Self { index, proxy, family, child: Mutex::new(None) })
    }

    /// The record that all processes of this copy write.
    pub fn record(&self) -> PathBuf {
        self.family.directory.join(format!("copy-{}.record", self.index + 1))
    }

    fn log(&self) -> PathBuf {
        self.family.directory.join(format!("copy-{}.log", self.index + 1))
    }

    /// Starts its process, with these options beside the usual ones.
    pub fn start(&self, options: &[&str]) -> Result<()> {
        let (record, lease) = (self.record().display().to_string(), format!("{}ms", LEASE.as_millis()));
        // Quick work, in several lanes: a copy holds a few messages at any moment that it may be killed in. Every other one
        // has a lane alone, whose steps take another way.
        let lanes = if self.index.is_multiple_of(2) { "4" } else { "1" };
        let usual = ["run", "--interval", "0", "--max-waiting", "1000", "--concurrency", lanes, "--journal"];
        let own = ["--work-per-char", "100us", "--lease", &lease, "--record", &record];
        let args = [&usual[..], &own, options].concat();
        let url = self.family.endpoint.secret_url_through(self.proxy.port());
        let mut child = self.child();
        // Whoever comes second finds it running.
        let runs = child.as_mut().map(Child::try_wait).transpose()?.is_some_and(|ended| ended.is_none());
        if !runs {
            *child = Some(self.family.start(&args, &url, &self.log(), &self.log())?);
        }
        Ok(())
    }

    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// kill -9, of all of them at once; also of those that are frozen.
    pub fn kill_all<'a>(copies: impl Iterator<Item = &'a Self>) -> Result<()> {
        // Taken out first: nobody is to wonder why they end.
        let mut children: Vec<Child> = copies.filter_map(|copy| copy.child().take()).collect();
        children.iter_mut().try_for_each(Child::kill)?;
        children.iter_mut().try_for_each(|child| child.wait().map(drop))?;
        Ok(())
    }

    /// Does nothing to a process that has ended: its id may belong to somebody else by now.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if let Some(child) = &mut *self.child() {
            offspring::signal(child, signal)?;
        }
        Ok(())
    }

    /// The exit status of a process that ended although nobody killed it.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        Ok(match &mut *self.child() {
            Some(child) => child.try_wait()?,
            None => None,
        })
    }

    /// Whether the process that was started last got as far as joining the ring.
    pub fn has_joined(&self) -> Result<bool> {
        let mut record = File::open(self.record())?;
        // One that has joined and works has written more than this, and one that has not, less.
        record.seek(SeekFrom::Start(record.metadata()?.len().saturating_sub(4096)))?;
        let mut tail = Vec::new();
        record.read_to_end(&mut tail)?;
        let tail = String::from_utf8_lossy(&tail);
        Ok(tail.rsplit_once(" started ").is_none_or(|(_, since)| since.contains(" joined ")))
    }

    /// Grows with everything the copy does.
    pub fn record_length(&self) -> u64 {
        std::fs::metadata(self.record()).map_or(0, |record| record.len())
    }

    /// Waits for its process to end by itself, in good order.
    pub async fn finish(&self, deadline: Instant) -> Result<()> {
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("copy {} ended with {status}: {}", self.index + 1, self.last_words()),
                None if Instant::now() > deadline => {
                    bail!("copy {} did not end in time: {}", self.index + 1, self.last_words())
                }
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// The last line it wrote.
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().next_back().unwrap_or("it said nothing").to_owned()
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().expect("no panic while held")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = Self::kill_all([&*self].into_iter());
    }
}
