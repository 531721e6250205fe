//! Commands in any language as handlers and sources of a ring.
//!
//! A node of the library calls functions. This crate makes such functions of commands: [`MessageCommand`] starts one
//! process per message, [`LineCommand`] keeps processes that answer line by line, [`TickCommand`] runs a command per tick,
//! and [`FeedCommand`] keeps one that publishes while its node is in office. `docs/any-language.md` is the contract with
//! the commands.
//!
//! **Who starts and ends processes.** The node starts them, each in its own process group, and ends them by group:
//! SIGTERM, then SIGKILL after a while. When the first process of a group has exited, the rest of the group is killed
//! before that process is reaped. Until then no other process can have its id, so no signal reaches a stranger.
//!
//! **If the node is killed.** It cannot end anything then. So each node with commands has a [guard], a tiny process
//! that knows all groups of its node. It holds the end of a pipe. When the pipe closes, the node is gone, and the guard
//! kills what is left.
//!
//! **What is never a success.** A reply that is missing, empty, cut off or not understood makes the message wait for
//! another attempt. Only an exit code of 0 or the word `done` means that a message is done.
//!
//! **Bounds.** Each output is read to its end, so that no command blocks in a write, and only a bounded part of it is kept.

#![warn(missing_debug_implementations)]

mod command_line;
mod context;
mod environment;
mod feed_command;
pub mod guard;
mod line_command;
mod message_command;
mod output;
mod printed_message;
mod process;
mod reply;
mod rests;
mod tick_command;

pub use command_line::CommandLine;
pub use context::CommandContext;
pub use feed_command::FeedCommand;
pub use guard::Guard;
pub use line_command::LineCommand;
pub use message_command::MessageCommand;
pub use output::Relay;
pub use printed_message::LineForm;
pub use tick_command::TickCommand;
