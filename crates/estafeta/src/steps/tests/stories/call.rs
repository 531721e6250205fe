//! One call of a script with all its arguments, as a simulated node sends it. It is built into the same bytes as in the
//! store. It is kept so that it can arrive again, and it is printed in a story that fails.

use std::fmt;
use std::time::Duration;

use redis::Cmd;

use super::super::*;
use super::model::ModelRate;
use super::simulated_publisher::{StoryCancellation, StorySubmission, story_key};
use crate::steps::Call;

/// One identity of a simulated node, and what the node registers when it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Persona {
    /// The number of this identity in the story, counted from 1.
    pub index: usize,
    pub kind: MemberKind,
    /// The application that it runs. Most nodes run the same one.
    pub application: &'static str,
    pub lanes: usize,
    pub max_deaths: u32,
    pub journal: bool,
    /// Whether it shows presence, by a subscription to the channel of its incarnation.
    pub presence: bool,
    pub duties: Duties,
    /// How many partitions it expects. Most nodes expect the same number.
    pub partitions: u32,
}

impl Persona {
    /// Whether it may become generator.
    pub fn is_candidate(self) -> bool {
        self.kind == MemberKind::Node && self.duties != Duties::Handle
    }

    pub fn incarnation(self) -> Incarnation {
        self.name().parse().expect("sixteen digits")
    }

    pub fn identity(self, number: u64) -> Identity {
        Identity { number: MemberId(number), incarnation: self.incarnation() }
    }

    /// The identity as Redis stores it.
    pub fn name(self) -> String {
        format!("{:016x}", self.index)
    }

    /// Each identity has a different lease, so that a lease of the wrong member is noticed. No lease runs out by itself
    /// in a story.
    pub fn lease_ms(self) -> u64 {
        3_600_000 + 1_000 * self.index as u64
    }

    fn lease(self) -> Duration {
        Duration::from_millis(self.lease_ms())
    }
}

impl fmt::Display for Persona {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == MemberKind::Reader { "reader" } else { "member" };
        write!(f, "{kind} {}", self.index)
    }
}

pub(super) const HOST: &str = "here";
pub(super) const COMPLAINT: &str = "no disk";
pub(super) const GRACE_MS: u64 = 100;
pub(super) const LATE_MS: u64 = 100;
/// The publication time of all messages. The publishing node chooses it, and it does not matter in a story.
pub(super) const PUBLISHED_MS: u64 = 7;

#[derive(Clone, Debug)]
pub(super) enum StoryCall {
    Join(Persona),
    Beat {
        me: Persona,
        known: Known,
        latencies: LatencyGroup,
    },
    Lead {
        me: Persona,
        replaces: u64,
        known: Known,
        interval: u64,
        silence: u64,
        absent_since: u64,
    },
    Resign {
        me: Persona,
        epoch: u64,
    },
    Report {
        me: Persona,
        epoch: u64,
        n: u64,
        in_a_row: u64,
        reason: &'static str,
    },
    /// The handler of a node is broken.
    Complain {
        me: Persona,
        pause_ms: u64,
    },
    Publish(Publication),
    Submit(StorySubmission),
    Cancel(StoryCancellation),
    Turn {
        me: Persona,
        number: u64,
        this_try: u64,
        asks: Asks,
    },
    Take {
        me: Persona,
        number: u64,
        settles: Settles,
    },
    Suspects {
        lease_ms: u64,
    },
    Bury {
        victim: Persona,
        detector: Option<Persona>,
        absent_since: u64,
    },
    Leave(Persona),
    Wake,
    Pause {
        producing: Option<u64>,
        handling: Option<u64>,
    },
    /// The rate is one message per hour, or 0.
    Limit {
        in_flight: Option<u64>,
        rate: Option<u64>,
        roll: Vec<Persona>,
    },
    Resolve {
        drops: bool,
        elements: Vec<(u64, Vec<u8>)>,
    },
    Sample {
        me: Persona,
        number: u64,
        /// 0 if the sender is not in office.
        epoch: u64,
        silence: u64,
    },
    Snapshot {
        roll: Vec<Persona>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Publication {
    pub me: Persona,
    pub epoch: u64,
    pub n: u64,
    pub first: u64,
    pub bodies: Vec<Vec<u8>>,
    /// The key and the delay of each message. Empty if no message has any.
    pub terms: Vec<StoryTerms>,
    /// What moves with the messages.
    pub checkpoint: Option<String>,
    pub ticks: Vec<(String, u64)>,
    /// The schedule entry that is open until these messages have an outcome.
    pub entry: Option<&'static str>,
    pub plan: Option<Plan>,
    pub intervals: usize,
    pub interval: u64,
    pub catch_up: bool,
    pub max_waiting: u64,
    pub limit: u64,
}

/// The key and the delay of a message.
pub(super) type StoryTerms = (Option<&'static str>, u64);

/// What a node lets go of, and what it wants.
#[derive(Clone, Debug, Default)]
pub(super) struct Asks {
    pub settlement: Settlement,
    /// The messages that the sender means to let go of, unless the call is flawed. The call does not contain them, but
    /// Redis must take exactly these out of the sender's hand.
    pub means: Option<Vec<u64>>,
}

/// What a reader has shown, and how many more errors it wants.
#[derive(Clone, Debug, Default)]
pub(super) struct Settles {
    pub cursor: u64,
    pub count: usize,
    pub wants: usize,
    /// The errors that the sender means to settle, unless the call is flawed. The call does not contain them, but Redis
    /// must settle exactly these.
    pub means: Option<Vec<u64>>,
}

impl Settles {
    fn shown(&self) -> ShownLetters {
        ShownLetters { cursor: self.cursor, count: self.count, want: self.wants }
    }
}

impl StoryCall {
    pub fn build(&self, keys: &Keys) -> Call {
        let grace = Duration::from_millis(GRACE_MS);
        match self {
            Self::Join(me) => {
                let introduction = Introduction {
                    layouts: Layouts::KNOWN,
                    application: me.application,
                    incarnation: me.incarnation(),
                    kind: me.kind,
                    lanes: me.lanes,
                    host: HOST,
                    lease: me.lease(),
                    presence: me.presence,
                    max_deaths: me.max_deaths,
                    journal: me.journal,
                    duties: me.duties,
                    durability: Durability::Memory,
                    partitions: me.partitions,
                };
                join::call(keys, &introduction)
            }
            Self::Beat { me, known, latencies } => {
                beat::call(keys, me.incarnation(), me.lease(), *known, latencies)
            }
            Self::Lead { me, replaces, known, interval, silence, absent_since } => {
                let candidacy = Candidacy {
                    absent_since_ms: *absent_since,
                    grace,
                    interval: Duration::from_millis(*interval),
                    silence: Duration::from_millis(*silence),
                    known: *known,
                    replaces: Some(Epoch(*replaces)).filter(|epoch| epoch.0 > 0),
                };
                lead::call(keys, me.incarnation(), me.lease(), &candidacy)
            }
            Self::Resign { me, epoch } => resign::call(keys, me.incarnation(), Epoch(*epoch)),
            Self::Report { me, epoch, n, in_a_row, reason } => {
                let (epoch, n, in_a_row) = (Epoch(*epoch), *n, *in_a_row);
                report::call(keys, me.incarnation(), &SourceFailure { epoch, n, in_a_row, reason })
            }
            Self::Complain { me, pause_ms } => {
                complain::call(keys, me.incarnation(), Duration::from_millis(*pause_ms), COMPLAINT)
            }
            Self::Publish(publication) => publication.build(keys),
            Self::Submit(submission) => submission.build(keys),
            Self::Cancel(cancellation) => cancellation.build(keys),
            Self::Turn { me, number, this_try, asks } => {
                turn::call(keys, me.identity(*number), *this_try, &asks.settlement, me.journal)
            }
            Self::Take { me, number, settles } => take::call(keys, me.identity(*number), &settles.shown()),
            Self::Suspects { lease_ms } => suspects::call(keys, Duration::from_millis(*lease_ms)),
            Self::Bury { victim, detector, absent_since } => {
                let detector = detector.map(Persona::incarnation);
                bury::call(keys, victim.incarnation(), *absent_since, grace, detector)
            }
            Self::Leave(me) => leave::call(keys, me.incarnation()),
            Self::Wake => wake::call(keys),
            Self::Pause { producing, handling } => pause::call(keys, *producing, *handling, "ops"),
            Self::Limit { in_flight, rate, roll } => {
                let per_ms = ModelRate::PER_MS;
                let rate = rate.map(|messages| (messages > 0).then_some(Rate { messages, per_ms }));
                let in_flight = in_flight.map(|most| Some(most).filter(|most| *most > 0));
                limit::call(keys, &LimitChange { in_flight, rate }, &named(roll))
            }
            Self::Resolve { drops, elements } => {
                let elements: Vec<(u64, &[u8])> =
                    elements.iter().map(|(place, element)| (*place, element.as_slice())).collect();
                resolve::call(keys, if *drops { "drop" } else { "retry" }, "ops", &elements)
            }
            Self::Sample { me, number, epoch, silence } => {
                let epoch = Some(Epoch(*epoch)).filter(|epoch| epoch.0 > 0);
                sample::call(keys, me.identity(*number), epoch, Duration::from_millis(*silence))
            }
            Self::Snapshot { roll } => snapshot::call(keys, &named(roll), 1000),
        }
    }

    /// The script that is called.
    pub fn script(&self) -> &'static Script {
        match self {
            Self::Join(_) => &join::SCRIPT,
            Self::Beat { .. } => &beat::SCRIPT,
            Self::Lead { .. } => &lead::SCRIPT,
            Self::Resign { .. } => &resign::SCRIPT,
            Self::Report { .. } => &report::SCRIPT,
            Self::Complain { .. } => &complain::SCRIPT,
            Self::Publish(_) => &publish::SCRIPT,
            Self::Submit(_) => &submit::SCRIPT,
            Self::Cancel(_) => &cancel::SCRIPT,
            Self::Turn { .. } => &turn::SCRIPT,
            Self::Take { .. } => &take::SCRIPT,
            Self::Suspects { .. } => &suspects::SCRIPT,
            Self::Bury { .. } => &bury::SCRIPT,
            Self::Leave(_) => &leave::SCRIPT,
            Self::Wake => &wake::SCRIPT,
            Self::Pause { .. } => &pause::SCRIPT,
            Self::Limit { .. } => &limit::SCRIPT,
            Self::Resolve { .. } => &resolve::SCRIPT,
            Self::Sample { .. } => &sample::SCRIPT,
            Self::Snapshot { .. } => &snapshot::SCRIPT,
        }
    }

    /// The command by which the sender reads its list in the same round trip.
    pub fn build_reading(&self, keys: &Keys) -> Cmd {
        match self {
            Self::Take { me, number, .. } => take::held(keys, me.identity(*number)),
            _ => redis::cmd("PING"),
        }
    }

    /// The member that sends the call, if a member does.
    pub fn sender(&self) -> Option<Persona> {
        match self {
            Self::Join(me) | Self::Leave(me) => Some(*me),
            Self::Beat { me, .. } | Self::Sample { me, .. } | Self::Complain { me, .. } => Some(*me),
            Self::Lead { me, .. } | Self::Resign { me, .. } => Some(*me),
            Self::Report { me, .. } | Self::Turn { me, .. } | Self::Take { me, .. } => Some(*me),
            Self::Publish(publication) => Some(publication.me),
            Self::Bury { detector, .. } => *detector,
            Self::Submit(_) | Self::Cancel(_) | Self::Pause { .. } | Self::Limit { .. } => None,
            Self::Suspects { .. } | Self::Wake | Self::Resolve { .. } | Self::Snapshot { .. } => None,
        }
    }
}

impl Publication {
    fn build(&self, keys: &Keys) -> Call {
        let epoch = Epoch(self.epoch);
        let message = |(id, body): (u64, &Vec<u8>)| {
            let message = Message::new(&RingName::sample(), id, epoch, PUBLISHED_MS, body.clone());
            match self.entry {
                Some(entry) => message.with_header(ENTRY, entry),
                None => message,
            }
        };
        let messages: Vec<Message> = (self.first..).zip(&self.bodies).map(message).collect();
        let terms = |((key, delay_ms), body): (&StoryTerms, &Vec<u8>)| PublishTerms {
            key: key.map(|name| story_key(name, body)),
            delay: Duration::from_millis(*delay_ms),
        };
        let terms: Vec<PublishTerms> = self.terms.iter().zip(&self.bodies).map(terms).collect();
        let dispatch = Dispatch {
            epoch,
            n: self.n,
            first_id: self.first,
            messages: &messages,
            terms: &terms,
            pack: crate::pack::MOST,
            checkpoint: self.checkpoint.as_ref().map(String::as_bytes),
            ticks: &self.ticks,
            entry: self.entry,
            plan: self.plan.as_ref(),
            intervals: self.intervals,
            interval: Duration::from_millis(self.interval),
            catch_up: self.catch_up,
            max_waiting: self.max_waiting,
            limit: self.limit,
            lease: self.me.lease(),
            late: Duration::from_millis(LATE_MS),
        };
        publish::call(keys, self.me.incarnation(), &dispatch)
    }
}

impl fmt::Display for StoryCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(me) => {
                let (lanes, deaths) = (several(me.lanes, "lane"), several(me.max_deaths as usize, "death"));
                let presence = if me.presence { ", seen by its connection" } else { "" };
                write!(f, "{me} joins with {lanes} and at most {deaths}{presence}, duties {:?}", me.duties)
            }
            Self::Beat { me, known, latencies } => {
                write!(f, "{me} beats, knows {} of term {}", known.published, known.epoch.0)?;
                write!(f, ", hands over latencies {}", latencies.n)
            }
            Self::Sample { me, epoch, .. } => write!(f, "{me} samples in epoch {epoch}"),
            Self::Lead { me, replaces: 0, .. } => write!(f, "{me} leads"),
            Self::Lead { me, replaces, .. } => write!(f, "{me} replaces its term {replaces}"),
            Self::Resign { me, epoch } => write!(f, "{me} resigns from epoch {epoch}"),
            Self::Report { me, epoch, n, in_a_row, .. } => {
                write!(f, "{me} reports failure {n} of its source in epoch {epoch}, {in_a_row} in a row")
            }
            Self::Complain { me, pause_ms } => {
                write!(f, "{me} complains of its handler, pause {pause_ms} ms")
            }
            Self::Publish(publication) => {
                let Publication { me, epoch, n, first, bodies, max_waiting, limit, .. } = publication;
                let messages = several(bodies.len(), "message");
                write!(f, "{me} sends publish(epoch {epoch}, n {n}, {messages} from #{first}")?;
                for (position, (key, delay_ms)) in (1..).zip(&publication.terms) {
                    write!(f, ", message {position} with key {key:?} in {delay_ms} ms")?;
                }
                if let Some(checkpoint) = &publication.checkpoint {
                    write!(f, ", checkpoint {checkpoint}")?;
                }
                for (name, ms) in &publication.ticks {
                    write!(f, ", tick {ms} of '{name}'")?;
                }
                if let Some(entry) = &publication.entry {
                    write!(f, ", open messages of '{entry}'")?;
                }
                if let Some(plan) = &publication.plan {
                    write!(f, ", plan {plan:?}")?;
                }
                write!(f, ", room {max_waiting}, limit {limit})")
            }
            Self::Submit(submission) => write!(f, "{submission}"),
            Self::Cancel(cancellation) => write!(f, "{cancellation}"),
            Self::Turn { me, this_try, asks, .. } => {
                write!(f, "{me} sends turn(try {this_try}, {asks})")
            }
            Self::Take { me, settles, .. } => write!(f, "{me} sends take({settles})"),
            Self::Suspects { .. } => f.write_str("a sweeper asks for suspects"),
            Self::Bury { victim, detector: Some(detector), .. } => write!(f, "{detector} buries {victim}"),
            Self::Bury { victim, detector: None, .. } => write!(f, "cleanTemp buries {victim}"),
            Self::Leave(me) => write!(f, "{me} leaves"),
            Self::Wake => f.write_str("a sweeper calls an idle member"),
            Self::Limit { in_flight, rate, .. } => {
                write!(f, "a user limits the ring to {in_flight:?} in flight and the rate {rate:?}")
            }
            Self::Pause { producing, handling } => {
                write!(f, "a user pauses producing until {producing:?} and handling until {handling:?}")
            }
            Self::Resolve { drops, elements } => {
                let elements: Vec<_> = elements.iter().map(|(_, element)| element.clone()).collect();
                write!(f, "a user {} {}", if *drops { "drops" } else { "retries" }, listed(&elements))
            }
            Self::Snapshot { roll } => {
                write!(f, "a user takes a snapshot of {}", several(roll.len(), "member"))
            }
        }
    }
}

impl fmt::Display for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settlement { cursor, count, seen, whole, returns, parts, .. } = &self.settlement;
        write!(f, "cursor {cursor}, seen {seen}, lets go of {count}")?;
        if !whole.is_empty() {
            write!(f, ", settles {}", whole.join(" "))?;
        }
        if !returns.is_empty() {
            write!(f, ", returns {}", returns.join(" "))?;
        }
        for Part { name, settled, back } in parts {
            write!(f, ", of {name} settles {settled:?} and returns {back:?}")?;
        }
        for NotDone { name, index, disposition } in &self.settlement.not_done {
            match disposition {
                Disposition::Fail { .. } => write!(f, ", {name} at {index} failed")?,
                Disposition::Retry { after, .. } => {
                    write!(f, ", {name} at {index} is tried again in {after:?}")?;
                }
                Disposition::Die { after, .. } => {
                    write!(f, ", {name} at {index} had a death and comes again in {after:?}")?;
                }
                Disposition::Snooze { after, headers } => {
                    let headers = String::from_utf8_lossy(headers);
                    write!(f, ", {name} at {index} sleeps {after:?} with the headers {headers:?}")?;
                }
            }
        }
        if !self.settlement.ends.is_empty() {
            write!(f, ", the open messages {} are done", self.settlement.ends.join(" "))?;
        }
        for MessageEffects { name, index, effects, .. } in &self.settlement.effects {
            write!(f, ", {name} at {index} has {:?}", effects.0)?;
        }
        let Settlement { want, each, reserve, listens, both, .. } = self.settlement;
        write!(f, ", wants {want}, {each} each, reserve {reserve}, listens {listens}, both {both}")
    }
}

impl fmt::Display for Settles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cursor, count, wants, .. } = self;
        write!(f, "cursor {cursor}, settles {count}, wants {wants}")
    }
}

/// The ids of the messages or of the error in an element.
pub(super) fn ids_in(element: &[u8]) -> Vec<u64> {
    if element.starts_with(b"!") {
        return vec![DeadLetter::parse(&RingName::sample(), element.to_vec()).message.id];
    }
    let text = String::from_utf8_lossy(element);
    let header: Vec<u64> =
        text.trim_start_matches('*').split(' ').map_while(|word| word.parse().ok()).collect();
    match (header.first(), header.get(3)) {
        (Some(first), Some(count)) if text.starts_with('*') => (*first..first + count).collect(),
        (first, _) => vec![first.copied().unwrap_or(0)],
    }
}

/// The ids in all these elements, as people read them.
pub(super) fn listed(elements: &[Vec<u8>]) -> String {
    let ids: Vec<_> =
        elements.iter().flat_map(|element| ids_in(element)).map(|id| format!("#{id}")).collect();
    ids.join(" ")
}

/// The members that a call names.
fn named(roll: &[Persona]) -> Roll {
    let members: Vec<_> = roll.iter().map(|who| who.incarnation()).collect();
    Roll::new(members.len(), &members)
}

fn several(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
