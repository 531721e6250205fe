//! A schedule as the source of a generator: waits for the next tick, and makes its messages.

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;

use super::timing::LATE_MS;
use super::{Entry, Make, Overlap, Schedule, Tick};
use crate::failure::Failure;
use crate::feed::{Batch, BatchMessage};
use crate::handler::catch;
use crate::message::{ENTRY, TICK};
use crate::node::RingView;
use crate::source::{Made, Plan, Progress, RawBatch, Source, SourceMessage};

/// A tick that an entry publishes next, and when.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextTick {
    pub due: u64,
    pub tick: u64,
    pub index: usize,
}

impl<T> Schedule<T> {
    /// The tick that is published next. If several ticks are due, those that are not missed come first. So an entry
    /// that makes up for many missed ticks does not hold up the others.
    pub(super) fn next_tick(&self, now: u64) -> Option<NextTick> {
        let upcoming = self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let (due, tick) = entry.timing.upcoming(now)?;
            Some(NextTick { due, tick, index })
        });
        upcoming.min_by_key(|&NextTick { due, tick, index }| {
            (due.max(now), tick.saturating_add(LATE_MS) < now, due, index)
        })
    }
}

impl<T: Serialize + Send + 'static> Source for Schedule<T> {
    async fn open(&mut self, from: &Progress) -> Result<(), Failure> {
        for Entry { timing, .. } in &mut self.entries {
            timing.last = from.ticks.get(&*timing.name).copied();
        }
        self.checkpoint = from.checkpoint.clone().map(Bytes::from);
        Ok(())
    }

    fn plan(&self) -> Plan {
        let definition =
            |Entry { timing, .. }: &Entry<T>| (timing.name.to_string(), timing.definition.text());
        self.entries.iter().map(definition).collect()
    }

    async fn next(&mut self, ring: &mut RingView) -> Result<Made, Failure> {
        let begins = ring.clock.borrow().ms_at(Instant::now());
        let mut ticks = Vec::new();
        for timing in self.entries.iter_mut().map(|entry| &mut entry.timing) {
            if timing.last.is_none() {
                timing.last = Some(begins);
                ticks.push((timing.name.to_string(), begins));
            }
        }
        if !ticks.is_empty() {
            return Ok(Made::Batch(RawBatch { ticks, ..RawBatch::default() }));
        }
        loop {
            let now = ring.clock.borrow_and_update().ms_at(Instant::now());
            let Some(NextTick { due, tick, index }) = self.next_tick(now) else {
                return std::future::pending().await;
            };
            if due <= now {
                let entry = &mut self.entries[index];
                if entry.skips() && ring.is_open(&entry.timing.name).await? {
                    return Ok(Made::Batch(entry.skip(tick)));
                }
                let made = entry.publish(tick, self.checkpoint.clone(), ring.max_waiting).await;
                match &made {
                    Ok(batch) => {
                        entry.timing.succeed();
                        self.checkpoint = batch.checkpoint.clone().or(self.checkpoint.take());
                    }
                    Err(_) => entry.timing.rest(now),
                }
                return made.map(Made::Batch);
            }
            let at = ring.clock.borrow().instant(due);
            tokio::select! {
                () = tokio::time::sleep_until(at.into()) => {}
                changed = ring.clock.changed() => if changed.is_err() { return std::future::pending().await },
            }
        }
    }
}

impl<T: Serialize + 'static> Entry<T> {
    /// Whether a tick is skipped while messages of an earlier one have no outcome yet.
    fn skips(&self) -> bool {
        self.timing.definition.overlap == Overlap::Skip
    }

    /// The messages of a tick.
    pub(super) async fn publish(
        &mut self,
        ms: u64,
        checkpoint: Option<Bytes>,
        max_waiting: u64,
    ) -> Result<RawBatch, Failure> {
        let name = Arc::clone(&self.timing.name);
        let failed = |reason: &str| Failure::new(format_args!("schedule entry '{name}': {reason}"));
        let tick = Tick { name: Arc::clone(&name), ms };
        let made = match &mut self.make {
            Make::Bodies(make) => catch("function", || ready(Ok(Batch::new(make(tick))))).await,
            Make::Batch(make) => catch("function", || make(tick, checkpoint)).await,
        };
        let Batch { messages, checkpoint } = made.map_err(|failure| failed(failure.reason()))?;
        let skips = self.skips();
        let message = |message: BatchMessage<T>| {
            let mut message = message.into_source()?;
            if skips {
                message.headers.insert_first(ENTRY, &*name)?;
            }
            message.headers.insert(TICK, ms.to_string())?;
            Ok(SourceMessage { not_before_ms: ms, ..message })
        };
        let messages = messages.into_iter().map(message).collect::<Result<_, Failure>>();
        let messages = messages.map_err(|failure| failed(failure.reason()))?;
        let batch = RawBatch {
            messages,
            checkpoint,
            ticks: vec![(name.to_string(), ms)],
            entry: skips.then(|| name.to_string()),
            ..RawBatch::default()
        };
        batch.check(usize::MAX, max_waiting).map_err(|failure| failed(failure.reason()))?;
        self.timing.last = Some(ms);
        Ok(batch)
    }

    /// A tick without messages.
    fn skip(&mut self, ms: u64) -> RawBatch {
        self.timing.last = Some(ms);
        RawBatch { ticks: vec![(self.timing.name.to_string(), ms)], ..RawBatch::default() }
    }
}
