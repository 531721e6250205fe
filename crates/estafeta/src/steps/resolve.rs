//! Retries or drops dead letters that the caller has read before.

use super::{Call, script};
use crate::error::Result;
use crate::keys::Keys;
use crate::redis::Store;

script!("resolve" " flags=allow-oom" uses "clock" "notify" "events" "lists" "elements" "ledger" "brakes" "queue" "wakeup");

pub(super) fn call(keys: &Keys, verb: &str, by: &str, elements: &[(u64, &[u8])]) -> Call {
    let mut call = SCRIPT.call(&[
        ("errors", &keys.errors),
        ("ready", &keys.ready),
        ("ledger", &keys.ledger),
        ("events", &keys.events),
    ]);
    call.arg("verb", verb).arg("by", by).arg("wakeup-prefix", &keys.wakeups);
    for (index, element) in elements {
        call.arg("index", *index).arg("element", *element);
    }
    call
}

impl Store {
    /// Retries or drops dead letters that the caller saw at these places of the list. Returns how many of them were still
    /// there.
    pub async fn resolve(&self, verb: &str, elements: &[(u64, &[u8])]) -> Result<u64> {
        let mut reply = self.run(&SCRIPT, &call(self.keys(), verb, self.actor(), elements)).await?;
        reply.text()?;
        reply.number()
    }
}
