//! The step by which a reader works: removes the dead letters that were shown, then takes the next ones.
//!
//! The script only moves elements inside Redis. The reader reads its list right after the step, in the same round trip.
//! Only that reader writes to its list.

use redis::{Cmd, Value};

use super::{Call, script};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::keys::Keys;
use crate::message::DeadLetter;
use crate::redis::{Reply, Store, pauses};

script!("take" " flags=allow-oom" uses "clock" "ledger" "cursor");

/// One call of `take`: what was shown, and how much more the reader wants.
#[derive(Default)]
pub(crate) struct ShownLetters {
    pub cursor: u64,
    pub count: usize,
    pub want: usize,
}

pub(crate) enum Take {
    /// The step was applied. The reader now holds these dead letters.
    Holds { cursor: u64, held: Vec<DeadLetter> },
    /// The reader has lost the identity under which it called.
    Lost,
}

/// How often a command may read another list than its step left, before it gives up.
const OTHER_LISTS: usize = 10;

pub(super) fn call(keys: &Keys, me: Identity, shown: &ShownLetters) -> Call {
    let who = me.incarnation;
    let mut call = SCRIPT.call(&[
        ("members", &keys.members),
        ("member", &keys.member(who)),
        ("inflight", &keys.inflight(who)),
        ("errors", &keys.errors),
        ("ledger", &keys.ledger),
    ]);
    call.arg("incarnation", who.to_string())
        .arg("number", me.number.0)
        .arg("cursor", shown.cursor)
        .arg("n", shown.count)
        .arg("want", shown.want);
    call
}

/// Builds the command that reads what a reader holds.
pub(super) fn held(keys: &Keys, me: Identity) -> Cmd {
    let mut call = redis::cmd("LRANGE");
    call.arg(keys.inflight(me.incarnation)).arg(0).arg(-1);
    call
}

/// Returns the cursor and the number of dead letters held, or None if the caller no longer holds anything.
pub(super) fn read(mut reply: Reply) -> Result<Option<(u64, usize)>> {
    match reply.text()?.as_str() {
        "lost" => Ok(None),
        "took" => Ok(Some((reply.number()?, reply.number()? as usize))),
        other => reply.unknown(other),
    }
}

/// Converts a list to its elements.
pub(super) fn elements(list: Value) -> Result<Vec<Vec<u8>>> {
    redis::from_redis_value(list).map_err(|error| Error::Answer(error.to_string()))
}

impl Store {
    pub async fn take(&self, me: Identity, shown: &ShownLetters) -> Result<Take> {
        self.take_and_read(|| call(self.keys(), me, shown), me).await
    }

    /// Calls `take` and then reads what the reader holds. If the reader was buried in between, the step is repeated and
    /// answers `lost`.
    pub(super) async fn take_and_read(&self, build: impl Fn() -> Call, me: Identity) -> Result<Take> {
        let reading = held(self.keys(), me);
        let (mut pauses, mut tries) = (pauses(), 0);
        loop {
            let (reply, list) = self.run_and_read(&SCRIPT, &build, &reading).await?;
            let Some((cursor, left)) = read(reply)? else {
                return Ok(Take::Lost);
            };
            let held = elements(list)?;
            let found = held.len();
            if found == left {
                return Ok(Take::Holds {
                    cursor,
                    held: held.into_iter().map(|element| DeadLetter::parse(self.ring(), element)).collect(),
                });
            }
            if tries == OTHER_LISTS {
                let what = format!("take left {left} elements, and its list has {found}");
                return Err(Error::Answer(what + ": is it read elsewhere?"));
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
            tries += 1;
        }
    }
}
