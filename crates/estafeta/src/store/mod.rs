//! The only module that talks to Redis: one function a script.
//!
//! Every step may be repeated after a lost reply without harm, so the store repeats it itself: a *patient* store, which
//! a running copy uses, tries until Redis answers, whatever is wrong with it (away, loading, out of memory, scripts
//! gone, rights withdrawn), and gives up only when its owner does. A plain store, which a command uses, fails at once.

mod answer;
mod calling;
mod calls;
mod link;
mod live;
mod outside;
mod script;
mod server;
#[cfg(test)]
mod tests;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;
use tokio_util::sync::CancellationToken;

pub use answer::Health;
pub(crate) use answer::{Beat, Bury, Lead, Office, Publish, Reply, Stand, Suspects, Term, Turn};
pub(crate) use link::{Keeper, Link};

use crate::error::{Error, Result};
use crate::keys::{Keys, RingName, SCHEMA};
use crate::member_id::{Epoch, Identity, Incarnation, MemberId};
use crate::message::{FailedMessage, Message};

/// The ring as Redis keeps it.
#[derive(Clone)]
pub(crate) struct Store {
    link: Arc<Link>,
    /// Taken instead of the link while it is free.
    shortcut: Option<Arc<Link>>,
    ring: RingName,
    keys: Arc<Keys>,
    /// Ends the patience of a patient store.
    patient_until: Option<CancellationToken>,
}

/// What a member tells of itself when it joins.
pub(crate) struct Introduction<'a> {
    pub incarnation: Incarnation,
    pub kind: Kind,
    pub lanes: usize,
    pub host: &'a str,
    pub lease: Duration,
    pub presence: bool,
    /// How what it held is to be given back if it dies.
    pub max_attempts: u32,
    pub journal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Member,
    Reader,
}

/// What never changes about a member, and must be known to bury it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub lanes: usize,
    pub presence: bool,
    pub lease: Duration,
}

/// What a candidate knows when it reaches for the office.
pub(crate) struct Candidacy {
    pub absent_since_ms: u64,
    pub grace: Duration,
    pub interval: Duration,
    pub silence: Duration,
    pub known_published: u64,
    /// Already in office, but the server changed: a new epoch, please.
    pub renew: bool,
}

/// One call of `publish`.
pub(crate) struct Batch<'a> {
    pub epoch: Epoch,
    /// Publishes of this term that went before.
    pub n: u64,
    pub messages: &'a [Message],
    pub interval: Duration,
    pub catch_up: bool,
    pub max_waiting: u64,
    pub limit: u64,
    pub lease: Duration,
    /// A tick that is later than this was missed.
    pub late: Duration,
}

/// One call of `turn` or `take`: what was handled and how much more is wanted.
#[derive(Default)]
pub(crate) struct Settlement {
    pub cursor: u64,
    pub settled: usize,
    /// In how many elements all that the lane held lay, if it settles all of that; 0 otherwise.
    pub elements: usize,
    /// Those of the settled that failed: position and reason.
    pub failures: Vec<(usize, String)>,
    pub want: usize,
}

/// How often a command reads another list than its step left before it gives up.
const OTHER_LISTS: usize = 10;

/// Counts the sendings of `turn`, so that one which was overtaken by its own repeat is known as late.
static TRIES: AtomicU64 = AtomicU64::new(0);

impl Store {
    pub fn new(link: Arc<Link>, ring: RingName) -> Self {
        let keys = Arc::new(Keys::new(&ring));
        Self { link, shortcut: None, ring, keys, patient_until: None }
    }

    /// The same store, but every call tries until Redis answers or `end` is cancelled.
    pub fn patient(&self, end: CancellationToken) -> Self {
        Self { patient_until: Some(end), ..self.clone() }
    }

    /// The same store, but its calls go by another link whenever that one is free.
    pub fn with_shortcut(&self, shortcut: Arc<Link>) -> Self {
        Self { shortcut: Some(shortcut), ..self.clone() }
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Lets Redis see that the member lives. False if that can't be had here.
    pub async fn show_presence(&self, me: Incarnation) -> Result<bool> {
        let channel = self.keys.alive(me);
        let channel = channel.as_str();
        self.try_until_answered(|live| async move { self.link.show_presence(&live, channel).await }).await
    }

    pub async fn join(&self, me: &Introduction<'_>) -> Result<MemberId> {
        let mut reply = self.run(&script::JOIN, &calls::join(&self.keys, me)).await?;
        match reply.text()?.as_str() {
            "joined" => reply.member(),
            "schema" => {
                let found = reply.text()?;
                Err(Error::Schema { ring: self.ring.to_string(), found, expected: SCHEMA })
            }
            other => reply.unknown(other),
        }
    }

    pub async fn beat(&self, me: Incarnation, lease: Duration) -> Result<Beat> {
        answer::beat(self.run(&script::BEAT, &calls::beat(&self.keys, me, lease)).await?)
    }

    pub async fn lead(&self, me: Incarnation, lease: Duration, candidacy: &Candidacy) -> Result<Lead> {
        answer::lead(self.run(&script::LEAD, &calls::lead(&self.keys, me, lease, candidacy)).await?)
    }

    pub async fn resign(&self, me: Incarnation, epoch: Epoch) -> Result<()> {
        self.run(&script::RESIGN, &calls::resign(&self.keys, me, epoch)).await.map(drop)
    }

    pub async fn publish(&self, me: Incarnation, batch: &Batch<'_>) -> Result<Publish> {
        answer::publish(self.run(&script::PUBLISH, &calls::publish(&self.keys, me, batch)).await?)
    }

    pub async fn turn(
        &self,
        me: Identity,
        lane: usize,
        settlement: &Settlement,
        journal: bool,
    ) -> Result<Turn<Message>> {
        let build = || {
            let this_try = TRIES.fetch_add(1, Ordering::Relaxed) + 1;
            calls::turn(&self.keys, me, lane, this_try, settlement, journal)
        };
        self.settle_and_hold(&script::TURN, build, me, lane, answer::messages).await
    }

    pub async fn take(&self, me: Identity, settlement: &Settlement) -> Result<Turn<FailedMessage>> {
        let build = || calls::take(&self.keys, me, settlement);
        self.settle_and_hold(&script::TAKE, build, me, 0, answer::failed_messages).await
    }

    /// Calls `turn` or `take` and reads what the lane holds then. Nobody but its member writes to that list, so it is
    /// what the step left, unless the member was buried in between: then the step is repeated, and says so.
    async fn settle_and_hold<T>(
        &self,
        script: &'static script::Script,
        build: impl Fn() -> redis::Cmd,
        me: Identity,
        lane: usize,
        parse: impl Fn(Vec<Vec<u8>>) -> Vec<T>,
    ) -> Result<Turn<T>> {
        let read = calls::held(&self.keys, me, lane);
        let (mut pauses, mut tries) = (link::pauses(), 0);
        loop {
            let (reply, list) = self.run_and_read(script, &build, &read).await?;
            let Some((cursor, elements)) = answer::turn(reply)? else {
                return Ok(Turn::Lost);
            };
            let held = answer::elements(list)?;
            let found = held.len();
            if found == elements {
                return Ok(Turn::Holds { cursor, held: parse(held), elements });
            }
            match &self.patient_until {
                Some(end) if end.is_cancelled() => return Err(Error::Stopped),
                None if tries == OTHER_LISTS => {
                    let left = format!("{} left {elements} elements, and its list has {found}", script.name);
                    return Err(Error::Answer(left + ": is it read elsewhere?"));
                }
                _ => tokio::time::sleep(pauses.next().unwrap_or_default()).await,
            }
            tries += 1;
        }
    }

    pub async fn suspects(&self, lease: Duration) -> Result<Suspects> {
        answer::suspects(self.run(&script::SUSPECTS, &calls::suspects(&self.keys, lease)).await?)
    }

    /// `judge` is the member that asks, if a member asks.
    pub async fn bury(
        &self,
        victim: Incarnation,
        facts: &Facts,
        absent_since_ms: u64,
        grace: Duration,
        judge: Option<Incarnation>,
    ) -> Result<Bury> {
        let call = calls::bury(&self.keys, victim, facts, absent_since_ms, grace, judge);
        answer::bury(self.run(&script::BURY, &call).await?)
    }

    /// Leaves the ring; answers how many messages went back to the queue.
    pub async fn leave(&self, me: Incarnation, lanes: usize) -> Result<u64> {
        let mut reply = self.run(&script::LEAVE, &calls::leave(&self.keys, me, lanes)).await?;
        reply.text()?;
        reply.number()
    }

    pub async fn ring_bell(&self) -> Result<()> {
        self.run(&script::RING, &calls::ring(&self.keys)).await.map(drop)
    }

    /// Waits on this store's connection, which is free for nobody meanwhile, until the bell rings; false if it stayed
    /// silent.
    pub async fn hear_bell(&self, wait: Duration) -> Result<bool> {
        let mut call = redis::cmd("BLPOP");
        call.arg(&self.keys.bell).arg(wait.as_secs_f64());
        let call = &call;
        let heard = self.try_until_answered(|live| async move { self.link.hold(&live, call, wait).await });
        Ok(heard.await? != Value::Nil)
    }
}
