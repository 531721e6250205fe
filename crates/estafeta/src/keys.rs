//! Every key and channel of a ring. No other module spells one.
//!
//! All of them start with `{ring}:`, so a Redis Cluster keeps a ring in one slot and a script may touch any of them.
//! `docs/keyspace.md` describes each one. A test compares that page with a live ring.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::Error;
use crate::identity::Incarnation;

/// The name of a ring: 1 to 100 letters, digits, `.`, `_`, `-` or `:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingName(Arc<str>);

impl RingName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
impl RingName {
    /// The ring of the tests.
    pub fn sample() -> Self {
        Self("estafeta".into())
    }
}

impl FromStr for RingName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
        if (1..=100).contains(&name.len()) && name.chars().all(fits) {
            Ok(Self(name.into()))
        } else {
            Err(Error::expected("ring name", "1 to 100 letters, digits, '.', '_', '-' or ':'", name))
        }
    }
}

impl fmt::Display for RingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The type of the value that Redis holds at one of our keys, as `TYPE` names it.
pub(crate) type RedisType = &'static str;

/// The keys of one ring, spelled out once.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
    pub schema: String,
    pub requires: String,
    pub application: String,
    pub members: String,
    pub succession: String,
    pub epoch: String,
    pub ready: String,
    pub errors: String,
    pub later: String,
    pub delayed: String,
    pub ledger: String,
    pub events: String,
    pub journal: String,
    /// The prefix of member channels. With a member's incarnation appended, it names the channel that the member
    /// subscribes to while it lives.
    pub channels: String,
    /// The prefix of wakeup channels. With a member's incarnation appended, it names the channel on which the ring calls
    /// that member when messages wait.
    pub wakeups: String,
}

impl Keys {
    pub fn new(ring: &RingName) -> Self {
        let prefix = format!("{{{ring}}}:");
        let key = |name: &str| format!("{prefix}{name}");
        Self {
            schema: key("schema"),
            requires: key("requires"),
            application: key("application"),
            members: key("members"),
            succession: key("succession"),
            epoch: key("epoch"),
            ready: key("ready"),
            errors: key("errors"),
            later: key("later"),
            delayed: key("delayed"),
            ledger: key("ledger"),
            events: key("events"),
            journal: key("journal"),
            channels: key("alive:"),
            wakeups: key("wakeup:"),
            prefix,
        }
    }

    /// A `SCAN` pattern that finds one key of every ring.
    pub const SCHEMA_PATTERN: &str = "{*}:schema";

    /// The name of the ring whose schema key this is.
    pub fn ring_of_schema(key: &[u8]) -> Option<&str> {
        std::str::from_utf8(key).ok()?.strip_prefix('{')?.strip_suffix("}:schema")
    }

    pub fn member(&self, member: Incarnation) -> String {
        format!("{}member:{member}", self.prefix)
    }

    pub fn inflight(&self, member: Incarnation) -> String {
        format!("{}inflight:{member}", self.prefix)
    }

    /// What the ring remembers of the last publish of a publisher.
    pub fn publisher(&self, publisher: Incarnation) -> String {
        format!("{}publisher:{publisher}", self.prefix)
    }

    /// Which message was published with this key.
    pub fn message_key(&self, name: &str) -> String {
        format!("{}key:{name}", self.prefix)
    }

    /// Whether this is a key that the ring keeps only for a time. There may be very many.
    pub fn is_temporary(&self, key: &str) -> bool {
        let rest = key.strip_prefix(&self.prefix).unwrap_or_default();
        let publisher = rest.strip_prefix("publisher:");
        rest.strip_prefix("key:").is_some_and(|name| !name.is_empty())
            || publisher.is_some_and(|id| id.parse::<Incarnation>().is_ok())
    }

    pub fn alive(&self, member: Incarnation) -> String {
        format!("{}{member}", self.channels)
    }

    pub fn wakeup(&self, member: Incarnation) -> String {
        format!("{}{member}", self.wakeups)
    }

    /// The keys that exist once per ring, with the type that each must have.
    pub fn fixed(&self) -> [(&str, RedisType); 13] {
        [
            (&self.schema, "string"),
            (&self.requires, "set"),
            (&self.application, "string"),
            (&self.members, "zset"),
            (&self.succession, "zset"),
            (&self.epoch, "string"),
            (&self.ready, "list"),
            (&self.errors, "list"),
            (&self.later, "zset"),
            (&self.delayed, "hash"),
            (&self.ledger, "hash"),
            (&self.events, "stream"),
            (&self.journal, "stream"),
        ]
    }

    /// A `SCAN` pattern that finds every key of the ring, and perhaps some that only look like one.
    pub fn pattern(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// The keys that only older builds of estafeta had, once per ring. No step uses them, but `reset` deletes them.
    pub fn former(&self) -> [String; 3] {
        ["bell", "wakeup", "leader"].map(|name| format!("{}{name}", self.prefix))
    }

    /// Whether a key belongs to this ring.
    pub fn owns(&self, key: &str) -> bool {
        let of_a_member = |rest: &str| {
            let is_incarnation = |id: &str| id.parse::<Incarnation>().is_ok();
            // In older builds, each lane had a list.
            let lane = rest.strip_prefix("inflight:").and_then(|rest| rest.rsplit_once(':'));
            let member = rest.strip_prefix("member:").or_else(|| rest.strip_prefix("inflight:"));
            member.is_some_and(is_incarnation)
                || lane.is_some_and(|(id, lane)| is_incarnation(id) && lane.parse::<usize>().is_ok())
        };
        self.fixed().iter().any(|(fixed, _)| *fixed == key)
            || self.former().iter().any(|former| former == key)
            || key.strip_prefix(&self.prefix).is_some_and(of_a_member)
            || self.is_temporary(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_names_that_could_break_the_hash_tag_are_refused() {
        for name in ["", "a b", "{x}", "a*", "ring\n", &"x".repeat(101)] {
            assert!(name.parse::<RingName>().is_err(), "{name:?} was accepted");
        }
        assert_eq!("Orders:eu-1.x_y".parse::<RingName>().unwrap().as_str(), "Orders:eu-1.x_y");
    }

    #[test]
    fn only_the_rings_own_keys_are_owned() {
        let keys = Keys::new(&RingName::sample());
        let member = Incarnation::random();
        assert!(keys.owns("{estafeta}:ready"));
        for former in ["bell", "wakeup", "leader", "inflight:00000000000000aa:12"] {
            assert!(keys.owns(&format!("{{estafeta}}:{former}")), "older builds had {former}");
        }
        assert!(keys.owns(&keys.member(member)));
        assert!(keys.owns(&keys.inflight(member)));
        assert!(keys.owns(&keys.publisher(member)) && keys.is_temporary(&keys.publisher(member)));
        assert!(keys.owns(&keys.message_key("a:{b}")) && keys.is_temporary(&keys.message_key("a:{b}")));
        assert!(!keys.is_temporary(&keys.ready) && !keys.is_temporary(&keys.member(member)));
        assert_eq!(keys.pattern(), "{estafeta}:*");
        for foreign in [
            "{estafeta}:mine",
            "{estafeta2}:ready",
            "estafeta:ready",
            "{estafeta}:member:bob",
            "{estafeta}:inflight:bob",
            "{estafeta}:inflight:bob:1",
            "{estafeta}:inflight:00000000000000aa:x",
            "{estafeta}:publisher:bob",
            "{estafeta}:key:",
            "{estafeta2}:key:a",
        ] {
            assert!(!keys.owns(foreign), "{foreign} was taken for ours");
        }
    }
}
