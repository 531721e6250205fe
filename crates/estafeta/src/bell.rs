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

/// What the lanes share: who of them is idle, and the call that wakes one.
#[derive(Clone)]
pub(crate) struct Bell {
    idle: Arc<watch::Sender<Idle>>,
    call: Arc<Notify>,
}

#[derive(Clone, Copy, Default)]
struct Idle {
    lanes: usize,
    /// One of them was called and has not noticed yet.
    called: bool,
}

impl Bell {
    pub fn new() -> Self {
        Self { idle: Arc::new(watch::Sender::new(Idle::default())), call: Arc::new(Notify::new()) }
    }

    /// Waits for a ring. May be dropped at any time: a ring that reached this lane goes on to the next one.
    pub async fn wait(&self) {
        struct Waiting<'a> {
            idle: &'a watch::Sender<Idle>,
            was_called: bool,
        }
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.idle.send_modify(|idle| {
                    idle.lanes -= 1;
                    idle.called &= !self.was_called;
                });
            }
        }
        self.idle.send_modify(|idle| idle.lanes += 1);
        let mut waiting = Waiting { idle: &self.idle, was_called: false };
        self.call.notified().await;
        waiting.was_called = true;
    }

    /// Listens for the ring on `ear`, a store with a connection of its own, and passes it on through `store` if no lane
    /// wants it any more. It does not listen again before the one that was called has noticed: a lane alone then finds
    /// the ear's connection free for its next step.
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
                _ = idle.wait_for(|idle| idle.lanes > 0 && !idle.called) => {}
            }
            let heard = tokio::select! {
                () = end.cancelled() => return Ok(()),
                heard = ear.hear_bell(wait) => heard?,
            };
            if !heard {
                continue;
            }
            let wanted = self.idle.send_if_modified(|idle| {
                idle.called = idle.lanes > 0;
                idle.called
            });
            if wanted {
                self.call.notify_one();
            } else {
                store.ring_bell().await?;
            }
        }
    }
}
