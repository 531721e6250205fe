//! How often a message is tried, as users write it: `5`, `5,10s` or `5,10s,1h`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use estafeta::Retry;
use serde::{Deserialize, Serialize};

use crate::duration::HumanDuration;

/// The number of attempts, and the waits between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "RetryRuleText")]
pub struct RetryRule {
    attempts: u32,
    first: Option<HumanDuration>,
    longest: Option<HumanDuration>,
}

/// A file may have a number in place of a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum RetryRuleText {
    Attempts(u32),
    Text(String),
}

const FIRST: HumanDuration = HumanDuration(Duration::from_secs(1));
const LONGEST: HumanDuration = HumanDuration(Duration::from_secs(3600));

impl Default for RetryRule {
    fn default() -> Self {
        Self { attempts: 8, first: Some(FIRST), longest: Some(LONGEST) }
    }
}

impl RetryRule {
    pub fn attempts(self) -> u32 {
        self.attempts
    }

    pub fn retry(self) -> Retry {
        let first = self.first.unwrap_or(FIRST);
        let longest = self.longest.unwrap_or(LONGEST.max(first));
        Retry::exponential(first.0).attempts(self.attempts).longest(longest.0)
    }
}

impl FromStr for RetryRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let attempts = parts.next().and_then(|part| part.parse().ok()).filter(|attempts| *attempts > 0);
        let attempts = attempts.ok_or("expected a number of attempts, such as 5 or 5,10s,1h")?;
        let mut next = || parts.next().map(str::parse::<HumanDuration>).transpose();
        let (first, longest) = (next()?, next()?);
        match (parts.next(), first, longest) {
            (Some(_), ..) => Err("expected at most three values, such as 5,10s,1h".to_owned()),
            (None, Some(first), Some(longest)) if longest < first => {
                Err("expected a longest wait that is not below the first".to_owned())
            }
            _ => Ok(Self { attempts, first, longest }),
        }
    }
}

impl TryFrom<RetryRuleText> for RetryRule {
    type Error = String;

    fn try_from(text: RetryRuleText) -> Result<Self, String> {
        match text {
            RetryRuleText::Attempts(attempts) => attempts.to_string().parse(),
            RetryRuleText::Text(text) => text.parse(),
        }
    }
}

impl fmt::Display for RetryRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.attempts)?;
        [self.first, self.longest].into_iter().flatten().try_for_each(|wait| write!(f, ",{wait}"))
    }
}

impl From<RetryRule> for String {
    fn from(rule: RetryRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_one_to_three_values_and_the_others_are_defaults() {
        let read = |text: &str| text.parse::<RetryRule>();
        let retry = |text: &str| read(text).unwrap().retry();
        assert_eq!(retry("8"), RetryRule::default().retry());
        assert_eq!(retry("5,10s"), retry("5,10s,1h"));
        assert_eq!(retry("5, 2h"), retry("5,2h,2h"));
        assert_eq!(read("1,10s,1m").unwrap().to_string(), "1,10s,1m");
        for bad in ["", "0", "x", "5,", "5,x", "5,10s,1s", "5,1s,2s,3s", "-1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
