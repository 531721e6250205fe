//! The monitor's event log: one line per event of the ring and per action of the user.

use std::collections::VecDeque;

use estafeta::{DeadLetter, Event, EventKind};
use estafeta_lab::text::counted;

/// How many lines are kept.
const KEPT: usize = 1000;

/// The meaning of a line, which decides its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Notable,
    Bad,
    /// The office has a new holder.
    Office,
    /// The user did something to a node.
    Action,
}

#[derive(Clone, Debug)]
pub struct LogEntry {
    pub at_ms: u64,
    pub tone: Tone,
    pub text: String,
    /// How many errors the line counts. Zero for a line about anything else.
    errors: u64,
}

#[derive(Default)]
pub struct EventLog(VecDeque<LogEntry>);

impl EventLog {
    /// Adds a line. The lines are sorted by time, because a poll may bring events that are older than the last line.
    pub fn add(&mut self, at_ms: u64, tone: Tone, text: impl Into<String>) {
        self.push(LogEntry { at_ms, tone, text: text.into(), errors: 0 });
    }

    fn push(&mut self, new: LogEntry) {
        let before = self.0.iter().rposition(|entry| entry.at_ms <= new.at_ms);
        self.0.insert(before.map_or(0, |before| before + 1), new);
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Adds `count` new errors. `last` is the newest kept error, if any. If the last line counts errors too, its count
    /// grows instead. So a stream of errors does not push all other lines out of sight.
    pub fn add_errors(&mut self, at_ms: u64, mut count: u64, last: Option<&DeadLetter>) {
        if let Some(line) = self.0.back().filter(|line| line.errors > 0) {
            count += line.errors;
            self.0.pop_back();
        }
        let text = match last {
            Some(error) if count == 1 => {
                format!("error #{} at {}: {}", error.id, error.member, error.reason)
            }
            Some(error) => format!("{}, the last one #{}", counted(count, "error"), error.id),
            None => counted(count, "error"),
        };
        let errors = count;
        let at_ms = self.0.back().map_or(at_ms, |line| line.at_ms.max(at_ms));
        self.push(LogEntry { at_ms, tone: Tone::Bad, text, errors });
    }

    /// Adds an event of the ring.
    pub fn add_event(&mut self, at_ms: u64, event: &Event) {
        let tone = match event.kind {
            EventKind::TookOffice { .. } | EventKind::TookOver { .. } => Tone::Office,
            EventKind::Buried { .. } | EventKind::RolledBack { .. } => Tone::Bad,
            EventKind::Joined { .. } => Tone::Good,
            EventKind::Left { .. } | EventKind::Resigned { .. } => Tone::Notable,
            _ => Tone::Plain,
        };
        self.add(at_ms, tone, event.kind.to_string());
    }

    /// The last `count` lines, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = &LogEntry> {
        self.0.range(self.0.len().saturating_sub(count)..)
    }
}
