//! The rows of the table: one per member of the ring, and one per own node that is not a member yet or no longer.

use estafeta::{Health, MemberId, MemberView, Role};

use crate::model::own_node::{NodeName, OwnNode};
use estafeta_lab::fleet::NodeKey;

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// An own node that has not joined the ring yet.
    Starting,
    Alive,
    /// Stopped by SIGSTOP, or silent for half its lease.
    Frozen,
    /// Asked to stop, or absent and about to be buried.
    Dying,
    Dead,
    /// Left the ring in good order.
    Left,
}

impl Condition {
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "joining",
            Self::Alive => "alive",
            Self::Frozen => "frozen",
            Self::Dying => "dying",
            Self::Dead => "dead",
            Self::Left => "left",
        }
    }

    pub fn is_gone(self) -> bool {
        matches!(self, Self::Dead | Self::Left)
    }
}

/// Identifies a row, even if everything else in it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Member(MemberId),
    /// An own node that has no member number yet.
    Node(NodeKey),
}

/// What only several polls can show of a member.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemberPace {
    /// How many messages per second it generates or handles.
    pub rate: f64,
    /// Whether it failed to renew its lease in time.
    pub silent: bool,
}

#[derive(Clone, Debug)]
pub struct MemberRow {
    pub key: Key,
    /// Whether this monitor started it.
    pub mine: bool,
    /// The own node behind this row. None for a foreign member, and for the former number of a node that joined again.
    pub node: Option<NodeKey>,
    pub role: Option<Role>,
    pub rank: Option<u64>,
    pub pid: u64,
    pub host: String,
    pub generated: u64,
    pub processed: u64,
    pub failed: u64,
    pub rate: f64,
    pub in_flight: u64,
    pub condition: Condition,
    /// When the monitor respawns a dead node, if ever.
    pub back_at_ms: Option<u64>,
}

impl MemberRow {
    /// The row of a member. If this monitor started the member, `own` is its node.
    pub fn member(view: &MemberView, mine: bool, own: Option<&OwnNode>, pace: MemberPace) -> Self {
        let condition = match (own, view.state) {
            (Some(own), _) if own.ended.is_some() => Condition::Dead,
            (Some(own), _) if own.frozen => Condition::Frozen,
            (Some(own), _) if own.stopping => Condition::Dying,
            (_, Health::Absent) => Condition::Dying,
            (_, Health::Expired) => Condition::Frozen,
            _ if pace.silent => Condition::Frozen,
            _ => Condition::Alive,
        };
        let mut row = Self {
            key: Key::Member(view.id),
            mine,
            node: own.map(|own| own.node),
            role: Some(view.role),
            rank: view.rank,
            pid: view.pid,
            host: view.host.clone(),
            generated: view.generated,
            processed: view.processed,
            failed: view.failed,
            rate: pace.rate,
            in_flight: view.in_flight,
            condition,
            back_at_ms: None,
        };
        // What a node reports concerns all its partitions together.
        if let Some(own) = own.filter(|_| view.id.partition().is_none()) {
            row.add_reported(own);
        }
        row
    }

    /// The row of an own node that is not a member yet.
    pub fn joining(own: &OwnNode, host: &str) -> Self {
        let condition = match own {
            OwnNode { ended: Some(_), .. } => Condition::Dead,
            OwnNode { frozen: true, .. } => Condition::Frozen,
            OwnNode { stopping: true, .. } => Condition::Dying,
            _ => Condition::Starting,
        };
        Self {
            key: Key::Node(own.node),
            mine: true,
            node: Some(own.node),
            role: None,
            rank: None,
            pid: own.pid.into(),
            host: host.to_owned(),
            generated: 0,
            processed: 0,
            failed: 0,
            rate: 0.0,
            in_flight: 0,
            condition,
            back_at_ms: own.ended.and_then(|ended| ended.back_at_ms),
        }
    }

    pub fn name(&self) -> NodeName {
        let member = match self.key {
            Key::Member(member) => Some(member),
            Key::Node(_) => None,
        };
        NodeName { member, pid: self.pid }
    }

    /// Adds what the node reported itself. That may be more than Redis knew at the last poll, especially if the node
    /// was killed since.
    pub fn add_reported(&mut self, own: &OwnNode) {
        self.back_at_ms = own.ended.and_then(|ended| ended.back_at_ms);
        let reported = own.since_joining();
        self.generated = self.generated.max(reported.generated);
        self.processed = self.processed.max(reported.processed);
        self.failed = self.failed.max(reported.failed);
    }

    /// The same row after its member left or was buried.
    pub fn departed(mut self, condition: Condition) -> Self {
        (self.condition, self.role, self.rank, self.rate, self.in_flight) = (condition, None, None, 0.0, 0);
        self
    }
}
