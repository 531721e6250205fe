//! What can go wrong for a caller of the library, with one variant per possible reaction.

use std::fmt;
use std::time::Duration;

use crate::layout::Layouts;

/// An error of the library.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting or argument is wrong: correct it.
    #[error("{what}: expected {expected}, got {got}")]
    Expected {
        /// The setting.
        what: &'static str,
        /// What would have been right.
        expected: String,
        /// What was given.
        got: String,
    },
    /// Redis cannot be reached, or the connection broke: try again later.
    #[error("cannot reach Redis at {address}: {reason}")]
    Unreachable {
        /// Where, without secrets.
        address: String,
        /// Why, without secrets.
        reason: String,
    },
    /// Redis replies but refuses to serve the node: credentials, permissions, version, or state of the server.
    #[error("Redis at {address} refuses: {reason}")]
    Refused {
        /// Where, without secrets.
        address: String,
        /// The reason that Redis returned.
        reason: String,
    },
    /// Redis has the change, but not yet where [`Durability`](crate::Durability) wants it: try again later.
    #[error("Redis at {address} has it, but does not confirm it: {reason}")]
    Unconfirmed {
        /// Where, without secrets.
        address: String,
        /// Who lacks the change.
        reason: String,
    },
    /// Another version of estafeta created the ring: use that version.
    #[error("ring {ring} has layout {found}, this program knows {known}: {}", known.remedy(found))]
    Layout {
        /// The ring.
        ring: String,
        /// The layout found.
        found: String,
        /// The layouts that this library knows.
        known: Layouts,
    },
    /// The ring uses something that this version does not know and must not overlook.
    #[error(
        "ring {ring} requires {word:?}, which this program does not know: use a newer release of estafeta"
    )]
    Requires {
        /// The ring.
        ring: String,
        /// The word in `{ring}:requires`.
        word: String,
    },
    /// The ring has another number of partitions, which is fixed for life: set that one, or choose another ring.
    #[error(
        "ring {ring} has {}, and this program expects {expected}: the number is fixed for life, so set it to {found} \
         (Node::partitions, --partitions), or choose another ring",
        counted_partitions(*found)
    )]
    Partitions {
        /// The ring.
        ring: String,
        /// How many partitions it has.
        found: u32,
        /// How many this node or publisher expects.
        expected: u32,
    },
    /// A member of the ring does not know the layout that the ring is to get.
    #[error(
        "ring {ring} keeps its layout: {member} knows {known}; stop it, or wait until the ring has buried it"
    )]
    OldMember {
        /// The ring.
        ring: String,
        /// The member, with its host and process id.
        member: String,
        /// The layouts that it knows.
        known: String,
    },
    /// The ring belongs to another application: set that one, or choose another ring.
    #[error(
        "ring {ring} belongs to the application '{found}', and this program is '{expected}': set the application \
         '{found}' (Config::application), or choose another ring"
    )]
    Application {
        /// The ring.
        ring: String,
        /// The application that the ring belongs to.
        found: String,
        /// The application of this node or publisher.
        expected: String,
    },
    /// A key of the ring holds foreign data: move it away, or choose another ring.
    #[error("key {key} is a {found}, expected a {expected}: something else uses the names of this ring")]
    ForeignKey {
        /// The key.
        key: String,
        /// The type found.
        found: String,
        /// The type that estafeta keeps there.
        expected: &'static str,
    },
    /// A message was published before with this key, and it is not equal to this one: choose another key. Nothing was
    /// published.
    #[error("key '{key}' is taken by another message: publish this one with another key")]
    KeyReused {
        /// The key.
        key: String,
    },
    /// Too many messages wait in the ring: try again later. Nothing was published.
    #[error("ring {ring} is full: more than {max_waiting} messages would wait")]
    Full {
        /// The ring.
        ring: String,
        /// How many messages may wait.
        max_waiting: u64,
    },
    /// Producing is paused: try again later. Nothing was published.
    #[error("producing is paused in ring {ring} {}", pause_left(*left))]
    Paused {
        /// The ring.
        ring: String,
        /// For how long it is still paused. None if the pause has no time limit.
        left: Option<Duration>,
    },
    /// A publisher made a message that is larger than the ring allows.
    #[error("message body: expected at most {limit} bytes, got {size}")]
    BodyTooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Redis returned a reply that no version of our scripts returns.
    #[error("unexpected answer from Redis: {0}")]
    Answer(String),
    /// A node is in office, so the checkpoint cannot be changed: stop all nodes that may generate.
    #[error("ring {ring} has a generator, member {member}: stop all nodes that may generate first")]
    InOffice {
        /// The ring.
        ring: String,
        /// The member in office.
        member: u64,
    },
    /// A [`TestRing`](crate::testing::TestRing) has no Redis, or waited in vain.
    #[cfg(feature = "testing")]
    #[error("test ring: {0}")]
    TestRing(String),
    /// The node was stopped while it waited for Redis.
    #[error("stopped while waiting for Redis")]
    Stopped,
    /// A part of the node ended unexpectedly, which is a bug. The node stops and returns this error.
    #[error("the {0} of this node failed: {1}")]
    PartFailed(&'static str, String),
}

/// The same text as `Display`, because `fn main() -> Result<(), Error>` prints its error in this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn counted_partitions(count: u32) -> String {
    if count == 1 { "1 partition".to_owned() } else { format!("{count} partitions") }
}

fn pause_left(left: Option<Duration>) -> String {
    left.map_or("until it is resumed".to_owned(), |left| format!("for {left:?} more"))
}

impl Error {
    pub(crate) fn expected(
        what: &'static str,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Expected { what, expected: expected.into(), got: format!("'{got}'") }
    }

    /// Whether the same call may succeed later, without anybody changing the call: the ring is full or paused, or Redis
    /// cannot be reached, does not confirm, or does not serve for the moment.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Paused { .. } | Self::Unreachable { .. } | Self::Unconfirmed { .. } => {
                true
            }
            Self::Refused { reason, .. } => passes(reason),
            _ => false,
        }
    }
}

/// Whether Redis may stop refusing for this reason by itself. The reason begins with the code of the error.
fn passes(reason: &str) -> bool {
    const PASSING: [&str; 12] = [
        "BUSY",
        "LOADING",
        "READONLY",
        "MASTERDOWN",
        "UNBLOCKED",
        "MOVED",
        "ASK",
        "NOREPLICAS",
        "OOM",
        "MISCONF",
        "TRYAGAIN",
        "CLUSTERDOWN",
    ];
    reason.split(' ').next().is_some_and(|code| PASSING.contains(&code))
}

/// The result type of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;
