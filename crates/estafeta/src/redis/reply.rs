//! The answer of a script, as values that are read one after another.

use redis::Value;

use crate::error::{Error, Result};
use crate::identity::MemberId;
use crate::steps::Health;

/// A tagged array, read from left to right.
pub(crate) struct Reply {
    script: &'static str,
    items: std::vec::IntoIter<Value>,
}

impl Reply {
    pub fn new(script: &'static str, value: Value) -> Result<Self> {
        match value {
            Value::Array(items) => Ok(Self { script, items: items.into_iter() }),
            other => Err(unexpected(script, &other)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of values that are left.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn value(&mut self) -> Result<Value> {
        let short = || Error::Answer(format!("the answer of {} is too short", self.script));
        self.items.next().ok_or_else(short)
    }

    pub fn text(&mut self) -> Result<String> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::SimpleString(text) => Ok(text),
            other => Err(unexpected(self.script, &other)),
        }
    }

    pub fn bytes(&mut self) -> Result<Vec<u8>> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(bytes),
            other => Err(unexpected(self.script, &other)),
        }
    }

    /// A whole number, whether Redis sent it as one or as text.
    pub fn integer(&mut self) -> Result<i64> {
        match self.value()? {
            Value::Int(number) => Ok(number),
            Value::BulkString(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                text.parse().map_err(|_| unexpected(self.script, &text))
            }
            other => Err(unexpected(self.script, &other)),
        }
    }

    pub fn number(&mut self) -> Result<u64> {
        // Only a rolled-back ring has negative counts. They are shown as zero.
        Ok(u64::try_from(self.integer()?).unwrap_or(0))
    }

    pub fn member(&mut self) -> Result<MemberId> {
        self.number().map(MemberId)
    }

    pub fn health(&mut self) -> Result<Health> {
        let word = self.text()?;
        Health::from_word(&word).ok_or_else(|| unexpected(self.script, &word))
    }

    pub fn list(&mut self) -> Result<Reply> {
        let value = self.value()?;
        Reply::new(self.script, value)
    }

    /// A flat list of alternating names and values.
    pub fn pairs(&mut self) -> Result<Vec<(String, String)>> {
        let mut list = self.list()?;
        let mut pairs = Vec::with_capacity(list.items.len() / 2);
        while !list.is_empty() {
            pairs.push((list.text()?, list.text()?));
        }
        Ok(pairs)
    }

    pub fn unknown<T>(&self, tag: &str) -> Result<T> {
        Err(unexpected(self.script, &tag))
    }
}

fn unexpected(script: &str, value: &impl std::fmt::Debug) -> Error {
    Error::Answer(format!("{script} answered {value:?}"))
}
