//! Reads everything that `status` shows.

use super::{Call, script};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("snapshot" " flags=no-writes" uses "clock" "ledger" "queue" "presence");

/// `known` counts all entries of the member list. `members` are those that belong to the ring.
pub(super) fn call(keys: &Keys, known: usize, members: &[Incarnation], events: usize) -> Call {
    let mut names = vec![
        ("schema", keys.schema.clone()),
        ("application", keys.application.clone()),
        ("members", keys.members.clone()),
        ("succession", keys.succession.clone()),
        ("ready", keys.ready.clone()),
        ("errors", keys.errors.clone()),
        ("later", keys.later.clone()),
        ("ledger", keys.ledger.clone()),
        ("events", keys.events.clone()),
    ];
    for member in members {
        names.push(("member", keys.member(*member)));
        names.push(("inflight", keys.inflight(*member)));
    }
    let mut call = SCRIPT.call(&names);
    call.arg("channel-prefix", &keys.channels).arg("events-wanted", events).arg("members-known", known);
    for member in members {
        call.arg("incarnation", member.to_string());
    }
    call
}

impl Store {
    /// Returns the raw snapshot, or None if the given members are not the current ones. `known` counts all entries of
    /// the member list. `members` are those that belong to the ring.
    pub async fn snapshot(
        &self,
        known: usize,
        members: &[Incarnation],
        events: usize,
    ) -> Result<Option<Reply>> {
        let mut reply = self.run(&SCRIPT, &call(self.keys(), known, members, events)).await?;
        Ok((reply.text()? == "snapshot").then_some(reply))
    }
}
