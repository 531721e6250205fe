//! What the polls of the ring change in the model.

use estafeta::{DeadLetter, Event, EventKind, Snapshot};

use crate::model::Model;
use crate::model::history::failed;
use crate::model::log::Occurrence;
use crate::model::rows::{Condition, MemberPace, MemberRow};

/// The result of one poll of the ring.
pub struct RingUpdate {
    pub snapshot: Snapshot,
    /// The events since the last poll, oldest first.
    pub events: Vec<Event>,
    /// The newest errors. The oldest of them comes first.
    pub errors: Vec<DeadLetter>,
}

impl Model {
    /// A poll of the ring succeeded.
    pub fn updated(&mut self, now_ms: u64, update: RingUpdate) {
        if self.lost.take().is_some() {
            self.log.add(now_ms, Occurrence::RedisBack);
        }
        let snapshot = update.snapshot;
        for event in &update.events {
            // The clock of Redis may differ from the clock of the monitor, which the log uses.
            let age = snapshot.time_ms.saturating_sub(event.time_ms);
            self.log.add(now_ms.saturating_sub(age), Occurrence::Event(event.kind.clone()));
        }
        self.count_errors(now_ms, &snapshot, &update.errors);
        self.note_departures(now_ms, &snapshot, &update.events);
        self.note_balance(now_ms, &snapshot);
        self.history.record(now_ms, &snapshot);
        self.last_errors = update.errors;
        (self.snapshot, self.seen_ms) = (Some(snapshot), now_ms);
        self.refresh_rows(now_ms);
    }

    /// The monitor has stopped its nodes and looked at the ring once more, for its summary. An error is the reason
    /// why Redis did not answer.
    pub fn looked_last(&mut self, now_ms: u64, snapshot: Result<Snapshot, String>) {
        match snapshot {
            Ok(snapshot) => (self.snapshot, self.seen_ms, self.lost) = (Some(snapshot), now_ms, None),
            Err(reason) => self.lost = Some(reason),
        }
    }

    /// A poll of the ring failed.
    pub fn lost(&mut self, now_ms: u64, reason: &str) {
        if self.lost.is_none() {
            self.log.add(now_ms, Occurrence::RedisLost { reason: reason.to_owned() });
            self.lost = Some(reason.to_owned());
        }
        self.refresh_rows(now_ms);
    }

    fn note_balance(&mut self, now_ms: u64, snapshot: &Snapshot) {
        let was_balanced = self.snapshot.as_ref().is_none_or(|before| before.balanced);
        if was_balanced && !snapshot.balanced {
            self.log.add(now_ms, Occurrence::BalanceOff);
        } else if !was_balanced && snapshot.balanced {
            self.log.add(now_ms, Occurrence::BalanceBack);
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
}
