//! Records that the handler of a member can handle nothing at the moment.

use std::time::Duration;

use super::{Call, millis, script};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("complain" " flags=allow-oom" uses "clock" "events" "ledger");

pub(super) fn call(keys: &Keys, me: Incarnation, pause: Duration, reason: &str) -> Call {
    let mut call = SCRIPT.call(&[("member", &keys.member(me)), ("events", &keys.events)]);
    call.arg("pause-ms", millis(pause)).arg("reason", reason);
    call
}

impl Store {
    /// Has the ring get an event about the handler of this member, unless its last one is younger than `pause`.
    pub async fn complain(&self, me: Incarnation, pause: Duration, reason: &str) -> Result<()> {
        let mut reply: Reply = self.run(&SCRIPT, &call(self.keys(), me, pause, reason)).await?;
        match reply.text()?.as_str() {
            "noted" | "quiet" | "lost" => Ok(()),
            other => reply.unknown(other),
        }
    }
}
