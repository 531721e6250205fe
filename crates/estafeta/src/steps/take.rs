//! The only step of a reader: removes the dead letters that were shown, then takes the next ones.

use super::{Call, Settlement, Turn, script};
use crate::error::Result;
use crate::identity::Identity;
use crate::keys::{Keys, RingName};
use crate::message::DeadLetter;
use crate::redis::Store;

script!("take" " flags=allow-oom" uses "clock" "lists" "ledger" "queue");

pub(super) fn call(keys: &Keys, me: Identity, settlement: &Settlement) -> Call {
    let who = me.incarnation;
    let mut call = SCRIPT.call(&[
        ("members", &keys.members),
        ("member", &keys.member(who)),
        ("inflight", &keys.inflight(who, 0)),
        ("errors", &keys.errors),
        ("ledger", &keys.ledger),
    ]);
    call.arg("incarnation", who.to_string())
        .arg("number", me.number.0)
        .arg("cursor", settlement.cursor)
        .arg("n", settlement.settled)
        .arg("want", settlement.want);
    call
}

fn dead_letters(ring: &RingName, elements: Vec<Vec<u8>>) -> Vec<DeadLetter> {
    elements.into_iter().map(|element| DeadLetter::parse(ring, element)).collect()
}

impl Store {
    pub async fn take(&self, me: Identity, settlement: &Settlement) -> Result<Turn<DeadLetter>> {
        let build = || call(self.keys(), me, settlement);
        self.settle_and_hold(&SCRIPT, build, me, 0, dead_letters).await
    }
}
