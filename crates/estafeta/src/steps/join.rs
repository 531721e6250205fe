//! Registers a member.

use std::time::Duration;

use super::{Call, flag, millis, script};
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::identity::{Incarnation, MemberId};
use crate::keys::Keys;
use crate::layout::{Layouts, known_words};
use crate::partition;
use crate::redis::{Reply, Store};

script!("join" " flags=allow-oom" uses "clock" "notify" "events" "ledger" "layout" "office");

/// What a member registers about itself when it joins.
pub(crate) struct Introduction<'a> {
    /// The layouts that the program knows.
    pub layouts: Layouts,
    /// The application whose nodes share the ring. Empty for a reader, which may join any ring.
    pub application: &'a str,
    pub incarnation: Incarnation,
    pub kind: MemberKind,
    pub lanes: usize,
    pub host: &'a str,
    pub lease: Duration,
    pub presence: bool,
    /// The rule for giving back what it held, if it dies.
    pub max_deaths: u32,
    pub journal: bool,
    pub duties: Duties,
    pub durability: Durability,
    /// How many partitions the ring must have. A reader may join any ring.
    pub partitions: u32,
}

/// What a node does in its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Duties {
    /// It may become generator, and handles messages.
    Both,
    /// It may become generator, and never handles messages.
    Generate,
    /// It handles messages, and never becomes generator.
    Handle,
}

impl Duties {
    /// The word that Redis stores.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Generate => "generate",
            Self::Handle => "handle",
        }
    }

    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            "generate" => Self::Generate,
            "handle" => Self::Handle,
            _ => Self::Both,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    Node,
    Reader,
}

pub(super) fn call(keys: &Keys, me: &Introduction<'_>) -> Call {
    let mut call = SCRIPT.call(&[
        ("schema", &keys.schema),
        ("requires", &keys.requires),
        ("application", &keys.application),
        ("members", &keys.members),
        ("succession", &keys.succession),
        ("member", &keys.member(me.incarnation)),
        ("ledger", &keys.ledger),
        ("events", &keys.events),
        ("epoch", &keys.epoch),
        ("ready", &keys.ready),
        ("errors", &keys.errors),
        ("journal", &keys.journal),
        ("later", &keys.later),
        ("delayed", &keys.delayed),
        ("ticks", &keys.ticks),
        ("checkpoint", &keys.checkpoint),
        ("singles", &keys.singles),
        ("open", &keys.open),
        ("schedule", &keys.schedule),
        ("latencies", &keys.latencies),
        ("seconds", &keys.seconds),
        ("tens", &keys.tens),
        ("minutes", &keys.minutes),
    ]);
    let kind = match me.kind {
        MemberKind::Node => "node",
        MemberKind::Reader => "reader",
    };
    let (words, demand) = match me.kind {
        MemberKind::Node => (known_words(&partition::word(me.partitions)), partition::word(me.partitions)),
        MemberKind::Reader => (known_words(partition::ANY), String::new()),
    };
    call.arg("oldest", me.layouts.oldest)
        .arg("newest", me.layouts.newest)
        .arg("known-words", words)
        .arg("application", me.application)
        .arg("incarnation", me.incarnation.to_string())
        .arg("kind", kind)
        .arg("lanes", me.lanes)
        .arg("host", me.host)
        .arg("pid", std::process::id())
        .arg("lease-ms", millis(me.lease))
        .arg("presence", flag(me.presence))
        .arg("max-deaths", me.max_deaths)
        .arg("journal", flag(me.journal))
        .arg("duties", me.duties.word())
        .arg("durability", me.durability.to_string())
        .arg("demand", demand);
    call
}

impl Store {
    /// The error of a caller that may not use the ring.
    pub(super) fn refusal(
        &self,
        word: &str,
        reply: &mut Reply,
        known: Layouts,
        application: &str,
        partitions: u32,
    ) -> Result<Error> {
        let ring = self.ring().to_string();
        match word {
            "schema" => Ok(Error::Layout { ring, found: reply.text()?, known }),
            "requires" | "lacks" => {
                let missing = word == "lacks";
                let word = reply.text()?;
                let found = if missing { Some(1) } else { partition::count_in(&word) };
                Ok(match found {
                    Some(found) => {
                        let ring = self.ring().whole().unwrap_or_else(|| self.ring().clone()).to_string();
                        Error::Partitions { ring, found, expected: partitions }
                    }
                    None => Error::Requires { ring, word },
                })
            }
            "application" => {
                Ok(Error::Application { ring, found: reply.text()?, expected: application.to_owned() })
            }
            other => reply.unknown(other),
        }
    }

    /// Joins the ring. Returns the member's number.
    pub async fn join(&self, me: &Introduction<'_>) -> Result<MemberId> {
        let mut reply = self.run(&SCRIPT, &call(self.keys(), me)).await?;
        match reply.text()?.as_str() {
            "joined" => reply.member(),
            other => Err(self.refusal(other, &mut reply, me.layouts, me.application, me.partitions)?),
        }
    }
}
