//! How a part of a copy tells the heartbeat that Redis does not agree with what the copy believes of itself.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::member_id::{Epoch, Incarnation};

/// What was refused last, and the call to look into it.
#[derive(Default)]
pub(crate) struct Doubt {
    refused: Mutex<Refused>,
    raised: Notify,
}

#[derive(Default)]
struct Refused {
    epoch: Option<Epoch>,
    member: Option<Incarnation>,
}

impl Doubt {
    /// A publish of this epoch was refused.
    pub fn about_epoch(&self, epoch: Epoch) {
        self.refused().epoch = Some(epoch);
        self.raised.notify_one();
    }

    /// A turn of this member was refused.
    pub fn about_member(&self, member: Incarnation) {
        self.refused().member = Some(member);
        self.raised.notify_one();
    }

    pub fn is_about_epoch(&self, epoch: Epoch) -> bool {
        self.refused().epoch == Some(epoch)
    }

    pub fn is_about_member(&self, member: Incarnation) -> bool {
        self.refused().member == Some(member)
    }

    /// Waits for somebody to doubt.
    pub async fn raised(&self) {
        self.raised.notified().await;
    }

    fn refused(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().expect("no panic while held")
    }
}
