//! What a source sees of its ring while it makes messages: Redis' clock, and which schedule entries are open.
//!
//! An entry is open while one of its messages has no outcome. Redis keeps the ids of these messages, and the steps that
//! give them their outcomes remove them. If a foreign client deletes such a message, its id stays. So before a tick is
//! skipped, a look at the whole ring shows whether any message is left that could be open.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::state::ServerClock;
use crate::error::Result;
use crate::inspect::snapshot;
use crate::redis::Store;

/// How often a generator looks whether the messages of open entries still exist.
const LOOKS: Duration = Duration::from_secs(1);

pub(crate) struct RingView {
    /// Redis' clock, as the heartbeat last heard of it.
    pub clock: watch::Receiver<ServerClock>,
    /// How many messages may wait.
    pub max_waiting: u64,
    store: Store,
    looked_at: Option<Instant>,
    /// The ids of messages that Redis still calls open, although they are gone.
    gone: BTreeSet<Vec<u8>>,
}

impl RingView {
    pub fn new(store: Store, clock: watch::Receiver<ServerClock>, max_waiting: u64) -> Self {
        Self { clock, max_waiting, store, looked_at: None, gone: BTreeSet::new() }
    }

    /// Forgets what was seen in an earlier term. A ring that was wiped gives out its ids again.
    pub(super) fn begin_term(&mut self) {
        (self.looked_at, self.gone) = (None, BTreeSet::new());
    }

    /// Whether a message of this schedule entry has no outcome yet. The caller is in office, so no other member opens
    /// one.
    pub async fn is_open(&mut self, entry: &str) -> Result<bool> {
        let open = self.store.open_messages().await?;
        let is_open =
            |gone: &BTreeSet<_>| open.iter().any(|(id, name)| name == entry.as_bytes() && !gone.contains(id));
        if is_open(&self.gone) && self.looked_at.is_none_or(|at| at.elapsed() >= LOOKS) {
            self.looked_at = Some(Instant::now());
            let seen = snapshot::read(&self.store, self.store.ring(), 0).await;
            if seen.is_ok_and(|ring| ring.waiting + ring.later + ring.in_flight == 0) {
                self.gone = open.keys().cloned().collect();
            }
        }
        Ok(is_open(&self.gone))
    }
}
