//! What the rules have checked and found, as text and JSON.

use std::ops::AddAssign;
use std::time::Duration;

use serde_json::{Value, json};

use super::evidence::RingCounts;
use crate::text::grouped;

/// How late a message may come on the healthy ring.
pub const LATE: Duration = Duration::from_secs(3);

/// What the records show, and how much of it was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkFindings {
    /// What the records show.
    pub counts: RingCounts,
    /// Effects of the messages that are done.
    pub effects: u64,
    /// Messages with a delay that were handled.
    pub delayed: u64,
    /// Receipts for messages that were published before.
    pub duplicates: u64,
    /// Messages that were due while the ring was healthy.
    pub timed: u64,
    /// How late the latest of them was.
    pub latest_ms: u64,
    /// Lines of a file that became messages.
    pub lines: u64,
    /// Messages that were forwarded to another ring.
    pub forwarded: u64,
}

impl AddAssign for WorkFindings {
    /// Adds the findings about another ring.
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.effects += other.effects;
        self.delayed += other.delayed;
        self.duplicates += other.duplicates;
        self.timed += other.timed;
        self.latest_ms = self.latest_ms.max(other.latest_ms);
        self.lines += other.lines;
        self.forwarded += other.forwarded;
    }
}

impl WorkFindings {
    /// What was checked, and the result. Each fact has a name and a sentence.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let RingCounts { retries, snoozes, cancelled, .. } = self.counts;
        let submitted = self.submitted();
        let [submitted, cancelled, retries, snoozes] = [submitted, cancelled, retries, snoozes].map(grouped);
        let [duplicates, delayed] = [self.duplicates, self.delayed].map(grouped);
        let [timed, effects] = [self.timed, self.effects].map(grouped);
        let mut facts = vec![
            (
                "publishers",
                format!(
                    "{submitted} messages, {cancelled} of them cancelled; {duplicates} duplicates recognised"
                ),
            ),
            (
                "plans",
                format!(
                    "{retries} retries, {snoozes} snoozes and {effects} effects; {delayed} messages were delayed"
                ),
            ),
            (
                "times",
                format!(
                    "nothing came early; of {timed} due on the healthy ring, the latest came {} ms late (limit: {} ms)",
                    self.latest_ms,
                    LATE.as_millis()
                ),
            ),
        ];
        if self.lines > 0 {
            let [lines, forwarded] = [self.lines, self.forwarded].map(grouped);
            let what = format!("{lines} lines of the file and {forwarded} forwards, each published once");
            facts.push(("pipeline", what));
        }
        facts
    }

    /// Messages of publishers. A ring counts what was forwarded to it among them.
    fn submitted(&self) -> u64 {
        self.counts.submitted.saturating_sub(self.forwarded)
    }

    pub fn json(&self) -> Value {
        json!({
            "submitted": self.submitted(),
            "cancelled": self.counts.cancelled,
            "duplicates": self.duplicates,
            "retries": self.counts.retries,
            "snoozes": self.counts.snoozes,
            "effects": self.effects,
            "delayed": self.delayed,
            "timed": self.timed,
            "latestMs": self.latest_ms,
            "lines": self.lines,
            "forwarded": self.forwarded,
        })
    }
}
