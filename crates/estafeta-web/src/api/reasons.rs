//! The reasons of the errors, counted. A long list takes a while to count, so all pages share one result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use estafeta_lab::by_reason::{ReasonGroup, Reasons};
use estafeta_lab::partitions::Partitions;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::scan::{Cursor, Scan};

/// How long a result is good.
const AGE: Duration = Duration::from_secs(2);
/// How long a count may take. Then the oldest errors stay uncounted, and the result shows that.
const COUNT_TIME: Duration = Duration::from_secs(1);
/// How many groups an answer has.
const MOST_GROUPS: usize = 200;

/// The errors of a ring by their reasons.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CountedReasons {
    /// How many errors are kept.
    pub kept: u64,
    /// How many of them were counted, from the newest on.
    pub counted: u64,
    /// The most frequent reasons first. Numbers of four and more digits are `#`.
    pub reasons: Vec<ReasonGroup>,
}

#[derive(Default)]
pub struct ReasonsCache(Mutex<Option<(Instant, Arc<CountedReasons>)>>);

impl ReasonsCache {
    /// Forgets the result, because errors were changed.
    pub async fn forget(&self) {
        *self.0.lock().await = None;
    }

    pub async fn get(&self, rings: &Partitions) -> estafeta::Result<Arc<CountedReasons>> {
        let mut cached = self.0.lock().await;
        if let Some((at, reasons)) = &*cached
            && at.elapsed() < AGE
        {
            return Ok(Arc::clone(reasons));
        }
        let reasons = Arc::new(count(rings).await?);
        *cached = Some((Instant::now(), Arc::clone(&reasons)));
        Ok(reasons)
    }
}

async fn count(rings: &Partitions) -> estafeta::Result<CountedReasons> {
    let (kept, begun) = (rings.error_count().await?, Instant::now());
    let mut scan = Scan::begin(&rings.all, &Cursor::default()).await?;
    let (mut reasons, mut counted) = (Reasons::default(), 0);
    while !scan.is_over() && begun.elapsed() < COUNT_TIME {
        let chunk = scan.next().await?;
        counted += chunk.len() as u64;
        chunk.iter().for_each(|error| reasons.add(&error.letter));
    }
    let groups = reasons.sorted().into_iter().take(MOST_GROUPS).cloned().collect();
    Ok(CountedReasons { kept: kept.max(counted), counted, reasons: groups })
}
