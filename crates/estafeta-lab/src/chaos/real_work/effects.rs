//! What a message writes to Redis when it is done. Its id decides that, so the judge knows what must be there. Only a
//! line of a file also adds its number to a sum.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{JournalEntry, Outcome, Ring, RingName};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use super::message_plan::MessagePlan;
use crate::server;

/// How many totals there are.
const TOTALS: u64 = 8;
/// The stream to which some messages append their ids.
pub const STREAM: &str = "done";
/// How many entries the stream keeps at least.
pub const KEPT: usize = 300;
/// The key to which some messages write their ids, each over the one before.
pub const LAST: &str = "last";
/// The key with the sum of the numbers of all lines that are done.
pub const FED: &str = "fed";
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

/// The plan of the message that a message with this id forwards, if it forwards one.
fn forwarded(id: u64) -> Option<MessagePlan> {
    let plan = || MessagePlan::random(&mut SmallRng::seed_from_u64(id), format!("f{id}"));
    (id % 10 < 7).then(plan)
}

/// What the done messages of a ring forward: the id of each, and the body that it forwards.
pub fn forwards(journal: &[JournalEntry]) -> Vec<(u64, String)> {
    let done = |entry: &'_ JournalEntry| -> Vec<u64> {
        entry.ids.iter().copied().filter(|id| !entry.errors.contains(id)).collect()
    };
    let forward = |id| Some((id, forwarded(id)?.to_string()));
    journal.iter().flat_map(done).filter_map(forward).collect()
}

/// The outcome of a message that is done, with its effects. `line` is its number in a file, if it is a line of one, and
/// `next` the ring to which it may forward another message.
pub fn done(id: u64, line: Option<u64>, next: Option<&RingName>) -> Outcome {
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
    if let Some(line) = line {
        outcome = outcome.add(FED, line.cast_signed());
    }
    if let (Some(ring), Some(plan)) = (next, forwarded(id)) {
        outcome = outcome.forward(ring, plan.to_string());
    }
    outcome
}

/// How many effects every message with this id has that is done.
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
    pub fed: i64,
}

impl WrittenEffects {
    pub async fn read(ring: &Ring) -> Result<Self> {
        let mut connection = server::connect(&ring.located().await?).await?;
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
        let fed: Option<i64> = redis::cmd("GET").arg(ring.user_key(FED)).query_async(&mut connection).await?;
        written.fed = fed.unwrap_or(0);
        for id in ring.result_ids().await? {
            let result = ring.result(id).await?.context("a result is gone although its time is not over")?;
            written.results.insert(id, String::from_utf8_lossy(&result.value).into_owned());
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use estafeta::MemberId;

    use super::*;

    #[test]
    fn the_id_of_a_message_decides_its_effects() {
        let ring: RingName = "group/next".parse().unwrap();
        let append = |outcome: Outcome, id: &'static str| outcome.append(STREAM, [("id", id)], Some(300));
        let one = append(Outcome::done().add("total-1", 2), "1").result("1", TO_LIVE);
        assert_eq!((done(1, None, None), count(1)), (one, 3));
        let ten = Outcome::done().add("total-2", 11).set(LAST, "10", None);
        assert_eq!((done(10, None, None), count(10)), (ten, 2));
        let line = append(Outcome::done().add("total-7", 8), "7").add(FED, 70);
        assert_eq!(done(7, Some(70), Some(&ring)), line, "it forwards nothing");
        let forwarding = append(Outcome::done().add("total-3", 4), "3");
        assert_ne!(done(3, None, Some(&ring)), forwarding);
        let body = forwarded(3).unwrap().to_string();
        assert_eq!(done(3, None, Some(&ring)), forwarding.forward(&ring, body));
    }

    #[test]
    fn only_messages_that_are_done_forward_others() {
        let entry = |ids: &[u64], errors: &[u64]| JournalEntry::sample(MemberId(1), ids, errors);
        let forwards = forwards(&[entry(&[1, 2], &[2]), entry(&[7, 8, 9], &[]), entry(&[13], &[])]);
        let [(1, one), (13, thirteen)] = &forwards[..] else { panic!("{forwards:?}") };
        assert!(one.starts_with("f1/") && thirteen.starts_with("f13/"), "{forwards:?}");
        assert_eq!(MessagePlan::parse(one), forwarded(1));
    }
}
