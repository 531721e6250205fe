//! Removes a dead member. What it held goes back where it came from.

use std::time::Duration;

use super::{Call, millis, script};
use crate::error::Result;
use crate::identity::{Incarnation, MemberId};
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!(
    "bury" " flags=allow-oom"
    uses "clock" "notify" "events" "lists" "elements" "ledger" "brakes" "queue" "wakeup" "presence" "office" "entries" "hand_back"
);

/// The facts about a member that never change and that the failure detector needs. All are zero if the member's record
/// was deleted, and a single one is zero if a foreign client has overwritten it. The lease alone decides then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub lanes: usize,
    pub presence: bool,
    pub lease: Duration,
}

pub(crate) enum Bury {
    Buried { number: MemberId, returned: u64, gave_up: u64 },
    Alive,
    Gone,
}

pub(super) fn call(
    keys: &Keys,
    victim: Incarnation,
    absent_since_ms: u64,
    grace: Duration,
    detector: Option<Incarnation>,
) -> Call {
    let mut names = farewell_keys(keys, victim);
    names.extend([("journal", keys.journal.clone()), ("open", keys.open.clone())]);
    let mut call = SCRIPT.call(&names);
    call.arg("incarnation", victim.to_string())
        .arg("channel-prefix", &keys.channels)
        .arg("wakeup-prefix", &keys.wakeups)
        .arg("absent-since", absent_since_ms)
        .arg("grace-ms", millis(grace))
        .arg("detector", detector.map(|detector| detector.to_string()).unwrap_or_default());
    call
}

/// The keys with which `bury` and `leave`, the two steps that remove a member, begin.
pub(super) fn farewell_keys(keys: &Keys, member: Incarnation) -> Vec<(&'static str, String)> {
    vec![
        ("members", keys.members.clone()),
        ("succession", keys.succession.clone()),
        ("member", keys.member(member)),
        ("inflight", keys.inflight(member)),
        ("ready", keys.ready.clone()),
        ("errors", keys.errors.clone()),
        ("ledger", keys.ledger.clone()),
        ("events", keys.events.clone()),
    ]
}

fn read(mut reply: Reply) -> Result<Bury> {
    match reply.text()?.as_str() {
        "alive" => Ok(Bury::Alive),
        "gone" => Ok(Bury::Gone),
        "buried" => {
            Ok(Bury::Buried { number: reply.member()?, returned: reply.number()?, gave_up: reply.number()? })
        }
        other => reply.unknown(other),
    }
}

impl Store {
    /// `detector` is the member that runs the failure detector, or None if the caller is not a member.
    pub async fn bury(
        &self,
        victim: Incarnation,
        absent_since_ms: u64,
        grace: Duration,
        detector: Option<Incarnation>,
    ) -> Result<Bury> {
        let call = call(self.keys(), victim, absent_since_ms, grace, detector);
        read(self.run(&SCRIPT, &call).await?)
    }

    /// Like `bury`, except that a damaged value in Redis ends the tries. Returns what is wrong with it.
    pub async fn bury_unless_damaged(
        &self,
        victim: Incarnation,
        absent_since_ms: u64,
        grace: Duration,
        detector: Option<Incarnation>,
    ) -> Result<Result<Bury, String>> {
        let call = call(self.keys(), victim, absent_since_ms, grace, detector);
        match self.run_unless_damaged(&SCRIPT, &call).await? {
            Ok(reply) => read(reply).map(Ok),
            Err(damage) => Ok(Err(damage)),
        }
    }
}
