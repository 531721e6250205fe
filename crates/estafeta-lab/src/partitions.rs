//! A ring and its partitions, for commands and pages that work on all of them.

use std::collections::BTreeSet;

use estafeta::{Error, Event, HistoryRange, Result, Ring, RingHistory, RingName, Snapshot};

use crate::event_name::EventName;
use crate::message_id::MessageId;

/// A ring, and each of its partitions. A ring that is not divided is its only partition.
#[derive(Clone, Debug)]
pub struct Partitions {
    /// The ring under its plain name.
    pub whole: Ring,
    /// Its partitions, in their order.
    pub all: Vec<Ring>,
}

impl Partitions {
    /// Connects to each partition.
    pub async fn of(whole: Ring) -> Result<Self> {
        let all = whole.partitions().await?;
        Ok(Self { whole, all })
    }

    /// Like `of`, except that a ring whose keys hold foreign data counts as its only partition.
    pub async fn of_damaged(whole: Ring) -> Result<Self> {
        match whole.partitions().await {
            Err(Error::ForeignKey { .. }) => Ok(Self { all: vec![whole.clone()], whole }),
            all => Ok(Self { all: all?, whole }),
        }
    }

    /// The same ring, except that events about changes name `actor`.
    #[must_use]
    pub fn acting_as(&self, actor: &str) -> Self {
        let all = self.all.iter().map(|ring| ring.acting_as(actor)).collect();
        Self { whole: self.whole.acting_as(actor), all }
    }

    /// The partition that has this message, if there is such a partition.
    pub fn ring_of(&self, id: MessageId) -> Option<&Ring> {
        let is_meant = |ring: &&Ring| match id.partition {
            Some(partition) => ring.name().partition() == Some(partition),
            None => !self.are_several(),
        };
        self.all.iter().find(is_meant)
    }

    /// Whether the ring is divided.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Whether the ring exists. If Redis has lost the plain name, its partitions still do.
    pub async fn exist(&self) -> Result<bool> {
        Ok(self.are_several() || self.whole.exists().await?)
    }

    /// Each partition at about the same moment.
    pub async fn snapshots(&self, events: usize) -> Result<Vec<Snapshot>> {
        let mut snapshots = Vec::new();
        for ring in &self.all {
            snapshots.push(ring.snapshot(events).await?);
        }
        Ok(snapshots)
    }

    /// All partitions together, without events.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        match &self.all[..] {
            [only] => Ok(only.snapshot(0).await?),
            _ => self.sum(self.snapshots(0).await?),
        }
    }

    /// The sums of these snapshots of all partitions.
    pub fn sum(&self, parts: Vec<Snapshot>) -> Result<Snapshot> {
        Snapshot::of_partitions(self.whole.name(), parts).ok_or_else(no_partitions)
    }

    /// The history of all partitions together.
    pub async fn history(&self, range: HistoryRange) -> Result<RingHistory> {
        let mut parts = Vec::new();
        for ring in &self.all {
            parts.push(ring.history(range).await?);
        }
        RingHistory::of_partitions(parts).ok_or_else(no_partitions)
    }

    /// The first `count` events of all partitions that follow the one with this name, oldest first.
    ///
    /// Partitions may have different clocks, and are read one after another. So an event is left out, until the next
    /// call, if another partition may still get an older one. Otherwise a caller that goes on from the last event would
    /// miss that one.
    pub async fn events_after(&self, after: &EventName, count: usize) -> Result<Vec<Event>> {
        if let [only] = &self.all[..] {
            return only.events_after(&after.in_stream(None), count).await;
        }
        let (mut events, mut known_until) = (Vec::new(), u64::MAX);
        for (index, ring) in (0..).zip(&self.all) {
            known_until = known_until.min(ring.snapshot(0).await?.time_ms);
            let found = ring.events_after(&after.in_stream(Some(index)), count).await?;
            events.extend(found.into_iter().map(|event| event.in_partition(index)));
        }
        events.retain(|event| event.time_ms < known_until);
        events.sort_by_cached_key(|event| event.id.parse::<EventName>().ok());
        events.truncate(count);
        Ok(events)
    }

    /// How many errors are kept in all partitions.
    pub async fn error_count(&self) -> Result<u64> {
        let mut count = 0;
        for ring in &self.all {
            count += ring.error_count().await?;
        }
        Ok(count)
    }

    /// Everything that has keys: the partitions, then the plain name. If a command deletes them in this order and is
    /// interrupted, the next one finds all partitions again.
    pub fn rings(&self) -> impl Iterator<Item = &Ring> {
        self.all.iter().chain(self.are_several().then_some(&self.whole))
    }

    /// Deletes the ring. Returns how many keys there were.
    pub async fn erase(&self) -> Result<u64> {
        let mut erased = 0;
        for ring in self.rings() {
            erased += ring.erase().await?;
        }
        Ok(erased)
    }

    /// The ids of each partition, in its order. Returns what is wrong with an id that does not name its partition.
    pub fn sort(&self, ids: &[MessageId]) -> std::result::Result<Vec<(&Ring, Vec<u64>)>, String> {
        let mut sorted: Vec<(&Ring, Vec<u64>)> = self.all.iter().map(|ring| (ring, Vec::new())).collect();
        let (name, count) = (self.whole.name(), self.all.len());
        for MessageId { partition, id } in ids {
            let index = match (partition, self.whole.name().partition()) {
                (None, _) if self.are_several() => {
                    let expected =
                        format!("PARTITION:ID, such as 0:{id}, because ring {name} has {count} partitions");
                    return Err(format!("expected {expected}, got '{id}'"));
                }
                (None, _) => 0,
                // The command names one partition, and so does the id.
                (Some(partition), Some(named)) if *partition == named => 0,
                (Some(partition), None) if self.are_several() => *partition as usize,
                (Some(partition), _) => {
                    return Err(format!("expected an id in ring {name}, got '{partition}:{id}'"));
                }
            };
            match sorted.get_mut(index) {
                Some((_, ids)) => ids.push(*id),
                None => {
                    let last = count - 1;
                    return Err(format!("expected a partition from 0 to {last}, got '{index}:{id}'"));
                }
            }
        }
        Ok(sorted)
    }
}

/// The names of rings, sorted: a ring that is divided once, instead of its partitions.
pub fn whole_names(names: Vec<RingName>) -> Vec<RingName> {
    let whole: BTreeSet<RingName> = names.into_iter().map(|name| name.whole().unwrap_or(name)).collect();
    whole.into_iter().collect()
}

fn no_partitions() -> Error {
    Error::Answer("a ring without partitions".to_owned())
}
