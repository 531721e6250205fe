//! Gives up the office and calls the heir.

use super::{Call, script};
use crate::error::Result;
use crate::identity::{Epoch, Incarnation};
use crate::keys::Keys;
use crate::redis::Store;

script!("resign" " flags=allow-oom" uses "clock" "notify" "events" "office");

pub(super) fn call(keys: &Keys, me: Incarnation, epoch: Epoch) -> Call {
    let mut call =
        SCRIPT.call(&[("succession", &keys.succession), ("ledger", &keys.ledger), ("events", &keys.events)]);
    call.arg("incarnation", me.to_string()).arg("epoch", epoch.0).arg("channel-prefix", &keys.channels);
    call
}

impl Store {
    pub async fn resign(&self, me: Incarnation, epoch: Epoch) -> Result<()> {
        self.run(&SCRIPT, &call(self.keys(), me, epoch)).await.map(drop)
    }
}
