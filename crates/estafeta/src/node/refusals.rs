//! How a part of a node reports to the heartbeat that Redis disagrees with what the node believes about itself.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::identity::{Epoch, Incarnation};

/// What Redis refused last, and the signal to look into it.
#[derive(Default)]
pub(crate) struct Refusals {
    refused: Mutex<Refused>,
    reported: Notify,
}

#[derive(Default)]
struct Refused {
    epoch: Option<Epoch>,
    member: Option<Incarnation>,
}

impl Refusals {
    /// Reports that Redis refused a publish of this epoch.
    pub fn report_epoch(&self, epoch: Epoch) {
        self.refused().epoch = Some(epoch);
        self.reported.notify_one();
    }

    /// Reports that Redis refused a turn of this member.
    pub fn report_member(&self, member: Incarnation) {
        self.refused().member = Some(member);
        self.reported.notify_one();
    }

    pub fn has_epoch(&self, epoch: Epoch) -> bool {
        self.refused().epoch == Some(epoch)
    }

    pub fn has_member(&self, member: Incarnation) -> bool {
        self.refused().member == Some(member)
    }

    /// Waits until a part reports a refusal.
    pub async fn reported(&self) {
        self.reported.notified().await;
    }

    fn refused(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().expect("no panic while held")
    }
}
