//! The atomic steps of the protocol, one pair of files per step.
//!
//! Redis runs `NAME.lua`. `NAME.rs` beside it contains everything that Rust knows about the step. It has the keys and
//! arguments, the function of [`Store`](crate::redis::Store) that calls the step, and the meaning of the answer.
//! Several scripts share the functions in `shared/`. Only `shared/queue.lua` knows that messages travel in packs, and
//! in Rust only [`pack`](crate::pack).
//!
//! The header of each script names its keys and arguments. [`Call`] takes each of them with its name, and a test
//! compares the two, because Lua only sees positions.
//!
//! Every step can be repeated without harm after a lost reply, so the store repeats it.

mod beat;
mod brakes;
mod bury;
mod cancel;
mod checkpoint;
mod complain;
mod confirm;
mod divide;
mod effect_targets;
mod join;
mod known;
mod lead;
mod leave;
mod limit;
mod pause;
mod publish;
mod report;
mod resign;
mod resolve;
mod roll;
mod sample;
mod script;
mod snapshot;
mod submit;
mod suspects;
mod take;
#[cfg(test)]
mod tests;
mod turn;
mod upgrade;
mod wake;

pub use beat::Health;
pub(crate) use beat::{Beat, BeatReport, LatencyGroup, Office};
pub use brakes::Rate;
pub(crate) use brakes::{Brakes, NEVER};
pub(crate) use bury::{Bury, Facts};
pub(crate) use cancel::{Cancellation, MessageRef};
pub(crate) use confirm::{CONFIRM, Replication, call as confirm_call, read as read_mark};
pub(crate) use effect_targets::{BadEffects, MessageEffects};
pub use join::Duties;
pub(crate) use join::{Introduction, MemberKind};
pub(crate) use known::Known;
pub(crate) use lead::{Candidacy, Lead, Term};
pub(crate) use limit::LimitChange;
pub use pause::Activity;
pub(crate) use publish::{Dispatch, Fields, Publish};
pub(crate) use report::{Reported, SourceFailure};
pub(crate) use roll::Roll;
pub(crate) use sample::Sampling;
#[cfg(feature = "testing")]
pub(crate) use script::assemble;
pub(crate) use script::{Call, Script};
pub(crate) use submit::{MessageKey, NewMessage, PublishTerms, Submission, Submit, Submitted};
pub(crate) use suspects::Suspects;
pub(crate) use take::{ShownLetters, Take};
pub(crate) use turn::{Disposition, NotDone, Part, SUSPICIOUS, Settlement, Turn};

use std::time::Duration;

use script::script;

/// All scripts, for tests that load or inspect each of them.
#[cfg(test)]
static SCRIPTS: [&Script; 24] = [
    &join::SCRIPT,
    &beat::SCRIPT,
    &lead::SCRIPT,
    &resign::SCRIPT,
    &report::SCRIPT,
    &complain::SCRIPT,
    &publish::SCRIPT,
    &submit::SCRIPT,
    &cancel::SCRIPT,
    &turn::SCRIPT,
    &upgrade::SCRIPT,
    &take::SCRIPT,
    &suspects::SCRIPT,
    &bury::SCRIPT,
    &leave::SCRIPT,
    &wake::SCRIPT,
    &pause::SCRIPT,
    &limit::SCRIPT,
    &checkpoint::SCRIPT,
    &divide::SCRIPT,
    &resolve::SCRIPT,
    &sample::SCRIPT,
    &snapshot::SCRIPT,
    &confirm::SCRIPT,
];

/// Converts a duration to the form that scripts expect.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Converts a boolean to the form that scripts expect.
fn flag(on: bool) -> u8 {
    u8::from(on)
}
