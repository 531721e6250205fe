//! The brakes of a ring: its pauses and limits, as the ledger stores them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The end of a pause without a time limit.
pub(crate) const NEVER: u64 = 999_999_999_999_999;

/// The content of the field `brakes` of the ledger. As in the scripts, a damaged field counts as two pauses without a
/// time limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Brakes {
    /// When the pause of producing ends. It may be over. 0 if there is none.
    pub producing_end: u64,
    pub handling_end: u64,
    pub in_flight_limit: Option<u64>,
    pub rate_limit: Option<Rate>,
}

impl Brakes {
    pub fn parse(field: &str) -> Self {
        let is_count = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let numbers: Vec<u64> = field
            .split(' ')
            .filter(is_count)
            .map(|number| number.parse().unwrap_or(NEVER).min(NEVER))
            .collect();
        match numbers[..] {
            [producing_end, handling_end, most, _, messages, per_ms, ..]
                if numbers.len() == 8 && field.split(' ').count() == 8 =>
            {
                let in_flight_limit = Some(most).filter(|most| *most > 0);
                let rate_limit = (messages > 0).then_some(Rate { messages, per_ms });
                Self { producing_end, handling_end, in_flight_limit, rate_limit }
            }
            _ => Self { producing_end: NEVER, handling_end: NEVER, ..Self::default() },
        }
    }
}

/// A number of messages in a time, such as `50/s`. The time is a second, a minute or an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// How many messages.
    pub messages: u64,
    /// In how many milliseconds.
    pub per_ms: u64,
}

impl Rate {
    const UNITS: [(&str, u64); 3] = [("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    /// The most messages of a rate.
    const MOST: u64 = 1_000_000;

    /// This many messages per second.
    pub fn per_second(messages: u64) -> Self {
        Self { messages, per_ms: 1000 }
    }

    /// Both rates together. None if their times differ.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        (self.per_ms == other.per_ms).then_some(Self { messages: self.messages + other.messages, ..self })
    }

    /// Whether the scripts can count with it.
    pub(crate) fn is_valid(self) -> bool {
        (1..=Self::MOST).contains(&self.messages) && (1..=86_400_000).contains(&self.per_ms)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, per_ms } = self;
        match Self::UNITS.iter().find(|(_, ms)| ms == per_ms) {
            Some((unit, _)) => write!(f, "{messages}/{unit}"),
            None => write!(f, "{messages} per {per_ms}ms"),
        }
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('/').and_then(|(messages, unit)| {
            let (_, per_ms) = Self::UNITS.iter().find(|(name, _)| *name == unit)?;
            Some(Self { messages: messages.parse().ok()?, per_ms: *per_ms })
        });
        let expected = "1 to 1000000 messages per s, m or h, such as 50/s";
        parts.filter(|rate| rate.is_valid()).ok_or_else(|| Error::expected("rate", expected, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_reads_as_it_is_written() {
        for text in ["1/s", "50/s", "30/m", "1000000/h"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        assert_eq!(Rate { messages: 3, per_ms: 500 }.to_string(), "3 per 500ms");
        for text in ["", "50", "50/", "/s", "0/s", "1000001/s", "-1/s", "1.5/s", "5/day", "5 /s", "none"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            let expected = "rate: expected 1 to 1000000 messages per s, m or h, such as 50/s, got '";
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn damaged_brakes_are_two_pauses_without_a_time_limit() {
        let whole = Brakes::parse("5 0 10 3 50 1000 7 8");
        let rate_limit = Some(Rate::per_second(50));
        assert_eq!(
            whole,
            Brakes { producing_end: 5, handling_end: 0, in_flight_limit: Some(10), rate_limit }
        );
        for damage in [
            "",
            "5 0",
            "5 0 10 3 50 1000 7",
            "5 0 10 3 50 1000 7 8 9",
            "5  0 10 3 50 1000 7 8",
            "-5 0 0 0 0 0 0 0",
        ] {
            let paused = Brakes { producing_end: NEVER, handling_end: NEVER, ..Brakes::default() };
            assert_eq!(Brakes::parse(damage), paused, "{damage:?}");
        }
    }
}
