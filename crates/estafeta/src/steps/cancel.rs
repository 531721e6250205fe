//! Takes a message back that was published with a delay, if it is not due yet.

use super::submit::MEMORY;
use super::{Call, millis, script};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::layout::{Layouts, known_words};
use crate::partition;
use crate::redis::{Reply, Store};

script!("cancel" " flags=allow-oom" uses "clock" "ledger" "layout" "publishers" "entries" "later");

/// Which message is cancelled, and by which publisher.
pub(crate) struct Cancellation<'a> {
    /// The application whose nodes share the ring. Empty for a publisher that may use any ring.
    pub application: &'a str,
    /// How many partitions the ring must have.
    pub partitions: u32,
    pub publisher: Incarnation,
    /// Grows with every call of this publisher. Repeats have the same one.
    pub sequence: u64,
    pub which: MessageRef<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageRef<'a> {
    Id(u64),
    Key(&'a str),
}

pub(super) fn call(keys: &Keys, cancellation: &Cancellation<'_>) -> Call {
    let publisher = keys.publisher(cancellation.publisher);
    let (id, key) = match cancellation.which {
        MessageRef::Id(id) => (id, None),
        MessageRef::Key(name) => (0, Some(keys.message_key(name))),
    };
    let mut all = vec![
        ("schema", keys.schema.as_str()),
        ("requires", &keys.requires),
        ("application", &keys.application),
        ("ledger", &keys.ledger),
        ("later", &keys.later),
        ("delayed", &keys.delayed),
        ("open", &keys.open),
        ("publisher", &publisher),
    ];
    all.extend(key.as_ref().map(|key| ("key", key.as_str())));
    let mut call = SCRIPT.call(&all);
    call.arg("oldest", Layouts::KNOWN.oldest)
        .arg("newest", Layouts::KNOWN.newest)
        .arg("known-words", known_words(&partition::word(cancellation.partitions)))
        .arg("application", cancellation.application)
        .arg("sequence", cancellation.sequence)
        .arg("memory-ms", millis(MEMORY))
        .arg("id", id);
    call
}

impl Store {
    /// Returns whether the message was cancelled. Otherwise it was not delayed any more, or there is no such message.
    pub async fn cancel(&self, cancellation: &Cancellation<'_>) -> Result<bool> {
        let mut reply: Reply = self.run(&SCRIPT, &call(self.keys(), cancellation)).await?;
        match reply.text()?.as_str() {
            "cancelled" | "already" => Ok(reply.number()? == 1),
            other => {
                let Cancellation { application, partitions, .. } = cancellation;
                Err(self.refusal(other, &mut reply, Layouts::KNOWN, application, *partitions)?)
            }
        }
    }
}
