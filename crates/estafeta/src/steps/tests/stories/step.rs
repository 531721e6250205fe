//! The steps that stories are made of. They name no member and no message, only numbers which are taken modulo whatever
//! there is when the step's turn comes; so any step can be cut out of a story and the rest still makes sense, which is
//! what shrinking lives on.

use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(super) struct Story {
    /// Whether the members keep a journal.
    pub journal: bool,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Join {
        reader: bool,
        lanes: u8,
        max_attempts: u8,
        presence: bool,
    },
    JoinAgain {
        copy: u8,
    },
    Beat {
        copy: u8,
        heard: bool,
    },
    Lead {
        copy: u8,
        renew: bool,
        more_known: bool,
        missed: Missed,
        heard: bool,
    },
    Resign {
        copy: u8,
        heard: bool,
    },
    Publish {
        copy: u8,
        count: u8,
        room: u8,
        flaw: Flaw,
        heard: bool,
    },
    Turn {
        copy: u8,
        lane: u8,
        settles: u8,
        fails: u8,
        wants: u8,
        flaw: Flaw,
        heard: bool,
    },
    Take {
        copy: u8,
        settles: u8,
        wants: u8,
        flaw: Flaw,
        heard: bool,
    },
    Suspects {
        short_leases: bool,
    },
    Bury {
        victim: u8,
        judge: Option<u8>,
        missed: Missed,
    },
    Leave {
        copy: u8,
        heard: bool,
    },
    Ring,
    Resolve {
        drops: bool,
        which: u8,
    },
    Snapshot {
        stale: bool,
    },
    /// A call that was sent so many calls ago arrives (again) only now.
    Late {
        back: u8,
    },
    /// A stretch of what one copy ever sent arrives (again) only now, in its old order: a whole connection was held up.
    LateStretch {
        copy: u8,
        from: u8,
    },
    Expire {
        copy: u8,
    },
    /// The connection of a copy is gone, or back.
    Connection {
        copy: u8,
        back: bool,
    },
    /// A deadline far in the future, as a clock that jumps back leaves it.
    Ahead {
        copy: u8,
    },
    /// Somebody deletes the hash of a member.
    Forget {
        copy: u8,
    },
    LoseEpoch {
        how: u8,
    },
    MoveDue {
        ahead: bool,
    },
    /// An idle lane gets the bell's token.
    HearBell,
    /// A copy of another version finds the ring.
    OtherVersion,
}

/// What is wrong with a call: copies never send such a thing, unless Redis forgot something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Flaw {
    None,
    /// A number that is too low: epoch, cursor.
    Behind,
    /// One that is too high: first id, cursor.
    Beyond,
    /// One too many: publishes that went before, messages settled.
    TooMany,
}

/// Since when the sender says that it has missed whom it is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Missed {
    Never,
    /// For longer than the grace.
    LongSince,
    /// For less than the grace.
    JustNow,
}

pub(super) fn story() -> impl Strategy<Value = Story> {
    let journal = prop::bool::weighted(0.9);
    (journal, vec(step(), 1..=100)).prop_map(|(journal, steps)| Story { journal, steps })
}

fn step() -> impl Strategy<Value = Step> {
    let one = any::<u8>;
    let heard = || prop::bool::weighted(0.8);
    let seldom = || prop::bool::weighted(0.1);
    prop_oneof![
        12 => (prop::bool::weighted(0.2), 1..=3_u8, 1..=4_u8, any::<bool>()).prop_map(
            |(reader, lanes, max_attempts, presence)| Step::Join { reader, lanes, max_attempts, presence }
        ),
        1 => one().prop_map(|copy| Step::JoinAgain { copy }),
        6 => (one(), heard()).prop_map(|(copy, heard)| Step::Beat { copy, heard }),
        10 => (one(), seldom(), seldom(), missed(), heard()).prop_map(
            |(copy, renew, more_known, missed, heard)| Step::Lead { copy, renew, more_known, missed, heard }
        ),
        2 => (one(), heard()).prop_map(|(copy, heard)| Step::Resign { copy, heard }),
        22 => (one(), 1..=4_u8, one(), flaw(), heard())
            .prop_map(|(copy, count, room, flaw, heard)| Step::Publish { copy, count, room, flaw, heard }),
        34 => (one(), one(), one(), one(), 0..=5_u8, flaw(), heard()).prop_map(
            |(copy, lane, settles, fails, wants, flaw, heard)| {
                Step::Turn { copy, lane, settles, fails, wants, flaw, heard }
            }
        ),
        10 => (one(), one(), 0..=3_u8, flaw(), heard())
            .prop_map(|(copy, settles, wants, flaw, heard)| Step::Take { copy, settles, wants, flaw, heard }),
        1 => any::<bool>().prop_map(|short_leases| Step::Suspects { short_leases }),
        10 => (one(), prop::option::of(one()), missed())
            .prop_map(|(victim, judge, missed)| Step::Bury { victim, judge, missed }),
        3 => (one(), heard()).prop_map(|(copy, heard)| Step::Leave { copy, heard }),
        1 => Just(Step::Ring),
        8 => (any::<bool>(), one()).prop_map(|(drops, which)| Step::Resolve { drops, which }),
        2 => seldom().prop_map(|stale| Step::Snapshot { stale }),
        12 => one().prop_map(|back| Step::Late { back }),
        3 => (one(), one()).prop_map(|(copy, from)| Step::LateStretch { copy, from }),
        8 => one().prop_map(|copy| Step::Expire { copy }),
        5 => (one(), prop::bool::weighted(0.4)).prop_map(|(copy, back)| Step::Connection { copy, back }),
        2 => one().prop_map(|copy| Step::Ahead { copy }),
        1 => one().prop_map(|copy| Step::Forget { copy }),
        1 => one().prop_map(|how| Step::LoseEpoch { how }),
        1 => any::<bool>().prop_map(|ahead| Step::MoveDue { ahead }),
        4 => Just(Step::HearBell),
        1 => Just(Step::OtherVersion),
    ]
}

fn missed() -> impl Strategy<Value = Missed> {
    prop_oneof![1 => Just(Missed::Never), 2 => Just(Missed::LongSince), 1 => Just(Missed::JustNow)]
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![20 => Just(Flaw::None), 1 => Just(Flaw::Behind), 1 => Just(Flaw::Beyond), 1 => Just(Flaw::TooMany)]
}

impl Flaw {
    pub fn is_none(self) -> bool {
        self == Self::None
    }
}
