//! Reads everything that `status` shows.

use super::{Call, Roll, script};
use crate::error::Result;
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("snapshot" " flags=no-writes" uses "clock" "ledger" "brakes" "queue" "history" "presence");

pub(super) fn call(keys: &Keys, roll: &Roll, events: usize) -> Call {
    let mut names = vec![
        ("schema", keys.schema.clone()),
        ("application", keys.application.clone()),
        ("members", keys.members.clone()),
        ("succession", keys.succession.clone()),
        ("ready", keys.ready.clone()),
        ("errors", keys.errors.clone()),
        ("later", keys.later.clone()),
        ("ledger", keys.ledger.clone()),
        ("events", keys.events.clone()),
        ("seconds", keys.seconds.clone()),
    ];
    names.extend(roll.member_and_inflight_keys(keys));
    let mut call = SCRIPT.call(&names);
    call.arg("channel-prefix", &keys.channels).arg("events-wanted", events);
    roll.add_to(&mut call);
    call
}

impl Store {
    /// Returns the raw snapshot, or None if the given members are not the current ones.
    pub async fn snapshot(&self, roll: &Roll, events: usize) -> Result<Option<Reply>> {
        let mut reply = self.run(&SCRIPT, &call(self.keys(), roll, events)).await?;
        Ok((reply.text()? == "snapshot").then_some(reply))
    }
}
