//! Calls the first idle member if messages wait or a delayed message is due.

use super::{Call, script};
use crate::error::Result;
use crate::keys::Keys;
use crate::redis::Store;

script!("wake" " flags=allow-oom" uses "clock" "notify" "ledger" "brakes" "queue" "wakeup");

pub(super) fn call(keys: &Keys) -> Call {
    let mut call = SCRIPT.call(&[("ready", &keys.ready), ("ledger", &keys.ledger)]);
    call.arg("wakeup-prefix", &keys.wakeups);
    call
}

impl Store {
    pub async fn wake(&self) -> Result<()> {
        self.run(&SCRIPT, &call(self.keys())).await.map(drop)
    }
}
