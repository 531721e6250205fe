//! The name of an event: milliseconds and a number, `1794776990426-0`, or `2:1794776990426-0` in partition 2.

use std::fmt;
use std::str::FromStr;

/// The name of an event. Names are in the order in which events of all partitions are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventName {
    ms: u64,
    number: u64,
    partition: Option<u32>,
}

impl EventName {
    /// The entry in the stream of a partition, after which all events follow this one. Empty: all of them do.
    pub fn in_stream(self, partition: Option<u32>) -> String {
        let Self { ms, number, partition: own } = self;
        // Of two events with the same time and number, that of the lower partition comes first.
        match (own, partition) {
            _ if self == Self::default() => String::new(),
            (Some(own), Some(partition)) if partition > own => match (ms, number) {
                (0, 0) => String::new(),
                (ms, 0) => format!("{}-{}", ms - 1, u64::MAX),
                (ms, number) => format!("{ms}-{}", number - 1),
            },
            _ => format!("{ms}-{number}"),
        }
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(partition) = self.partition {
            write!(f, "{partition}:")?;
        }
        write!(f, "{}-{}", self.ms, self.number)
    }
}

impl FromStr for EventName {
    type Err = String;

    /// Nothing means the beginning, and a time without a number the first event of that time.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let number = |part: &str| part.parse().ok().filter(|_| digits(part));
        let parse = || {
            let (partition, entry) = match text.split_once(':') {
                Some((partition, entry)) => {
                    (Some(partition.parse().ok().filter(|_| digits(partition))?), entry)
                }
                None => (None, text),
            };
            let (ms, number) = match entry.split_once('-') {
                Some((ms, at)) => (number(ms)?, number(at)?),
                None => (number(entry)?, 0),
            };
            Some(Self { ms, number, partition })
        };
        if text.is_empty() {
            return Ok(Self::default());
        }
        parse().ok_or_else(|| "expected the id of an event".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> EventName {
        text.parse().unwrap()
    }

    #[test]
    fn an_event_is_named_by_numbers() {
        for text in ["1794776990426-0", "2:1794776990426-17"] {
            assert_eq!(name(text).to_string(), text);
        }
        assert_eq!((name(""), name("17")), (EventName::default(), name("17-0")));
        for text in
            ["-", "1-", "-1", "+", "$", "1-2-3", "x", "+1-0", "99999999999999999999-0", ":1-0", "-1:1-0"]
        {
            assert!(text.parse::<EventName>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_follows_a_name_is_the_same_in_every_partition() {
        assert!(
            name("2:7-1") < name("0:7-2") && name("0:7-2") < name("1:7-2") && name("9:6-5") < name("7-0")
        );
        let follows = |text: &str| [0, 1, 2].map(|partition| name(text).in_stream(Some(partition)));
        assert_eq!(follows("1:7-3"), ["7-3", "7-3", "7-2"]);
        assert_eq!(
            follows("0:7-0"),
            ["7-0".to_owned(), format!("6-{}", u64::MAX), format!("6-{}", u64::MAX)]
        );
        assert_eq!(follows("7-3"), ["7-3", "7-3", "7-3"]);
        assert_eq!(follows(""), ["", "", ""]);
        assert_eq!(name("1794776990426-0").in_stream(None), "1794776990426-0");
    }
}
