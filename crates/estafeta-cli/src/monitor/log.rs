//! The monitor's event log: what happened to the ring and what was done to it, one line each.

use std::collections::VecDeque;

use estafeta::Event;

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
        let at = self.0.iter().rposition(|entry| entry.at_ms <= at_ms).map_or(0, |before| before + 1);
        self.0.insert(at, Entry { at_ms, tone, text: text.into(), errors: 0 });
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Tells of so many new errors, the last of which is described. Where the last line does the same, it grows: errors
    /// that keep coming must not push everything else out of sight.
    pub fn errors(&mut self, at_ms: u64, mut count: u64, last: &str, id: u64) {
        if let Some(line) = self.0.back().filter(|line| line.errors > 0) {
            count += line.errors;
            self.0.pop_back();
        }
        let text = match count {
            1 => last.to_owned(),
            _ => format!("{}, the last one #{id}", counted(count, "error")),
        };
        self.say(at_ms, Tone::Bad, text);
        if let Some(line) = self.0.back_mut() {
            line.errors = count;
        }
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
