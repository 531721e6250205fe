//! The ring's event stream: what happened to its members, its office and its dead letters.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::identity::{Epoch, MemberId};
use crate::redis::Reply;
use crate::steps::{Activity, Health, Rate};

/// An entry of the ring's event stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Event {
    /// Its name in the stream, such as `1794776990426-0`. [`Ring::events_after`](crate::Ring::events_after) continues
    /// from there. In a view of all partitions of a ring, it begins with the partition: `2:1794776990426-0`.
    pub id: String,
    /// The time of the event, in milliseconds of Redis' clock.
    pub time_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened to a ring. Its `Display` form is a sentence that may contain foreign text, such as a host name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum EventKind {
    /// A node or a reader joined.
    Joined {
        /// Its number.
        member: MemberId,
        /// Whether it reads dead letters. Otherwise it is a node.
        reader: bool,
        /// Its host.
        host: String,
        /// Its process.
        pid: u64,
    },
    /// A member left by itself.
    Left {
        /// Its number.
        member: MemberId,
        /// Messages that it held, which went back to the queue.
        returned: u64,
    },
    /// A member was declared dead.
    Buried {
        /// Its number.
        member: MemberId,
        /// Why: [`Health::Expired`] or [`Health::Absent`].
        why: Health,
        /// Messages that it held, which went back to the queue.
        returned: u64,
        /// Messages that it held, which became dead letters because too many of their handlers had died.
        gave_up: u64,
    },
    /// A member took a vacant office.
    TookOffice {
        /// Its number.
        member: MemberId,
        /// Its term.
        epoch: Epoch,
    },
    /// A member took the office of a generator that died or resigned.
    TookOver {
        /// Its number.
        member: MemberId,
        /// The former generator.
        from: MemberId,
        /// For how long no member could publish.
        silence_ms: u64,
        /// Its term.
        epoch: Epoch,
    },
    /// A generator gave up its office.
    Resigned {
        /// Its number.
        member: MemberId,
    },
    /// The generator's source failed. The first five failures of a term are reported, the fifth in a row, and then every
    /// tenth.
    SourceFailed {
        /// The generator.
        member: MemberId,
        /// How often the source has failed since it last made a message.
        in_a_row: u64,
        /// Why. The text of the source, at most 200 characters.
        reason: String,
    },
    /// The handler of a node can handle nothing at the moment, and its messages go back to the queue. Each node reports it
    /// at most once in ten minutes.
    HandlerBroken {
        /// The node.
        member: MemberId,
        /// Why. The text of the handler, at most 200 characters.
        reason: String,
    },
    /// Dead letters were put back into the queue.
    Retried {
        /// How many.
        count: u64,
        /// Who asked for it, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Dead letters were deleted.
    Dropped {
        /// How many.
        count: u64,
        /// Who asked for it, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Redis lost acknowledged writes, as after a restart without its latest data.
    RolledBack {
        /// The node that noticed it.
        member: MemberId,
        /// How many messages were published, including the lost ones.
        known: u64,
        /// How many of them Redis still knew.
        found: u64,
    },
    /// The ring was wiped or deleted while its nodes were running, and began anew.
    Wiped {
        /// The node that noticed it first.
        member: MemberId,
        /// How many messages it knew to be published in the former ring.
        known: u64,
    },
    /// The layout of the ring was raised. All members had to join again.
    Upgraded {
        /// The former layout.
        from: u32,
        /// The layout in force now.
        to: u32,
        /// How many messages went back to the queue.
        returned: u64,
    },
    /// Producing or handling was paused. A pause that ends by its time makes no event.
    Paused {
        /// What was paused.
        what: Activity,
        /// For how long. None if the pause has no time limit.
        for_ms: Option<u64>,
        /// Who asked for it, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A pause was ended.
    Resumed {
        /// What was resumed.
        what: Activity,
        /// Who asked for it, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The limits were changed. These are the limits from then on.
    Limited {
        /// How many messages all members may hold together. None if that is not limited.
        in_flight: Option<u64>,
        /// How many messages members may claim in a time. None if that is not limited.
        rate: Option<Rate>,
    },
    /// An entry that this version does not know.
    Other {
        /// What the entry calls itself.
        name: String,
        /// Its fields.
        details: BTreeMap<String, String>,
    },
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { member, reader, host, pid } => {
                let role = if *reader { "reader" } else { "node" };
                write!(f, "{member} joined as {role} ({host}, pid {pid})")
            }
            Self::Left { member, returned } => write!(f, "{member} left, {} returned", messages(*returned)),
            Self::Buried { member, why, returned, .. } => {
                write!(f, "{member} died ({why}), {} returned", messages(*returned))
            }
            Self::TookOffice { member, .. } => write!(f, "{member} became generator"),
            Self::TookOver { member, from, silence_ms, .. } => {
                write!(f, "{member} took over from {from} in {:.2} s", *silence_ms as f64 / 1000.0)
            }
            Self::Resigned { member } => write!(f, "{member} resigned as generator"),
            Self::SourceFailed { member, in_a_row, reason } => {
                write!(f, "the source of {member} failed ({in_a_row} in a row): {reason}")
            }
            Self::HandlerBroken { member, reason } => {
                write!(f, "the handler of {member} is broken: {reason}")
            }
            Self::Retried { count, by } => write!(f, "{} retried{}", errors(*count), signed(by)),
            Self::Dropped { count, by } => write!(f, "{} dropped{}", errors(*count), signed(by)),
            Self::RolledBack { known, found, .. } => {
                write!(
                    f,
                    "Redis lost {} of {known} messages that it had acknowledged",
                    known.saturating_sub(*found)
                )
            }
            Self::Wiped { known, .. } => write!(f, "the ring was wiped after {}", messages(*known)),
            Self::Upgraded { from, to, returned } => {
                write!(f, "layout raised from {from} to {to}, {} returned", messages(*returned))
            }
            Self::Paused { what, for_ms: Some(ms), by } => {
                write!(f, "{what} paused for {:?}{}", Duration::from_millis(*ms), signed(by))
            }
            Self::Paused { what, for_ms: None, by } => {
                write!(f, "{what} paused until it is resumed{}", signed(by))
            }
            Self::Resumed { what, by } => write!(f, "{what} resumed{}", signed(by)),
            Self::Limited { in_flight: None, rate: None } => f.write_str("limits removed"),
            Self::Limited { in_flight: Some(most), rate: None } => write!(f, "limited to {most} in flight"),
            Self::Limited { in_flight: None, rate: Some(rate) } => write!(f, "limited to {rate}"),
            Self::Limited { in_flight: Some(most), rate: Some(rate) } => {
                write!(f, "limited to {most} in flight and {rate}")
            }
            Self::Other { name, details } => write!(f, "{name} {details:?}"),
        }
    }
}

fn messages(count: u64) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

/// Who asked for a change, as the end of a sentence.
fn signed(by: &Option<String>) -> String {
    by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default()
}

fn errors(count: u64) -> String {
    format!("{count} error{}", if count == 1 { "" } else { "s" })
}

impl Event {
    /// An event as a ring would report it, for tests of programs that read events.
    pub fn sample(time_ms: u64, kind: EventKind) -> Self {
        Self { id: format!("{time_ms}-0"), time_ms, kind }
    }

    /// Reads a list of stream entries.
    pub(crate) fn parse_all(mut entries: Reply) -> Result<Vec<Self>> {
        let mut events = Vec::new();
        while !entries.is_empty() {
            events.push(Self::parse(entries.list()?)?);
        }
        Ok(events)
    }

    fn parse(mut entry: Reply) -> Result<Self> {
        let id = entry.text()?;
        let time_ms = id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0);
        Ok(Self { id, time_ms, kind: EventKind::of_fields(entry.pairs()?.into_iter().collect()) })
    }
}

impl EventKind {
    pub(crate) fn of_fields(mut fields: BTreeMap<String, String>) -> Self {
        let name = fields.remove("kind").unwrap_or_default();
        Self::known(&name, &fields).unwrap_or(Self::Other { name, details: fields })
    }

    /// None if the kind is unknown or lacks one of its fields.
    fn known(name: &str, fields: &BTreeMap<String, String>) -> Option<Self> {
        let fields = EventFields(fields);
        Some(match name {
            "joined" => Self::Joined {
                member: fields.member("member")?,
                reader: fields.0.get("role")? == "reader",
                host: fields.0.get("host")?.clone(),
                pid: fields.parse("pid")?,
            },
            "left" => Self::Left { member: fields.member("member")?, returned: fields.parse("returned")? },
            "buried" => Self::Buried {
                member: fields.member("member")?,
                why: Health::from_word(fields.0.get("why")?)?,
                returned: fields.parse("returned")?,
                gave_up: fields.parse("gave-up")?,
            },
            "took-office" => {
                Self::TookOffice { member: fields.member("member")?, epoch: Epoch(fields.parse("epoch")?) }
            }
            "took-over" => Self::TookOver {
                member: fields.member("member")?,
                from: fields.member("from")?,
                // Negative if Redis' clock was set back meanwhile.
                silence_ms: u64::try_from(fields.parse::<i64>("silence")?).unwrap_or(0),
                epoch: Epoch(fields.parse("epoch")?),
            },
            "resigned" => Self::Resigned { member: fields.member("member")? },
            "source-failed" => Self::SourceFailed {
                member: fields.member("member")?,
                in_a_row: fields.parse("in-a-row")?,
                reason: fields.0.get("reason")?.clone(),
            },
            "handler-broken" => Self::HandlerBroken {
                member: fields.member("member")?,
                reason: fields.0.get("reason")?.clone(),
            },
            "retried" => Self::Retried { count: fields.parse("count")?, by: fields.text("by") },
            "dropped" => Self::Dropped { count: fields.parse("count")?, by: fields.text("by") },
            "rolled-back" => Self::RolledBack {
                member: fields.member("member")?,
                known: fields.parse("known")?,
                found: fields.parse("found")?,
            },
            "wiped" => Self::Wiped { member: fields.member("member")?, known: fields.parse("known")? },
            "upgraded" => Self::Upgraded {
                from: fields.parse("from")?,
                to: fields.parse("to")?,
                returned: fields.parse("returned")?,
            },
            "paused" => Self::Paused {
                what: Activity::from_word(fields.0.get("what")?)?,
                for_ms: fields.optional("for")?,
                by: fields.text("by"),
            },
            "limited" => Self::Limited {
                in_flight: fields.optional("in-flight")?,
                rate: match fields.optional("rate")? {
                    Some(messages) => Some(Rate { messages, per_ms: fields.parse("per")? }),
                    None => None,
                },
            },
            "resumed" => {
                Self::Resumed { what: Activity::from_word(fields.0.get("what")?)?, by: fields.text("by") }
            }
            _ => return None,
        })
    }
}

struct EventFields<'a>(&'a BTreeMap<String, String>);

impl EventFields<'_> {
    fn parse<T: FromStr>(&self, name: &str) -> Option<T> {
        self.0.get(name)?.parse().ok()
    }

    /// The value of a field that must be there. An empty one means None.
    fn optional<T: FromStr>(&self, name: &str) -> Option<Option<T>> {
        match self.0.get(name)?.as_str() {
            "" => Some(None),
            _ => self.parse(name).map(Some),
        }
    }

    /// The text of a field. None if it is empty, or not there.
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|text| !text.is_empty()).cloned()
    }

    fn member(&self, name: &str) -> Option<MemberId> {
        self.parse(name).map(MemberId)
    }
}
