//! What the monitor knows, and how each input changes it. The model touches no process, no Redis and no terminal. Each
//! call passes the current time, and the model returns requests for the app to perform.
//!
//! The model holds data, not sentences, and it stores text from outside as it came. Each front end makes the sentences
//! and escapes the text. On a terminal `tui/draw` does this, otherwise `plain`.
//!
//! The model has two sources, and they can disagree. The ring's snapshots decide who is a member, who is the generator
//! and what is counted. The processes of the own nodes decide whether those nodes run. A row combines both. The
//! special cases are:
//!
//! - *Redis does not answer*: the last snapshot stays, marked as old and with its age, until Redis is back.
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
pub mod command;
pub mod errors_view;
pub mod history;
pub mod lifecycle;
pub mod log;
pub mod notice;
pub mod own_node;
pub mod request;
pub mod ring_update;
pub mod rows;
pub mod table;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitStatus;

use estafeta::{DeadLetter, MemberId, Snapshot};

use crate::model::errors_view::ErrorsView;
use crate::model::history::History;
use crate::model::log::EventLog;
use crate::model::notice::UserNotice;
use crate::model::own_node::OwnNode;
use crate::model::rows::{Key, MemberRow};
use estafeta_lab::fleet::NodeKey;

/// How long a notice is shown.
const NOTICE_MS: u64 = 5_000;

/// What stays the same for the whole run.
pub struct MonitorInfo {
    pub ring: String,
    pub redis: String,
    pub host: String,
    /// Whether the monitor only watches.
    pub attach: bool,
    pub respawn: bool,
    pub log_file: Option<PathBuf>,
    /// The address of the web page, if the monitor serves one.
    pub page: Option<String>,
    pub started_ms: u64,
}

pub enum View {
    Ring,
    Errors(Box<ErrorsView>),
}

pub struct Model {
    pub info: MonitorInfo,
    pub snapshot: Option<Snapshot>,
    /// When the monitor received the snapshot.
    pub seen_ms: u64,
    /// Why Redis does not answer. None while it answers.
    pub lost: Option<String>,
    pub history: History,
    pub log: EventLog,
    pub last_errors: Vec<DeadLetter>,
    pub view: View,
    /// The first line of the help that is visible. None while the help does not cover the view.
    pub help: Option<usize>,
    pub paused: bool,
    pub quitting: bool,
    /// The last notice, and when it disappears.
    pub notice: Option<(u64, UserNotice)>,
    pub rows: Vec<MemberRow>,
    /// The row that the user selected. None: the selection follows the generator.
    pub(crate) pinned: Option<Key>,
    own: BTreeMap<NodeKey, OwnNode>,
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
            seen_ms: 0,
            lost: None,
            history: History::default(),
            log: EventLog::default(),
            last_errors: Vec::new(),
            view: View::Ring,
            help: None,
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

    /// Shows a notice for a while.
    pub fn show_notice(&mut self, now_ms: u64, notice: UserNotice) {
        self.notice = Some((now_ms + NOTICE_MS, notice));
    }
}
