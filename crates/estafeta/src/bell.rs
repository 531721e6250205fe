//! Wakes idle lanes without polling.
//!
//! `publish` leaves one token in the list `bell`; one listener of the whole ring gets it. A copy listens on a connection
//! of its own, with one `BLPOP` for all of its lanes, and only while one of them is idle; whoever is woken claims, and
//! `turn` rings again if more is waiting. The bell carries no message, so nothing is lost with it: a frozen copy that
//! swallows a ring delays it until the generator's next sweep.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::store::Store;

/// What the lanes share: how many of them are idle, and the call that wakes one.
#[derive(Clone)]
pub(crate) struct Bell {
    idle: Arc<watch::Sender<usize>>,
    rung: Arc<Notify>,
}

impl Bell {
    pub fn new() -> Self {
        Self { idle: Arc::new(watch::Sender::new(0)), rung: Arc::new(Notify::new()) }
    }

    /// Waits for a ring. May be dropped at any time: a ring that reached this lane goes on to the next one.
    pub async fn wait(&self) {
        struct Idle<'a>(&'a watch::Sender<usize>);
        impl Drop for Idle<'_> {
            fn drop(&mut self) {
                self.0.send_modify(|idle| *idle -= 1);
            }
        }
        self.idle.send_modify(|idle| *idle += 1);
        let _idle = Idle(&self.idle);
        self.rung.notified().await;
    }

    /// Listens for the ring on `ear`, a store with a connection of its own, and passes it on through `store` if no lane
    /// wants it any more.
    pub async fn listen(
        self,
        ear: Store,
        store: Store,
        wait: Duration,
        end: CancellationToken,
    ) -> Result<()> {
        let mut idle = self.idle.subscribe();
        loop {
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                _ = idle.wait_for(|idle| *idle > 0) => {}
            }
            let heard = tokio::select! {
                () = end.cancelled() => return Ok(()),
                heard = ear.hear_bell(wait) => heard?,
            };
            if !heard {
                continue;
            }
            if *self.idle.borrow() > 0 {
                self.rung.notify_one();
            } else {
                store.ring_bell().await?;
            }
        }
    }
}
