//! What a run with this workload left behind.

use std::ops::AddAssign;

use estafeta::Snapshot;

use super::effects::WrittenEffects;
use super::feed::FeedEvidence;
use crate::record::RecordLine;

/// What a run with this workload left behind, besides what every run leaves.
#[derive(Debug, Default)]
pub struct WorkEvidence {
    /// One record per publisher.
    pub publishers: Vec<Vec<RecordLine>>,
    pub counts: RingCounts,
    /// What the effects of the messages have written.
    pub written: WrittenEffects,
    /// The file whose lines the generator publishes, if there is one.
    pub feed: Option<FeedEvidence>,
    /// What the done messages of the ring before forward to this one: the id of each, and the body.
    pub forwards: Vec<(u64, String)>,
    /// When the ring was healthy, by the clock of this machine.
    pub healthy: Option<(u64, u64)>,
    /// By how much Redis' clock is ahead of the clock of this machine, at most.
    pub clock_ahead_ms: i64,
    /// The longest time in which this machine did not let chaos run.
    pub standstill_ms: u64,
}

/// An error that a reader printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub id: u64,
    pub failures: u32,
    pub snoozes: u32,
    pub reason: String,
}

/// What the ring itself has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    pub retries: u64,
    pub snoozes: u64,
    pub cancelled: u64,
    pub submitted: u64,
}

impl AddAssign for RingCounts {
    fn add_assign(&mut self, other: Self) {
        self.retries += other.retries;
        self.snoozes += other.snoozes;
        self.cancelled += other.cancelled;
        self.submitted += other.submitted;
    }
}

impl RingCounts {
    pub fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { retries, snoozes, cancelled, submitted, .. } = *snapshot;
        Self { retries, snoozes, cancelled, submitted }
    }
}
