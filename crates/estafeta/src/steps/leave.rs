//! Removes the calling member from the ring and hands back what it held.

use super::bury::{farewell_keys, held_lists};
use super::{Call, script};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::redis::Store;

script!("leave" " flags=allow-oom" uses "clock" "events" "wakeup" "lists" "elements" "ledger" "queue" "office" "hand_back");

pub(super) fn call(keys: &Keys, me: Incarnation, lanes: usize) -> Call {
    let mut names = farewell_keys(keys, me);
    names.extend(held_lists(keys, me, lanes));
    let mut call = SCRIPT.call(&names);
    call.arg("incarnation", me.to_string()).arg("channel-prefix", &keys.channels);
    call
}

impl Store {
    /// Leaves the ring. Returns how many messages went back to the queue.
    pub async fn leave(&self, me: Incarnation, lanes: usize) -> Result<u64> {
        let mut reply = self.run(&SCRIPT, &call(self.keys(), me, lanes)).await?;
        reply.text()?;
        reply.number()
    }
}
