//! The whole ring at one moment, read in one atomic step. `status` prints it and monitors draw it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::event::Event;
use crate::error::Result;
use crate::identity::{Epoch, MemberId};
use crate::keys::RingName;
use crate::redis::{Reply, Store};
use crate::steps::{Brakes, Duties, Health, NEVER, Rate, Roll};

/// A ring at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Snapshot {
    /// The ring's name.
    pub ring: String,
    /// The layout of its keys. None if no node has ever joined it and nothing was published.
    #[serde(default)]
    pub layout: Option<u32>,
    /// The application that it belongs to. None if no node of one has ever joined it or published to it.
    #[serde(default)]
    pub application: Option<String>,
    /// The time of the snapshot, in milliseconds of Redis' clock.
    pub time_ms: u64,
    /// The member in office, if there is one.
    pub generator: Option<GeneratorView>,
    /// All members, in the order in which they joined.
    pub members: Vec<MemberView>,
    /// Messages in the queue.
    pub waiting: u64,
    /// For how long the oldest message in the queue has waited, or a delayed one that is due: 0 if none waits. A message
    /// has waited no longer than since its publish, and no longer than since the queue was last seen empty.
    #[serde(default)]
    pub oldest_waiting_ms: u64,
    /// Messages that wait for a time, because they are to be retried, were snoozed, or were published with a delay.
    #[serde(default)]
    pub later: u64,
    /// Messages that handlers hold.
    pub in_flight: u64,
    /// Messages ever published.
    pub published: u64,
    /// Those of them that publishers outside the ring have published.
    #[serde(default)]
    pub submitted: u64,
    /// Messages that were handled successfully.
    pub done: u64,
    /// Messages that their publisher took back before they were due.
    #[serde(default)]
    pub cancelled: u64,
    /// Dead letters in Redis, including those that a reader holds.
    pub errors_kept: u64,
    /// Dead letters that were taken out or dropped.
    pub errors_taken: u64,
    /// Messages that Redis acknowledged and then lost, as far as any node noticed.
    #[serde(default)]
    pub lost: u64,
    /// Whether `published` is the sum of the terms of the [`balance`](Self::balance).
    pub balanced: bool,
    /// How often the office passed from one member to another.
    pub takeovers: u64,
    /// Messages that went back to the queue because their holder died or left.
    pub returned: u64,
    /// Publishes that Redis refused because their epoch was over.
    pub fenced: u64,
    /// How often a generator's source failed.
    #[serde(default)]
    pub source_failed: u64,
    /// Members that were declared dead.
    pub buried: u64,
    /// Dead letters that were put back into the queue.
    pub retried: u64,
    /// Dead letters that were dropped. They also count as taken.
    pub dropped: u64,
    /// How often a handler failed and its message was put off for another attempt.
    #[serde(default)]
    pub retries: u64,
    /// How often a handler snoozed a message.
    #[serde(default)]
    pub snoozes: u64,
    /// The pause of producing, if it is paused.
    #[serde(default)]
    pub producing_pause: Option<Pause>,
    /// The pause of handling, if it is paused.
    #[serde(default)]
    pub handling_pause: Option<Pause>,
    /// How many messages all members may hold together, if that is limited.
    #[serde(default)]
    pub in_flight_limit: Option<u64>,
    /// How many messages members may claim in a time, if that is limited.
    #[serde(default)]
    pub rate_limit: Option<Rate>,
    /// The latest events, oldest first.
    pub events: Vec<Event>,
}

/// A pause of producing or of handling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Pause {
    /// How long it still lasts. None if it has no time limit.
    pub left_ms: Option<u64>,
}

impl Pause {
    /// The pause that ends at this time. None if it is over, or if it never was.
    fn until(end_ms: u64, now_ms: u64) -> Option<Self> {
        let left_ms = (end_ms < NEVER).then(|| end_ms.saturating_sub(now_ms));
        (end_ms > now_ms).then_some(Self { left_ms })
    }
}

/// The generator of a ring.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GeneratorView {
    /// Its number.
    pub member: MemberId,
    /// Its term.
    pub epoch: Epoch,
    /// Its host. Empty if it is no longer a member.
    pub host: String,
    /// Its process.
    pub pid: u64,
    /// Its health, as the ring sees it. A dead generator keeps the office until another node takes over. None if it is
    /// no longer a member.
    #[serde(default)]
    pub state: Option<Health>,
    /// How long it has been in office.
    pub in_office_ms: u64,
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Generates messages.
    Generator,
    /// Handles messages.
    Handler,
    /// Takes dead letters out.
    Reader,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Generator => "generator",
            Self::Handler => "handler",
            Self::Reader => "reader",
        })
    }
}

/// One member of a ring.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MemberView {
    /// Its number.
    pub id: MemberId,
    /// What it does.
    pub role: Role,
    /// What it may do. Readers have no duties.
    #[serde(default)]
    pub duties: Option<Duties>,
    /// Its place in the line of succession. 0 is the heir. The generator, readers and nodes that only handle have none.
    pub rank: Option<u64>,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u64,
    /// How long ago it joined.
    pub age_ms: u64,
    /// How long its lease still runs. Negative if it has run out.
    pub lease_ms: i64,
    /// Messages that it holds. For a reader, dead letters.
    pub in_flight: u64,
    /// Its health, as the ring sees it.
    pub state: Health,
    /// Messages that it has published since it joined.
    pub generated: u64,
    /// Messages that it has settled since it joined, including the failed ones. For a reader, dead letters that it has
    /// released.
    pub processed: u64,
    /// Those of them that became dead letters.
    pub failed: u64,
    /// Lanes whose handler blocks its thread beyond the time limit.
    #[serde(default)]
    pub stuck: u64,
    /// Where Redis must have stored a change before this member reports it, as [`Durability`](crate::Durability) is
    /// written.
    #[serde(default)]
    pub durability: String,
    /// How many lanes it has.
    #[serde(default)]
    pub lanes: u64,
}

impl Snapshot {
    /// The terms whose sum must be the number of published messages, with their names. `later`, `cancelled` and `lost`
    /// are among them only if they are not 0.
    pub fn balance(&self) -> Vec<(&'static str, u64)> {
        let terms = [
            ("waiting", self.waiting),
            ("later", self.later),
            ("in flight", self.in_flight),
            ("done", self.done),
            ("cancelled", self.cancelled),
            ("errors kept", self.errors_kept),
            ("errors taken", self.errors_taken),
            ("lost", self.lost),
        ];
        let is_shown =
            |(name, count): &(&str, u64)| *count > 0 || !["later", "cancelled", "lost"].contains(name);
        terms.into_iter().filter(is_shown).collect()
    }
}

pub(crate) async fn read(store: &Store, ring: &RingName, events: usize) -> Result<Snapshot> {
    store.check_layout().await?;
    for _ in 0..Roll::TRIES {
        let roll = store.roll().await?;
        // Redis answers a count of zero with no list at all, so the query asks for at least one event.
        if let Some(reply) = store.snapshot(&roll, events.max(1)).await? {
            let mut snapshot = parse(ring, reply)?;
            // Redis sends the newest first.
            snapshot.events.truncate(events);
            snapshot.events.reverse();
            return Ok(snapshot);
        }
    }
    Err(Roll::changes_too_fast("a snapshot"))
}

pub(crate) fn parse(ring: &RingName, mut reply: Reply) -> Result<Snapshot> {
    let time_ms = reply.number()?;
    let (layout, application) = (reply.text()?, reply.text()?);
    let (waiting, later, mut errors_kept) = (reply.number()?, reply.number()?, reply.number()?);
    let oldest_waiting_ms = reply.number()?;
    let ledger = HashFields(reply.pairs()?);
    let events = Event::parse_all(reply.list()?)?;
    let mut list = reply.list()?;
    let mut rows = Vec::new();
    while !list.is_empty() {
        rows.push(parse_member(list.list()?, time_ms)?);
    }
    rows.sort_by_key(|(_, member)| member.id);

    let brakes = ledger.get("brakes").map(Brakes::parse).unwrap_or_default();
    let office = ledger.text("member");
    let leading_rank = rows.iter().find(|(who, _)| who == office).and_then(|(_, member)| member.rank);
    let mut in_flight = 0;
    let mut generator = (!office.is_empty()).then(|| GeneratorView {
        member: MemberId(ledger.number("number")),
        epoch: Epoch(ledger.number("epoch")),
        host: String::new(),
        pid: 0,
        state: None,
        in_office_ms: time_ms.saturating_sub(ledger.number("since")),
    });
    for (who, member) in &mut rows {
        if member.role == Role::Reader {
            errors_kept += member.in_flight;
            member.rank = None;
            continue;
        }
        in_flight += member.in_flight;
        if who == office {
            member.role = Role::Generator;
            member.rank = None;
            if let Some(generator) = &mut generator {
                generator.host.clone_from(&member.host);
                generator.pid = member.pid;
                generator.state = Some(member.state);
            }
        } else if member.rank > leading_rank && leading_rank.is_some() {
            member.rank = member.rank.map(|rank| rank - 1);
        }
    }
    let (published, done, errors_taken, lost) =
        (ledger.number("published"), ledger.number("done"), ledger.number("taken"), ledger.number("lost"));
    let mut snapshot = Snapshot {
        ring: ring.to_string(),
        layout: layout.parse().ok(),
        application: Some(application).filter(|name| !name.is_empty()),
        time_ms,
        generator,
        members: rows.into_iter().map(|(_, member)| member).collect(),
        waiting,
        oldest_waiting_ms,
        later,
        in_flight,
        published,
        submitted: ledger.number("submitted"),
        done,
        cancelled: ledger.number("cancelled"),
        errors_kept,
        errors_taken,
        lost,
        balanced: false,
        takeovers: ledger.number("takeovers"),
        returned: ledger.number("returned"),
        fenced: ledger.number("fenced"),
        source_failed: ledger.number("source-failed"),
        buried: ledger.number("buried"),
        retried: ledger.number("retried"),
        dropped: ledger.number("dropped"),
        retries: ledger.number("retries"),
        snoozes: ledger.number("snoozes"),
        producing_pause: Pause::until(brakes.producing_end, time_ms),
        handling_pause: Pause::until(brakes.handling_end, time_ms),
        in_flight_limit: brakes.in_flight_limit,
        rate_limit: brakes.rate_limit,
        events,
    };
    snapshot.balanced = snapshot.published == snapshot.balance().iter().map(|(_, count)| count).sum::<u64>();
    Ok(snapshot)
}

fn parse_member(mut row: Reply, time_ms: u64) -> Result<(String, MemberView)> {
    let incarnation = row.text()?;
    let id = row.member()?;
    let role = if row.text()? == "reader" { Role::Reader } else { Role::Handler };
    let (host, pid, started) = (row.text()?, row.number()?, row.number()?);
    let (lease_ms, state) = (row.integer()?, row.health()?);
    let rank = u64::try_from(row.integer()?).ok();
    let in_flight = row.number()?;
    let (generated, processed, failed) = (row.number()?, row.number()?, row.number()?);
    let duties = Duties::from_word(&row.text()?);
    let duties = (role != Role::Reader).then_some(duties);
    let (stuck, durability, lanes) = (row.number()?, row.text()?, row.number()?);
    let age_ms = time_ms.saturating_sub(started);
    let member = MemberView {
        id,
        role,
        duties,
        rank,
        host,
        pid,
        age_ms,
        lease_ms,
        in_flight,
        state,
        generated,
        processed,
        failed,
        stuck,
        durability,
        lanes,
    };
    Ok((incarnation, member))
}

struct HashFields(Vec<(String, String)>);

impl HashFields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}
