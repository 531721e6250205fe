//! Takes office, if it is vacant or its holder is dead.

use std::time::Duration;

use super::{Call, Known, millis, script};
use crate::error::Result;
use crate::identity::{Epoch, Incarnation, MemberId};
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("lead" " flags=allow-oom" uses "clock" "events" "ledger" "losses" "presence");

/// What a candidate knows when it tries to take office.
pub(crate) struct Candidacy {
    pub absent_since_ms: u64,
    pub grace: Duration,
    pub interval: Duration,
    pub silence: Duration,
    /// What the candidate knows of the ring.
    pub known: Known,
    /// The candidate's own epoch, if it is in office and needs a new one because Redis has lost what it acknowledged.
    pub replaces: Option<Epoch>,
}

pub(crate) enum Lead {
    Leads(Term),
    Follows,
    Lost,
}

/// The start of a term in office.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub epoch: Epoch,
    pub sent: u64,
    pub published: u64,
    pub due_ms: u64,
    pub now_ms: u64,
    /// The previous holder of the office, if there was one.
    pub predecessor: Option<MemberId>,
    /// How long the office was vacant, or its holder not heard of.
    pub silence: Duration,
}

pub(super) fn call(keys: &Keys, me: Incarnation, lease: Duration, candidacy: &Candidacy) -> Call {
    let mut call = SCRIPT.call(&[
        ("members", &keys.members),
        ("succession", &keys.succession),
        ("member", &keys.member(me)),
        ("epoch", &keys.epoch),
        ("ledger", &keys.ledger),
        ("events", &keys.events),
    ]);
    call.arg("incarnation", me.to_string())
        .arg("lease-ms", millis(lease))
        .arg("channel-prefix", &keys.channels)
        .arg("absent-since", candidacy.absent_since_ms)
        .arg("grace-ms", millis(candidacy.grace))
        .arg("interval-ms", millis(candidacy.interval))
        .arg("silence-ms", millis(candidacy.silence))
        .arg("known", candidacy.known.published)
        .arg("epoch", candidacy.known.epoch.0)
        .arg("born", candidacy.known.born)
        .arg("replaces", candidacy.replaces.map_or(0, |epoch| epoch.0));
    call
}

fn read(mut reply: Reply) -> Result<Lead> {
    match reply.text()?.as_str() {
        "lost" => Ok(Lead::Lost),
        "follows" => Ok(Lead::Follows),
        "leads" => Ok(Lead::Leads(Term {
            epoch: Epoch(reply.number()?),
            sent: reply.number()?,
            published: reply.number()?,
            due_ms: reply.number()?,
            now_ms: reply.number()?,
            predecessor: Some(reply.member()?).filter(|member| member.0 > 0),
            silence: Duration::from_millis(reply.number()?),
        })),
        other => reply.unknown(other),
    }
}

impl Store {
    pub async fn lead(&self, me: Incarnation, lease: Duration, candidacy: &Candidacy) -> Result<Lead> {
        read(self.run(&SCRIPT, &call(self.keys(), me, lease, candidacy)).await?)
    }
}
