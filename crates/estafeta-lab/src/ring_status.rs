//! A ring as `status` and the web page show it.

use std::collections::BTreeSet;

use estafeta::{Durability, Snapshot};
use serde::Serialize;

use crate::partitions::Partitions;

/// A ring at one moment, and whether Redis stores it as its members ask.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RingStatus {
    #[serde(flatten)]
    pub snapshot: Snapshot,
    /// The levels that members ask for, except `memory`.
    pub durability: Vec<AskedDurability>,
    /// Each partition, if there are several. The snapshot then has their sums.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<Snapshot>,
}

/// A level of durability that members ask for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedDurability {
    pub level: Durability,
    /// Why Redis cannot store changes there at the moment.
    pub shortfall: Option<String>,
}

impl RingStatus {
    /// Reads all partitions of a ring with their latest events.
    pub async fn read(rings: &Partitions, events: usize) -> estafeta::Result<Self> {
        let mut partitions = rings.snapshots(events).await?;
        let snapshot = match partitions.len() {
            1 => partitions.remove(0),
            _ => rings.sum(partitions.clone())?,
        };
        let levels: BTreeSet<&str> =
            snapshot.members.iter().map(|member| member.durability.as_str()).collect();
        let mut durability = Vec::new();
        for level in levels.into_iter().filter_map(|level| level.parse().ok()) {
            if level != Durability::Memory {
                let mut shortfall = None;
                for ring in &rings.all {
                    shortfall = shortfall.or(ring.shortfall(level).await?);
                }
                durability.push(AskedDurability { level, shortfall });
            }
        }
        Ok(Self { snapshot, durability, partitions })
    }
}
