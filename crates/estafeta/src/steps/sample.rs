//! Adds the state of the ring to its history.

use std::time::Duration;

use super::{Call, millis, script};
use crate::error::Result;
use crate::identity::{Epoch, Identity};
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("sample" " flags=allow-oom" uses "clock" "ledger" "brakes" "queue" "history");

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sampling {
    /// The sample is taken, at this time.
    Sampled { now_ms: u64 },
    /// Another member samples this ring, because no member may be in office.
    Other,
    /// The caller has no right to sample: another member is in office, or may take it.
    Fenced,
}

/// `epoch` is the caller's term, or None if the caller is not in office.
pub(super) fn call(keys: &Keys, me: Identity, epoch: Option<Epoch>, silence: Duration) -> Call {
    let mut call = SCRIPT.call(&[
        ("members", &keys.members),
        ("succession", &keys.succession),
        ("ready", &keys.ready),
        ("later", &keys.later),
        ("ledger", &keys.ledger),
        ("latencies", &keys.latencies),
        ("seconds", &keys.seconds),
        ("tens", &keys.tens),
        ("minutes", &keys.minutes),
    ]);
    call.arg("incarnation", me.incarnation.to_string())
        .arg("number", me.number.0)
        .arg("epoch", epoch.map_or(0, |epoch| epoch.0))
        .arg("silence-ms", millis(silence));
    call
}

fn read(mut reply: Reply) -> Result<Sampling> {
    match reply.text()?.as_str() {
        "sampled" => Ok(Sampling::Sampled { now_ms: reply.number()? }),
        "other" => Ok(Sampling::Other),
        "fenced" => Ok(Sampling::Fenced),
        other => reply.unknown(other),
    }
}

impl Store {
    pub async fn sample(&self, me: Identity, epoch: Option<Epoch>, silence: Duration) -> Result<Sampling> {
        read(self.run(&SCRIPT, &call(self.keys(), me, epoch, silence)).await?)
    }
}
