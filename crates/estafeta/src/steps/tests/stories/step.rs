//! The steps that stories consist of, and how they are made up.
//!
//! A step names no member and no message. It contains only numbers, which are taken modulo what exists when the step is
//! made. So any step can be cut out of a story, and the rest still makes sense. Shrinking depends on that.

use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(super) struct Story {
    /// Whether the members keep a journal.
    pub journal: bool,
    pub steps: Vec<StoryStep>,
}

/// One step of a story. If `answered` is false, the answer is lost on its way to the sender.
#[derive(Clone, Debug)]
pub(super) enum StoryStep {
    Join {
        reader: bool,
        /// Whether it runs another application than most nodes.
        foreign: bool,
        lanes: u8,
        max_deaths: u8,
        presence: bool,
        duties: u8,
    },
    JoinAgain {
        node: u8,
    },
    Beat {
        node: u8,
        more_known: bool,
        /// Which latencies it hands over, if any.
        times: u8,
        answered: bool,
    },
    /// A member adds to the history.
    Sample {
        node: u8,
        answered: bool,
    },
    Lead {
        node: u8,
        renew: bool,
        more_known: bool,
        missed: SeenAbsent,
        answered: bool,
    },
    Resign {
        node: u8,
        answered: bool,
    },
    /// The source of a generator fails.
    Report {
        node: u8,
        in_a_row: u8,
        answered: bool,
    },
    /// The handler of a node is broken. Its last event may be recent, or it does not matter.
    Complain {
        node: u8,
        patient: bool,
        answered: bool,
    },
    Publish {
        node: u8,
        count: u8,
        /// What moves with the messages: one bit for the checkpoint, one for each tick, one for the plan, one if they are
        /// open messages of an entry, and one if they have keys or delays.
        moves: u8,
        room: u8,
        flaw: Flaw,
        answered: bool,
    },
    Submit {
        publisher: u8,
        count: u8,
        /// Keys, bodies and headers of the messages, four bits for each.
        choices: u32,
        room: u8,
        answered: bool,
    },
    /// A publisher takes a message back, by its key or by its id.
    Cancel {
        publisher: u8,
        by_key: bool,
        which: u8,
        answered: bool,
    },
    Turn {
        node: u8,
        /// What becomes of each message in its hand, four bits for each.
        fates: u64,
        /// How many lanes are free, how many messages each of them wants, and how many more the node takes.
        lanes: u8,
        each: u8,
        reserve: u8,
        flaw: Flaw,
        answered: bool,
    },
    Take {
        node: u8,
        settles: u8,
        wants: u8,
        flaw: Flaw,
        answered: bool,
    },
    Suspects {
        short_leases: bool,
    },
    Bury {
        victim: u8,
        detector: Option<u8>,
        missed: SeenAbsent,
    },
    Leave {
        node: u8,
        answered: bool,
    },
    Wake,
    /// Pauses or resumes something: for how many hours, for ever, or not at all.
    Pause {
        what: u8,
        hours: u8,
    },
    /// Sets or removes the limits.
    Limit {
        in_flight: u8,
        rate: u8,
        stale: bool,
    },
    Resolve {
        drops: bool,
        which: u8,
    },
    Snapshot {
        stale: bool,
    },
    /// A call that was sent `back` calls ago arrives only now, or arrives again.
    Late {
        back: u8,
    },
    /// A sequence of calls that one node sent arrives only now, or arrives again, in the old order. A whole connection
    /// was delayed.
    LateStretch {
        node: u8,
        from: u8,
    },
    Expire {
        node: u8,
    },
    /// The connection of a node breaks, or comes back.
    Connection {
        node: u8,
        back: bool,
    },
    /// A deadline is far in the future, as after a clock jumped back.
    Ahead {
        node: u8,
    },
    /// The hash of a member is deleted.
    Forget {
        node: u8,
    },
    LoseEpoch {
        how: u8,
    },
    MoveDue {
        ahead: bool,
    },
    /// An open message is lost, and its id stays.
    LoseOpen,
    /// The window of a key ends.
    EndKey {
        which: u8,
    },
    /// Time passes, and some delayed messages are due.
    Pass {
        count: u8,
    },
    /// Time passes between two samples, or the clock is set back.
    HistoryMoves {
        how: u8,
    },
    /// Time passes, and a pause is over.
    PauseOver {
        handling: bool,
    },
    /// Time passes, and the rate allows the next message.
    RateOpens,
    /// A node and a publisher find a ring of another version.
    OtherVersion,
}

/// What is wrong with a call. Nodes never send such calls, unless Redis lost data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Flaw {
    None,
    /// A number that is too low: epoch, cursor, last claim.
    Behind,
    /// A number that is too high: first id, cursor, last claim.
    Beyond,
    /// A count that is one too high: earlier publishes, settled messages.
    TooMany,
}

/// Since when the sender claims to have missed the member that the call is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SeenAbsent {
    Never,
    /// For longer than the grace period.
    LongSince,
    /// For less than the grace period.
    JustNow,
}

pub(super) fn story() -> impl Strategy<Value = Story> {
    let journal = prop::bool::weighted(0.9);
    (journal, vec(step(), 1..=100)).prop_map(|(journal, steps)| Story { journal, steps })
}

fn step() -> impl Strategy<Value = StoryStep> {
    let one = any::<u8>;
    let answered = || prop::bool::weighted(0.8);
    let seldom = || prop::bool::weighted(0.1);
    prop_oneof![
        12 => (prop::bool::weighted(0.2), prop::bool::weighted(0.05), 1..=3_u8, 1..=4_u8, any::<bool>(), one()).prop_map(
            |(reader, foreign, lanes, max_deaths, presence, duties)| {
                StoryStep::Join { reader, foreign, lanes, max_deaths, presence, duties }
            }
        ),
        1 => one().prop_map(|node| StoryStep::JoinAgain { node }),
        6 => (one(), seldom(), one(), answered()).prop_map(|(node, more_known, times, answered)| {
            StoryStep::Beat { node, more_known, times, answered }
        }),
        8 => (one(), answered()).prop_map(|(node, answered)| StoryStep::Sample { node, answered }),
        10 => (one(), seldom(), seldom(), missed(), answered()).prop_map(
            |(node, renew, more_known, missed, answered)| {
                StoryStep::Lead { node, renew, more_known, missed, answered }
            }
        ),
        2 => (one(), answered()).prop_map(|(node, answered)| StoryStep::Resign { node, answered }),
        4 => (one(), 1..=10_u8, answered()).prop_map(|(node, in_a_row, answered)| {
            StoryStep::Report { node, in_a_row, answered }
        }),
        2 => (one(), any::<bool>(), answered()).prop_map(|(node, patient, answered)| {
            StoryStep::Complain { node, patient, answered }
        }),
        22 => (one(), 0..=4_u8, moves(), one(), flaw(), answered()).prop_map(
            |(node, count, moves, room, flaw, answered)| {
                StoryStep::Publish { node, count, moves, room, flaw, answered }
            }
        ),
        14 => (one(), 1..=4_u8, any::<u32>(), one(), answered()).prop_map(
            |(publisher, count, choices, room, answered)| {
                StoryStep::Submit { publisher, count, choices, room, answered }
            }
        ),
        6 => (one(), any::<bool>(), one(), answered()).prop_map(|(publisher, by_key, which, answered)| {
            StoryStep::Cancel { publisher, by_key, which, answered }
        }),
        40 => (one(), any::<u64>(), 0..=3_u8, 1..=3_u8, 0..=2_u8, flaw(), answered()).prop_map(
            |(node, fates, lanes, each, reserve, flaw, answered)| {
                StoryStep::Turn { node, fates, lanes, each, reserve, flaw, answered }
            }
        ),
        14 => (one(), one(), 0..=3_u8, flaw(), answered()).prop_map(
            |(node, settles, wants, flaw, answered)| {
                StoryStep::Take { node, settles, wants, flaw, answered }
            }
        ),
        1 => any::<bool>().prop_map(|short_leases| StoryStep::Suspects { short_leases }),
        10 => (one(), prop::option::of(one()), missed())
            .prop_map(|(victim, detector, missed)| StoryStep::Bury { victim, detector, missed }),
        3 => (one(), answered()).prop_map(|(node, answered)| StoryStep::Leave { node, answered }),
        1 => Just(StoryStep::Wake),
        4 => (one(), one()).prop_map(|(what, hours)| StoryStep::Pause { what, hours }),
        4 => (one(), one(), seldom())
            .prop_map(|(in_flight, rate, stale)| StoryStep::Limit { in_flight, rate, stale }),
        8 => (any::<bool>(), one()).prop_map(|(drops, which)| StoryStep::Resolve { drops, which }),
        2 => seldom().prop_map(|stale| StoryStep::Snapshot { stale }),
        12 => one().prop_map(|back| StoryStep::Late { back }),
        3 => (one(), one()).prop_map(|(node, from)| StoryStep::LateStretch { node, from }),
        8 => one().prop_map(|node| StoryStep::Expire { node }),
        5 => (one(), prop::bool::weighted(0.4)).prop_map(|(node, back)| StoryStep::Connection { node, back }),
        2 => one().prop_map(|node| StoryStep::Ahead { node }),
        1 => one().prop_map(|node| StoryStep::Forget { node }),
        1 => one().prop_map(|how| StoryStep::LoseEpoch { how }),
        1 => any::<bool>().prop_map(|ahead| StoryStep::MoveDue { ahead }),
        2 => one().prop_map(|which| StoryStep::EndKey { which }),
        1 => Just(StoryStep::LoseOpen),
        6 => one().prop_map(|count| StoryStep::Pass { count }),
        3 => any::<bool>().prop_map(|handling| StoryStep::PauseOver { handling }),
        5 => one().prop_map(|how| StoryStep::HistoryMoves { how }),
        6 => Just(StoryStep::RateOpens),
        1 => Just(StoryStep::OtherVersion),
    ]
}

/// Most publishes move nothing besides their messages.
fn moves() -> impl Strategy<Value = u8> {
    prop_oneof![2 => Just(0), 1 => 0..64_u8, 1 => 16..20_u8, 1 => 32..34_u8, 1 => 48..50_u8]
}

fn missed() -> impl Strategy<Value = SeenAbsent> {
    prop_oneof![1 => Just(SeenAbsent::Never), 2 => Just(SeenAbsent::LongSince), 1 => Just(SeenAbsent::JustNow)]
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![20 => Just(Flaw::None), 1 => Just(Flaw::Behind), 1 => Just(Flaw::Beyond), 1 => Just(Flaw::TooMany)]
}

impl Flaw {
    pub fn is_none(self) -> bool {
        self == Self::None
    }
}
