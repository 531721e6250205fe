//! Pauses or resumes producing and handling.

use std::fmt;
use std::time::Duration;

use super::{Call, NEVER, millis, script};
use crate::config::TEN_YEARS;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("pause" " flags=allow-oom" uses "clock" "notify" "events" "ledger" "brakes" "queue" "wakeup");

/// What a pause stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Activity {
    /// New messages: the generator and publishers outside the ring publish nothing.
    Producing,
    /// Work: nodes claim no messages.
    Handling,
    /// Both.
    Both,
}

impl Activity {
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "producing" => Some(Self::Producing),
            "handling" => Some(Self::Handling),
            _ => None,
        }
    }

    fn has(self, other: Self) -> bool {
        self == other || self == Self::Both
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Producing => "producing",
            Self::Handling => "handling",
            Self::Both => "producing and handling",
        })
    }
}

/// Each argument is the end of a pause in ms of Redis' clock, 0 to resume, or None to leave it as it is.
pub(super) fn call(keys: &Keys, producing: Option<u64>, handling: Option<u64>, by: &str) -> Call {
    let mut call = SCRIPT.call(&[
        ("schema", &keys.schema),
        ("ready", &keys.ready),
        ("ledger", &keys.ledger),
        ("events", &keys.events),
    ]);
    let text = |end: Option<u64>| end.map(|end| end.to_string()).unwrap_or_default();
    call.arg("producing", text(producing))
        .arg("handling", text(handling))
        .arg("by", by)
        .arg("wakeup-prefix", &keys.wakeups);
    call
}

impl Store {
    /// Pauses for this time, or until it is resumed.
    pub async fn pause(&self, what: Activity, time: Option<Duration>) -> Result<()> {
        let end = match time {
            Some(time) if !(Duration::from_millis(1)..=TEN_YEARS).contains(&time) => {
                return Err(Error::expected("for", "1ms to 10 years", format!("{time:?}")));
            }
            // The end is sent, not the length. So a repeat after a lost reply does not make the pause longer.
            Some(time) => {
                let (seconds, micros): (u64, u64) = self.read(&redis::cmd("TIME")).await?;
                seconds * 1000 + micros / 1000 + millis(time)
            }
            None => NEVER,
        };
        self.end_pause_at(what, end).await
    }

    /// Ends a pause. If there is none, nothing changes.
    pub async fn resume(&self, what: Activity) -> Result<()> {
        self.end_pause_at(what, 0).await
    }

    pub(super) async fn end_pause_at(&self, what: Activity, end: u64) -> Result<()> {
        let end_of = |part| what.has(part).then_some(end);
        let call = call(self.keys(), end_of(Activity::Producing), end_of(Activity::Handling), self.actor());
        let mut reply: Reply = self.run(&SCRIPT, &call).await?;
        match reply.text()?.as_str() {
            "paused" => Ok(()),
            "missing" => Err(Error::expected("ring", "a ring that exists", self.ring())),
            other => reply.unknown(other),
        }
    }
}
