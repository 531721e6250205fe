//! What a message writes to Redis when it is done. Its id decides that, so the judge knows what must be there.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{Outcome, Ring};

use crate::server;

/// How many totals there are.
const TOTALS: u64 = 8;
/// The stream to which some messages append their ids.
pub const STREAM: &str = "done";
/// How many entries the stream keeps at least.
pub const KEPT: usize = 300;
/// The key to which some messages write their ids, each over the one before.
pub const LAST: &str = "last";
/// How long a result is kept. No run takes so long.
const TO_LIVE: Duration = Duration::from_secs(48 * 60 * 60);

/// Which total a message adds to, and how much.
pub fn contribution(id: u64) -> (String, i64) {
    // Neighbours add to different totals, and a total has many different summands.
    (format!("total-{}", id % TOTALS), (id % 97 + 1).cast_signed())
}

pub fn is_appended(id: u64) -> bool {
    !is_set(id)
}

pub fn is_set(id: u64) -> bool {
    id.is_multiple_of(2)
}

pub fn has_result(id: u64) -> bool {
    id % 25 == 1
}

/// The outcome of a message that is done, with its effects.
pub fn done(id: u64) -> Outcome {
    let (total, n) = contribution(id);
    let mut outcome = Outcome::done().add(total, n);
    if is_appended(id) {
        outcome = outcome.append(STREAM, [("id", id.to_string())], Some(KEPT as u64));
    }
    if is_set(id) {
        outcome = outcome.set(LAST, id.to_string(), None);
    }
    if has_result(id) {
        outcome = outcome.result(id.to_string(), TO_LIVE);
    }
    outcome
}

/// How many effects a message has that is done.
pub fn count(id: u64) -> u64 {
    1 + [is_appended(id), is_set(id), has_result(id)].map(u64::from).iter().sum::<u64>()
}

/// What the effects of all messages of a ring have left in Redis.
#[derive(Debug, Default)]
pub struct WrittenEffects {
    pub totals: BTreeMap<String, i64>,
    /// The ids in the stream, the oldest first.
    pub stream: Vec<u64>,
    pub last: Option<u64>,
    /// The result of each message that has one.
    pub results: BTreeMap<u64, String>,
}

impl WrittenEffects {
    pub async fn read(ring: &Ring) -> Result<Self> {
        let mut connection = server::connect(ring.endpoint()).await?;
        let mut written = Self::default();
        for name in (0..TOTALS).map(|number| format!("total-{number}")) {
            let total: Option<i64> =
                redis::cmd("GET").arg(ring.user_key(&name)).query_async(&mut connection).await?;
            written.totals.extend(total.map(|total| (name, total)));
        }
        let key = ring.user_key(STREAM);
        let entries: Vec<(String, (String, u64))> =
            redis::cmd("XRANGE").arg(key).arg("-").arg("+").query_async(&mut connection).await?;
        written.stream = entries.into_iter().map(|(_, (_, id))| id).collect();
        written.last = redis::cmd("GET").arg(ring.user_key(LAST)).query_async(&mut connection).await?;
        for id in ring.result_ids().await? {
            let result = ring.result(id).await?.context("a result is gone although its time is not over")?;
            written.results.insert(id, String::from_utf8_lossy(&result.value).into_owned());
        }
        Ok(written)
    }
}
