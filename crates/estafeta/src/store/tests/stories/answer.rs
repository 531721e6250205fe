//! What a script answers, word for word: the store folds some answers into one (`already` into *published*, `late` into
//! *lost*), a story tells them apart.

use std::fmt;

use redis::Value;

use super::super::*;
use super::call::listed;
use crate::snapshot::{Role, parse};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Joined { number: u64 },
    Schema { theirs: String },
    Stands { overslept: bool, rank: i64, office: String, leader: String, epoch: u64, counts: [u64; 2] },
    Leads { epoch: u64, sent: u64, published: u64, due: u64, predecessor: u64, silence: u64 },
    Follows,
    Resigned,
    Published { due: u64 },
    Already { due: u64 },
    Expected { next: u64 },
    Full,
    Limit,
    Fenced,
    Turn { cursor: u64, held: Vec<Vec<u8>> },
    Late,
    Lost,
    Suspects { unrung: bool, list: Vec<(String, String)> },
    Buried { number: u64, returned: u64, gave_up: u64 },
    Alive,
    Gone,
    Left { returned: u64 },
    Rung,
    Resolved { count: u64 },
    Snapshot(Box<Overview>),
    Changed,
}

/// The parts of a snapshot that do not depend on the moment in which it was taken.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overview {
    /// The generator's number and epoch.
    pub generator: Option<(u64, u64)>,
    /// Number, rank, messages or errors in hand; generated, processed, failed.
    pub members: Vec<(u64, Option<u64>, u64, [u64; 3])>,
    pub readers: usize,
    pub waiting: u64,
    pub in_flight: u64,
    pub errors_kept: u64,
    pub balanced: bool,
    /// Newest first.
    pub events: Vec<String>,
}

impl Answer {
    /// Reads an answer, and the moment that it tells, if it tells one. `list` is what its sender read after it.
    pub fn read(
        script: &'static str,
        value: Value,
        list: Value,
    ) -> crate::error::Result<(Self, Option<u64>)> {
        let mut reply = Reply::new(script, value)?;
        if script == "suspects" {
            let (now, unrung) = (reply.number()?, reply.number()? == 1);
            let mut list = Vec::new();
            while !reply.is_empty() {
                list.push((reply.text()?, reply.text()?));
            }
            return Ok((Self::Suspects { unrung, list }, Some(now)));
        }
        let mut now = None;
        let answer = match reply.text()?.as_str() {
            "joined" => {
                let number = reply.number()?;
                now = Some(reply.number()?);
                Self::Joined { number }
            }
            "schema" => Self::Schema { theirs: reply.text()? },
            "stands" => {
                now = Some(reply.number()?);
                let (overslept, rank) = (reply.number()? == 1, reply.integer()?);
                let (office, leader, epoch) = (reply.text()?, reply.text()?, reply.number()?);
                let counts = [reply.number()?, reply.number()?];
                Self::Stands { overslept, rank, office, leader, epoch, counts }
            }
            "leads" => {
                let (epoch, sent, published) = (reply.number()?, reply.number()?, reply.number()?);
                let due = reply.number()?;
                now = Some(reply.number()?);
                let (predecessor, silence) = (reply.number()?, reply.number()?);
                Self::Leads { epoch, sent, published, due, predecessor, silence }
            }
            "follows" => Self::Follows,
            "resigned" => Self::Resigned,
            word @ ("published" | "already") => {
                let due = reply.number()?;
                now = Some(reply.number()?);
                if word == "already" { Self::Already { due } } else { Self::Published { due } }
            }
            "expected" => Self::Expected { next: reply.number()? },
            "full" => {
                now = Some(reply.number()?);
                Self::Full
            }
            "limit" => Self::Limit,
            "fenced" => Self::Fenced,
            "turn" => {
                let (cursor, count) = (reply.number()?, reply.number()? as usize);
                let held = super::super::answer::elements(list)?;
                if held.len() != count {
                    return Err(Error::Answer(format!("{count} held, but the list has {}", held.len())));
                }
                Self::Turn { cursor, held }
            }
            "late" => Self::Late,
            "lost" => Self::Lost,
            "buried" => {
                let number = reply.number()?;
                Self::Buried { number, returned: reply.number()?, gave_up: reply.number()? }
            }
            "alive" => Self::Alive,
            "gone" => Self::Gone,
            "left" => Self::Left { returned: reply.number()? },
            "rung" => Self::Rung,
            "resolved" => Self::Resolved { count: reply.number()? },
            "snapshot" => Self::Snapshot(Box::new(Overview::read(reply)?)),
            "changed" => Self::Changed,
            other => return reply.unknown(other),
        };
        Ok((answer, now))
    }

    /// Whether it says that nothing was done, so that nothing may have been written.
    pub fn refuses(&self) -> bool {
        match self {
            Self::Schema { .. } | Self::Follows | Self::Already { .. } | Self::Expected { .. } => true,
            Self::Full | Self::Limit | Self::Fenced | Self::Late | Self::Lost => true,
            Self::Alive | Self::Gone | Self::Changed => true,
            // These only read.
            Self::Suspects { .. } | Self::Snapshot(_) => true,
            _ => false,
        }
    }

    /// What is counted, to see that the stories are about something.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Joined { .. } => "joined",
            Self::Schema { .. } => "schema",
            Self::Stands { overslept: true, .. } => "stands, overslept",
            Self::Stands { .. } => "stands",
            Self::Leads { .. } => "leads",
            Self::Follows => "follows",
            Self::Resigned => "resigned",
            Self::Published { .. } => "published",
            Self::Already { .. } => "already",
            Self::Expected { .. } => "expected",
            Self::Full => "full",
            Self::Limit => "limit",
            Self::Fenced => "fenced",
            Self::Turn { held, .. } if held.is_empty() => "idle",
            Self::Turn { .. } => "holds",
            Self::Late => "late",
            Self::Lost => "lost",
            Self::Suspects { .. } => "suspects",
            Self::Buried { gave_up: 1.., .. } => "buried, gave up",
            Self::Buried { returned: 1.., .. } => "buried, returned",
            Self::Buried { .. } => "buried",
            Self::Alive => "alive",
            Self::Gone => "gone",
            Self::Left { returned: 1.. } => "left, returned",
            Self::Left { .. } => "left",
            Self::Rung => "rung",
            Self::Resolved { count: 0 } => "resolved none",
            Self::Resolved { .. } => "resolved",
            Self::Snapshot(_) => "snapshot",
            Self::Changed => "changed",
        }
    }
}

impl Overview {
    fn read(reply: Reply) -> crate::error::Result<Self> {
        let seen = parse(&RingName::default(), reply)?;
        let text = |event: &crate::snapshot::Event| {
            let fields: Vec<_> =
                event.fields.iter().map(|(name, value)| format!("|{name}|{value}")).collect();
            format!("kind|{}{}", event.kind, fields.concat())
        };
        let line = |member: &MemberView| {
            let totals = [member.generated, member.processed, member.failed];
            (member.id.0, member.rank, member.in_flight, totals)
        };
        Ok(Self {
            generator: seen.generator.map(|generator| (generator.member.0, generator.epoch.0)),
            members: seen.members.iter().map(line).collect(),
            readers: seen.members.iter().filter(|member| member.role == Role::Reader).count(),
            waiting: seen.waiting,
            in_flight: seen.in_flight,
            errors_kept: seen.errors_kept,
            balanced: seen.balanced,
            events: seen.events.iter().map(text).collect(),
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { number } => write!(f, "joined as {number}"),
            Self::Stands { overslept, rank, office, epoch, counts: [published, outstanding], .. } => {
                let slept = if *overslept { "overslept, " } else { "" };
                write!(f, "{slept}rank {rank}, office {office}, epoch {epoch}")?;
                write!(f, ", {published} published, {outstanding} outstanding")
            }
            Self::Leads { epoch, sent, published, due, predecessor, silence } => {
                write!(f, "epoch {epoch}, {sent} sent, {published} published, due {due}")?;
                write!(f, ", after member {predecessor}, silence {silence}")
            }
            Self::Published { due } => write!(f, "published, due {due}"),
            Self::Already { due } => write!(f, "already, due {due}"),
            Self::Expected { next } => write!(f, "expected #{next}"),
            Self::Turn { cursor, held } => {
                let held = if held.is_empty() { "nothing".into() } else { listed(held) };
                write!(f, "cursor {cursor}, holds {held}")
            }
            Self::Suspects { unrung, list } => write!(f, "unrung {unrung}, {list:?}"),
            Self::Buried { number, returned, gave_up } => {
                write!(f, "buried as {number}, {returned} returned, {gave_up} given up")
            }
            Self::Left { returned } => write!(f, "left, {returned} returned"),
            Self::Resolved { count } => write!(f, "resolved {count}"),
            Self::Schema { theirs } => write!(f, "schema {theirs}"),
            Self::Snapshot(overview) => write!(f, "{overview:?}"),
            other => f.write_str(other.kind()),
        }
    }
}
