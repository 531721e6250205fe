//! The results that handlers gave their messages.

use crate::error::{Error, Result};
use crate::identity::Epoch;
use crate::message::Numbers;
use crate::redis::Store;

/// The result of a message that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageResult {
    /// The message.
    pub id: u64,
    /// The epoch of the message. After Redis lost messages, another message may have the same id. Its epoch differs.
    pub epoch: Epoch,
    /// When the message was done, in milliseconds of Redis' clock.
    pub done_ms: u64,
    /// What its handler returned, any bytes.
    pub value: Vec<u8>,
}

impl MessageResult {
    /// Reads `epoch done-ms value`. Returns None for a value that the ring did not write.
    fn parse(id: u64, text: &[u8]) -> Option<Self> {
        let mut numbers = Numbers { bytes: text, at: 0 };
        let (epoch, done_ms) = (Epoch(numbers.next()?), numbers.next()?);
        Some(Self { id, epoch, done_ms, value: text[numbers.at..].to_vec() })
    }
}

impl Store {
    /// Returns the result of a message, if it has one and its time to live is not over.
    pub async fn result(&self, id: u64) -> Result<Option<MessageResult>> {
        let key = self.keys().result(id);
        let read = self.read(redis::cmd("GET").arg(&key)).await;
        if let Err(Error::Refused { .. }) = &read {
            let found: String = self.read(redis::cmd("TYPE").arg(&key)).await?;
            if !["string", "none"].contains(&found.as_str()) {
                return Err(Error::ForeignKey { key, found, expected: "string" });
            }
        }
        let value: Option<Vec<u8>> = read?;
        let unreadable = || Error::Answer(format!("{key} holds no result of a message"));
        value.map(|value| MessageResult::parse(id, &value).ok_or_else(unreadable)).transpose()
    }

    /// Returns the ids of all messages whose results are kept, sorted.
    pub async fn result_ids(&self) -> Result<Vec<u64>> {
        let keys = self.scan(&self.keys().results_pattern()).await?;
        let mut ids: Vec<u64> = keys.iter().filter_map(|key| self.keys().id_of_result(key)).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_may_be_any_bytes_and_foreign_values_are_none() {
        let result = MessageResult::parse(7, b"12 34 5 \xff").unwrap();
        assert_eq!((result.id, result.epoch, result.done_ms), (7, Epoch(12), 34));
        assert_eq!(result.value, b"5 \xff");
        assert_eq!(MessageResult::parse(7, b"12 34 ").unwrap().value, b"");
        for foreign in [&b""[..], b"12", b"12 34", b"x 34 y", b"12  34 y", b"1000000000000000 1 x"] {
            assert_eq!(MessageResult::parse(7, foreign), None);
        }
    }
}
