//! Watches over the handlers: which of them take too long.
//!
//! The handler of such a message is dropped by its lane. If it is still there a little later, it blocks its thread. The
//! desk then settles the message as failed and counts the lane as stuck. If the lane comes back, its result is ignored.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::lane::timed_out;
use super::{Desk, Handled};
use crate::message::Message;

/// The share of the time limit after which a handler counts as slow.
const SLOW: f64 = 0.8;
/// How long a lane has to drop a handler whose time limit is over, as a share of the limit, and at least.
const DROPPING: f64 = 0.1;
const DROPPING_LEAST: Duration = Duration::from_secs(1);

/// The handlers that take too long.
#[derive(Debug, Default)]
pub(in crate::node) struct Watched {
    /// The messages whose handlers have become slow since the last look.
    pub slow: Vec<Message>,
    /// The messages whose lanes have become stuck since the last look.
    pub stuck: Vec<Message>,
    /// When to look again.
    pub next: Option<Instant>,
}

impl Desk {
    /// Looks for handlers that take too long. Settles the messages of those that block their lanes.
    pub fn watch(&self, now: Instant) -> Watched {
        let mut state = self.lock();
        let limit = state.time_limit;
        let slow_after = limit.mul_f64(SLOW);
        let stuck_after = limit + limit.mul_f64(DROPPING).max(DROPPING_LEAST);
        let mut watched = Watched::default();
        while let Some(running) = state.running.get(state.slow)
            && running.started + slow_after <= now
        {
            watched.slow.push(running.claimed.message().clone());
            state.slow += 1;
        }
        while state.running.front().is_some_and(|first| first.started + stuck_after <= now)
            && let Some(running) = state.running.pop_front()
        {
            state.slow = state.slow.saturating_sub(1);
            self.stuck.fetch_add(1, Ordering::Relaxed);
            watched.stuck.push(running.claimed.message().clone());
            let answer = Err(timed_out(limit));
            let (message, chance) = (running.claimed.message(), rand::random());
            let disposition = state.retry.disposition(message, answer, state.max_deaths, chance);
            let took = now - running.started;
            let claimed = running.claimed;
            state.results.push(Handled { claimed, disposition, effects: None, took, at: now });
        }
        let slow_at = state.running.get(state.slow).map(|running| running.started + slow_after);
        let stuck_at = state.running.front().map(|running| running.started + stuck_after);
        watched.next = slow_at.into_iter().chain(stuck_at).min();
        watched
    }
}
