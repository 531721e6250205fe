//! The id of a message as people write it: `17`, or `2:17` in partition 2.

use std::fmt;
use std::str::FromStr;

use estafeta::Message;

/// The id of a message, perhaps with its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    /// Its partition. None if the ring has no partitions, or the user did not name one.
    pub partition: Option<u32>,
    /// Its id there.
    pub id: u64,
}

impl From<&Message> for MessageId {
    fn from(message: &Message) -> Self {
        Self { partition: message.ring().partition(), id: message.id }
    }
}

impl FromStr for MessageId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (partition, id) = match text.split_once(':') {
            Some((partition, id)) => (partition.parse().ok().map(Some), id),
            None => (Some(None), text),
        };
        let read = partition.zip(id.parse().ok()).map(|(partition, id)| Self { partition, id });
        read.ok_or_else(|| "expected a number, or PARTITION:ID".to_owned())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partition {
            Some(partition) => write!(f, "{partition}:{}", self.id),
            None => self.id.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_shown() {
        for text in ["17", "2:17", "0:1"] {
            assert_eq!(text.parse::<MessageId>().unwrap().to_string(), text);
        }
        for text in ["", "x", "2:", ":7", "2:7:1", "-1", "-1:7", "99999999999:1"] {
            assert!(text.parse::<MessageId>().is_err(), "{text}");
        }
        let shown = |ring: &str| MessageId::from(&Message::sample(ring, 17, "")).to_string();
        assert_eq!((shown("orders"), shown("orders:2")), ("17".to_owned(), "2:17".to_owned()));
    }
}
