//! The monitor's event log: what happened to the ring and what was done to it, one line each.

use std::collections::VecDeque;

use estafeta::Event;

use crate::narrate::sentence;

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
}

#[derive(Default)]
pub struct Log(VecDeque<Entry>);

impl Log {
    pub fn say(&mut self, at_ms: u64, tone: Tone, text: impl Into<String>) {
        self.0.push_back(Entry { at_ms, tone, text: text.into() });
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    pub fn event(&mut self, event: &Event) {
        let tone = match event.kind.as_str() {
            "took-office" | "took-over" => Tone::Office,
            "buried" | "rolled-back" => Tone::Bad,
            "joined" => Tone::Good,
            "left" | "resigned" => Tone::Notable,
            _ => Tone::Plain,
        };
        self.say(event.time_ms, tone, sentence(event));
    }

    /// The last `count` lines, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = &Entry> {
        self.0.range(self.0.len().saturating_sub(count)..)
    }
}
