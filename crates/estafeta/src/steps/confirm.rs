//! Writes a mark. Once replicas or the disk have the mark, they have every earlier write of the server.

use std::time::Duration;

use super::{Call, Script, millis, script};
use crate::keys::Keys;

script!("confirm" " flags=allow-oom" uses);

/// How long the mark stays in Redis. No step reads it.
const MEMORY: Duration = Duration::from_secs(60);

/// The script, for the store, which calls it after other steps.
pub(crate) static CONFIRM: &Script = &SCRIPT;

pub(crate) fn call(keys: &Keys) -> Call {
    let mut call = SCRIPT.call(&[("confirmed", &keys.confirmed)]);
    call.arg("memory-ms", millis(MEMORY));
    call
}
