//! The monitor: starts copies of this program, shows every member of the ring, whoever started it, and lets its user
//! kill, freeze, stop and add copies.
//!
//! Four parts, and one loop that brings them together (`stage`):
//!
//! - `brood` has the copies that were started here: processes, told and heard over stdin and stdout.
//! - `feed` looks at the ring from outside, as `status` does, and works on its errors.
//! - `state` is what is known. It hears of everything above and of the keys, and answers with deeds; it touches nothing,
//!   so that every screen can be tested from recorded snapshots.
//! - `draw` makes a picture of the state, `plain` a line for where there is no terminal.
//!
//! What is shown of a member comes from Redis, for those of other machines as for our own. A copy of ours adds what only
//! its process can tell: that it has ended, that it was frozen from here, what it did since the last look.
//!
//! The copies end with the monitor. If it quits, they are told to stop and, past a deadline, killed; if it is killed
//! itself, the kernel kills them (Linux), and the end of their stdin tells them elsewhere. The private Redis is stopped
//! if the monitor started it and nobody else uses it.

mod act;
mod brood;
mod draw;
mod errors_view;
mod feed;
mod history;
mod keys;
mod log;
mod own;
mod plain;
mod rows;
mod said;
mod screen;
mod stage;
mod state;
#[cfg(test)]
mod tests;

pub use act::MOST_COPIES;
pub use brood::Family;
pub use draw::Ink;
pub use feed::Place;
pub use stage::{Order, run};
pub use state::Setting;
