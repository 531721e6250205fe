//! A ring seen from outside: what commands, monitors and tests inspect without joining it.

mod checkup;
mod dead_letters;
mod event;
mod history;
mod journal;
mod queries;
mod results;
mod ring;
mod schedule;
pub(crate) mod snapshot;
mod whole;
mod whole_history;

pub use crate::node::Burial;
pub use checkup::{ServerFinding, Severity};
pub use dead_letters::DeadLetterReader;
pub use event::{Event, EventKind};
pub use history::{CountRates, GapReason, HistoryGap, HistoryRange, RingHistory, Sample};
pub use journal::JournalEntry;
pub use results::MessageResult;
pub use ring::{Ring, Selection};
pub(crate) use ring::{count_partitions, divide};
pub use schedule::{Moment, PlannedEntry};
pub use snapshot::{GeneratorView, MemberView, Pause, Role, Snapshot};
