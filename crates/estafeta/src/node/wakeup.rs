//! Wakes idle lanes without polling.
//!
//! `publish` leaves one token in the list `wakeup`, and one listener in the whole ring receives it. A node listens on a
//! separate connection, with one `BLPOP` for all of its lanes, and only while one of them is idle. The lane that wakes
//! claims messages, and `turn` sends another wakeup if more are waiting. A wakeup carries no message, so no message can
//! be lost with it. If a frozen node swallows a wakeup, it is delayed until the generator's next sweep.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::redis::Store;

/// What the lanes share: how many of them are idle, and the signal that wakes one.
#[derive(Clone)]
pub(crate) struct Wakeup {
    idle: Arc<watch::Sender<Idle>>,
    call: Arc<Notify>,
}

#[derive(Clone, Copy, Default)]
struct Idle {
    lanes: usize,
    /// One idle lane was called and has not noticed yet.
    called: bool,
}

impl Wakeup {
    pub fn new() -> Self {
        Self { idle: Arc::new(watch::Sender::new(Idle::default())), call: Arc::new(Notify::new()) }
    }

    /// Waits for a wakeup. The future may be dropped at any time: a wakeup that reached this lane goes on to the next
    /// one.
    pub async fn wait(&self) {
        struct WaitingLane<'a> {
            idle: &'a watch::Sender<Idle>,
            was_called: bool,
        }
        impl Drop for WaitingLane<'_> {
            fn drop(&mut self) {
                self.idle.send_modify(|idle| {
                    idle.lanes -= 1;
                    idle.called &= !self.was_called;
                });
            }
        }
        self.idle.send_modify(|idle| idle.lanes += 1);
        let mut waiting = WaitingLane { idle: &self.idle, was_called: false };
        self.call.notified().await;
        waiting.was_called = true;
    }

    /// Listens for wakeups on `wakeup_connection`, a store with a separate connection. Passes a wakeup on through
    /// `store` if no lane wants it any more. It does not listen again before the called lane has noticed. A single lane
    /// then finds the wakeup connection free for its next step.
    pub async fn listen(
        self,
        wakeup_connection: Store,
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
            let has_token = tokio::select! {
                () = end.cancelled() => return Ok(()),
                has_token = wakeup_connection.await_wakeup(wait) => has_token?,
            };
            if !has_token {
                continue;
            }
            let wanted = self.idle.send_if_modified(|idle| {
                idle.called = idle.lanes > 0;
                idle.called
            });
            if wanted {
                self.call.notify_one();
            } else {
                store.wake().await?;
            }
        }
    }
}
