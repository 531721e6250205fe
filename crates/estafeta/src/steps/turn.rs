//! The only step of a lane: settles what it handled, then claims the next messages.
//!
//! The script only moves elements inside Redis. The lane reads its list right after the step, in the same round trip.
//! Only the lane's own member writes to that list.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, Value};

use super::{Call, Script, script};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::keys::{Keys, RingName};
use crate::message::Message;
use crate::pack;
use crate::redis::{Reply, Store, pauses};

script!("turn" " flags=allow-oom" uses "clock" "lists" "elements" "ledger" "queue" "outcomes");

/// One call of `turn` or `take`: what was handled, and how much more the caller wants.
#[derive(Default)]
pub(crate) struct Settlement {
    pub cursor: u64,
    pub settled: usize,
    /// The number of elements in the lane's list, if the lane settles everything in it. 0 otherwise.
    pub elements: usize,
    /// The settled messages that failed: position and reason.
    pub failures: Vec<(usize, String)>,
    pub want: usize,
}

pub(crate) enum Turn<T> {
    /// The step was applied. The lane now holds these messages, in this number of elements.
    Holds { cursor: u64, held: Vec<T>, elements: usize },
    /// The member has lost the identity under which it called.
    Lost,
}

/// How often a command may read another list than its step left, before it gives up.
const OTHER_LISTS: usize = 10;

/// Counts how often `turn` is sent, so that a try that its own repeat overtook is recognised as late.
static TRIES: AtomicU64 = AtomicU64::new(0);

/// `this_try` grows with every try, including repeats.
pub(super) fn call(
    keys: &Keys,
    me: Identity,
    lane: usize,
    this_try: u64,
    settlement: &Settlement,
    journal: bool,
) -> Call {
    let who = me.incarnation;
    let names = [
        ("members", &keys.members),
        ("member", &keys.member(who)),
        ("inflight", &keys.inflight(who, lane)),
        ("ready", &keys.ready),
        ("wakeup", &keys.wakeup),
        ("errors", &keys.errors),
        ("ledger", &keys.ledger),
        ("leader", &keys.leader),
        ("journal", &keys.journal),
    ];
    let mut call = SCRIPT.call(if journal { &names[..] } else { &names[..8] });
    call.arg("incarnation", who.to_string())
        .arg("number", me.number.0)
        .arg("lane", lane)
        .arg("try", this_try)
        .arg("cursor", settlement.cursor)
        .arg("n", settlement.settled)
        .arg("want", settlement.want)
        .arg("elements", settlement.elements);
    for (index, reason) in &settlement.failures {
        call.arg("index", index).arg("reason", reason);
    }
    call
}

/// Builds the command that reads what a lane holds.
pub(super) fn held(keys: &Keys, me: Identity, lane: usize) -> Cmd {
    let mut call = redis::cmd("LRANGE");
    call.arg(keys.inflight(me.incarnation, lane)).arg(0).arg(-1);
    call
}

/// Returns the cursor and the number of elements held, or None if the caller no longer holds anything.
pub(super) fn read(mut reply: Reply) -> Result<Option<(u64, usize)>> {
    match reply.text()?.as_str() {
        "lost" | "late" => Ok(None),
        "turn" => Ok(Some((reply.number()?, reply.number()? as usize))),
        other => reply.unknown(other),
    }
}

/// Converts a list to its elements.
pub(super) fn elements(list: Value) -> Result<Vec<Vec<u8>>> {
    redis::from_redis_value(list).map_err(|error| Error::Answer(error.to_string()))
}

pub(super) fn messages(ring: &RingName, elements: Vec<Vec<u8>>) -> Vec<Message> {
    let mut messages = Vec::with_capacity(elements.len());
    elements.into_iter().for_each(|element| pack::read(ring, element, &mut messages));
    messages
}

impl Store {
    pub async fn turn(
        &self,
        me: Identity,
        lane: usize,
        settlement: &Settlement,
        journal: bool,
    ) -> Result<Turn<Message>> {
        let build = || {
            let this_try = TRIES.fetch_add(1, Ordering::Relaxed) + 1;
            call(self.keys(), me, lane, this_try, settlement, journal)
        };
        self.settle_and_hold(&SCRIPT, build, me, lane, messages).await
    }

    /// Calls `turn` or `take` and then reads what the lane holds. Only the lane's own member writes to that list, so
    /// the read returns what the step left. If the member was buried in between, the step is repeated and answers
    /// `lost`.
    pub(super) async fn settle_and_hold<T>(
        &self,
        script: &'static Script,
        build: impl Fn() -> Call,
        me: Identity,
        lane: usize,
        parse: impl Fn(&RingName, Vec<Vec<u8>>) -> Vec<T>,
    ) -> Result<Turn<T>> {
        let reading = held(self.keys(), me, lane);
        let (mut pauses, mut tries) = (pauses(), 0);
        loop {
            let (reply, list) = self.run_and_read(script, &build, &reading).await?;
            let Some((cursor, left)) = read(reply)? else {
                return Ok(Turn::Lost);
            };
            let held = elements(list)?;
            let found = held.len();
            if found == left {
                return Ok(Turn::Holds { cursor, held: parse(self.ring(), held), elements: left });
            }
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            if !self.is_patient() && tries == OTHER_LISTS {
                let what = format!("{} left {left} elements, and its list has {found}", script.name);
                return Err(Error::Answer(what + ": is it read elsewhere?"));
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
            tries += 1;
        }
    }
}
