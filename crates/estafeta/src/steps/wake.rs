//! Wakes an idle lane of the ring if messages wait, and waits for such a wakeup.

use std::time::Duration;

use redis::Value;

use super::{Call, script};
use crate::error::Result;
use crate::keys::Keys;
use crate::redis::Store;

script!("wake" " flags=allow-oom" uses "wakeup");

pub(super) fn call(keys: &Keys) -> Call {
    SCRIPT.call(&[("ready", &keys.ready), ("wakeup", &keys.wakeup)])
}

impl Store {
    pub async fn wake(&self) -> Result<()> {
        self.run(&SCRIPT, &call(self.keys())).await.map(drop)
    }

    /// Waits for a wakeup on this store's connection, which no other caller can use meanwhile. Returns false if none
    /// came.
    pub async fn await_wakeup(&self, wait: Duration) -> Result<bool> {
        let mut command = redis::cmd("BLPOP");
        command.arg(&self.keys().wakeup).arg(wait.as_secs_f64());
        Ok(self.hold(&command, wait).await? != Value::Nil)
    }
}
