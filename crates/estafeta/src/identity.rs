//! The two identities of a member: the number that people see, and the random incarnation by which Redis knows it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A member's number: 1 for the first node that ever joined the ring, and so on. Numbers are for people. A random
/// incarnation distinguishes a member from all others.
///
/// In a view of all partitions of a ring, it also carries the member's partition, and is shown as `2:17`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "NumberOrText", try_from = "NumberOrText")]
pub struct MemberId(pub u64);

/// A number of a member needs fewer bits than this. Those above hold the partition, counted from 1.
const PARTITION_AT: u32 = 40;

impl MemberId {
    /// The same number with a partition.
    #[must_use]
    pub fn in_partition(self, index: u32) -> Self {
        Self((u64::from(index) + 1) << PARTITION_AT | self.0 & ((1 << PARTITION_AT) - 1))
    }

    /// The partition that it carries.
    pub fn partition(self) -> Option<u32> {
        self.parts().0.and_then(|index| u32::try_from(index).ok())
    }

    /// The partition that it carries, and the number there.
    fn parts(self) -> (Option<u64>, u64) {
        ((self.0 >> PARTITION_AT).checked_sub(1), self.0 & ((1 << PARTITION_AT) - 1))
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (None, number) => number.fmt(f),
            (Some(partition), number) => f.pad(&format!("{partition}:{number}")),
        }
    }
}

/// A member's number in JSON: a number, or text if it carries a partition.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl From<MemberId> for NumberOrText {
    fn from(member: MemberId) -> Self {
        match member.parts() {
            (None, number) => Self::Number(number),
            _ => Self::Text(member.to_string()),
        }
    }
}

impl TryFrom<NumberOrText> for MemberId {
    type Error = String;

    fn try_from(shown: NumberOrText) -> Result<Self, String> {
        let text = match shown {
            NumberOrText::Number(number) => return Ok(Self(number)),
            NumberOrText::Text(text) => text,
        };
        let parts =
            text.split_once(':').and_then(|(index, id)| Some((index.parse().ok()?, id.parse().ok()?)));
        parts.map(|(index, id)| Self(id).in_partition(index)).ok_or(format!("'{text}' is no member"))
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    fn a_member_may_carry_its_partition_and_is_a_plain_number_otherwise() {
        let (plain, marked) = (MemberId(17), MemberId(17).in_partition(2));
        assert_eq!((plain.to_string(), format!("{marked:>6}")), ("17".to_owned(), "  2:17".to_owned()));
        assert!(plain != marked && MemberId(99).in_partition(1) < marked);
        assert_eq!(serde_json::to_string(&[plain, marked]).unwrap(), r#"[17,"2:17"]"#);
        assert_eq!(serde_json::from_str::<[MemberId; 2]>(r#"[17,"2:17"]"#).unwrap(), [plain, marked]);
        assert!(serde_json::from_str::<MemberId>(r#""x""#).is_err());
    }

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
