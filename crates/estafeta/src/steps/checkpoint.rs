//! Sets or removes the checkpoint of the source, while no node is in office.

use super::{Call, flag, script};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::redis::{Reply, Store};
use crate::source::MAX_CHECKPOINT;

script!("checkpoint" "" uses);

pub(super) fn call(keys: &Keys, checkpoint: Option<&[u8]>) -> Call {
    let mut call =
        SCRIPT.call(&[("schema", &keys.schema), ("ledger", &keys.ledger), ("checkpoint", &keys.checkpoint)]);
    call.arg("keep", flag(checkpoint.is_some())).arg("value", checkpoint.unwrap_or_default());
    call
}

impl Store {
    /// Sets the checkpoint, or removes it.
    pub async fn set_checkpoint(&self, checkpoint: Option<&[u8]>) -> Result<()> {
        let size = checkpoint.map_or(0, <[u8]>::len);
        if size > MAX_CHECKPOINT {
            let expected = format!("at most {MAX_CHECKPOINT} bytes");
            return Err(Error::expected("checkpoint", expected, size));
        }
        let mut reply: Reply = self.run(&SCRIPT, &call(self.keys(), checkpoint)).await?;
        match reply.text()?.as_str() {
            "changed" => Ok(()),
            "office" => Err(Error::InOffice { ring: self.ring().to_string(), member: reply.number()? }),
            "missing" => Err(Error::expected("ring", "a ring that exists", self.ring())),
            other => reply.unknown(other),
        }
    }
}
