//! Extends a member's lease and reports the state of the member and the office.

use std::fmt;
use std::time::Duration;

use super::{Call, Known, millis, script};
use crate::error::Result;
use crate::identity::{Epoch, Incarnation};
use crate::keys::Keys;
use crate::latency::Latencies;
use crate::redis::{Reply, Store};

script!("beat" " flags=allow-oom" uses "clock" "events" "ledger" "losses" "presence" "history");

/// How a member looks to an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Health {
    /// Its lease is valid and it is connected.
    Alive,
    /// Its lease ran out: it is frozen, cut off or gone.
    Expired,
    /// Its connection is gone: it crashed, or is about to reconnect.
    Absent,
    /// Its lease ends too late, because Redis' clock jumped back.
    Ahead,
}

impl Health {
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "alive" => Some(Self::Alive),
            "expired" => Some(Self::Expired),
            "absent" => Some(Self::Absent),
            "ahead" => Some(Self::Ahead),
            _ => None,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alive => "alive",
            Self::Expired => "expired",
            Self::Absent => "absent",
            Self::Ahead => "ahead",
        })
    }
}

pub(crate) enum Beat {
    Stands(BeatReport),
    Lost,
}

/// What a beat reports to its member.
#[derive(Clone, Debug)]
pub(crate) struct BeatReport {
    pub now_ms: u64,
    /// The lease of this member had run out before this beat.
    pub overslept: bool,
    /// The place in the line of succession. 0 is the heir.
    pub rank: u64,
    pub office: Office,
    /// The epoch of the term in office, or of the last one.
    pub epoch: Epoch,
    pub published: u64,
    /// Messages that have no outcome yet.
    pub outstanding: u64,
    /// When the ring began.
    pub born: u64,
    /// How many members the ring has.
    pub members: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Office {
    Empty,
    Mine(Epoch),
    Held { by: Incarnation, health: Health },
}

/// Latencies that a node hands over with a beat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LatencyGroup {
    /// The number of this group. A repeated beat with the same number adds nothing. 0 if there is nothing to add.
    pub n: u64,
    /// From the publish of a message to the start of its handler.
    pub wait: Latencies,
    /// How long handlers took.
    pub handling: Latencies,
}

pub(super) fn call(
    keys: &Keys,
    me: Incarnation,
    lease: Duration,
    known: Known,
    latencies: &LatencyGroup,
) -> Call {
    let mut call = SCRIPT.call(&[
        ("members", &keys.members),
        ("succession", &keys.succession),
        ("ledger", &keys.ledger),
        ("member", &keys.member(me)),
        ("events", &keys.events),
        ("latencies", &keys.latencies),
    ]);
    call.arg("incarnation", me.to_string())
        .arg("lease-ms", millis(lease))
        .arg("channel-prefix", &keys.channels)
        .arg("known", known.published)
        .arg("epoch", known.epoch.0)
        .arg("born", known.born)
        .arg("n", latencies.n)
        .arg("wait", latencies.wait.text())
        .arg("handling", latencies.handling.text());
    call
}

fn read(mut reply: Reply) -> Result<Beat> {
    match reply.text()?.as_str() {
        "lost" => Ok(Beat::Lost),
        "stands" => {
            let (now_ms, overslept, rank) = (reply.number()?, reply.number()? == 1, reply.number()?);
            let (state, holder, epoch) = (reply.text()?, reply.text()?, Epoch(reply.number()?));
            let (published, outstanding, born) = (reply.number()?, reply.number()?, reply.number()?);
            let members = reply.number()?;
            let office = match (state.as_str(), Health::from_word(&state), holder.parse()) {
                ("me", ..) => Office::Mine(epoch),
                ("none", ..) => Office::Empty,
                (_, Some(health), Ok(by)) => Office::Held { by, health },
                // The office holds a name that belongs to no member. `lead` checks again before it takes the office.
                (_, Some(_), Err(_)) => Office::Empty,
                _ => return reply.unknown(&format!("{state} {holder}")),
            };
            Ok(Beat::Stands(BeatReport {
                now_ms,
                overslept,
                rank,
                office,
                epoch,
                published,
                outstanding,
                born,
                members,
            }))
        }
        other => reply.unknown(other),
    }
}

impl BeatReport {
    /// Whether a member is in office that looks alive. It looks for dead members.
    pub fn has_living_generator(&self) -> bool {
        match self.office {
            Office::Empty => false,
            Office::Mine(_) => true,
            Office::Held { health, .. } => matches!(health, Health::Alive | Health::Ahead),
        }
    }
}

impl Store {
    /// A beat that hands nothing over.
    pub async fn beat(&self, me: Incarnation, lease: Duration, known: Known) -> Result<Beat> {
        self.beat_with(me, lease, known, &LatencyGroup::default()).await
    }

    pub async fn beat_with(
        &self,
        me: Incarnation,
        lease: Duration,
        known: Known,
        latencies: &LatencyGroup,
    ) -> Result<Beat> {
        read(self.run(&SCRIPT, &call(self.keys(), me, lease, known, latencies)).await?)
    }
}
