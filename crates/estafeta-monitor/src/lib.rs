//! The monitor: starts nodes of this program, shows every member of the ring, and lets its user kill, freeze, stop and
//! add nodes.
//!
//! - [`model`] is the ring as data over time. It receives every update and every command, and returns requests. It
//!   touches nothing else, so tests can check every screen from recorded snapshots.
//! - `feed` polls the ring from outside, as `status` does, and lists, retries and drops its errors.
//! - `tui` draws the model in a terminal and reads the keys. `plain` prints one line per second if there is no
//!   terminal.
//! - `app` is the loop that connects them with the [`Fleet`](estafeta_lab::fleet::Fleet) of nodes that the monitor
//!   started.
//!
//! The nodes that the monitor started are its *own* nodes. All other members are *foreign*. The data about a member
//! comes from Redis, whether it is own or foreign. For its own nodes the monitor adds what Redis cannot know yet: that
//! the process has ended, that the monitor froze it, and what it reported since the last poll.
//!
//! The nodes end with the monitor. If the monitor quits, it asks them to stop and kills the rest after a deadline. If
//! the monitor is killed, the kernel kills them on Linux. On other systems they stop when their stdin ends.

#![allow(missing_docs)] // This crate is part of the program and not a public interface.

mod app;
mod feed;
pub mod model;
mod plain;
mod tui;

#[cfg(test)]
mod tests;

pub use app::{Launch, MonitorOptions, run};
pub use model::MonitorInfo;
pub use model::actions::MAX_NODES;
pub use tui::draw::Theme;
