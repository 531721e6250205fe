//! The line of idle members: who is called, and who learns when to make a turn.

use super::{ModelClock, ModelRing, Span};
use crate::steps::NEVER;

/// To what a node is called.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Called {
    Office,
    Work,
    /// A turn after this number of milliseconds, as far as the model knows Redis' time.
    Due(Span),
}

impl Called {
    /// Whether this is the message that calls for it.
    pub fn is_message(self, message: &str) -> bool {
        match self {
            Self::Office => message == "office",
            Self::Work => message == "work",
            Self::Due(span) => {
                let ms = message.strip_prefix("due ").and_then(|ms| ms.parse().ok());
                ms.is_some_and(|ms| span.covers(ms))
            }
        }
    }
}

impl ModelRing {
    /// When the first in line had to make a turn by itself, before a step. A pause without a time limit has no such time.
    pub(super) fn known_alarm(&self) -> Option<Span> {
        match self.handling_end {
            Some(end) => (end < NEVER).then(|| Span::exactly(end)),
            None => self.soonest(),
        }
    }

    /// When the first in line has to make a turn by itself.
    pub(super) fn alarm(&self) -> Option<Span> {
        match self.rate_limit {
            Some(rate) if !rate.is_open && self.handling_end.is_none() => Some(rate.opens()),
            _ => self.known_alarm(),
        }
    }

    /// Calls the longest idle member that is connected, if messages wait or are due and may be claimed. The others
    /// before it leave the line. Then the first in line learns when it has to make a turn, if it does not know. Returns
    /// that if the first is `me`.
    pub(super) fn wake(&mut self, me: Option<usize>, is_due: bool, clock: &ModelClock) -> Option<Span> {
        let is_closed = self.room() == Some(0);
        let has_work = !is_closed && (is_due || !self.ready.is_empty());
        while has_work && !self.idle.is_empty() {
            let first = self.idle.remove(0);
            if self.connected.contains(&first) {
                self.called.push((self.members[&first].persona, Called::Work));
                self.effects.push("idle member called");
                break;
            }
            self.effects.push("passed over");
        }
        let alarm = if is_closed { self.alarm() } else { self.soonest() }?;
        let wait = alarm.since(clock.span);
        let is_earlier = self.known.1.is_none_or(|known| alarm.from < known.from);
        while let Some(&first) = self.idle.first() {
            if me == Some(first) {
                self.effects.push("caller learns the time");
                return Some(wait);
            }
            if self.known.0 == Some(first) && !is_earlier {
                return None;
            }
            if self.connected.contains(&first) {
                self.called.push((self.members[&first].persona, Called::Due(wait)));
                self.effects.push("first in line learns the time");
                return None;
            }
            self.idle.remove(0);
        }
        None
    }
}
