//! What an entry is, apart from its messages, and how Redis stores that: one compact JSON object per entry, such as
//! `{"cron":"30 2 * * *","zone":"Europe/Berlin","missed":"last","maxAgeMs":86400000,"overlap":"queue"}`.
//!
//! If this version does not know a field or a word of a definition, it reads nothing of that definition. Times that it
//! read without the rest might be wrong.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Missed, Overlap};
use crate::steps::millis;

/// What an entry of a schedule is, apart from its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Definition {
    /// When it comes.
    pub times: Times,
    /// What happens to its missed ticks.
    pub missed: Missed,
    /// How old a missed tick may be and still be published.
    pub max_age: Duration,
    /// What happens to a tick while messages of an earlier one have no outcome yet.
    pub overlap: Overlap,
}

/// When an entry of a schedule comes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Times {
    /// At the times of a cron expression.
    #[non_exhaustive]
    Cron {
        /// The expression, as its program spells it.
        expression: String,
        /// The IANA name of its time zone.
        zone: String,
    },
    /// Once per interval.
    #[non_exhaustive]
    Every {
        /// The interval.
        interval: Duration,
    },
}

/// A definition as Redis stores it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredDefinition {
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    missed: Missed,
    max_age_ms: u64,
    overlap: Overlap,
}

impl Definition {
    /// The text that Redis stores.
    pub(crate) fn text(&self) -> String {
        let (cron, zone, every_ms) = match &self.times {
            Times::Cron { expression, zone } => (Some(expression.clone()), Some(zone.clone()), None),
            Times::Every { interval } => (None, None, Some(millis(*interval))),
        };
        let Self { missed, overlap, .. } = *self;
        let stored =
            StoredDefinition { cron, zone, every_ms, missed, max_age_ms: millis(self.max_age), overlap };
        serde_json::to_string(&stored).expect("numbers and texts")
    }

    /// Reads what Redis stores. Returns None if this version does not understand all of it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let StoredDefinition { cron, zone, every_ms, missed, max_age_ms, overlap } =
            serde_json::from_str(text).ok()?;
        let times = match (cron, zone, every_ms) {
            (Some(expression), Some(zone), None) => Times::Cron { expression, zone },
            (None, None, Some(ms)) => Times::Every { interval: Duration::from_millis(ms) },
            _ => return None,
        };
        Some(Self { times, missed, max_age: Duration::from_millis(max_age_ms), overlap })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_comes_back_as_it_was() {
        let times = Times::Cron { expression: "30 2 * * *".into(), zone: "Europe/Berlin".into() };
        let max_age = Duration::from_secs(24 * 3600);
        let nightly = Definition { times, missed: Missed::Last, max_age, overlap: Overlap::Queue };
        let text = r#"{"cron":"30 2 * * *","zone":"Europe/Berlin","missed":"last","maxAgeMs":86400000,"overlap":"queue"}"#;
        assert_eq!((nightly.text().as_str(), Definition::parse(text)), (text, Some(nightly)));
        let times = Times::Every { interval: Duration::from_millis(10) };
        let every =
            Definition { times, missed: Missed::All, max_age: Duration::ZERO, overlap: Overlap::Skip };
        let text = r#"{"everyMs":10,"missed":"all","maxAgeMs":0,"overlap":"skip"}"#;
        assert_eq!((every.text().as_str(), Definition::parse(text)), (text, Some(every)));
        // The largest age is that of a program that sets no limit.
        let text = text.replace("\"maxAgeMs\":0", "\"maxAgeMs\":18446744073709551615");
        assert_eq!(Definition::parse(&text).map(|forever| forever.text()), Some(text));
    }

    #[test]
    fn a_definition_that_is_not_understood_as_a_whole_is_none() {
        let unknown = [
            "",
            "soon",
            "{}",
            r#"{"missed":"skip","maxAgeMs":0,"overlap":"queue"}"#,
            r#"{"cron":"* * * * *","missed":"skip","maxAgeMs":0,"overlap":"queue"}"#,
            r#"{"everyMs":10,"zone":"UTC","missed":"skip","maxAgeMs":0,"overlap":"queue"}"#,
            r#"{"everyMs":10,"missed":"some","maxAgeMs":0,"overlap":"queue"}"#,
            r#"{"everyMs":10,"missed":"skip","maxAgeMs":0,"overlap":"replace"}"#,
            r#"{"everyMs":10,"missed":"skip","maxAgeMs":0,"overlap":"queue","jitterMs":5}"#,
            r#"{"everyMs":-10,"missed":"skip","maxAgeMs":0,"overlap":"queue"}"#,
        ];
        for text in unknown {
            assert_eq!(Definition::parse(text), None, "{text}");
        }
    }
}
