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
    first: HumanDuration,
    longest: HumanDuration,
}

/// A file may have a number in place of a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum RetryRuleText {
    Attempts(u32),
    Text(String),
}

impl Default for RetryRule {
    fn default() -> Self {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(3600));
        Self { attempts: 8, first: HumanDuration(first), longest: HumanDuration(longest) }
    }
}

impl RetryRule {
    pub fn attempts(self) -> u32 {
        self.attempts
    }

    pub fn retry(self) -> Retry {
        Retry::exponential(self.first.0).attempts(self.attempts).longest(self.longest.0)
    }
}

impl FromStr for RetryRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rule = Self::default();
        let mut parts = text.split(',').map(str::trim);
        let attempts = parts.next().and_then(|part| part.parse().ok()).filter(|attempts| *attempts > 0);
        rule.attempts = attempts.ok_or("expected a number of attempts, such as 5 or 5,10s,1h")?;
        if let Some(first) = parts.next() {
            rule.first = first.parse()?;
            rule.longest = rule.longest.max(rule.first);
        }
        if let Some(longest) = parts.next() {
            rule.longest = longest.parse()?;
        }
        match parts.next() {
            Some(_) => Err("expected at most three values, such as 5,10s,1h".to_owned()),
            None if rule.longest < rule.first => {
                Err("expected a longest wait that is not below the first".to_owned())
            }
            None => Ok(rule),
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
        write!(f, "{},{},{}", self.attempts, self.first, self.longest)
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
        let read = |text: &str| text.parse::<RetryRule>().map(|rule| rule.to_string());
        assert_eq!(read("8").unwrap(), RetryRule::default().to_string());
        assert_eq!(read("5,10s").unwrap(), "5,10s,1h");
        assert_eq!(read("5, 2h").unwrap(), "5,2h,2h");
        assert_eq!(read("1,10s,1m").unwrap(), "1,10s,1m");
        for bad in ["", "0", "x", "5,", "5,x", "5,10s,1s", "5,1s,2s,3s", "-1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
