//! Sets or removes the limits of a ring on what its members claim.

use super::{Call, Rate, Roll, script};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::redis::Store;

script!("limit" " flags=allow-oom" uses "clock" "notify" "events" "ledger" "brakes" "queue" "wakeup");

/// The highest limit on messages in flight.
const MOST_IN_FLIGHT: u64 = 1_000_000_000;

/// How the limits change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimitChange {
    /// None: it stays as it is. `Some(None)`: it is removed.
    pub in_flight: Option<Option<u64>>,
    pub rate: Option<Option<Rate>>,
}

pub(super) fn call(keys: &Keys, change: &LimitChange, roll: &Roll) -> Call {
    let mut names = vec![
        ("schema", keys.schema.clone()),
        ("ready", keys.ready.clone()),
        ("ledger", keys.ledger.clone()),
        ("events", keys.events.clone()),
        ("members", keys.members.clone()),
    ];
    names.extend(roll.member_keys(keys));
    let mut call = SCRIPT.call(&names);
    let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let rate = change.rate.map(|rate| rate.map_or(0, |rate| rate.messages));
    let per_ms = change.rate.map(|rate| rate.map_or(0, |rate| rate.per_ms));
    call.arg("in-flight", text(change.in_flight.map(Option::unwrap_or_default)))
        .arg("rate", text(rate))
        .arg("per-ms", text(per_ms))
        .arg("wakeup-prefix", &keys.wakeups);
    roll.add_to(&mut call);
    call
}

impl Store {
    pub async fn limit(&self, change: &LimitChange) -> Result<()> {
        if let Some(Some(limit)) = change.in_flight
            && !(1..=MOST_IN_FLIGHT).contains(&limit)
        {
            return Err(Error::expected("in-flight", "1 to 1000000000 messages", limit));
        }
        if let Some(Some(rate)) = change.rate
            && !rate.is_valid()
        {
            return Err(Error::expected("rate", "1 to 1000000 messages in 1ms to 24h", rate));
        }
        for _ in 0..Roll::TRIES {
            let mut reply = self.run(&SCRIPT, &call(self.keys(), change, &self.roll().await?)).await?;
            match reply.text()?.as_str() {
                "limited" => return Ok(()),
                "changed" => {}
                "missing" => return Err(Error::expected("ring", "a ring that exists", self.ring())),
                other => return reply.unknown(other),
            }
        }
        Err(Roll::changes_too_fast("a limit"))
    }
}
