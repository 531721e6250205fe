//! The monitor's event log: one entry per event of the ring, of the monitor or of its nodes, and per
//! action of the user. Entries are data. Each front
//! end turns them into sentences.

use estafeta_lab::message_id::MessageId;
use std::collections::VecDeque;
use std::process::ExitStatus;

use estafeta::{DeadLetter, EventKind, MemberId};

use crate::model::own_node::NodeName;

/// How many entries are kept.
const KEPT: usize = 1000;

/// What happened to the ring, to the monitor or to its own nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// An event of the ring.
    Event(EventKind),
    /// Messages failed. The last one is unknown if its error is no longer kept.
    Errors {
        count: u64,
        last: Option<LastError>,
    },
    RedisLost {
        reason: String,
    },
    RedisBack,
    /// The balance does not add up.
    BalanceOff,
    /// The balance adds up again.
    BalanceBack,
    /// An own node lost Redis, but the monitor did not.
    NodeLostRedis {
        node: NodeName,
        reason: String,
    },
    /// An own node learned that the ring declared it dead.
    NodeDeclaredDead(NodeName),
    /// The ring has generated as many messages as it may.
    LimitReached {
        limit: u64,
    },
    /// The process of an own node failed or was killed.
    NodeEnded {
        node: NodeName,
        status: ExitStatus,
    },
    NodeNotStarted {
        reason: String,
    },
    Action(UserAction),
}

/// What the user did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAction {
    Killed(NodeName),
    Froze(NodeName),
    Thawed(NodeName),
    AskedToStop(NodeName),
    /// Started one more node.
    Started,
    /// Started a node in place of this one.
    Replaced(NodeName),
}

/// What the log keeps of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    pub id: MessageId,
    pub member: MemberId,
    pub reason: String,
}

impl From<&DeadLetter> for LastError {
    fn from(error: &DeadLetter) -> Self {
        Self { id: MessageId::from(&error.message), member: error.member, reason: error.reason.clone() }
    }
}

#[derive(Clone, Debug)]
pub struct LogEntry {
    pub at_ms: u64,
    pub what: Occurrence,
}

#[derive(Default)]
pub struct EventLog(VecDeque<LogEntry>);

impl EventLog {
    /// Adds an entry. The entries are sorted by time, because a poll may bring events that are older than the last
    /// entry.
    pub fn add(&mut self, at_ms: u64, what: Occurrence) {
        let before = self.0.iter().rposition(|entry| entry.at_ms <= at_ms);
        self.0.insert(before.map_or(0, |before| before + 1), LogEntry { at_ms, what });
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Adds `count` new errors. `last` is the newest kept error, if any. If the last entry counts errors too, its count
    /// grows instead. So a stream of errors does not push all other entries out of sight.
    pub fn add_errors(&mut self, at_ms: u64, mut count: u64, last: Option<&DeadLetter>) {
        if let Some(LogEntry { what: Occurrence::Errors { count: before, .. }, .. }) = self.0.back() {
            count += before;
            self.0.pop_back();
        }
        let at_ms = self.0.back().map_or(at_ms, |entry| entry.at_ms.max(at_ms));
        self.add(at_ms, Occurrence::Errors { count, last: last.map(LastError::from) });
    }

    /// The last `count` entries, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = &LogEntry> {
        self.0.range(self.0.len().saturating_sub(count)..)
    }
}
