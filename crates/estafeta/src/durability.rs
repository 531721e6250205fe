//! Where a change must be stored before a node, a publisher or a reader reports it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Where Redis must have stored a change before it is reported as done.
///
/// Redis answers as soon as a change is in its memory. A crash, or the promotion of a replica that lags behind, can then
/// lose the change. With a higher level, a step counts as answered only after Redis has confirmed it. Until then nothing
/// is reported as generated, handled, published or printed.
///
/// ```
/// use estafeta::Durability;
///
/// assert_eq!("replicas=2".parse::<Durability>()?, Durability::Replicas(2));
/// assert_eq!("replicas=all".parse::<Durability>()?, Durability::AllReplicas);
/// # Ok::<(), estafeta::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[non_exhaustive]
pub enum Durability {
    /// The memory of the server, which is what Redis promises by itself.
    #[default]
    Memory,
    /// The memory of at least this many replicas. If there are more replicas, one without the change may be promoted. A node
    /// does not start if fewer replicas are connected for five seconds.
    Replicas(u32),
    /// The memory of every replica that is connected, and at least one. No promotion of a replica loses the change.
    AllReplicas,
    /// The disk of the server. This needs `appendonly yes`, and Redis 7.2 or `appendfsync always`.
    Disk,
}

impl Durability {
    /// The most replicas that can be asked for.
    const MOST_REPLICAS: u32 = 1000;

    /// How many replicas must have a change, if so many are connected. None if replicas do not matter.
    pub(crate) fn replicas(self, connected: u32) -> Option<u32> {
        match self {
            Self::Replicas(count) => Some(count),
            Self::AllReplicas => Some(connected.max(1)),
            Self::Memory | Self::Disk => None,
        }
    }

    pub(crate) fn validate(self) -> Result<(), Error> {
        match self {
            Self::Replicas(count) if !(1..=Self::MOST_REPLICAS).contains(&count) => {
                let expected = format!("1 to {} replicas", Self::MOST_REPLICAS);
                Err(Error::expected("durability", expected, count))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let level = match text {
            "memory" => Some(Self::Memory),
            "replicas=all" => Some(Self::AllReplicas),
            "disk" => Some(Self::Disk),
            _ => text.strip_prefix("replicas=").and_then(|count| count.parse().ok()).map(Self::Replicas),
        };
        let expected = "memory, replicas=N, replicas=all or disk";
        let level = level.ok_or_else(|| Error::expected("durability", expected, text))?;
        level.validate().map(|()| level)
    }
}

impl TryFrom<String> for Durability {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Durability> for String {
    fn from(level: Durability) -> Self {
        level.to_string()
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Replicas(count) => write!(f, "replicas={count}"),
            Self::AllReplicas => f.write_str("replicas=all"),
            Self::Disk => f.write_str("disk"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_read_as_it_is_shown() {
        for text in ["memory", "replicas=1", "replicas=1000", "replicas=all", "disk"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
        for text in
            ["", "Memory", "replicas", "replicas=", "replicas=0", "replicas=1001", "replicas=-1", "aof"]
        {
            let refused = text.parse::<Durability>().unwrap_err().to_string();
            assert!(refused.starts_with("durability: expected "), "{refused}");
        }
    }

    #[test]
    fn all_replicas_are_those_that_are_connected_and_at_least_one() {
        assert_eq!([0, 1, 3].map(|n| Durability::AllReplicas.replicas(n)), [Some(1), Some(1), Some(3)]);
        assert_eq!(Durability::Replicas(2).replicas(3), Some(2));
        assert_eq!((Durability::Memory.replicas(3), Durability::Disk.replicas(3)), (None, None));
    }
}
