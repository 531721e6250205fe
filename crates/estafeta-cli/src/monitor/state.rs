//! What the monitor knows, and how what it hears changes that. Nothing here touches a process, Redis or a terminal: time
//! comes with each call, and what is to be done goes back as a list of deeds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitStatus;

use estafeta::{DeadLetter, Event, MemberId, Role, Snapshot};

use super::errors_view::ErrorsView;
use super::history::{History, failed};
use super::log::{Log, Tone};
use super::own::{Ended, Own, Slot};
use super::rows::{Condition, Key, Pace, Row};
use super::said::Said;
use crate::escape::escape;
use crate::output::counted;

/// How long a member that is gone is still shown; a copy of ours that can be started again for longer.
const GONE_SHOWN_MS: u64 = 5_000;
const DEAD_SHOWN_MS: u64 = 30_000;
/// How long the footer shows what was done or could not be.
const NOTICE_MS: u64 = 5_000;
/// The first pause before a copy is started again by itself; it doubles each time that it does not last.
pub const RESPAWN_MS: u64 = 500;
const RESPAWN_MOST_MS: u64 = 30_000;
/// A copy that lived as long as this was well.
const LASTED_MS: u64 = 10_000;

/// What does not change.
pub struct Setting {
    pub ring: String,
    pub redis: String,
    pub host: String,
    /// Only watching.
    pub attach: bool,
    pub respawn: bool,
    pub log_file: Option<PathBuf>,
    pub started_ms: u64,
}

/// The ring, seen from outside.
pub struct Look {
    pub snapshot: Snapshot,
    /// What happened since the last look, oldest first.
    pub events: Vec<Event>,
    /// The newest errors, oldest of them first.
    pub errors: Vec<DeadLetter>,
}

/// What the state asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Start a copy, which if it does not last will be started again after that pause.
    Start {
        pause_ms: u64,
    },
    /// SIGTERM, or the like.
    Stop(Slot),
    Kill(Slot),
    Freeze(Slot),
    Thaw(Slot),
    /// Stop everything and end.
    Quit,
    /// Kill what has not stopped yet, and end.
    QuitNow,
    Suspend,
    /// Whether the mouse is ours; if not, the terminal's own selection works.
    Mouse(bool),
    Errors(Errand),
}

/// Work on the kept errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Fetch the newest ones that contain this text.
    List(String),
    Retry(Vec<u64>),
    Drop(Vec<u64>),
}

pub enum View {
    Ring,
    Errors(Box<ErrorsView>),
}

pub struct State {
    pub setting: Setting,
    pub snapshot: Option<Snapshot>,
    /// Why Redis does not answer, while it does not.
    pub lost: Option<String>,
    pub history: History,
    pub log: Log,
    pub last_errors: Vec<DeadLetter>,
    pub view: View,
    /// Help lies over the view.
    pub help: bool,
    pub paused: bool,
    pub quitting: bool,
    pub notice: Option<(u64, String)>,
    pub rows: Vec<Row>,
    /// None: the selection follows the generator.
    pub(super) pinned: Option<Key>,
    pub(super) own: BTreeMap<Slot, Own>,
    /// Every number under which a copy of ours ever was a member.
    ours: HashSet<MemberId>,
    gone: HashMap<MemberId, (u64, Row)>,
    /// Errors that the log has not told of yet, and when it told last.
    untold: (u64, u64),
    pub was_unbalanced: bool,
    /// How a copy of ours that was not killed failed.
    pub failure: Option<ExitStatus>,
}

impl State {
    pub fn new(setting: Setting) -> Self {
        Self {
            setting,
            snapshot: None,
            lost: None,
            history: History::default(),
            log: Log::default(),
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
            untold: (0, 0),
            was_unbalanced: false,
            failure: None,
        }
    }

    /// The ring was looked at.
    pub fn look(&mut self, now_ms: u64, look: Look) {
        if self.lost.take().is_some() {
            self.log.say(now_ms, Tone::Good, "Redis is back");
        }
        let snapshot = look.snapshot;
        for event in &look.events {
            // Redis' clock may differ from ours, and the log has one.
            let age = snapshot.time_ms.saturating_sub(event.time_ms);
            self.log.event(now_ms.saturating_sub(age), event);
        }
        self.count_errors(now_ms, &snapshot, &look.errors);
        self.note_departures(now_ms, &snapshot, &look.events);
        self.note_balance(now_ms, &snapshot);
        self.history.look(now_ms, &snapshot);
        self.last_errors = look.errors;
        self.snapshot = Some(snapshot);
        self.refresh_rows(now_ms);
    }

    /// Redis did not answer.
    pub fn lost(&mut self, now_ms: u64, reason: &str) {
        if self.lost.is_none() {
            let told = escape(reason.as_bytes());
            self.log.say(now_ms, Tone::Bad, format!("Redis does not answer: {told}"));
            self.lost = Some(told);
        }
        self.refresh_rows(now_ms);
    }

    fn note_balance(&mut self, now_ms: u64, snapshot: &Snapshot) {
        let was_balanced = self.snapshot.as_ref().is_none_or(|before| before.balanced);
        if was_balanced && !snapshot.balanced {
            self.log.say(now_ms, Tone::Bad, "the balance does not add up");
        } else if !was_balanced && snapshot.balanced {
            self.log.say(now_ms, Tone::Good, "the balance adds up again");
        }
        self.was_unbalanced |= !snapshot.balanced;
    }

    /// Tells of new errors, once a second at most: there may be thousands.
    fn count_errors(&mut self, now_ms: u64, snapshot: &Snapshot, newest: &[DeadLetter]) {
        let Some(before) = &self.snapshot else {
            return;
        };
        let (untold, told_ms) = &mut self.untold;
        *untold += failed(snapshot).saturating_sub(failed(before));
        if *untold == 0 || told_ms.saturating_add(1000) > now_ms {
            return;
        }
        self.log.errors(now_ms, *untold, newest.last());
        (*untold, *told_ms) = (0, now_ms);
    }

    fn note_departures(&mut self, now_ms: u64, snapshot: &Snapshot, events: &[Event]) {
        let before = self.snapshot.iter().flat_map(|before| &before.members);
        let missing = before.filter(|member| snapshot.members.iter().all(|other| other.id != member.id));
        for member in missing {
            let number = ("member".to_owned(), member.id.to_string());
            let left = events.iter().any(|event| event.kind == "left" && event.fields.contains(&number));
            let condition = if left { Condition::Left } else { Condition::Dead };
            let own = self.own.values().find(|own| own.member == Some(member.id));
            let mine = self.ours.contains(&member.id);
            let row = Row::member(member, mine, own, Pace::default()).departed(condition);
            self.gone.insert(member.id, (now_ms, row));
        }
    }

    /// A copy of ours was started.
    pub fn started(&mut self, now_ms: u64, slot: Slot, pid: u32, pause_ms: u64) {
        self.own.insert(slot, Own::new(slot, pid, now_ms, pause_ms));
        self.refresh_rows(now_ms);
    }

    pub fn heard(&mut self, now_ms: u64, slot: Slot, said: &Said) {
        let Some(own) = self.own.get_mut(&slot) else {
            return;
        };
        let (who, before) = (name_of(own), own.member);
        own.hear(said);
        match said {
            Said::CreatedTaskId { task_id } => self.renumber(slot, before, MemberId(*task_id)),
            // Of a Redis that is lost to everybody we hear ourselves.
            Said::RedisLost { reason } if self.lost.is_none() => {
                let told = escape(reason.as_bytes());
                self.log.say(now_ms, Tone::Bad, format!("{who} lost Redis: {told}"));
            }
            Said::DeclaredDead => {
                let text = format!("{who} learned that it was declared dead, joins again");
                self.log.say(now_ms, Tone::Notable, text);
            }
            Said::LimitReached { limit } => {
                let text = format!("the limit of {} is reached", counted(*limit, "message"));
                self.log.say(now_ms, Tone::Notable, text);
            }
            _ => {}
        }
    }

    /// A copy that was declared dead came back under a new number: the selection goes with it.
    fn renumber(&mut self, slot: Slot, before: Option<MemberId>, now: MemberId) {
        self.ours.insert(now);
        let former = before.map_or(Key::Slot(slot), Key::Member);
        if self.pinned == Some(former) {
            self.pinned = Some(Key::Member(now));
        }
        if let Some((_, row)) = before.and_then(|before| self.gone.get_mut(&before)) {
            row.slot = None;
        }
    }

    /// The process of a copy of ours has ended.
    pub fn ended(&mut self, now_ms: u64, slot: Slot, status: ExitStatus) {
        let respawns = self.setting.respawn && !self.quitting;
        let Some(own) = self.own.get_mut(&slot) else {
            return;
        };
        own.frozen = false;
        if status.success() {
            self.own.remove(&slot);
            self.refresh_rows(now_ms);
            return;
        }
        if now_ms.saturating_sub(own.started_ms) >= LASTED_MS {
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
            self.log.say(now_ms, Tone::Bad, format!("{who} {how}"));
        }
        self.refresh_rows(now_ms);
    }

    /// A copy could not be started.
    pub fn not_started(&mut self, now_ms: u64, why: &str) {
        let told = format!("cannot start a copy: {}", escape(why.as_bytes()));
        self.log.say(now_ms, Tone::Bad, told.clone());
        self.say(now_ms, told);
    }

    /// Time passed.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Deed> {
        if self.notice.as_ref().is_some_and(|(until, _)| *until <= now_ms) {
            self.notice = None;
        }
        if self.quitting {
            return Vec::new();
        }
        let is_due = |own: &&Own| own.ended.and_then(|ended| ended.back_at_ms).is_some_and(|at| at <= now_ms);
        let due: Vec<_> = self.own.values().filter(is_due).map(|own| (own.slot, own.pause_ms)).collect();
        due.into_iter()
            .map(|(slot, pause_ms)| {
                self.forget(slot);
                Deed::Start { pause_ms: (pause_ms * 2).min(RESPAWN_MOST_MS) }
            })
            .collect()
    }

    /// Whether a dead copy is going to be started again.
    pub fn respawns(&self) -> bool {
        self.own.values().any(|own| own.ended.is_some_and(|ended| ended.back_at_ms.is_some()))
    }

    /// Lets go of a copy that has ended.
    pub(super) fn forget(&mut self, slot: Slot) {
        if let Some(member) = self.own.remove(&slot).and_then(|own| own.member) {
            self.gone.remove(&member);
        }
    }

    pub fn running(&self) -> impl Iterator<Item = &Own> {
        self.own.values().filter(|own| own.runs())
    }

    pub fn generator(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.role == Some(Role::Generator))
    }

    /// The selected row: the one that was chosen, or else the generator.
    pub fn selected(&self) -> Option<usize> {
        self.selected_pin().or_else(|| self.rows.iter().position(|row| row.role == Some(Role::Generator)))
    }

    fn selected_pin(&self) -> Option<usize> {
        let key = self.pinned?;
        self.rows.iter().position(|row| row.key == key)
    }

    pub fn say(&mut self, now_ms: u64, text: impl Into<String>) {
        self.notice = Some((now_ms + NOTICE_MS, text.into()));
    }

    pub(super) fn refresh_rows(&mut self, now_ms: u64) {
        self.own.retain(|_, own| {
            own.ended.is_none_or(|ended| ended.back_at_ms.is_some() || ended.at_ms + DEAD_SHOWN_MS > now_ms)
        });
        let by_member: HashMap<MemberId, &Own> =
            self.own.values().filter_map(|own| Some((own.member?, own))).collect();
        self.gone.retain(|id, (since, _)| *since + GONE_SHOWN_MS > now_ms || by_member.contains_key(id));
        let members = self.snapshot.iter().flat_map(|snapshot| &snapshot.members);
        let mut rows: Vec<Row> = members
            .map(|member| {
                // After the ring was wiped the same number may be somebody else's.
                let is_same =
                    |own: &&Own| u64::from(own.pid) == member.pid && self.setting.host == member.host;
                let own = by_member.get(&member.id).copied().filter(is_same);
                let mine =
                    own.is_some() || self.ours.contains(&member.id) && !by_member.contains_key(&member.id);
                Row::member(member, mine, own, self.history.pace_of(member.id))
            })
            .collect();
        let present = |id: MemberId, rows: &[Row]| rows.iter().any(|row| row.key == Key::Member(id));
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

    /// A copy of ours that the ring does not have, or not any more.
    fn without_membership(&self, own: &Own, member: Option<MemberId>) -> Row {
        let mut row = Row::joining(own, &self.setting.host);
        if let Some(id) = member {
            if let Some((_, last)) = self.gone.get(&id) {
                row = Row { condition: row.condition, slot: row.slot, mine: true, ..last.clone() };
            }
            row.key = Key::Member(id);
            row.add_what_it_said(own);
        }
        row
    }
}

/// A copy of ours, in words.
pub(super) fn name_of(own: &Own) -> String {
    match own.member {
        Some(member) => format!("{member} (pid {})", own.pid),
        None => format!("the copy with pid {}", own.pid),
    }
}
