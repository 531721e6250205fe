//! Reads everything that `status` shows.

use super::bury::held_lists;
use super::{Call, script};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("snapshot" " flags=no-writes" uses "clock" "lists" "ledger" "queue" "presence");

/// `known` counts all entries of the member list. `roll` lists those that belong to the ring, with their lanes.
pub(super) fn call(keys: &Keys, known: usize, roll: &[(Incarnation, usize)], events: usize) -> Call {
    let mut names = vec![
        ("members", keys.members.clone()),
        ("succession", keys.succession.clone()),
        ("leader", keys.leader.clone()),
        ("ready", keys.ready.clone()),
        ("errors", keys.errors.clone()),
        ("ledger", keys.ledger.clone()),
        ("events", keys.events.clone()),
    ];
    for (member, lanes) in roll {
        names.push(("member", keys.member(*member)));
        names.extend(held_lists(keys, *member, *lanes));
    }
    let mut call = SCRIPT.call(&names);
    call.arg("channel-prefix", &keys.channels).arg("events-wanted", events).arg("members-known", known);
    for (member, lanes) in roll {
        call.arg("incarnation", member.to_string()).arg("lanes", lanes);
    }
    call
}

impl Store {
    /// Returns the raw snapshot, or None if the given members are not the current ones. `known` counts all entries of
    /// the member list. `roll` lists those that belong to the ring, with their lanes.
    pub async fn snapshot(
        &self,
        known: usize,
        roll: &[(Incarnation, usize)],
        events: usize,
    ) -> Result<Option<Reply>> {
        let mut reply = self.run(&SCRIPT, &call(self.keys(), known, roll, events)).await?;
        Ok((reply.text()? == "snapshot").then_some(reply))
    }
}
