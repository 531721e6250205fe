//! Appends messages to the queue, if the caller is the generator of exactly this epoch.

use std::time::Duration;

use super::{Call, flag, millis, script};
use crate::error::Result;
use crate::identity::{Epoch, Incarnation};
use crate::keys::Keys;
use crate::message::Message;
use crate::pack;
use crate::redis::{Reply, Store};

script!("publish" "" uses "clock" "lists" "ledger" "queue" "wakeup");

/// The messages of one call, and the conditions under which they are published.
pub(crate) struct Batch<'a> {
    pub epoch: Epoch,
    /// The number of earlier publishes in this term.
    pub n: u64,
    /// Their ids follow the last one that the caller knows. Redis changes them if other messages were published since.
    pub messages: &'a [Message],
    pub interval: Duration,
    pub catch_up: bool,
    pub max_waiting: u64,
    pub limit: u64,
    pub lease: Duration,
    /// A tick that is late by more than this counts as missed.
    pub late: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// This call published the messages, or an earlier try did and its reply was lost.
    Published {
        /// The id of the first message. It is higher than in the call if other messages were published in between.
        first_id: u64,
        due_ms: u64,
        now_ms: u64,
    },
    /// Redis has lost messages that the caller knows to be published.
    Behind,
    Full {
        now_ms: u64,
    },
    /// The limit of the ring does not allow all of these messages.
    Limit {
        /// How many messages are published.
        published: u64,
    },
    /// This epoch is over.
    Fenced,
}

pub(super) fn call(keys: &Keys, me: Incarnation, batch: &Batch<'_>) -> Call {
    let wakeups = &keys.wakeups;
    let elements = pack::elements(batch.messages);
    let bytes = elements.iter().map(Vec::len).sum();
    let keys = [
        ("members", &keys.members),
        ("member", &keys.member(me)),
        ("ledger", &keys.ledger),
        ("ready", &keys.ready),
    ];
    let mut call = SCRIPT.call_with_room(&keys, elements.len(), bytes);
    call.arg("incarnation", me.to_string())
        .arg("epoch", batch.epoch.0)
        .arg("n", batch.n)
        .arg("first-id", batch.messages.first().map_or(0, |message| message.id))
        .arg("interval-ms", millis(batch.interval))
        .arg("catch-up", flag(batch.catch_up))
        .arg("max-waiting", batch.max_waiting)
        .arg("limit", batch.limit)
        .arg("lease-ms", millis(batch.lease))
        .arg("late-ms", millis(batch.late))
        .arg("wakeup-prefix", wakeups)
        .arg("count", batch.messages.len());
    for element in elements {
        call.arg("element", element);
    }
    call
}

fn read(mut reply: Reply) -> Result<Publish> {
    match reply.text()?.as_str() {
        "published" | "already" => {
            let first_id = reply.number()?;
            Ok(Publish::Published { first_id, due_ms: reply.number()?, now_ms: reply.number()? })
        }
        "behind" => Ok(Publish::Behind),
        "full" => Ok(Publish::Full { now_ms: reply.number()? }),
        "limit" => Ok(Publish::Limit { published: reply.number()? }),
        "fenced" => Ok(Publish::Fenced),
        other => reply.unknown(other),
    }
}

impl Store {
    pub async fn publish(&self, me: Incarnation, batch: &Batch<'_>) -> Result<Publish> {
        read(self.run(&SCRIPT, &call(self.keys(), me, batch)).await?)
    }
}
