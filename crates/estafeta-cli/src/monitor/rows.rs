//! The table's rows: every member of the ring, and every copy of ours that is not or no longer one.

use estafeta::{Health, MemberId, MemberView, Role};

use super::own::{Own, Slot};
use crate::escape::escape;

/// How a row looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Ours, not yet in the ring.
    Starting,
    Alive,
    /// Stopped by SIGSTOP, or not heard of for half its lease.
    Frozen,
    /// Told to stop, or its connection is gone and it is about to be buried.
    Dying,
    Dead,
    /// Gone in good order.
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

/// What a row is about, whatever else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Member(MemberId),
    /// A copy of ours without a number yet.
    Slot(Slot),
}

/// What only several looks can tell of a member.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Messages a second that it generates or handles.
    pub rate: f64,
    /// It did not renew its lease when it should have.
    pub silent: bool,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub key: Key,
    /// Whether it was started here.
    pub mine: bool,
    /// The copy of ours that it is; None also for what one of them was before it came back under a new number.
    pub slot: Option<Slot>,
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
    /// When a dead copy is started again.
    pub back_at_ms: Option<u64>,
}

impl Row {
    /// A member, together with what we know of its process if that is ours.
    pub fn member(view: &MemberView, mine: bool, own: Option<&Own>, pace: Pace) -> Self {
        let condition = match (own, view.state) {
            (Some(own), _) if own.ended.is_some() => Condition::Dead,
            (Some(own), _) if own.frozen => Condition::Frozen,
            (Some(own), _) if own.stopping => Condition::Dying,
            (_, Health::Absent) => Condition::Dying,
            (_, Health::Expired) => Condition::Frozen,
            (_, Health::Well | Health::Ahead) if pace.silent => Condition::Frozen,
            (_, Health::Well | Health::Ahead) => Condition::Alive,
        };
        let mut row = Self {
            key: Key::Member(view.id),
            mine,
            slot: own.map(|own| own.slot),
            role: Some(view.role),
            rank: view.rank,
            pid: view.pid,
            host: escape(view.host.as_bytes()),
            generated: view.generated,
            processed: view.processed,
            failed: view.failed,
            rate: pace.rate,
            in_flight: view.in_flight,
            condition,
            back_at_ms: None,
        };
        if let Some(own) = own {
            row.add_what_it_said(own);
        }
        row
    }

    /// A copy of ours that is no member yet.
    pub fn joining(own: &Own, host: &str) -> Self {
        let condition = match own {
            Own { ended: Some(_), .. } => Condition::Dead,
            Own { frozen: true, .. } => Condition::Frozen,
            Own { stopping: true, .. } => Condition::Dying,
            _ => Condition::Starting,
        };
        Self {
            key: Key::Slot(own.slot),
            mine: true,
            slot: Some(own.slot),
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

    /// A copy may have told of more than Redis had at the last look, most of all one that was killed since.
    pub fn add_what_it_said(&mut self, own: &Own) {
        self.back_at_ms = own.ended.and_then(|ended| ended.back_at_ms);
        let said = own.since_joining();
        self.generated = self.generated.max(said.generated);
        self.processed = self.processed.max(said.processed);
        self.failed = self.failed.max(said.failed);
    }

    /// The same row after its member went away.
    pub fn departed(mut self, condition: Condition) -> Self {
        (self.condition, self.role, self.rank, self.rate, self.in_flight) = (condition, None, None, 0.0, 0);
        self
    }
}
