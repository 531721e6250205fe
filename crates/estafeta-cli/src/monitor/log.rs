//! The monitor's event log: what happened to the ring and what was done to it, one line each.

use std::collections::VecDeque;

use estafeta::{DeadLetter, Event};

use crate::escape::escape;
use crate::narrate::sentence;
use crate::output::counted;

const KEPT: usize = 1000;

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Notable,
    Bad,
    /// The office has a new holder.
    Office,
    /// Something was done from here.
    Deed,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub at_ms: u64,
    pub tone: Tone,
    /// Nothing in it steers a terminal.
    pub text: String,
    /// How many errors it tells of.
    errors: u64,
}

#[derive(Default)]
pub struct Log(VecDeque<Entry>);

impl Log {
    /// Lines stand in the order of time: what a look brings may be older than what was done from here meanwhile.
    pub fn say(&mut self, at_ms: u64, tone: Tone, text: impl Into<String>) {
        self.push(Entry { at_ms, tone, text: text.into(), errors: 0 });
    }

    fn push(&mut self, new: Entry) {
        let before = self.0.iter().rposition(|entry| entry.at_ms <= new.at_ms);
        self.0.insert(before.map_or(0, |before| before + 1), new);
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Tells of so many new errors; `last` is one of them, unless they were taken already. Where the last line does the
    /// same, it grows: errors that keep coming must not push everything else out of sight.
    pub fn errors(&mut self, at_ms: u64, mut count: u64, last: Option<&DeadLetter>) {
        if let Some(line) = self.0.back().filter(|line| line.errors > 0) {
            count += line.errors;
            self.0.pop_back();
        }
        let text = match last {
            Some(error) if count == 1 => {
                format!("error #{} at {}: {}", error.id, error.member, escape(error.reason.as_bytes()))
            }
            Some(error) => format!("{}, the last one #{}", counted(count, "error"), error.id),
            None => counted(count, "error"),
        };
        let errors = count;
        let at_ms = self.0.back().map_or(at_ms, |line| line.at_ms.max(at_ms));
        self.push(Entry { at_ms, tone: Tone::Bad, text, errors });
    }

    pub fn event(&mut self, at_ms: u64, event: &Event) {
        let tone = match event.kind.as_str() {
            "took-office" | "took-over" => Tone::Office,
            "buried" | "rolled-back" => Tone::Bad,
            "joined" => Tone::Good,
            "left" | "resigned" => Tone::Notable,
            _ => Tone::Plain,
        };
        self.say(at_ms, tone, sentence(event));
    }

    /// The last `count` lines, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = &Entry> {
        self.0.range(self.0.len().saturating_sub(count)..)
    }
}
