//! A ring and its partitions, for commands that work on all of them.

use anyhow::{Context as _, Result};
use estafeta::{Error, Ring, Snapshot};

use crate::failure::usage;
use estafeta_lab::message_id::MessageId;

/// A ring, and each of its partitions. A ring that is not divided is its only partition.
pub struct Partitions {
    pub whole: Ring,
    pub all: Vec<Ring>,
}

impl Partitions {
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
            _ => {
                let parts = self.snapshots(0).await?;
                Snapshot::of_partitions(self.whole.name(), parts).context("a ring without partitions")
            }
        }
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

    /// The ids of each partition, in its order. Fails if an id does not name its partition.
    pub fn sort(&self, ids: &[MessageId]) -> Result<Vec<(&Ring, Vec<u64>)>> {
        let mut sorted: Vec<(&Ring, Vec<u64>)> = self.all.iter().map(|ring| (ring, Vec::new())).collect();
        let (name, count) = (self.whole.name(), self.all.len());
        for MessageId { partition, id } in ids {
            let index = match (partition, self.whole.name().partition()) {
                (None, _) if self.are_several() => {
                    let expected =
                        format!("PARTITION:ID, such as 0:{id}, because ring {name} has {count} partitions");
                    return Err(usage(format!("ID: expected {expected}, got '{id}'")));
                }
                (None, _) => 0,
                // The command names one partition, and so does the id.
                (Some(partition), Some(named)) if *partition == named => 0,
                (Some(partition), None) if self.are_several() => *partition as usize,
                (Some(partition), _) => {
                    return Err(usage(format!("ID: expected an id in ring {name}, got '{partition}:{id}'")));
                }
            };
            match sorted.get_mut(index) {
                Some((_, ids)) => ids.push(*id),
                None => {
                    let last = count - 1;
                    return Err(usage(format!(
                        "ID: expected a partition from 0 to {last}, got '{index}:{id}'"
                    )));
                }
            }
        }
        Ok(sorted)
    }
}
