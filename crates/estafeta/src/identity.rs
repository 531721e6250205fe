//! The two identities of a member: the number that people see, and the random incarnation by which Redis knows it.

use std::fmt;
use std::str::FromStr;

/// A member's number: 1 for the first node that ever joined the ring, and so on. Numbers are for people. A random
/// incarnation distinguishes a member from all others.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of one membership, drawn at random before each join. A node that was declared dead comes back with a
/// new identity. Even wiping the ring cannot confuse the two.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// Draws a new identity.
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Incarnation {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Text without exactly sixteen digits is not one of ours, even if it reads as a number.
        let digits = if text.len() == 16 { text } else { "" };
        u64::from_str_radix(digits, 16).map(Self)
    }
}

/// One membership as its holder knows it. A late `join` can create another membership of the same incarnation after the
/// first is over. The number distinguishes the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub number: MemberId,
    pub incarnation: Incarnation,
}

/// The number of a generator's term in office. It only grows, and it is the fencing token: Redis refuses every publish
/// from an earlier epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_numbers_and_an_incarnation_reads_as_it_is_shown() {
        assert_eq!((MemberId(7).to_string(), Epoch(12).to_string()), ("7".into(), "12".into()));
        let incarnation = Incarnation::random();
        assert_eq!(incarnation.to_string().parse(), Ok(incarnation));
        for foreign in ["", "7", "000000000000000g", "00000000000000000"] {
            assert!(foreign.parse::<Incarnation>().is_err(), "{foreign}");
        }
    }
}
