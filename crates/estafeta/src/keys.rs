//! Every key and channel of a ring. No other module spells one.
//!
//! All of them start with `{ring}:`, so a Redis Cluster keeps a ring in one slot and a script may touch any of them. The
//! keys of a ring in a group start with `{group}/ring:`, so that all rings of the group share a slot.
//! `docs/keyspace.md` describes each one. A test compares that page with a live ring.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::Error;
use crate::identity::Incarnation;

/// The name of a ring: 1 to 100 letters, digits, `.`, `_`, `-` or `:`.
///
/// A name that ends in `:` and a number is that of a [partition](crate::Node::partitions). Commands may look at it, but
/// no node and no publisher can begin a ring with such a name.
///
/// A ring may belong to a group. Its name is then `group/ring`, and its last part has no `:`. All rings of a group are on
/// the same server, even in a Redis Cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingName(Arc<str>);

impl RingName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The group of this ring. A ring whose name has no group is alone in a group of its name, unless the names of other
    /// rings begin with it.
    pub(crate) fn group(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(group, _)| group)
    }

    /// Whether a Redis Cluster keeps both rings on the same server, so that one step can write both.
    pub(crate) fn shares_slot_with(&self, other: &Self) -> bool {
        self.group() == other.group()
    }

    /// The most characters of a name.
    pub(crate) const LONGEST: usize = 100;

    /// Which partition this is, if it is one.
    pub fn partition(&self) -> Option<u32> {
        self.whole().and_then(|whole| self.0[whole.0.len() + 1..].parse().ok())
    }

    /// The ring that this is a partition of, if it is one.
    pub fn whole(&self) -> Option<Self> {
        let (whole, digits) = self.0.rsplit_once(':').filter(|_| !self.is_in_group())?;
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !whole.is_empty()).then(|| Self(whole.into()))
    }

    /// The partition with this number.
    pub(crate) fn part(&self, index: u32) -> Self {
        Self(format!("{self}:{index}").into())
    }

    pub(crate) fn is_in_group(&self) -> bool {
        self.0.contains('/')
    }

    /// The beginning of every key of this ring. Its part in braces decides the slot.
    fn key_prefix(&self) -> String {
        match self.0.split_once('/') {
            Some((group, ring)) => format!("{{{group}}}/{ring}:"),
            None => format!("{{{self}}}:"),
        }
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
        let fits = |part: &str, marks: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
        };
        // A `:` in the last part could make a key of this ring look like one of another ring of the group.
        let is_valid = match name.split_once('/') {
            Some((group, ring)) => fits(group, "._-:") && fits(ring, "._-"),
            None => fits(name, "._-:"),
        };
        if is_valid && name.len() <= Self::LONGEST {
            Ok(Self(name.into()))
        } else {
            let rule = "1 to 100 letters, digits, '.', '_', '-' or ':', perhaps in a group: 'group/ring'";
            Err(Error::expected("ring name", rule, name))
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
    pub ticks: String,
    pub checkpoint: String,
    pub singles: String,
    pub open: String,
    pub schedule: String,
    pub ledger: String,
    pub events: String,
    pub journal: String,
    /// What a step is confirmed by. It is there only for a while.
    pub confirmed: String,
    /// What nodes counted since the last sample.
    pub latencies: String,
    /// The samples of seconds, of ten seconds and of minutes.
    pub seconds: String,
    pub tens: String,
    pub minutes: String,
    /// The prefix of member channels. With a member's incarnation appended, it names the channel that the member
    /// subscribes to while it lives.
    pub channels: String,
    /// The prefix of wakeup channels. With a member's incarnation appended, it names the channel on which the ring calls
    /// that member when messages wait.
    pub wakeups: String,
}

impl Keys {
    pub fn new(ring: &RingName) -> Self {
        let prefix = ring.key_prefix();
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
            ticks: key("ticks"),
            checkpoint: key("checkpoint"),
            singles: key("singles"),
            open: key("open"),
            schedule: key("schedule"),
            ledger: key("ledger"),
            events: key("events"),
            journal: key("journal"),
            confirmed: key("confirmed"),
            latencies: key("latencies"),
            seconds: key("history:1s"),
            tens: key("history:10s"),
            minutes: key("history:1m"),
            channels: key("alive:"),
            wakeups: key("wakeup:"),
            prefix,
        }
    }

    /// A `SCAN` pattern that finds one key of every ring, and perhaps some that only look like one.
    pub const SCHEMA_PATTERN: &str = "{*}*:schema";

    /// The ring whose schema key this is.
    pub fn ring_of_schema(key: &[u8]) -> Option<RingName> {
        let name = std::str::from_utf8(key).ok()?.strip_prefix('{')?.strip_suffix(":schema")?;
        name.replacen('}', "", 1).parse().ok().filter(|ring| Self::new(ring).schema.as_bytes() == key)
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

    /// A key that effects write. It belongs to the user: a ring that is deleted leaves it behind.
    pub fn user_key(&self, name: &str) -> String {
        format!("{}u:{name}", self.prefix)
    }

    /// A `SCAN` pattern that finds every key that effects wrote.
    pub fn user_keys_pattern(&self) -> String {
        self.user_key("*")
    }

    /// The result of a message.
    pub fn result(&self, id: u64) -> String {
        format!("{}result:{id}", self.prefix)
    }

    /// A `SCAN` pattern that finds every result, and perhaps some keys that only look like one.
    pub fn results_pattern(&self) -> String {
        format!("{}result:*", self.prefix)
    }

    /// The message whose result is at this key.
    pub fn id_of_result(&self, key: &str) -> Option<u64> {
        let id = key.strip_prefix(&self.prefix)?.strip_prefix("result:")?.parse().ok()?;
        (self.result(id) == key).then_some(id)
    }

    /// Whether this is a key that the ring keeps only for a time. There may be very many.
    pub fn is_temporary(&self, key: &str) -> bool {
        let rest = key.strip_prefix(&self.prefix).unwrap_or_default();
        let publisher = rest.strip_prefix("publisher:");
        key == self.confirmed
            || rest.strip_prefix("key:").is_some_and(|name| !name.is_empty())
            || self.id_of_result(key).is_some()
            || publisher.is_some_and(|id| id.parse::<Incarnation>().is_ok())
    }

    /// A key that a check-up makes and deletes in one step. No ring uses it.
    pub fn probe(&self, id: Incarnation) -> String {
        format!("{}probe:{id}", self.prefix)
    }

    pub fn alive(&self, member: Incarnation) -> String {
        format!("{}{member}", self.channels)
    }

    pub fn wakeup(&self, member: Incarnation) -> String {
        format!("{}{member}", self.wakeups)
    }

    /// The keys that exist once per ring, with the type that each must have.
    pub fn fixed(&self) -> [(&str, RedisType); 22] {
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
            (&self.ticks, "hash"),
            (&self.checkpoint, "string"),
            (&self.singles, "hash"),
            (&self.open, "hash"),
            (&self.schedule, "hash"),
            (&self.ledger, "hash"),
            (&self.events, "stream"),
            (&self.journal, "stream"),
            (&self.latencies, "hash"),
            (&self.seconds, "list"),
            (&self.tens, "list"),
            (&self.minutes, "list"),
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
        for name in
            ["", "a b", "{x}", "a*", "ring\n", "/", "a/", "/a", "a/b/c", "a/b:c", "a/{b}", &"x".repeat(101)]
        {
            assert!(name.parse::<RingName>().is_err(), "{name:?} was accepted");
        }
        for name in ["Orders:eu-1.x_y", "shop:eu/orders.1_a-b"] {
            assert_eq!(name.parse::<RingName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_partition_knows_its_number_and_its_ring() {
        let name = |name: &str| -> RingName { name.parse().unwrap() };
        let part = name("eu:orders").part(12);
        assert_eq!((part.as_str(), part.partition()), ("eu:orders:12", Some(12)));
        assert_eq!(part.whole(), Some(name("eu:orders")));
        assert_eq!(part.key_prefix(), "{eu:orders:12}:");
        for other in ["orders", "orders:", ":7", "orders:7x", "orders:x7", "shop:7/orders", "7"] {
            assert_eq!(name(other).whole(), None, "{other}");
        }
        // Too large for a partition, and reserved all the same.
        let huge = name("orders:99999999999");
        assert_eq!((huge.whole(), huge.partition()), (Some(name("orders")), None));
    }

    #[test]
    fn the_rings_of_a_group_share_a_slot_and_no_key() {
        let keys_of = |name: &str| Keys::new(&name.parse().unwrap());
        let (orders, mails, plain) = (keys_of("shop/orders"), keys_of("shop/mails"), keys_of("shop"));
        assert_eq!(orders.ready, "{shop}/orders:ready");
        assert_eq!(mails.wakeups, "{shop}/mails:wakeup:");
        assert_eq!(plain.ready, "{shop}:ready");
        let name = |name: &str| -> RingName { name.parse().unwrap() };
        assert!(name("shop/orders").shares_slot_with(&name("shop")));
        assert!(!name("shop/orders").shares_slot_with(&name("orders")));
        assert!(!name("a").shares_slot_with(&name("b")));
        for other in [&mails, &plain] {
            assert!(!orders.owns(&other.ready) && !other.owns(&orders.ready));
        }
    }

    #[test]
    fn a_schema_key_names_its_ring() {
        for name in ["estafeta", "a:b", "shop/orders"] {
            let ring = name.parse().unwrap();
            assert_eq!(Keys::ring_of_schema(Keys::new(&ring).schema.as_bytes()), Some(ring));
        }
        for foreign in
            ["{a}:key:schema", "{a/b}:schema", "{a}b:schema", "{a}/b:c:schema", "a}:schema", "{}:schema"]
        {
            assert_eq!(Keys::ring_of_schema(foreign.as_bytes()), None, "{foreign}");
        }
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
        assert!(keys.owns(&keys.confirmed) && keys.is_temporary(&keys.confirmed));
        assert!(keys.owns(&keys.result(17)) && keys.is_temporary(&keys.result(17)));
        assert_eq!(keys.id_of_result("{estafeta}:result:17"), Some(17));
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
            "{estafeta}:result:",
            "{estafeta}:result:017",
            "{estafeta}:result:x",
            "{estafeta}:u:mine",
            "{estafeta}:u:result:17",
        ] {
            assert!(!keys.owns(foreign), "{foreign} was taken for ours");
        }
    }
}
