//! What the rules have checked and found, as text and JSON.

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
}

impl WorkFindings {
    /// What was checked, and the result. Each fact has a name and a sentence.
    pub fn facts(&self) -> [(&'static str, String); 3] {
        let RingCounts { retries, snoozes, cancelled, submitted } = self.counts;
        let [submitted, cancelled, retries, snoozes] = [submitted, cancelled, retries, snoozes].map(grouped);
        let [duplicates, delayed] = [self.duplicates, self.delayed].map(grouped);
        let [timed, effects] = [self.timed, self.effects].map(grouped);
        [
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
        ]
    }

    pub fn json(&self) -> Value {
        json!({
            "submitted": self.counts.submitted,
            "cancelled": self.counts.cancelled,
            "duplicates": self.duplicates,
            "retries": self.counts.retries,
            "snoozes": self.counts.snoozes,
            "effects": self.effects,
            "delayed": self.delayed,
            "timed": self.timed,
            "latestMs": self.latest_ms,
        })
    }
}
