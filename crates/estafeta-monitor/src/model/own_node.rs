//! An own node: one that this monitor started. Its data come from its process and from its reports.

use estafeta::MemberId;

use estafeta_lab::fleet::NodeKey;
use estafeta_lab::report::Report;

/// How many messages a node generated and processed, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTotals {
    pub generated: u64,
    pub processed: u64,
    pub failed: u64,
}

/// What identifies a node for people: its number, or its process before it has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeName {
    pub member: Option<MemberId>,
    pub pid: u64,
}

#[derive(Debug)]
pub struct OwnNode {
    pub node: NodeKey,
    pub pid: u32,
    pub started_ms: u64,
    /// Its number, once it has joined. It changes if the node is declared dead and joins again.
    pub member: Option<MemberId>,
    pub frozen: bool,
    /// Whether it is stopping, because this monitor asked it to or because it reported so.
    pub stopping: bool,
    /// Whether this monitor killed it.
    pub killed: bool,
    /// Set once its process has ended.
    pub ended: Option<EndedNode>,
    /// How long the monitor waits before it respawns the node.
    pub pause_ms: u64,
    /// What it reported since its process started.
    totals: NodeTotals,
    /// What it had reported when it last joined.
    at_join: NodeTotals,
}

#[derive(Clone, Copy, Debug)]
pub struct EndedNode {
    pub at_ms: u64,
    /// When the monitor respawns it, if ever.
    pub back_at_ms: Option<u64>,
}

impl OwnNode {
    pub fn new(node: NodeKey, pid: u32, started_ms: u64, pause_ms: u64) -> Self {
        Self {
            node,
            pid,
            started_ms,
            member: None,
            frozen: false,
            stopping: false,
            killed: false,
            ended: None,
            pause_ms,
            totals: NodeTotals::default(),
            at_join: NodeTotals::default(),
        }
    }

    /// Takes a report of the node into account.
    pub fn receive(&mut self, report: &Report) {
        match *report {
            // In a ring with partitions, a node has one member in each. The first one stands for it.
            Report::CreatedTaskId { task_id } if task_id.partition().unwrap_or(0) > 0 => {}
            Report::CreatedTaskId { task_id } => {
                self.member = Some(task_id);
                self.at_join = self.totals;
            }
            Report::Generated { total } => self.totals.generated = total,
            Report::Processed { total, errors } => {
                (self.totals.processed, self.totals.failed) = (total, errors);
            }
            Report::Stopping => self.stopping = true,
            _ => {}
        }
    }

    /// What the node reported since it last joined, as its current member.
    pub fn since_joining(&self) -> NodeTotals {
        NodeTotals {
            generated: self.totals.generated.saturating_sub(self.at_join.generated),
            processed: self.totals.processed.saturating_sub(self.at_join.processed),
            failed: self.totals.failed.saturating_sub(self.at_join.failed),
        }
    }

    pub fn name(&self) -> NodeName {
        NodeName { member: self.member, pid: self.pid.into() }
    }

    pub fn runs(&self) -> bool {
        self.ended.is_none()
    }
}
