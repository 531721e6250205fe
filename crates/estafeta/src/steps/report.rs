//! Records that the generator's source failed, and gives up the office if that happens again and again.

use super::{Call, script};
use crate::error::Result;
use crate::identity::{Epoch, Incarnation};
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("report" " flags=allow-oom" uses "clock" "notify" "events" "ledger" "office");

/// One failure of the generator's source.
pub(crate) struct SourceFailure<'a> {
    pub epoch: Epoch,
    /// How many failures of this term the generator has reported, with this one.
    pub n: u64,
    /// How often the source has failed since it last made a message.
    pub in_a_row: u64,
    pub reason: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    /// The failure is recorded, and the term goes on.
    Noted,
    /// The term is over: the generator gave up the office, or had lost it before.
    Over,
}

pub(super) fn call(keys: &Keys, me: Incarnation, failure: &SourceFailure<'_>) -> Call {
    let mut call =
        SCRIPT.call(&[("succession", &keys.succession), ("ledger", &keys.ledger), ("events", &keys.events)]);
    call.arg("incarnation", me.to_string())
        .arg("epoch", failure.epoch.0)
        .arg("n", failure.n)
        .arg("in-a-row", failure.in_a_row)
        .arg("reason", failure.reason)
        .arg("channel-prefix", &keys.channels);
    call
}

fn read(mut reply: Reply) -> Result<Reported> {
    match reply.text()?.as_str() {
        "noted" => Ok(Reported::Noted),
        "resigned" | "fenced" => Ok(Reported::Over),
        other => reply.unknown(other),
    }
}

impl Store {
    pub async fn report(&self, me: Incarnation, failure: &SourceFailure<'_>) -> Result<Reported> {
        read(self.run(&SCRIPT, &call(self.keys(), me, failure)).await?)
    }
}
