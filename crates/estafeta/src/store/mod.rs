//! The only module that talks to Redis: one function a script.
//!
//! Every step may be repeated after a lost reply without harm, so the store repeats it itself: a *patient* store, which
//! a running copy uses, tries until Redis answers, whatever is wrong with it (away, loading, out of memory, scripts
//! gone, rights withdrawn), and gives up only when its owner does. A plain store, which a command uses, fails at once.

mod answer;
mod calling;
mod link;
mod outside;
mod script;
mod server;
#[cfg(test)]
mod tests;
mod trouble;

use std::borrow::Cow;
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
use crate::member_id::{Epoch, Incarnation, MemberId};
use crate::message::{FailedMessage, Message};

/// The ring as Redis keeps it.
#[derive(Clone)]
pub(crate) struct Store {
    link: Arc<Link>,
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
    /// Those of the settled that failed: position and reason.
    pub failures: Vec<(usize, String)>,
    pub want: usize,
}

/// Counts the sendings of `turn`, so that one which was overtaken by its own repeat is known as late.
static TRIES: AtomicU64 = AtomicU64::new(0);

impl Store {
    pub fn new(link: Arc<Link>, ring: RingName) -> Self {
        let keys = Arc::new(Keys::new(&ring));
        Self { link, ring, keys, patient_until: None }
    }

    /// The same store, but every call tries until Redis answers or `end` is cancelled.
    pub fn patient(&self, end: CancellationToken) -> Self {
        Self { patient_until: Some(end), ..self.clone() }
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
        let keys = &self.keys;
        let member = keys.member(me.incarnation);
        let names = [
            &keys.schema,
            &keys.members,
            &keys.succession,
            &member,
            &keys.ledger,
            &keys.events,
            &keys.leader,
            &keys.epoch,
            &keys.ready,
            &keys.bell,
            &keys.errors,
            &keys.journal,
        ];
        let mut call = script::JOIN.call(&names);
        call.arg(SCHEMA).arg(me.incarnation.to_string()).arg(match me.kind {
            Kind::Member => "member",
            Kind::Reader => "reader",
        });
        call.arg(me.lanes).arg(me.host).arg(std::process::id()).arg(millis(me.lease)).arg(flag(me.presence));
        call.arg(me.max_attempts).arg(flag(me.journal));
        let mut reply = self.run(&script::JOIN, &call).await?;
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
        let keys = &self.keys;
        let mut call = script::BEAT.call(&[&keys.members, &keys.succession, &keys.leader, &keys.ledger]);
        call.arg(me.to_string()).arg(millis(lease)).arg(&keys.channels);
        answer::beat(self.run(&script::BEAT, &call).await?)
    }

    pub async fn lead(&self, me: Incarnation, lease: Duration, candidacy: &Candidacy) -> Result<Lead> {
        let keys = &self.keys;
        let member = keys.member(me);
        let names =
            [&keys.members, &keys.succession, &member, &keys.leader, &keys.epoch, &keys.ledger, &keys.events];
        let mut call = script::LEAD.call(&names);
        call.arg(me.to_string()).arg(millis(lease)).arg(&keys.channels).arg(candidacy.absent_since_ms);
        call.arg(millis(candidacy.grace)).arg(millis(candidacy.interval)).arg(millis(candidacy.silence));
        call.arg(candidacy.known_published).arg(flag(candidacy.renew));
        answer::lead(self.run(&script::LEAD, &call).await?)
    }

    pub async fn resign(&self, me: Incarnation, epoch: Epoch) -> Result<()> {
        let keys = &self.keys;
        let mut call = script::RESIGN.call(&[&keys.succession, &keys.leader, &keys.events]);
        call.arg(me.to_string()).arg(epoch.0).arg(&keys.channels);
        self.run(&script::RESIGN, &call).await.map(drop)
    }

    pub async fn publish(&self, me: Incarnation, batch: &Batch<'_>) -> Result<Publish> {
        let keys = &self.keys;
        let names = [&keys.members, &keys.leader, &keys.ledger, &keys.ready, &keys.bell];
        let mut call = script::PUBLISH.call(&names);
        let first_id = batch.messages.first().map_or(0, |message| message.id);
        call.arg(me.to_string()).arg(batch.epoch.0).arg(batch.n).arg(first_id).arg(millis(batch.interval));
        call.arg(flag(batch.catch_up)).arg(batch.max_waiting).arg(batch.limit).arg(millis(batch.lease));
        call.arg(millis(batch.late));
        for message in batch.messages {
            call.arg(message.element());
        }
        answer::publish(self.run(&script::PUBLISH, &call).await?)
    }

    pub async fn turn(
        &self,
        me: Incarnation,
        lane: usize,
        settlement: &Settlement,
        journal: bool,
    ) -> Result<Turn<Message>> {
        let names = self.turn_keys(me, lane);
        let names = if journal { &names[..] } else { &names[..7] };
        let build = || {
            let mut call = script::TURN.call(names);
            let this_try = TRIES.fetch_add(1, Ordering::Relaxed) + 1;
            call.arg(me.to_string()).arg(lane).arg(this_try).arg(settlement.cursor);
            call.arg(settlement.settled).arg(settlement.want);
            for (index, reason) in &settlement.failures {
                call.arg(index).arg(reason);
            }
            Cow::Owned(call)
        };
        answer::turn(self.run_anew(&script::TURN, build).await?, answer::message)
    }

    /// The keys of `turn`, the journal last.
    fn turn_keys(&self, me: Incarnation, lane: usize) -> [String; 8] {
        let keys = &self.keys;
        let shared = [&keys.ready, &keys.bell, &keys.errors, &keys.ledger, &keys.journal];
        let [ready, bell, errors, ledger, journal] = shared.map(Clone::clone);
        let (member, inflight) = (keys.member(me), keys.inflight(me, lane));
        [keys.members.clone(), member, inflight, ready, bell, errors, ledger, journal]
    }

    pub async fn take(&self, me: Incarnation, settlement: &Settlement) -> Result<Turn<FailedMessage>> {
        let keys = &self.keys;
        let (member, inflight) = (keys.member(me), keys.inflight(me, 0));
        let mut call = script::TAKE.call(&[&keys.members, &member, &inflight, &keys.errors, &keys.ledger]);
        call.arg(me.to_string()).arg(settlement.cursor).arg(settlement.settled).arg(settlement.want);
        answer::turn(self.run(&script::TAKE, &call).await?, FailedMessage::parse)
    }

    pub async fn suspects(&self, lease: Duration) -> Result<Suspects> {
        let keys = &self.keys;
        let mut call = script::SUSPECTS.call(&[&keys.members, &keys.ready, &keys.bell]);
        call.arg(&keys.channels).arg(millis(lease));
        answer::suspects(self.run(&script::SUSPECTS, &call).await?)
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
        let mut names = self.farewell_keys(victim);
        names.push(self.keys.journal.clone());
        names.extend((0..facts.lanes).map(|lane| self.keys.inflight(victim, lane)));
        let mut call = script::BURY.call(&names);
        call.arg(victim.to_string()).arg(&self.keys.channels).arg(absent_since_ms).arg(millis(grace));
        call.arg(judge.map(|judge| judge.to_string()).unwrap_or_default());
        answer::bury(self.run(&script::BURY, &call).await?)
    }

    /// Leaves the ring; answers how many messages went back to the queue.
    pub async fn leave(&self, me: Incarnation, lanes: usize) -> Result<u64> {
        let mut names = self.farewell_keys(me);
        names.extend((0..lanes).map(|lane| self.keys.inflight(me, lane)));
        let mut call = script::LEAVE.call(&names);
        call.arg(me.to_string()).arg(&self.keys.channels);
        let mut reply = self.run(&script::LEAVE, &call).await?;
        reply.text()?;
        reply.number()
    }

    /// The keys that both scripts by which a member goes begin with.
    fn farewell_keys(&self, member: Incarnation) -> Vec<String> {
        let keys = &self.keys;
        let mut names = vec![keys.members.clone(), keys.succession.clone(), keys.member(member)];
        names.extend(
            [&keys.leader, &keys.ready, &keys.bell, &keys.errors, &keys.ledger, &keys.events]
                .map(Clone::clone),
        );
        names
    }

    pub async fn ring_bell(&self) -> Result<()> {
        let call = script::RING.call(&[&self.keys.ready, &self.keys.bell]);
        self.run(&script::RING, &call).await.map(drop)
    }

    /// Waits on this store's own connection until the bell rings; false if it stayed silent.
    pub async fn hear_bell(&self, wait: Duration) -> Result<bool> {
        let mut call = redis::cmd("BLPOP");
        call.arg(&self.keys.bell).arg(wait.as_secs_f64());
        Ok(self.send(&call).await? != Value::Nil)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn flag(on: bool) -> u8 {
    u8::from(on)
}
