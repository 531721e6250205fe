//! Marks a ring's name as that of a ring with several partitions.

use super::{Call, script};
use crate::error::Result;
use crate::keys::Keys;
use crate::layout::{Layouts, known_words};
use crate::partition;
use crate::redis::{Reply, Store};

script!("divide" "" uses "layout");

pub(super) fn call(keys: &Keys, partitions: u32) -> Call {
    let mut call = SCRIPT.call(&[("schema", &keys.schema), ("requires", &keys.requires)]);
    let word = partition::word(partitions);
    call.arg("oldest", Layouts::KNOWN.oldest)
        .arg("newest", Layouts::KNOWN.newest)
        .arg("known-words", known_words(&word))
        .arg("demand", &word);
    call
}

impl Store {
    /// Marks this ring as divided into so many partitions. Fails if it has another number of them.
    pub async fn divide(&self, partitions: u32) -> Result<()> {
        let mut reply: Reply = self.run(&SCRIPT, &call(self.keys(), partitions)).await?;
        match reply.text()?.as_str() {
            "divided" => Ok(()),
            other => Err(self.refusal(other, &mut reply, Layouts::KNOWN, "", partitions)?),
        }
    }
}
