//! Appends messages to the queue, if the caller is the generator of exactly this epoch.

use std::collections::BTreeMap;
use std::time::Duration;

use super::submit::KeyNames;
use super::{Call, PublishTerms, flag, millis, script};
use crate::error::{Error, Result};
use crate::identity::{Epoch, Incarnation};
use crate::keys::Keys;
use crate::message::Message;
use crate::pack;
use crate::redis::{Reply, Store};
use crate::source::Plan;

script!("publish" "" uses "clock" "notify" "lists" "ledger" "publishers" "brakes" "queue" "later" "drafts" "wakeup");

/// The messages of one call, and the conditions under which they are published.
pub(crate) struct Dispatch<'a> {
    pub epoch: Epoch,
    /// The number of earlier publishes in this term.
    pub n: u64,
    /// The id after the last one that the caller knows.
    pub first_id: u64,
    /// Their ids begin with `first_id`. Redis changes them if other messages were published since.
    pub messages: &'a [Message],
    /// Keys and delays of the messages, one for each. Empty if no message has any.
    pub terms: &'a [PublishTerms],
    /// The most messages that share an element.
    pub pack: usize,
    /// The checkpoint that moves with the messages.
    pub checkpoint: Option<&'a [u8]>,
    /// Schedule entries whose last ticks move with the messages: names and milliseconds.
    pub ticks: &'a [(String, u64)],
    /// The schedule entry that is open until all of these messages have an outcome.
    pub entry: Option<&'a str>,
    /// What replaces the stored plan of the schedule.
    pub plan: Option<&'a Plan>,
    /// By how many intervals the next tick moves on.
    pub intervals: usize,
    pub interval: Duration,
    pub catch_up: bool,
    pub max_waiting: u64,
    pub limit: u64,
    pub lease: Duration,
    /// A tick that is late by more than this counts as missed.
    pub late: Duration,
}

/// What a hash of Redis holds. Another program may have written it.
pub(crate) type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// This call published the messages, or an earlier try did and its reply was lost.
    Published {
        /// The id of the first message. It is higher than in the call if other messages were published in between.
        first_id: u64,
        due_ms: u64,
        now_ms: u64,
        /// Which messages were not published, because equal ones have their keys. The others have consecutive ids.
        duplicates: Vec<usize>,
    },
    /// These messages have the keys of other messages. Nothing was published.
    Reused(Vec<usize>),
    /// Redis has lost messages that the caller knows to be published.
    Behind,
    Full {
        now_ms: u64,
    },
    /// Producing is paused until then.
    Paused {
        now_ms: u64,
        end_ms: u64,
    },
    /// The limit of the ring does not allow all of these messages.
    Limit {
        /// How many messages are published.
        published: u64,
    },
    /// This epoch is over.
    Fenced,
}

pub(super) fn call(keys: &Keys, me: Incarnation, dispatch: &Dispatch<'_>) -> Call {
    let wakeups = &keys.wakeups;
    let Dispatch { terms, checkpoint, ticks, entry, plan, .. } = *dispatch;
    let elements = pack::elements(dispatch.messages, if terms.is_empty() { dispatch.pack } else { 1 });
    let bytes = elements.iter().map(Vec::len).sum();
    let has_terms = !terms.is_empty();
    let moves = has_terms || checkpoint.is_some() || !ticks.is_empty() || entry.is_some() || plan.is_some();
    let mut taken = KeyNames::default();
    let numbers: Vec<usize> = terms.iter().map(|terms| taken.number(terms.key.as_ref())).collect();
    let taken = taken.keys(keys);
    let member = keys.member(me);
    let mut all = vec![
        ("members", &keys.members),
        ("member", &member),
        ("ledger", &keys.ledger),
        ("ready", &keys.ready),
        ("ticks", &keys.ticks),
        ("checkpoint", &keys.checkpoint),
        ("open", &keys.open),
        ("schedule", &keys.schedule),
        ("later", &keys.later),
        ("delayed", &keys.delayed),
    ];
    all.truncate(if has_terms {
        10
    } else if moves {
        8
    } else {
        4
    });
    all.extend(taken.iter().map(|key| ("key", key)));
    let mut call = SCRIPT.call_with_room(&all, elements.len() * if has_terms { 5 } else { 1 }, bytes);
    call.arg("incarnation", me.to_string())
        .arg("epoch", dispatch.epoch.0)
        .arg("n", dispatch.n)
        .arg("first-id", dispatch.first_id)
        .arg("interval-ms", millis(dispatch.interval))
        .arg("catch-up", flag(dispatch.catch_up))
        .arg("max-waiting", dispatch.max_waiting)
        .arg("limit", dispatch.limit)
        .arg("lease-ms", millis(dispatch.lease))
        .arg("late-ms", millis(dispatch.late))
        .arg("wakeup-prefix", wakeups)
        .arg("count", dispatch.messages.len())
        .arg("intervals", dispatch.intervals);
    if moves {
        call.arg("moves", flag(checkpoint.is_some()))
            .arg("checkpoint", checkpoint.unwrap_or_default())
            .arg("ticks", ticks.len())
            .arg("entry", entry.unwrap_or_default())
            .arg("plan", plan.map(|plan| plan.len().to_string()).unwrap_or_default());
        for (name, ms) in ticks {
            call.arg("name", name).arg("tick-ms", ms);
        }
        for (name, definition) in plan.into_iter().flatten() {
            call.arg("name", name).arg("definition", definition);
        }
    }
    for (at, element) in elements.into_iter().enumerate() {
        if let Some(PublishTerms { key, delay }) = terms.get(at) {
            call.arg("key-number", numbers[at])
                .arg("fingerprint", key.as_ref().map_or("", |key| &key.fingerprint))
                .arg("window-ms", key.as_ref().map_or(0, |key| millis(key.window).max(1)))
                .arg("delay-ms", millis(*delay));
        }
        call.arg("element", element);
    }
    call
}

/// Positions that a script counts from 1, as positions from 0.
fn positions<'a>(numbers: impl Iterator<Item = &'a str>) -> Option<Vec<usize>> {
    numbers.map(|number| number.parse().ok().and_then(|number: usize| number.checked_sub(1))).collect()
}

fn read(mut reply: Reply) -> Result<Publish> {
    match reply.text()?.as_str() {
        "published" | "already" => {
            let (first_id, due_ms, now_ms) = (reply.number()?, reply.number()?, reply.number()?);
            let text = if reply.is_empty() { String::new() } else { reply.text()? };
            let duplicates = positions(text.split_whitespace().step_by(2));
            let unreadable = || Error::Answer(format!("the duplicates of publish are '{text}'"));
            let duplicates = duplicates.ok_or_else(unreadable)?;
            Ok(Publish::Published { first_id, due_ms, now_ms, duplicates })
        }
        "reused" => {
            let text = reply.text()?;
            let unreadable = || Error::Answer(format!("the reused keys of publish are '{text}'"));
            positions(text.split_whitespace()).map(Publish::Reused).ok_or_else(unreadable)
        }
        "behind" => Ok(Publish::Behind),
        "full" => Ok(Publish::Full { now_ms: reply.number()? }),
        "paused" => Ok(Publish::Paused { now_ms: reply.number()?, end_ms: reply.number()? }),
        "limit" => Ok(Publish::Limit { published: reply.number()? }),
        "fenced" => Ok(Publish::Fenced),
        other => reply.unknown(other),
    }
}

impl Store {
    pub async fn publish(&self, me: Incarnation, dispatch: &Dispatch<'_>) -> Result<Publish> {
        read(self.run(&SCRIPT, &call(self.keys(), me, dispatch)).await?)
    }

    /// Returns the checkpoint, and the last tick of each schedule entry. The generator of a term alone changes them. So
    /// they are right for a caller that has taken office before, until another member takes it. After that the caller
    /// cannot publish.
    pub async fn progress(&self) -> Result<(Option<Vec<u8>>, Fields)> {
        let checkpoint = self.read(redis::cmd("GET").arg(&self.keys().checkpoint)).await?;
        Ok((checkpoint, self.fields(&self.keys().ticks).await?))
    }

    /// Returns the definition of each schedule entry, as the last generator stored it.
    pub async fn plan(&self) -> Result<Fields> {
        self.fields(&self.keys().schedule).await
    }

    /// Returns the id of each open message of a schedule entry, and the name of the entry.
    pub async fn open_messages(&self) -> Result<Fields> {
        self.fields(&self.keys().open).await
    }

    async fn fields(&self, key: &str) -> Result<Fields> {
        self.read(redis::cmd("HGETALL").arg(key)).await
    }
}
