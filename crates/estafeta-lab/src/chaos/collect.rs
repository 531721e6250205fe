//! Collects the evidence of a run, from Redis and from the files of the processes.

use anyhow::{Context as _, Result};
use estafeta::{EventKind, JournalEntry, Ring, Snapshot};

use super::judge::{Evidence, ReaderOutput};
use super::node::ChaosNode;
use super::phases::Phases;
use super::real_work::effects::{self, WrittenEffects};
use super::real_work::evidence::{RingCounts, WorkEvidence};
use super::real_work::feed::FeedEvidence;
use super::verdict::JudgedRing;
use super::watch::Seen;
use super::{ChaosObserver, RunTimes, Workload};
use crate::record::{self, RecordLine};

/// How many events are read at once.
const EVENTS: usize = 1000;
/// A ring keeps at least so many of its latest events. If it has as many, older ones may be gone.
const KEPT_EVENTS: usize = 10_000;

impl<S: ChaosObserver> Phases<'_, S> {
    /// Collects what is known of each ring, in the order of the rings: what its watch saw, its last snapshot, and the
    /// output of its readers. `complete` is false if a phase failed.
    pub async fn judged_rings(
        &self,
        known: impl Iterator<Item = ((Seen, Snapshot), Vec<ReaderOutput>)>,
        times: RunTimes,
        complete: bool,
    ) -> Result<Vec<JudgedRing>> {
        let mut rings: Vec<JudgedRing> = Vec::new();
        for (index, ((mut seen, last), readers)) in known.enumerate() {
            seen.note(&last);
            let mut evidence = self.evidence(index, readers, &last, complete).await?;
            if self.options.workload.has_plans() {
                let before = rings.last().map_or(&[][..], |ring| &ring.evidence.journal);
                evidence.work = Some(self.work_evidence(index, &last, &seen, times, before).await?);
            }
            rings.push(JudgedRing { evidence, seen, last });
        }
        Ok(rings)
    }

    /// Collects what the witnesses know of a ring: the journal, the records and the output of the readers.
    async fn evidence(
        &self,
        ring: usize,
        readers: Vec<ReaderOutput>,
        last: &Snapshot,
        complete: bool,
    ) -> Result<Evidence> {
        let journal = self.rings[ring].journal().await?;
        let records = read_records(self.nodes(), ring)?;
        let (published, lost) = (last.published, last.lost);
        let losses = self.options.losses(self.targets.risky_times());
        // After a long run nobody knows what the first events reported.
        let reported_losses = reported_losses(&self.rings[ring]).await?.unwrap_or(lost);
        let cancelled = last.cancelled;
        Ok(Evidence {
            published,
            lost,
            cancelled,
            losses,
            reported_losses,
            journal,
            records,
            readers,
            complete,
            work: None,
        })
    }

    /// Collects what the publishers know, what the ring has counted, and what its messages have written. `before` is the
    /// journal of the ring before this one in a pipeline.
    async fn work_evidence(
        &self,
        ring: usize,
        last: &Snapshot,
        seen: &Seen,
        times: RunTimes,
        before: &[JournalEntry],
    ) -> Result<WorkEvidence> {
        let publishers = self.targets.nodes.iter().filter(|node| !node.is_node() && ring == 0);
        let feed = match self.options.workload {
            Workload::Pipeline if ring == 0 => {
                Some(FeedEvidence::read(&self.template.feed(), self.ring()).await?)
            }
            _ => None,
        };
        Ok(WorkEvidence {
            publishers: read_records(publishers, 0)?,
            counts: RingCounts::of(last),
            written: WrittenEffects::read(&self.rings[ring]).await?,
            feed,
            forwards: effects::forwards(before),
            healthy: times.recovered_ms.zip(times.stopped_ms),
            clock_ahead_ms: seen.clock_ahead_ms.unwrap_or(0),
            standstill_ms: u64::try_from(times.standstill.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

/// How many messages the ring has reported as lost, one event after another. None if some of its events may be gone.
async fn reported_losses(ring: &Ring) -> Result<Option<u64>> {
    let (mut lost, mut count, mut last) = (0, 0, String::new());
    loop {
        let events = ring.events_after(&last, EVENTS).await?;
        let Some(newest) = events.last() else { return Ok((count < KEPT_EVENTS).then_some(lost)) };
        last.clone_from(&newest.id);
        count += events.len();
        for event in &events {
            if let EventKind::RolledBack { known, found, .. } = event.kind {
                lost += known.saturating_sub(found);
            }
        }
    }
}

/// Reads the records of these processes, which are about the ring with this number.
pub fn read_records<'a>(
    nodes: impl Iterator<Item = &'a ChaosNode>,
    ring: usize,
) -> Result<Vec<Vec<RecordLine>>> {
    let read = |node: &ChaosNode| {
        let text = std::fs::read_to_string(&node.records()[ring]);
        let text = text.with_context(|| format!("cannot read the record of {}", node.name()))?;
        record::read(&text).map_err(anyhow::Error::msg)
    };
    nodes.map(read).collect()
}
