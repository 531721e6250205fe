//! Who is who: the number people see and the random incarnation by which Redis knows a member.

use std::fmt;
use std::str::FromStr;

/// A member's number: 1 for the first copy that ever joined the ring, and so on. Numbers are for people; a member is
/// told apart from all others by a random incarnation.
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

/// The identity of one membership, drawn at random before each join: a copy that was declared dead comes back as
/// somebody else, and not even a ring that was wiped can confuse the two.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// A new identity.
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
        // Anything but sixteen digits is not one of ours, even if it reads as a number.
        let digits = if text.len() == 16 { text } else { "" };
        u64::from_str_radix(digits, 16).map(Self)
    }
}

/// One membership as its holder knows it. The number tells it from one that a late `join` makes of the same incarnation
/// when the first is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub number: MemberId,
    pub incarnation: Incarnation,
}

/// The number of a generator's term in office. It only grows, and it is the fencing token: Redis refuses what an
/// earlier epoch wants to publish.
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
