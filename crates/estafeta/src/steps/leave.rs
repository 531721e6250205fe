//! Removes the calling member from the ring and hands back what it held.

use super::bury::farewell_keys;
use super::{Call, script};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::redis::Store;

script!("leave" " flags=allow-oom" uses "clock" "notify" "events" "lists" "elements" "ledger" "brakes" "queue" "wakeup" "office" "entries" "hand_back");

pub(super) fn call(keys: &Keys, me: Incarnation) -> Call {
    let mut call = SCRIPT.call(&farewell_keys(keys, me));
    call.arg("incarnation", me.to_string())
        .arg("channel-prefix", &keys.channels)
        .arg("wakeup-prefix", &keys.wakeups);
    call
}

impl Store {
    /// Leaves the ring. Returns how many messages went back to the queue.
    pub async fn leave(&self, me: Incarnation) -> Result<u64> {
        let mut reply = self.run(&SCRIPT, &call(self.keys(), me)).await?;
        reply.text()?;
        reply.number()
    }
}
