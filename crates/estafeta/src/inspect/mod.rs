//! A ring seen from outside: what commands, monitors and tests inspect without joining it.

mod dead_letters;
mod event;
mod journal;
mod queries;
mod ring;
pub(crate) mod snapshot;

pub use crate::node::Burial;
pub use dead_letters::DeadLetterReader;
pub use event::{Event, EventKind};
pub use journal::JournalEntry;
pub use ring::{Ring, Selection};
pub use snapshot::{GeneratorView, MemberView, Role, Snapshot};
