//! The life of the own nodes: what their processes and their reports change in the model, and when they are respawned.

use std::process::ExitStatus;

use estafeta::MemberId;

use crate::model::Model;
use crate::model::log::Occurrence;
use crate::model::notice::UserNotice;
use crate::model::own_node::{EndedNode, OwnNode};
use crate::model::request::AppRequest;
use crate::model::rows::Key;
use estafeta_lab::fleet::NodeKey;
use estafeta_lab::report::Report;

/// The first pause before a node is respawned. The pause doubles each time the node ends soon after its start.
pub const RESPAWN_MS: u64 = 500;
/// The longest pause.
const MAX_RESPAWN_MS: u64 = 30_000;
/// A node that ran for this long is considered stable, and its pause starts anew.
const STABLE_MS: u64 = 10_000;

impl Model {
    /// An own node was started.
    pub fn started(&mut self, now_ms: u64, node: NodeKey, pid: u32, pause_ms: u64) {
        self.own.insert(node, OwnNode::new(node, pid, now_ms, pause_ms));
        self.refresh_rows(now_ms);
    }

    /// An own node sent a report.
    pub fn reported(&mut self, now_ms: u64, node: NodeKey, report: &Report) {
        let Some(own) = self.own.get_mut(&node) else {
            return;
        };
        let (name, before) = (own.name(), own.member);
        own.receive(report);
        match report {
            Report::CreatedTaskId { task_id } if task_id.partition().unwrap_or(0) > 0 => {
                self.ours.insert(*task_id);
            }
            Report::CreatedTaskId { task_id } => self.renumber(node, before, *task_id),
            // If the monitor lost Redis too, the log already shows it.
            Report::RedisLost { reason } if self.lost.is_none() => {
                self.log.add(now_ms, Occurrence::NodeLostRedis { node: name, reason: reason.clone() });
            }
            Report::DeclaredDead => self.log.add(now_ms, Occurrence::NodeDeclaredDead(name)),
            Report::LimitReached { limit } => {
                self.log.add(now_ms, Occurrence::LimitReached { limit: *limit })
            }
            _ => {}
        }
    }

    /// Gives an own node its new number, after its first join or after it was declared dead. The selection moves along.
    fn renumber(&mut self, node: NodeKey, before: Option<MemberId>, now: MemberId) {
        self.ours.insert(now);
        let former = before.map_or(Key::Node(node), Key::Member);
        if self.pinned == Some(former) {
            self.pinned = Some(Key::Member(now));
        }
        if let Some((_, row)) = before.and_then(|before| self.gone.get_mut(&before)) {
            row.node = None;
        }
    }

    /// The process of an own node has ended.
    pub fn ended(&mut self, now_ms: u64, node: NodeKey, status: ExitStatus) {
        let respawns = self.info.respawn && !self.quitting;
        let Some(own) = self.own.get_mut(&node) else {
            return;
        };
        own.frozen = false;
        if status.success() {
            self.own.remove(&node);
            self.refresh_rows(now_ms);
            return;
        }
        if now_ms.saturating_sub(own.started_ms) >= STABLE_MS {
            own.pause_ms = RESPAWN_MS;
        }
        let back_at_ms = (respawns && !own.stopping).then_some(now_ms + own.pause_ms);
        own.ended = Some(EndedNode { at_ms: now_ms, back_at_ms });
        let (name, killed) = (own.name(), own.killed);
        if status.code().is_some() {
            self.failure = Some(status);
        }
        if !killed {
            self.log.add(now_ms, Occurrence::NodeEnded { node: name, status });
        }
        self.refresh_rows(now_ms);
    }

    /// A node could not be started.
    pub fn not_started(&mut self, now_ms: u64, reason: &str) {
        self.log.add(now_ms, Occurrence::NodeNotStarted { reason: reason.to_owned() });
        self.show_notice(now_ms, UserNotice::NodeNotStarted { reason: reason.to_owned() });
    }

    /// Lets time pass: removes an old notice and respawns the nodes that are due.
    pub fn tick(&mut self, now_ms: u64) -> Vec<AppRequest> {
        if self.notice.as_ref().is_some_and(|(until, _)| *until <= now_ms) {
            self.notice = None;
        }
        if self.quitting {
            return Vec::new();
        }
        let is_due =
            |own: &&OwnNode| own.ended.and_then(|ended| ended.back_at_ms).is_some_and(|at| at <= now_ms);
        let due: Vec<_> = self.own.values().filter(is_due).map(|own| (own.node, own.pause_ms)).collect();
        due.into_iter()
            .map(|(node, pause_ms)| {
                self.forget(node);
                AppRequest::Start { pause_ms: (pause_ms * 2).min(MAX_RESPAWN_MS) }
            })
            .collect()
    }

    /// Whether a dead node will be respawned.
    pub fn respawns(&self) -> bool {
        self.own.values().any(|own| own.ended.is_some_and(|ended| ended.back_at_ms.is_some()))
    }

    /// Forgets a node that has ended.
    pub(super) fn forget(&mut self, node: NodeKey) {
        if let Some(member) = self.own.remove(&node).and_then(|own| own.member) {
            self.gone.remove(&member);
        }
    }

    /// The own nodes whose processes run.
    pub fn running(&self) -> impl Iterator<Item = &OwnNode> {
        self.own.values().filter(|own| own.runs())
    }
}
