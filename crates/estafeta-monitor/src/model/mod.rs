//! What the monitor knows, and how each input changes it. The model touches no process, no Redis and no terminal. Each
//! call passes the current time, and the model returns effects for the app to perform.
//!
//! The model has two sources, and they can disagree. The ring's snapshots decide who is a member, who is the generator
//! and what is counted. The processes of the own nodes decide whether those nodes run. A row combines both. The
//! special cases are:
//!
//! - *Redis does not answer*: the last snapshot stays, marked as old, until Redis is back.
//! - *A member disappears from the ring*: its last row stays for a few seconds, as left or dead. The row of an own node
//!   stays as long as the model knows that node.
//! - *An own node has not joined yet*: its row has no number.
//! - *An own node was declared dead and joined again*: it gets a row with its new number, and the selection moves
//!   along.
//!
//! An own node that exits cleanly is forgotten. One that fails or is killed stays in the table for 30 seconds, so that
//! the user can restart it. With `--respawn` the model restarts it after a pause. The pause doubles each time the node
//! ends soon after its start. A node that was asked to stop is never respawned, and neither is any node while the
//! monitor quits.

pub mod actions;
pub mod errors_view;
pub mod history;
pub mod log;
pub mod own_node;
pub mod rows;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitStatus;

use estafeta::{DeadLetter, Event, EventKind, MemberId, Role, Snapshot};

use crate::model::errors_view::ErrorsView;
use crate::model::history::{History, failed};
use crate::model::log::{EventLog, Tone};
use crate::model::own_node::{Ended, OwnNode};
use crate::model::rows::{Condition, Key, MemberPace, MemberRow};
use estafeta_lab::escape::escape;
use estafeta_lab::fleet::NodeKey;
use estafeta_lab::report::Report;
use estafeta_lab::text::counted;

/// How long the table shows a member that is gone.
const GONE_SHOWN_MS: u64 = 5_000;
/// How long the table shows a dead own node, which the user can restart.
const DEAD_SHOWN_MS: u64 = 30_000;
/// How long the footer shows a notice.
const NOTICE_MS: u64 = 5_000;
/// The first pause before a node is respawned. The pause doubles each time the node ends soon after its start.
pub const RESPAWN_MS: u64 = 500;
/// The longest pause.
const MAX_RESPAWN_MS: u64 = 30_000;
/// A node that ran for this long is considered stable, and its pause starts anew.
const STABLE_MS: u64 = 10_000;

/// What stays the same for the whole run.
pub struct MonitorInfo {
    pub ring: String,
    pub redis: String,
    pub host: String,
    /// Whether the monitor only watches.
    pub attach: bool,
    pub respawn: bool,
    pub log_file: Option<PathBuf>,
    pub started_ms: u64,
}

/// The result of one poll of the ring.
pub struct RingUpdate {
    pub snapshot: Snapshot,
    /// The events since the last poll, oldest first.
    pub events: Vec<Event>,
    /// The newest errors. The oldest of them comes first.
    pub errors: Vec<DeadLetter>,
}

/// What the model wants the app to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a node. `pause_ms` is the pause before it is respawned if it ends soon.
    Start {
        pause_ms: u64,
    },
    /// Ask a node to stop, by its stdin or SIGTERM.
    Stop(NodeKey),
    Kill(NodeKey),
    Freeze(NodeKey),
    Thaw(NodeKey),
    /// Stop all nodes, and end once they have ended.
    Quit,
    /// Kill the nodes that have not stopped yet.
    QuitNow,
    Suspend,
    /// Capture the mouse, or release it so that the terminal's own text selection works.
    Mouse(bool),
    Errors(ErrorsRequest),
}

/// A request about the kept errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorsRequest {
    /// Fetch the newest ones that contain this text.
    List(String),
    Retry(Vec<u64>),
    Drop(Vec<u64>),
}

pub enum View {
    Ring,
    Errors(Box<ErrorsView>),
}

pub struct Model {
    pub info: MonitorInfo,
    pub snapshot: Option<Snapshot>,
    /// Why Redis does not answer. None while it answers.
    pub lost: Option<String>,
    pub history: History,
    pub log: EventLog,
    pub last_errors: Vec<DeadLetter>,
    pub view: View,
    /// Whether the help covers the view.
    pub help: bool,
    pub paused: bool,
    pub quitting: bool,
    /// The notice in the footer, and when it disappears.
    pub notice: Option<(u64, String)>,
    pub rows: Vec<MemberRow>,
    /// The row that the user selected. None: the selection follows the generator.
    pub(super) pinned: Option<Key>,
    pub(super) own: BTreeMap<NodeKey, OwnNode>,
    /// Every number that an own node ever had as a member.
    ours: HashSet<MemberId>,
    /// The last row of each member that disappeared from the ring, and when it did.
    gone: HashMap<MemberId, (u64, MemberRow)>,
    /// How many errors the log does not count yet, and when it last counted some.
    unlogged_errors: (u64, u64),
    /// Whether any snapshot had a balance that does not add up.
    pub was_unbalanced: bool,
    /// The status of the last own node that exited with an error code.
    pub failure: Option<ExitStatus>,
}

impl Model {
    pub fn new(info: MonitorInfo) -> Self {
        Self {
            info,
            snapshot: None,
            lost: None,
            history: History::default(),
            log: EventLog::default(),
            last_errors: Vec::new(),
            view: View::Ring,
            help: false,
            paused: false,
            quitting: false,
            notice: None,
            rows: Vec::new(),
            pinned: None,
            own: BTreeMap::new(),
            ours: HashSet::new(),
            gone: HashMap::new(),
            unlogged_errors: (0, 0),
            was_unbalanced: false,
            failure: None,
        }
    }

    /// A poll of the ring succeeded.
    pub fn updated(&mut self, now_ms: u64, update: RingUpdate) {
        if self.lost.take().is_some() {
            self.log.add(now_ms, Tone::Good, "Redis is back");
        }
        let snapshot = update.snapshot;
        for event in &update.events {
            // The clock of Redis may differ from the clock of the monitor, which the log uses.
            let age = snapshot.time_ms.saturating_sub(event.time_ms);
            self.log.add_event(now_ms.saturating_sub(age), event);
        }
        self.count_errors(now_ms, &snapshot, &update.errors);
        self.note_departures(now_ms, &snapshot, &update.events);
        self.note_balance(now_ms, &snapshot);
        self.history.record(now_ms, &snapshot);
        self.last_errors = update.errors;
        self.snapshot = Some(snapshot);
        self.refresh_rows(now_ms);
    }

    /// A poll of the ring failed.
    pub fn lost(&mut self, now_ms: u64, reason: &str) {
        if self.lost.is_none() {
            let reason = escape(reason.as_bytes());
            self.log.add(now_ms, Tone::Bad, format!("Redis does not answer: {reason}"));
            self.lost = Some(reason);
        }
        self.refresh_rows(now_ms);
    }

    fn note_balance(&mut self, now_ms: u64, snapshot: &Snapshot) {
        let was_balanced = self.snapshot.as_ref().is_none_or(|before| before.balanced);
        if was_balanced && !snapshot.balanced {
            self.log.add(now_ms, Tone::Bad, "the balance does not add up");
        } else if !was_balanced && snapshot.balanced {
            self.log.add(now_ms, Tone::Good, "the balance adds up again");
        }
        self.was_unbalanced |= !snapshot.balanced;
    }

    /// Logs new errors, at most once per second, because there may be thousands.
    fn count_errors(&mut self, now_ms: u64, snapshot: &Snapshot, newest: &[DeadLetter]) {
        let Some(before) = &self.snapshot else {
            return;
        };
        let (unlogged, logged_ms) = &mut self.unlogged_errors;
        *unlogged += failed(snapshot).saturating_sub(failed(before));
        if *unlogged == 0 || logged_ms.saturating_add(1000) > now_ms {
            return;
        }
        self.log.add_errors(now_ms, *unlogged, newest.last());
        (*unlogged, *logged_ms) = (0, now_ms);
    }

    /// Keeps the last row of each member that disappeared.
    fn note_departures(&mut self, now_ms: u64, snapshot: &Snapshot, events: &[Event]) {
        let before = self.snapshot.iter().flat_map(|before| &before.members);
        let missing = before.filter(|member| snapshot.members.iter().all(|other| other.id != member.id));
        for member in missing {
            let is_its =
                |event: &Event| matches!(event.kind, EventKind::Left { member: who, .. } if who == member.id);
            let left = events.iter().any(is_its);
            let condition = if left { Condition::Left } else { Condition::Dead };
            let own = self.own.values().find(|own| own.member == Some(member.id));
            let mine = self.ours.contains(&member.id);
            let row = MemberRow::member(member, mine, own, MemberPace::default()).departed(condition);
            self.gone.insert(member.id, (now_ms, row));
        }
    }

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
        let (who, before) = (name_of(own), own.member);
        own.receive(report);
        match report {
            Report::CreatedTaskId { task_id } => self.renumber(node, before, *task_id),
            // If the monitor lost Redis too, the log already shows it.
            Report::RedisLost { reason } if self.lost.is_none() => {
                let reason = escape(reason.as_bytes());
                self.log.add(now_ms, Tone::Bad, format!("{who} lost Redis: {reason}"));
            }
            Report::DeclaredDead => {
                let text = format!("{who} learned that it was declared dead, joins again");
                self.log.add(now_ms, Tone::Notable, text);
            }
            Report::LimitReached { limit } => {
                let text = format!("the limit of {} is reached", counted(*limit, "message"));
                self.log.add(now_ms, Tone::Notable, text);
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
        own.ended = Some(Ended { at_ms: now_ms, back_at_ms });
        let (who, killed) = (name_of(own), own.killed);
        use std::os::unix::process::ExitStatusExt as _;
        let how = match status.signal() {
            Some(9) => "was killed".to_owned(),
            Some(signal) => format!("was ended by signal {signal}"),
            None => format!("failed with exit code {}, see the log", status.code().unwrap_or(-1)),
        };
        if status.code().is_some() {
            self.failure = Some(status);
        }
        if !killed {
            self.log.add(now_ms, Tone::Bad, format!("{who} {how}"));
        }
        self.refresh_rows(now_ms);
    }

    /// A node could not be started.
    pub fn not_started(&mut self, now_ms: u64, why: &str) {
        let text = format!("cannot start a node: {}", escape(why.as_bytes()));
        self.log.add(now_ms, Tone::Bad, text.clone());
        self.show_notice(now_ms, text);
    }

    /// Lets time pass: removes an old notice and respawns the nodes that are due.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Effect> {
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
                Effect::Start { pause_ms: (pause_ms * 2).min(MAX_RESPAWN_MS) }
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

    pub fn generator(&self) -> Option<&MemberRow> {
        self.rows.iter().find(|row| row.role == Some(Role::Generator))
    }

    /// The index of the selected row: the one that the user selected, or else the generator.
    pub fn selected(&self) -> Option<usize> {
        self.selected_pin().or_else(|| self.rows.iter().position(|row| row.role == Some(Role::Generator)))
    }

    fn selected_pin(&self) -> Option<usize> {
        let key = self.pinned?;
        self.rows.iter().position(|row| row.key == key)
    }

    /// Shows a notice in the footer for a while.
    pub fn show_notice(&mut self, now_ms: u64, text: impl Into<String>) {
        self.notice = Some((now_ms + NOTICE_MS, text.into()));
    }

    /// Rebuilds the table from the last snapshot and the own nodes.
    pub(super) fn refresh_rows(&mut self, now_ms: u64) {
        self.own.retain(|_, own| {
            own.ended.is_none_or(|ended| ended.back_at_ms.is_some() || ended.at_ms + DEAD_SHOWN_MS > now_ms)
        });
        let by_member: HashMap<MemberId, &OwnNode> =
            self.own.values().filter_map(|own| Some((own.member?, own))).collect();
        self.gone.retain(|id, (since, _)| *since + GONE_SHOWN_MS > now_ms || by_member.contains_key(id));
        let members = self.snapshot.iter().flat_map(|snapshot| &snapshot.members);
        let mut rows: Vec<MemberRow> = members
            .map(|member| {
                // After the ring was wiped, the same number may belong to another process.
                let is_same =
                    |own: &&OwnNode| u64::from(own.pid) == member.pid && self.info.host == member.host;
                let own = by_member.get(&member.id).copied().filter(is_same);
                let mine =
                    own.is_some() || self.ours.contains(&member.id) && !by_member.contains_key(&member.id);
                MemberRow::member(member, mine, own, self.history.pace_of(member.id))
            })
            .collect();
        let present = |id: MemberId, rows: &[MemberRow]| rows.iter().any(|row| row.key == Key::Member(id));
        for (id, (_, row)) in &self.gone {
            if !present(*id, &rows) && !by_member.contains_key(id) {
                rows.push(row.clone());
            }
        }
        for own in self.own.values() {
            match own.member {
                Some(id) if present(id, &rows) => {}
                member => rows.push(self.without_membership(own, member)),
            }
        }
        rows.sort_by_key(|row| row.key);
        self.rows = rows;
        if self.selected_pin().is_none() {
            self.pinned = None;
        }
    }

    /// The row of an own node that is not a member yet or no longer.
    fn without_membership(&self, own: &OwnNode, member: Option<MemberId>) -> MemberRow {
        let mut row = MemberRow::joining(own, &self.info.host);
        if let Some(id) = member {
            if let Some((_, last)) = self.gone.get(&id) {
                row = MemberRow { condition: row.condition, node: row.node, mine: true, ..last.clone() };
            }
            row.key = Key::Member(id);
            row.add_reported(own);
        }
        row
    }
}

/// The name of an own node, in words.
pub(super) fn name_of(own: &OwnNode) -> String {
    match own.member {
        Some(member) => format!("{member} (pid {})", own.pid),
        None => format!("the node with pid {}", own.pid),
    }
}
