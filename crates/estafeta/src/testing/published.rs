//! The messages that wait, as values.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::TestRing;
use crate::body;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::pack;
use crate::steps::{Call, Script, assemble};

pub(crate) static SCRIPT: Script = Script::new(
    "published",
    || assemble(" flags=no-writes", &[], include_str!("published.lua")),
    || redis::Script::new(SCRIPT.code()).get_hash().to_owned(),
);

pub(crate) fn call(keys: &Keys) -> Call {
    SCRIPT.call(&[("ready", &keys.ready), ("later", &keys.later), ("delayed", &keys.delayed)])
}

impl TestRing {
    /// Returns the bodies of all messages that wait: first those in the queue, in its order, then those that wait for a
    /// time, the next one first. Messages that a node holds are not among them, and neither are dead letters. The messages
    /// stay where they are.
    ///
    /// Fails if one of the bodies is not of this type. Ask for [`Bytes`] to get them as they are.
    pub async fn published<T: DeserializeOwned + 'static>(&self) -> Result<Vec<T>> {
        self.bury_dropped().await?;
        let store = self.ring.store();
        let mut reply = store.run(&SCRIPT, &call(store.keys())).await?;
        reply.text()?;
        let mut messages = Vec::new();
        for mut elements in [reply.list()?, reply.list()?] {
            while !elements.is_empty() {
                pack::read(self.ring.name(), elements.bytes()?, &mut messages);
            }
        }
        let body = |message: &crate::Message| {
            body::decode(&Bytes::copy_from_slice(message.body())).map_err(|error| {
                let expected = format!("JSON of a {}", std::any::type_name::<T>());
                Error::expected("body", expected, format!("{} ({error})", message.text()))
            })
        };
        messages.iter().map(body).collect()
    }
}
