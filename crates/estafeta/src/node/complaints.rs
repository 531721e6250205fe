//! Has the ring get an event if the handler of this node is broken.
//!
//! Lanes leave their complaints here and go on. One task sends them, at most one per [`PAUSE`], so that the events of a
//! node with a broken handler do not crowd out all others. Observers get a notice for every message that went back.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::state::MemberState;
use crate::error::{Error, Result};
use crate::failure::brief;
use crate::redis::Store;

/// The shortest time between two events about the handler of one node.
const PAUSE: Duration = Duration::from_secs(600);

/// The last complaint of any lane.
pub(super) struct Complaints(watch::Sender<Option<String>>);

impl Complaints {
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    pub fn add(&self, reason: &str) {
        self.0.send_replace(Some(brief(reason).to_owned()));
    }

    /// Sends complaints until the node has stopped.
    pub async fn send(
        &self,
        store: Store,
        state: watch::Receiver<MemberState>,
        end: CancellationToken,
    ) -> Result<()> {
        let mut complaints = self.0.subscribe();
        loop {
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                changed = complaints.changed() => if changed.is_err() { return Ok(()) },
            }
            let reason = complaints.borrow_and_update().clone();
            let me = state.borrow().identity();
            let (Some(reason), Some(me)) = (reason, me) else { continue };
            match store.complain(me.incarnation, PAUSE, &reason).await {
                Ok(()) => {}
                Err(Error::Stopped) => return Ok(()),
                // The node goes on without the event.
                Err(error) => tracing::warn!("could not report the broken handler: {error}"),
            }
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}
