//! Nodes of this program that run as child processes and report on stdout.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::child_process::ChildProcess;
use crate::report::{Control, Report};

/// The longest line that a node may print, in bytes. A longer line is cut into pieces, which are no valid reports.
const LONGEST_LINE: u64 = 64 * 1024;

/// Identifies a node of the fleet, even one that has not joined a ring yet. Never used twice, unlike a process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(pub u32);

/// The running nodes. Dropping this value kills them.
pub struct Fleet {
    nodes: BTreeMap<NodeKey, FleetNode>,
    last: u32,
    reports: UnboundedSender<FromNode>,
}

struct FleetNode {
    child: ChildProcess,
    stdin: Option<ChildStdin>,
}

/// Something that the fleet received from a node.
#[derive(Debug)]
pub struct FromNode {
    /// The node.
    pub node: NodeKey,
    /// When the fleet received it.
    pub at: Instant,
    /// None: the output of the node has ended. The node has exited, or is about to.
    pub report: Option<Report>,
}

impl Fleet {
    /// Creates a fleet without nodes, and the channel on which it passes on their reports.
    pub fn new() -> (Self, UnboundedReceiver<FromNode>) {
        let (reports, receiver) = unbounded_channel();
        (Self { nodes: BTreeMap::new(), last: 0, reports }, receiver)
    }

    /// The key of the node that is started next.
    pub fn next_key(&self) -> NodeKey {
        NodeKey(self.last + 1)
    }

    /// Starts a node: `run --json` of this program, with its stderr set. Needs a tokio runtime.
    pub fn start(&mut self, mut command: Command) -> Result<NodeKey> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = ChildProcess::spawn(command).context("cannot start a node of this program")?;
        let (stdin, stdout) = (child.inner().stdin.take(), child.inner().stdout.take());
        let node = self.next_key();
        self.nodes.insert(node, FleetNode { child, stdin });
        self.last = node.0;
        let stdout = Receiver::from_owned_fd(OwnedFd::from(stdout.context("a node without stdout")?))?;
        tokio::spawn(listen(node, stdout, self.reports.clone()));
        Ok(node)
    }

    /// The nodes that have been neither reaped nor removed.
    pub fn keys(&self) -> impl Iterator<Item = NodeKey> {
        self.nodes.keys().copied()
    }

    /// The process id of a node.
    pub fn pid(&self, node: NodeKey) -> Option<u32> {
        self.nodes.get(&node).map(|node| node.child.pid())
    }

    /// The node with this process id.
    pub fn with_pid(&self, pid: u64) -> Option<NodeKey> {
        self.nodes.iter().find(|(_, node)| u64::from(node.child.pid()) == pid).map(|(key, _)| *key)
    }

    /// Asks a node to stop. It finishes its current messages, resigns and leaves the ring.
    pub fn stop(&mut self, node: NodeKey) {
        if let Some(FleetNode { child, stdin }) = self.nodes.get_mut(&node) {
            let asked = stdin.take().map(|mut stdin| stdin.write_all(&Control::Stop.line()));
            if !matches!(asked, Some(Ok(()))) {
                let _ = child.signal(Signal::SIGTERM);
            }
        }
    }

    /// Sends a signal to a node, unless it has ended. [`reap`](Self::reap) returns the nodes that have ended.
    pub fn signal(&mut self, node: NodeKey, signal: Signal) {
        if let Some(node) = self.nodes.get_mut(&node) {
            let _ = node.child.signal(signal);
        }
    }

    /// Returns the nodes that have ended since the last call.
    pub fn reap(&mut self) -> Vec<(NodeKey, ExitStatus)> {
        let ended = |(key, node): (&NodeKey, &mut FleetNode)| {
            let status = node.child.exit_status().ok().flatten()?;
            Some((*key, status))
        };
        let ended: Vec<_> = self.nodes.iter_mut().filter_map(ended).collect();
        ended.iter().for_each(|(key, _)| drop(self.nodes.remove(key)));
        ended
    }

    /// Kills a node and forgets it.
    pub fn remove(&mut self, node: NodeKey) {
        self.nodes.remove(&node);
    }

    /// Kills all nodes. All of them receive the signal before the first is waited for.
    pub fn kill_all(&mut self) {
        for node in self.nodes.values_mut() {
            let _ = node.child.signal(Signal::SIGKILL);
        }
        self.nodes.clear();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.kill_all();
    }
}

async fn listen(node: NodeKey, stdout: Receiver, reports: UnboundedSender<FromNode>) {
    let mut lines = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let at = Instant::now();
        if let Some(report) = Report::parse(&line).filter(|report| *report != Report::Other) {
            let _ = reports.send(FromNode { node, at, report: Some(report) });
        }
    }
    let _ = reports.send(FromNode { node, at: Instant::now(), report: None });
}
