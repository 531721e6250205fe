//! Writes a mark, and counts the replicas. Once replicas or the disk have the mark, they have every earlier write of the
//! server.

use std::time::Duration;

use super::{Call, Script, millis, script};
use crate::error::Result;
use crate::keys::Keys;
use crate::redis::Reply;

script!("confirm" " flags=allow-oom" uses "clock");

/// How long a replica that has left still counts as one of all replicas. Sentinels need about ten seconds to demote a
/// master that they have replaced.
const MISSED: Duration = Duration::from_secs(15);

/// How long a mark stays in Redis after the last step that was confirmed.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// The script, for the store, which calls it after other steps.
pub(crate) static CONFIRM: &Script = &SCRIPT;

/// The replication of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replication {
    /// Changes with each promotion and demotion of the server.
    pub id: String,
    /// The replicas that receive writes. A mark also counts those that did until a moment ago.
    pub replicas: u32,
}

pub(crate) fn call(keys: &Keys) -> Call {
    call_with(keys, MISSED)
}

pub(super) fn call_with(keys: &Keys, missed: Duration) -> Call {
    let mut call = SCRIPT.call(&[("confirmed", &keys.confirmed)]);
    call.arg("missed-ms", millis(missed)).arg("memory-ms", millis(MEMORY));
    call
}

pub(crate) fn read(mut reply: Reply) -> Result<Replication> {
    match reply.text()?.as_str() {
        "marked" => Ok(Replication {
            id: reply.text()?,
            replicas: u32::try_from(reply.number()?).unwrap_or(u32::MAX),
        }),
        other => reply.unknown(other),
    }
}
