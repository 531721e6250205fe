//! The answers of the scripts, word for word. The store merges some of them (`already` into *published*, `late` into
//! *lost*). A story distinguishes them.

use std::fmt;

use redis::Value;

use super::super::*;
use super::call::listed;
use super::model::Span;
use crate::inspect::EventKind;
use crate::inspect::snapshot::{Role, parse};
use crate::partition;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Joined {
        number: u64,
    },
    Schema {
        theirs: String,
    },
    Application {
        theirs: String,
    },
    /// The ring states this number of partitions, or lacks it.
    Partitions {
        lacks: bool,
        count: u32,
    },
    Stands {
        overslept: bool,
        rank: i64,
        office: String,
        leader: String,
        epoch: u64,
        /// Published, outstanding, born, members.
        counts: [u64; 4],
    },
    Leads {
        epoch: u64,
        sent: u64,
        published: u64,
        due: u64,
        predecessor: u64,
        silence: u64,
    },
    Follows,
    Resigned,
    Noted,
    Published {
        first: u64,
        due: u64,
        duplicates: String,
    },
    Already {
        first: u64,
        due: u64,
        duplicates: String,
    },
    Complained,
    Quiet,
    Behind,
    Submitted {
        first: u64,
        duplicates: String,
    },
    AlreadySubmitted {
        first: u64,
        duplicates: String,
    },
    Reused {
        positions: String,
    },
    Cancelled {
        was_delayed: bool,
    },
    AlreadyCancelled {
        was_delayed: bool,
    },
    Full,
    Limit {
        published: u64,
    },
    Fenced,
    /// Producing is paused until then.
    Paused {
        end: u64,
    },
    /// When the pauses end that are in force now.
    Pauses {
        producing: u64,
        handling: u64,
    },
    /// The limits from now on (0: none).
    Limited {
        in_flight: u64,
        rate: u64,
    },
    Missing,
    /// `due` is exact in an answer of Redis. The model knows it only as far as it knows Redis' time.
    Turn {
        cursor: u64,
        claimed: u64,
        waits: bool,
        due: Option<Span>,
        paused: bool,
        /// Which messages have bad effects, as Redis tells it.
        bad: String,
        claims: Vec<(String, Vec<u8>)>,
    },
    Took {
        cursor: u64,
        held: Vec<Vec<u8>>,
    },
    Late,
    Lost,
    Suspects {
        needs_wakeup: bool,
        list: Vec<(String, String)>,
    },
    Buried {
        number: u64,
        returned: u64,
        gave_up: u64,
    },
    Alive,
    Gone,
    Left {
        returned: u64,
    },
    Woken,
    Sampled,
    /// Another member samples.
    Other,
    Resolved {
        count: u64,
    },
    Snapshot(Box<Overview>),
    Changed,
}

/// The parts of a snapshot that do not depend on the time at which it was taken.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overview {
    pub layout: Option<u32>,
    pub application: Option<String>,
    /// The generator's number and epoch.
    pub generator: Option<(u64, u64)>,
    pub members: Vec<SeenMember>,
    /// Take-overs, returned, fenced, buried, retried, dropped, retries, snoozes, cancelled, submitted.
    pub ledger: [u64; 10],
    pub readers: usize,
    pub waiting: u64,
    pub later: u64,
    pub in_flight: u64,
    pub errors_kept: u64,
    pub balanced: bool,
    /// When producing and handling resume.
    pub pauses: [Option<u64>; 2],
    /// The limits on messages in flight and on the rate of claims.
    pub limits: [Option<u64>; 2],
    /// Newest first.
    pub events: Vec<EventKind>,
}

/// One member in a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeenMember {
    pub number: u64,
    pub pid: u64,
    pub host: String,
    pub started: u64,
    pub deadline: u64,
    pub state: String,
    pub rank: Option<u64>,
    /// Messages or errors that it holds.
    pub held: u64,
    /// Generated, processed, failed.
    pub totals: [u64; 3],
    /// Stuck lanes.
    pub stuck: u64,
}

impl Answer {
    /// Reads an answer, and the time that it contains, if any. `list` is what the sender read after the step.
    pub fn read(
        script: &'static str,
        value: Value,
        list: Value,
    ) -> crate::error::Result<(Self, Option<u64>)> {
        let mut reply = Reply::new(script, value)?;
        if script == "suspects" {
            let (now, needs_wakeup) = (count(&mut reply)?, flag(&mut reply)?);
            let mut list = Vec::new();
            while !reply.is_empty() {
                list.push((reply.text()?, reply.text()?));
            }
            return Ok((Self::Suspects { needs_wakeup, list }, Some(now)));
        }
        let mut now = None;
        let answer = match reply.text()?.as_str() {
            "joined" => {
                let number = count(&mut reply)?;
                now = Some(count(&mut reply)?);
                Self::Joined { number }
            }
            "schema" => Self::Schema { theirs: reply.text()? },
            "application" => Self::Application { theirs: reply.text()? },
            word @ ("requires" | "lacks") => {
                let count = partition::count_in(&reply.text()?).expect("no story has another word");
                Self::Partitions { lacks: word == "lacks", count }
            }
            "stands" => {
                now = Some(count(&mut reply)?);
                let (overslept, rank) = (flag(&mut reply)?, reply.integer()?);
                let (office, leader, epoch) = (reply.text()?, reply.text()?, count(&mut reply)?);
                let mut counts = [0; 4];
                for number in &mut counts {
                    *number = count(&mut reply)?;
                }
                Self::Stands { overslept, rank, office, leader, epoch, counts }
            }
            "leads" => {
                let (epoch, sent, published) = (count(&mut reply)?, count(&mut reply)?, count(&mut reply)?);
                let due = count(&mut reply)?;
                now = Some(count(&mut reply)?);
                let (predecessor, silence) = (count(&mut reply)?, count(&mut reply)?);
                Self::Leads { epoch, sent, published, due, predecessor, silence }
            }
            "follows" => Self::Follows,
            "resigned" => Self::Resigned,
            "noted" if script == "complain" => {
                now = Some(count(&mut reply)?);
                Self::Complained
            }
            "quiet" => Self::Quiet,
            "noted" => Self::Noted,
            word @ ("submitted" | "already") if script == "submit" => {
                let (first, duplicates) = (count(&mut reply)?, reply.text()?);
                if word == "already" {
                    Self::AlreadySubmitted { first, duplicates }
                } else {
                    now = Some(count(&mut reply)?);
                    Self::Submitted { first, duplicates }
                }
            }
            "cancelled" => Self::Cancelled { was_delayed: flag(&mut reply)? },
            "already" if script == "cancel" => Self::AlreadyCancelled { was_delayed: flag(&mut reply)? },
            "reused" if script == "submit" => Self::Reused { positions: count(&mut reply)?.to_string() },
            "reused" => Self::Reused { positions: reply.text()? },
            "full" if script == "submit" => Self::Full,
            word @ ("published" | "already") => {
                let (first, due) = (count(&mut reply)?, count(&mut reply)?);
                now = Some(count(&mut reply)?);
                let duplicates = if reply.is_empty() { String::new() } else { reply.text()? };
                match word {
                    "already" => Self::Already { first, due, duplicates },
                    _ => Self::Published { first, due, duplicates },
                }
            }
            "paused" => {
                now = Some(count(&mut reply)?);
                let first = count(&mut reply)?;
                if script == "pause" {
                    Self::Pauses { producing: first, handling: count(&mut reply)? }
                } else {
                    Self::Paused { end: first }
                }
            }
            "limited" => {
                let (in_flight, rate) = (count(&mut reply)?, count(&mut reply)?);
                Self::Limited { in_flight, rate }
            }
            "missing" => Self::Missing,
            "behind" => Self::Behind,
            "full" => {
                now = Some(count(&mut reply)?);
                Self::Full
            }
            "limit" => Self::Limit { published: count(&mut reply)? },
            "fenced" => Self::Fenced,
            word @ ("turn" | "bad") => {
                let bad = if word == "bad" { reply.text()? } else { String::new() };
                let (cursor, claimed, waits) = (count(&mut reply)?, count(&mut reply)?, flag(&mut reply)?);
                let due = u64::try_from(reply.integer()?).ok().map(Span::exactly);
                let paused = flag(&mut reply)?;
                let mut claims = Vec::new();
                while !reply.is_empty() {
                    claims.push((reply.text()?, reply.bytes()?));
                }
                Self::Turn { cursor, claimed, waits, due, paused, bad, claims }
            }
            "took" => {
                let (cursor, count) = (count(&mut reply)?, count(&mut reply)? as usize);
                let held = take::elements(list)?;
                if held.len() != count {
                    return Err(Error::Answer(format!("{count} held, but the list has {}", held.len())));
                }
                Self::Took { cursor, held }
            }
            "late" => Self::Late,
            "lost" => Self::Lost,
            "buried" => {
                let number = count(&mut reply)?;
                Self::Buried { number, returned: count(&mut reply)?, gave_up: count(&mut reply)? }
            }
            "alive" => Self::Alive,
            "gone" => Self::Gone,
            "left" => Self::Left { returned: count(&mut reply)? },
            "woken" => Self::Woken,
            "sampled" => {
                now = Some(count(&mut reply)?);
                Self::Sampled
            }
            "other" => {
                now = Some(count(&mut reply)?);
                Self::Other
            }
            "resolved" => Self::Resolved { count: count(&mut reply)? },
            "snapshot" => {
                let (overview, time) = Overview::read(reply)?;
                now = Some(time);
                Self::Snapshot(Box::new(overview))
            }
            "changed" => Self::Changed,
            other => return reply.unknown(other),
        };
        Ok((answer, now))
    }

    /// The same answer with the time of another one, if both can be the same.
    pub fn dated_like(mut self, other: &Self) -> Self {
        if let (Self::Turn { due: Some(due), .. }, Self::Turn { due: Some(found), .. }) = (&mut self, other)
            && due.covers(found.from)
        {
            *due = *found;
        }
        self
    }

    /// Whether the step did nothing, so that it must not have written anything.
    pub fn refuses(&self) -> bool {
        match self {
            Self::Schema { .. }
            | Self::Application { .. }
            | Self::Partitions { .. }
            | Self::Follows
            | Self::Already { .. }
            | Self::AlreadySubmitted { .. }
            | Self::AlreadyCancelled { .. }
            | Self::Reused { .. }
            | Self::Behind => true,
            Self::Full | Self::Limit { .. } | Self::Fenced | Self::Late | Self::Lost => true,
            Self::Paused { .. } | Self::Missing | Self::Quiet => true,
            Self::Alive | Self::Gone | Self::Changed | Self::Other => true,
            // These only read.
            Self::Suspects { .. } | Self::Snapshot(_) => true,
            _ => false,
        }
    }

    /// The name under which the answer is counted, to check that stories cover every kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Joined { .. } => "joined",
            Self::Schema { .. } => "schema",
            Self::Application { .. } => "application",
            Self::Partitions { lacks, .. } => {
                if *lacks {
                    "lacks"
                } else {
                    "requires"
                }
            }
            Self::Stands { overslept: true, .. } => "stands, overslept",
            Self::Stands { .. } => "stands",
            Self::Leads { .. } => "leads",
            Self::Follows => "follows",
            Self::Resigned => "resigned",
            Self::Noted => "noted",
            Self::Published { duplicates, .. } if duplicates.is_empty() => "published",
            Self::Published { .. } => "published, duplicates",
            Self::Already { duplicates, .. } if duplicates.is_empty() => "already",
            Self::Already { .. } => "already, duplicates",
            Self::Behind => "behind",
            Self::Complained => "noted",
            Self::Quiet => "quiet",
            Self::Submitted { duplicates, .. } if duplicates.is_empty() => "submitted",
            Self::Submitted { .. } => "submitted, duplicates",
            Self::AlreadySubmitted { .. } => "already",
            Self::Reused { .. } => "reused",
            Self::Cancelled { was_delayed: true } => "cancelled",
            Self::Cancelled { .. } => "cancelled none",
            Self::AlreadyCancelled { was_delayed: true } => "already",
            Self::AlreadyCancelled { .. } => "already none",
            Self::Full => "full",
            Self::Limit { .. } => "limit",
            Self::Fenced => "fenced",
            Self::Turn { bad, .. } if !bad.is_empty() => "bad effects",
            Self::Paused { .. } => "paused",
            Self::Pauses { producing: 0, handling: 0 } => "resumed",
            Self::Pauses { .. } => "paused",
            Self::Limited { in_flight: 0, rate: 0 } => "unlimited",
            Self::Limited { .. } => "limited",
            Self::Missing => "missing",
            Self::Turn { paused: true, claims, .. } if claims.is_empty() => "paused",
            Self::Turn { claims, .. } if claims.is_empty() => "idle",
            Self::Turn { .. } => "claims",
            Self::Took { held, .. } if held.is_empty() => "idle",
            Self::Took { .. } => "holds",
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
            Self::Woken => "woken",
            Self::Sampled => "sampled",
            Self::Other => "other",
            Self::Resolved { count: 0 } => "resolved none",
            Self::Resolved { .. } => "resolved",
            Self::Snapshot(_) => "snapshot",
            Self::Changed => "changed",
        }
    }
}

/// Reads a number that cannot be negative. The store shows a negative number as zero. A story reports it as an error.
fn count(reply: &mut Reply) -> crate::error::Result<u64> {
    let number = reply.integer()?;
    u64::try_from(number).map_err(|_| Error::Answer(format!("{number} where a count is expected")))
}

fn flag(reply: &mut Reply) -> crate::error::Result<bool> {
    match count(reply)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::Answer(format!("{other} where 0 or 1 is expected"))),
    }
}

impl Overview {
    /// Reads a snapshot and the time at which it was taken.
    fn read(reply: Reply) -> crate::error::Result<(Self, u64)> {
        let seen = parse(&RingName::sample(), reply)?;
        let line = |member: &MemberView| SeenMember {
            number: member.id.0,
            pid: member.pid,
            host: member.host.clone(),
            started: seen.time_ms - member.age_ms,
            deadline: seen.time_ms.saturating_add_signed(member.lease_ms),
            state: format!("{:?}", member.state).to_lowercase(),
            rank: member.rank,
            held: member.in_flight,
            totals: [member.generated, member.processed, member.failed],
            stuck: member.stuck,
        };
        let overview = Self {
            layout: seen.layout,
            application: seen.application.clone(),
            generator: seen.generator.as_ref().map(|generator| (generator.member.0, generator.epoch.0)),
            members: seen.members.iter().map(line).collect(),
            ledger: [
                seen.takeovers,
                seen.returned,
                seen.fenced,
                seen.buried,
                seen.retried,
                seen.dropped,
                seen.retries,
                seen.snoozes,
                seen.cancelled,
                seen.submitted,
            ],
            readers: seen.members.iter().filter(|member| member.role == Role::Reader).count(),
            waiting: seen.waiting,
            later: seen.later,
            in_flight: seen.in_flight,
            errors_kept: seen.errors_kept,
            balanced: seen.balanced,
            pauses: [seen.producing_pause, seen.handling_pause]
                .map(|pause| pause.map(|pause| pause.left_ms.map_or(NEVER, |left| seen.time_ms + left))),
            limits: [seen.in_flight_limit, seen.rate_limit.map(|rate| rate.messages)],
            events: seen.events.iter().map(|event| event.kind.clone()).collect(),
        };
        Ok((overview, seen.time_ms))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { number } => write!(f, "joined as {number}"),
            Self::Stands { overslept, rank, office, epoch, counts: [published, outstanding, ..], .. } => {
                let slept = if *overslept { "overslept, " } else { "" };
                write!(f, "{slept}rank {rank}, office {office}, epoch {epoch}")?;
                write!(f, ", {published} published, {outstanding} outstanding")
            }
            Self::Leads { epoch, sent, published, due, predecessor, silence } => {
                write!(f, "epoch {epoch}, {sent} sent, {published} published, due {due}")?;
                write!(f, ", after member {predecessor}, silence {silence}")
            }
            Self::Published { first, due, duplicates } => {
                write!(f, "published from #{first}, due {due}, duplicates '{duplicates}'")
            }
            Self::Already { first, due, duplicates } => {
                write!(f, "already, from #{first}, due {due}, duplicates '{duplicates}'")
            }
            Self::Submitted { first, duplicates } => {
                write!(f, "submitted from #{first}, duplicates '{duplicates}'")
            }
            Self::AlreadySubmitted { first, duplicates } => {
                write!(f, "already, from #{first}, duplicates '{duplicates}'")
            }
            Self::Reused { positions } => write!(f, "the keys of messages {positions} are reused"),
            Self::Limit { published } => write!(f, "limit, {published} published"),
            Self::Paused { end } => write!(f, "paused until {end}"),
            Self::Limited { in_flight, rate } => write!(f, "limited to {in_flight} in flight, rate {rate}"),
            Self::Pauses { producing, handling } => {
                write!(f, "producing paused until {producing}, handling until {handling}")
            }
            Self::Turn { cursor, claimed, waits, due, paused, bad, claims } => {
                write!(f, "cursor {cursor}, claimed {claimed}, waits {waits}, due {due:?}, paused {paused}")?;
                if !bad.is_empty() {
                    write!(f, ", bad effects: {bad}")?;
                }
                for (name, element) in claims {
                    write!(f, ", {name} is {}", listed(std::slice::from_ref(element)))?;
                }
                Ok(())
            }
            Self::Took { cursor, held } => {
                let held = if held.is_empty() { "nothing".into() } else { listed(held) };
                write!(f, "cursor {cursor}, holds {held}")
            }
            Self::Suspects { needs_wakeup, list } => write!(f, "needs_wakeup {needs_wakeup}, {list:?}"),
            Self::Buried { number, returned, gave_up } => {
                write!(f, "buried as {number}, {returned} returned, {gave_up} given up")
            }
            Self::Left { returned } => write!(f, "left, {returned} returned"),
            Self::Resolved { count } => write!(f, "resolved {count}"),
            Self::Schema { theirs } => write!(f, "schema {theirs}"),
            Self::Application { theirs } => write!(f, "application {theirs}"),
            Self::Partitions { count, .. } => write!(f, "{} {count} partitions", self.kind()),
            Self::Snapshot(overview) => write!(f, "{overview:?}"),
            other => f.write_str(other.kind()),
        }
    }
}
