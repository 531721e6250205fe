//! Lists the members that do not look alive. It only reads. `bury` checks again before it acts.

use std::time::Duration;

use super::{Call, Health, millis, script};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("suspects" " flags=no-writes" uses "clock" "brakes" "presence");

pub(crate) struct Suspects {
    pub now_ms: u64,
    /// Messages wait although a member is idle.
    pub needs_wakeup: bool,
    pub list: Vec<(Incarnation, Health)>,
}

pub(super) fn call(keys: &Keys, lease: Duration) -> Call {
    let mut call =
        SCRIPT.call(&[("members", &keys.members), ("ready", &keys.ready), ("ledger", &keys.ledger)]);
    call.arg("channel-prefix", &keys.channels).arg("lease-ms", millis(lease));
    call
}

fn read(mut reply: Reply) -> Result<Suspects> {
    let (now_ms, needs_wakeup) = (reply.number()?, reply.number()? == 1);
    let mut list = Vec::new();
    while !reply.is_empty() {
        let (name, health) = (reply.text()?, reply.health()?);
        // The failure detector ignores foreign names in the member list.
        if let Ok(incarnation) = name.parse() {
            list.push((incarnation, health));
        }
    }
    Ok(Suspects { now_ms, needs_wakeup, list })
}

impl Store {
    pub async fn suspects(&self, lease: Duration) -> Result<Suspects> {
        read(self.run(&SCRIPT, &call(self.keys(), lease)).await?)
    }
}
