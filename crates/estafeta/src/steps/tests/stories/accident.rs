//! What happens to a ring without a script call: time passes, a connection breaks, Redis forgets.

use std::fmt;

use redis::Cmd;

use super::super::*;
use super::call::Persona;
use super::model::{ModelRate, ModelRing, Span};
use super::simulated_node::ENTRIES;

#[derive(Clone, Debug)]
pub(super) enum Accident {
    /// A lease runs out.
    Expired(Persona),
    /// The connection that shows its presence is there.
    Connected(Persona),
    /// The connection that shows its presence is gone.
    Disconnected(Persona),
    /// A deadline is further ahead than one lease, because Redis' clock jumped back.
    Ahead(Persona, u64),
    /// The hash of a member that holds no messages is deleted. Its entry in the member list stays.
    Forgotten(Persona),
    /// Another epoch, or none, is stored.
    Epoch(Option<u64>),
    /// The next tick is moved.
    Due(u64),
    /// An open message of the first entry is lost, and Redis still has its id.
    OpenLost,
    /// The window of a key ends.
    KeyEnded(&'static str),
    /// Time passes until these delayed messages are due. They are the earliest ones, in their order.
    Passed(Vec<u64>),
    /// Time passes between two samples. If it is negative, the clock is set back.
    HistoryMoved(i64),
    /// Time passes until a pause is over. These are the brakes before.
    PauseOver { handling: bool, brakes: Vec<u64> },
    /// Time passes until the rate allows the next message.
    RateOpens(Vec<u64>),
    /// The ring has another version.
    Schema(Option<&'static str>),
}

/// The id of an open message that is lost. No story has so many messages.
pub(super) const LOST_OPEN: u64 = 1_000_000;

/// Makes messages due at the times 1, 2, 3 ..., in their order.
const PASS: &str = "
for i, name in ipairs(ARGV) do
  redis.call('ZADD', KEYS[1], 'XX', i, name)
end
redis.call('HSET', KEYS[2], 'soonest', 1)";

/// Moves the times of all samples back.
const AGE: &str = "
for _, list in ipairs(KEYS) do
  for i, sample in ipairs(redis.call('LRANGE', list, 0, -1)) do
    local time, rest = string.match(sample, '^(%d+)(.*)$')
    redis.call('LSET', list, i - 1, string.format('%d', time - ARGV[1]) .. rest)
  end
end";

impl Accident {
    pub fn build(&self, keys: &Keys) -> Cmd {
        let set = |key: &str, value: Option<String>| {
            let mut call = redis::cmd(if value.is_some() { "SET" } else { "DEL" });
            call.arg(key);
            if let Some(value) = value {
                call.arg(value);
            }
            call
        };
        let mut call = Cmd::new();
        match self {
            // This changes a connection, not what Redis stores.
            Self::Connected(_) | Self::Disconnected(_) => call.arg("PING"),
            Self::Expired(who) => call.arg("ZADD").arg(&keys.members).arg("XX").arg(1).arg(who.name()),
            Self::Ahead(who, ms) => call.arg("ZADD").arg(&keys.members).arg("XX").arg(*ms).arg(who.name()),
            Self::Forgotten(who) => call.arg("DEL").arg(keys.member(who.incarnation())),
            Self::Epoch(epoch) => return set(&keys.epoch, epoch.map(|epoch| epoch.to_string())),
            Self::OpenLost => call.arg("HSET").arg(&keys.open).arg(LOST_OPEN).arg(ENTRIES[0]),
            Self::KeyEnded(key) => call.arg("DEL").arg(keys.message_key(key)),
            Self::Due(due) => call.arg("HSET").arg(&keys.ledger).arg("due").arg(*due),
            Self::Passed(ids) => {
                call.arg("EVAL").arg(PASS).arg(2).arg(&keys.later).arg(&keys.ledger);
                ids.iter().fold(&mut call, |call, id| call.arg(format!("{id:015}")))
            }
            Self::HistoryMoved(ms) => call
                .arg("EVAL")
                .arg(AGE)
                .arg(3)
                .arg(&keys.seconds)
                .arg(&keys.tens)
                .arg(&keys.minutes)
                .arg(*ms),
            Self::PauseOver { handling, brakes } => {
                let mut brakes = brakes.clone();
                brakes[usize::from(*handling)] = 1;
                call.arg("HSET").arg(&keys.ledger).arg("brakes").arg(joined(&brakes))
            }
            Self::RateOpens(brakes) => {
                let mut brakes = brakes.clone();
                brakes[6] = brakes[5];
                call.arg("HSET").arg(&keys.ledger).arg("brakes").arg(joined(&brakes))
            }
            Self::Schema(schema) => return set(&keys.schema, schema.map(Into::into)),
        };
        call
    }

    pub fn apply(&self, ring: &mut ModelRing) {
        match self {
            Self::Connected(who) => {
                ring.connected.insert(who.index);
            }
            Self::Disconnected(who) => {
                ring.connected.remove(&who.index);
            }
            Self::Expired(who) => set_deadline(ring, *who, 1),
            Self::Ahead(who, ms) => set_deadline(ring, *who, *ms),
            Self::Forgotten(who) => ring.forget(*who),
            Self::Epoch(epoch) => ring.epoch = *epoch,
            Self::Due(due) => ring.office.due = Some(*due),
            Self::OpenLost => {
                ring.open.insert(LOST_OPEN, ENTRIES[0]);
            }
            Self::KeyEnded(key) => {
                ring.keys.remove(key);
            }
            Self::Passed(ids) => {
                for (at, id) in (1..).zip(ids) {
                    ring.later.get_mut(id).expect("it waits").due = Span::exactly(at);
                }
            }
            Self::HistoryMoved(ms) => ring.move_history(-ms),
            Self::RateOpens(_) => {
                if let Some(rate) = &mut ring.rate_limit {
                    (rate.is_open, rate.credit) = (true, Span::exactly(ModelRate::PER_MS));
                }
            }
            Self::PauseOver { handling: true, .. } => ring.handling_end = Some(1),
            Self::PauseOver { handling: false, .. } => ring.producing_end = Some(1),
            Self::Schema(schema) => ring.schema = *schema,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connected(_) => "connected",
            Self::Disconnected(_) => "disconnected",
            Self::Expired(_) => "expired",
            Self::Ahead(..) => "ahead",
            Self::Forgotten(_) => "member forgotten",
            Self::Epoch(None) => "epoch forgotten",
            Self::Epoch(Some(_)) => "epoch moved",
            Self::Due(_) => "due moved",
            Self::OpenLost => "open message lost",
            Self::KeyEnded(_) => "key ended",
            Self::Passed(_) => "time passed",
            Self::HistoryMoved(_) => "history moved",
            Self::PauseOver { .. } => "pause over",
            Self::RateOpens(_) => "rate opens",
            Self::Schema(_) => "schema",
        }
    }
}

fn set_deadline(ring: &mut ModelRing, who: Persona, ms: u64) {
    if let Some(member) = ring.members.get_mut(&who.index) {
        member.deadline = Span::exactly(ms);
    }
}

impl fmt::Display for Accident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(who) => write!(f, "{who} is connected"),
            Self::Disconnected(who) => write!(f, "the connection of {who} is gone"),
            Self::Expired(who) => write!(f, "the lease of {who} runs out"),
            Self::Ahead(who, _) => write!(f, "Redis' clock jumps back, and the lease of {who} runs too long"),
            Self::Forgotten(who) => write!(f, "an intruder deletes the registration of {who}"),
            Self::Epoch(None) => f.write_str("Redis forgets the last epoch"),
            Self::Epoch(Some(epoch)) => write!(f, "Redis comes back with epoch {epoch}"),
            Self::Due(due) => write!(f, "the next tick is now at {due}"),
            Self::OpenLost => write!(f, "an open message of '{}' is lost", ENTRIES[0]),
            Self::KeyEnded(key) => write!(f, "the window of key '{key}' ends"),
            Self::Passed(ids) => write!(f, "time passes, and {ids:?} are due"),
            Self::HistoryMoved(ms) => write!(f, "{ms} ms pass since the last sample"),
            Self::RateOpens(_) => f.write_str("time passes, and the rate allows a message"),
            Self::PauseOver { handling: true, .. } => {
                f.write_str("time passes, and the pause of handling is over")
            }
            Self::PauseOver { handling: false, .. } => {
                f.write_str("time passes, and the pause of producing is over")
            }
            Self::Schema(schema) => write!(f, "the ring's version is {}", schema.unwrap_or("unsaid")),
        }
    }
}

/// The field that holds these brakes.
fn joined(brakes: &[u64]) -> String {
    brakes.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}
