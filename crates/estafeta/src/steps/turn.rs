//! The step by which a node handles messages: settles what its lanes have handled, then claims for its free lanes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::effect_targets::{BadEffects, EffectTargets, MessageEffects};
use super::{Call, flag, millis, script};
use crate::error::Result;
use crate::identity::Identity;
use crate::keys::Keys;
use crate::redis::{Reply, Store};

script!("turn" " flags=allow-oom" uses "clock" "notify" "lists" "elements" "ledger" "layout" "cursor" "brakes"
    "queue" "later" "wakeup" "singles" "entries" "outcomes" "effects");

/// A message with this many deaths is a suspect. A member holds only one at a time.
pub(crate) const SUSPICIOUS: u32 = 2;

/// One call of `turn`: what the member lets go of, and how much more it wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settlement {
    /// The number of messages that this member had let go of before.
    pub cursor: u64,
    /// The number of messages that it lets go of now.
    pub count: usize,
    /// The last claim that it has seen.
    pub seen: u64,
    /// The names of the elements that it settles whole.
    pub whole: Vec<String>,
    /// The names of the elements that it returns to the queue whole.
    pub returns: Vec<String>,
    /// Packs of which it lets go only in part.
    pub parts: Vec<Part>,
    /// The settled messages that are not done.
    pub not_done: Vec<NotDone>,
    /// The names of settled elements that are done, and that are open messages of a schedule entry.
    pub ends: Vec<String>,
    /// How many messages its free lanes want.
    pub want: usize,
    /// How many of them one lane wants.
    pub each: usize,
    /// How many more messages it takes if many wait.
    pub reserve: usize,
    /// Whether the ring can call this member when messages wait.
    pub listens: bool,
    /// Whether the member claims even while it is the generator.
    pub both: bool,
    /// How many of its lanes are stuck, if Redis does not know it yet.
    pub stuck: Option<usize>,
    /// Whether the member still holds a [suspect](SUSPICIOUS).
    pub has_suspect: bool,
    /// The settled messages that are done and have effects.
    pub effects: Vec<MessageEffects>,
    /// The application of a ring to which messages are forwarded. None if it is the name of that ring.
    pub application: Option<String>,
    /// How many partitions the ring of this node has.
    pub partitions: u32,
}

/// A part of a pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub name: String,
    /// The positions of the messages that are settled.
    pub settled: Vec<usize>,
    /// The positions of the messages that return to the queue.
    pub back: Vec<usize>,
}

/// A settled message that is not done: the name of its element, its position in it, and what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct NotDone {
    pub name: String,
    pub index: usize,
    pub disposition: Disposition,
}

/// What becomes of a message that was handled and is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It becomes a dead letter. It counts a failure, or a death if what handled it `died`.
    Fail { reason: String, died: bool },
    /// It counts a failure and comes again after this time.
    Retry { after: Duration, reason: String },
    /// It counts a death and comes again after this time.
    Die { after: Duration, reason: String },
    /// It comes again after this time. `headers` is the block of its new headers, or empty if they stay.
    Snooze { after: Duration, headers: Vec<u8> },
}

pub(crate) enum Turn {
    /// The step was applied.
    Applied {
        cursor: u64,
        /// The member's last claim.
        claimed: u64,
        /// Whether more messages wait in the queue.
        waits: bool,
        /// After this time the member makes a turn because a pause ends, the rate allows a claim, or delayed messages
        /// are due, if it stands first in the line of idle members.
        due: Option<Duration>,
        /// Whether handling is paused.
        paused: bool,
        /// What the member claimed: the names and the elements.
        claims: Vec<(String, Vec<u8>)>,
        /// The messages whose effects are bad.
        bad: Vec<BadEffects>,
    },
    /// The member has lost the identity under which it called.
    Lost,
    /// The node may not write to one of the rings to which messages are forwarded. Nothing was applied.
    Forbidden { reason: String },
}

/// Counts how often `turn` is sent, so that a try that its own repeat overtook is recognised as late.
static TRIES: AtomicU64 = AtomicU64::new(0);

/// `this_try` grows with every try, including repeats.
pub(super) fn call(keys: &Keys, me: Identity, this_try: u64, settlement: &Settlement, journal: bool) -> Call {
    let who = me.incarnation;
    let names = [
        ("member", &keys.member(who)),
        ("ready", &keys.ready),
        ("ledger", &keys.ledger),
        ("errors", &keys.errors),
        ("later", &keys.later),
        ("delayed", &keys.delayed),
        ("singles", &keys.singles),
        ("open", &keys.open),
        ("journal", &keys.journal),
    ];
    let names = if journal { &names[..] } else { &names[..8] };
    let targets = EffectTargets::of(keys, &settlement.effects);
    let mut call = match &targets {
        None => SCRIPT.call(names),
        Some(targets) => {
            let fixed = names.iter().map(|(name, key)| (*name, key.as_str()));
            SCRIPT.call_with_room(&fixed.chain(targets.keys()).collect::<Vec<_>>(), 0, targets.bytes)
        }
    };
    call.arg("incarnation", who.to_string())
        .arg("number", me.number.0)
        .arg("try", this_try)
        .arg("cursor", settlement.cursor)
        .arg("n", settlement.count)
        .arg("seen", settlement.seen)
        .arg("want", settlement.want)
        .arg("each", settlement.each.max(1))
        .arg("reserve", settlement.reserve)
        .arg("listens", flag(settlement.listens))
        .arg("both", flag(settlement.both))
        .arg("stuck", settlement.stuck.map(|stuck| stuck.to_string()).unwrap_or_default())
        .arg("wakeup-prefix", &keys.wakeups)
        .arg("whole", settlement.whole.len())
        .arg("returns", settlement.returns.len())
        .arg("parts", settlement.parts.len())
        .arg("others", settlement.not_done.len() + settlement.ends.len())
        .arg("journal", flag(journal))
        .arg("suspect", flag(settlement.has_suspect));
    for name in settlement.whole.iter().chain(&settlement.returns) {
        call.arg("name", name);
    }
    for Part { name, settled, back } in &settlement.parts {
        call.arg("name", name).arg("settled", settled.len()).arg("back", back.len());
        for index in settled.iter().chain(back) {
            call.arg("index", index);
        }
    }
    for NotDone { name, index, disposition } in &settlement.not_done {
        let (outcome, after, detail) = match disposition {
            Disposition::Fail { reason, died: false } => ("fail", Duration::ZERO, reason.as_bytes()),
            Disposition::Fail { reason, died: true } => ("perish", Duration::ZERO, reason.as_bytes()),
            // Nothing reads the reason of an attempt that was not the last one.
            Disposition::Retry { after, .. } => ("retry", *after, &b""[..]),
            Disposition::Die { after, .. } => ("die", *after, &b""[..]),
            Disposition::Snooze { after, headers } => ("snooze", *after, &headers[..]),
        };
        call.arg("name", name).arg("index", index).arg("outcome", outcome);
        call.arg("after-ms", millis(after)).arg("detail", detail);
    }
    for name in &settlement.ends {
        call.arg("name", name).arg("index", 0).arg("outcome", "done").arg("after-ms", 0).arg("detail", "");
    }
    if let Some(targets) = targets {
        targets.write(&mut call, settlement.application.as_deref(), settlement.partitions);
    }
    call
}

pub(super) fn read(mut reply: Reply) -> Result<Turn> {
    match reply.text()?.as_str() {
        "lost" | "late" => Ok(Turn::Lost),
        word @ ("turn" | "bad") => {
            let bad = if word == "bad" { BadEffects::read(&reply.bytes()?)? } else { Vec::new() };
            let (cursor, claimed, waits) = (reply.number()?, reply.number()?, reply.number()? == 1);
            let due = u64::try_from(reply.integer()?).ok().map(Duration::from_millis);
            let paused = reply.number()? == 1;
            let mut claims = Vec::with_capacity(reply.len() / 2);
            while !reply.is_empty() {
                claims.push((reply.text()?, reply.bytes()?));
            }
            Ok(Turn::Applied { cursor, claimed, waits, due, paused, claims, bad })
        }
        other => reply.unknown(other),
    }
}

impl Store {
    pub async fn turn(&self, me: Identity, settlement: &Settlement, journal: bool) -> Result<Turn> {
        let build = || {
            let this_try = TRIES.fetch_add(1, Ordering::Relaxed) + 1;
            call(self.keys(), me, this_try, settlement, journal)
        };
        if !settlement.effects.iter().any(|message| message.effects.leave(self.ring())) {
            return read(self.run_each(&SCRIPT, build).await?);
        }
        match self.run_each_unless_forbidden(&SCRIPT, build).await? {
            Ok(reply) => read(reply),
            Err(reason) => Ok(Turn::Forbidden { reason }),
        }
    }
}
