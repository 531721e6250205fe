//! The answers of the scripts as Rust types: what is expected to happen is an answer, not an error.

use std::time::Duration;

use redis::Value;

use crate::error::{Error, Result};
use crate::member_id::{Epoch, Incarnation, MemberId};
use crate::message::{FailedMessage, Message};
use crate::pack;

/// How a member looks to the one that looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Its lease runs and it is connected.
    Well,
    /// Its lease ran out: it is frozen, cut off or gone.
    Expired,
    /// Its connection is gone: it crashed, or is about to reconnect.
    Absent,
    /// Its lease runs too long, because Redis' clock jumped back.
    Ahead,
}

impl Health {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "well" => Some(Self::Well),
            "expired" => Some(Self::Expired),
            "absent" => Some(Self::Absent),
            "ahead" => Some(Self::Ahead),
            _ => None,
        }
    }
}

/// Where a member stands, as `beat` tells it.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    pub now_ms: u64,
    /// This member's own lease had run out before this beat.
    pub overslept: bool,
    /// Place in the line of succession; 0 is the heir.
    pub rank: u64,
    pub office: Office,
    pub published: u64,
    /// Messages that have no outcome yet.
    pub outstanding: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Office {
    Empty,
    Mine(Epoch),
    Held { by: Incarnation, health: Health },
}

pub(crate) enum Beat {
    Stands(Stand),
    Lost,
}

/// The start of a term in office.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub epoch: Epoch,
    pub sent: u64,
    pub published: u64,
    pub due_ms: u64,
    pub now_ms: u64,
    /// Who held the office before, if anybody did.
    pub predecessor: Option<MemberId>,
    /// For how long the office was vacant, or its holder not heard of.
    pub silence: Duration,
}

pub(crate) enum Lead {
    Leads(Term),
    Follows,
    Lost,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// Done, by this call or by an earlier try whose reply was lost.
    Published {
        due_ms: u64,
        now_ms: u64,
    },
    /// The next id is another one.
    Expected(u64),
    Full {
        now_ms: u64,
    },
    Limit,
    /// This epoch is over.
    Fenced,
}

pub(crate) enum Turn<T> {
    /// The step was applied; this is what the lane holds now, in so many elements.
    Holds { cursor: u64, held: Vec<T>, elements: usize },
    /// The member is not who it thinks it is any more.
    Lost,
}

pub(crate) struct Suspects {
    pub now_ms: u64,
    /// Messages wait and the bell is silent.
    pub unrung: bool,
    pub list: Vec<(Incarnation, Health)>,
}

pub(crate) enum Bury {
    Buried { number: MemberId, returned: u64, gave_up: u64 },
    Alive,
    Gone,
}

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
        self.items.len() == 0
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
        // Only a rolled-back ring has negative counts; they are shown as none.
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

pub(crate) fn beat(mut reply: Reply) -> Result<Beat> {
    match reply.text()?.as_str() {
        "lost" => Ok(Beat::Lost),
        "stands" => {
            let (now_ms, overslept, rank) = (reply.number()?, reply.number()? == 1, reply.number()?);
            let (state, holder, epoch) = (reply.text()?, reply.text()?, Epoch(reply.number()?));
            let (published, outstanding) = (reply.number()?, reply.number()?);
            let office = match (state.as_str(), Health::from_word(&state), holder.parse()) {
                ("me", ..) => Office::Mine(epoch),
                ("none", ..) => Office::Empty,
                (_, Some(health), Ok(by)) => Office::Held { by, health },
                // Somebody wrote a name into the office that no member has; `lead` looks again before it takes it.
                (_, Some(_), Err(_)) => Office::Empty,
                _ => return reply.unknown(&format!("{state} {holder}")),
            };
            Ok(Beat::Stands(Stand { now_ms, overslept, rank, office, published, outstanding }))
        }
        other => reply.unknown(other),
    }
}

pub(crate) fn lead(mut reply: Reply) -> Result<Lead> {
    match reply.text()?.as_str() {
        "lost" => Ok(Lead::Lost),
        "follows" => Ok(Lead::Follows),
        "leads" => Ok(Lead::Leads(Term {
            epoch: Epoch(reply.number()?),
            sent: reply.number()?,
            published: reply.number()?,
            due_ms: reply.number()?,
            now_ms: reply.number()?,
            predecessor: Some(reply.member()?).filter(|member| member.0 > 0),
            silence: Duration::from_millis(reply.number()?),
        })),
        other => reply.unknown(other),
    }
}

pub(crate) fn publish(mut reply: Reply) -> Result<Publish> {
    match reply.text()?.as_str() {
        "published" | "already" => {
            Ok(Publish::Published { due_ms: reply.number()?, now_ms: reply.number()? })
        }
        "expected" => Ok(Publish::Expected(reply.number()?)),
        "full" => Ok(Publish::Full { now_ms: reply.number()? }),
        "limit" => Ok(Publish::Limit),
        "fenced" => Ok(Publish::Fenced),
        other => reply.unknown(other),
    }
}

/// The cursor and how many elements are held; None if the caller holds nothing any more.
pub(crate) fn turn(mut reply: Reply) -> Result<Option<(u64, usize)>> {
    match reply.text()?.as_str() {
        "lost" | "late" => Ok(None),
        "turn" => Ok(Some((reply.number()?, reply.number()? as usize))),
        other => reply.unknown(other),
    }
}

/// The elements of a list.
pub(crate) fn elements(list: Value) -> Result<Vec<Vec<u8>>> {
    redis::from_redis_value(list).map_err(|error| Error::Answer(error.to_string()))
}

pub(crate) fn messages(elements: Vec<Vec<u8>>) -> Vec<Message> {
    let mut messages = Vec::with_capacity(elements.len());
    elements.into_iter().for_each(|element| pack::read(element, &mut messages));
    messages
}

pub(crate) fn failed_messages(elements: Vec<Vec<u8>>) -> Vec<FailedMessage> {
    elements.into_iter().map(FailedMessage::parse).collect()
}

pub(crate) fn suspects(mut reply: Reply) -> Result<Suspects> {
    let (now_ms, unrung) = (reply.number()?, reply.number()? == 1);
    let mut list = Vec::new();
    while !reply.is_empty() {
        let (name, health) = (reply.text()?, reply.health()?);
        // What somebody else put among our members is none of ours to judge.
        if let Ok(incarnation) = name.parse() {
            list.push((incarnation, health));
        }
    }
    Ok(Suspects { now_ms, unrung, list })
}

pub(crate) fn bury(mut reply: Reply) -> Result<Bury> {
    match reply.text()?.as_str() {
        "alive" => Ok(Bury::Alive),
        "gone" => Ok(Bury::Gone),
        "buried" => {
            Ok(Bury::Buried { number: reply.member()?, returned: reply.number()?, gave_up: reply.number()? })
        }
        other => reply.unknown(other),
    }
}
