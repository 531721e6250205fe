//! Reports to systemd, over the socket that `NOTIFY_SOCKET` names: when the node has joined its ring,
//! when it stops, and that its control thread runs.

use estafeta::Notice;
use sd_notify::NotifyState;

/// The service manager that started this process.
pub struct ServiceManager {
    ring: String,
    /// Whether it ends a service that it does not hear of.
    watches: bool,
}

impl ServiceManager {
    /// None if no service manager expects messages.
    pub fn from_environment(ring: String) -> Option<Self> {
        std::env::var_os("NOTIFY_SOCKET")?;
        Some(Self { ring, watches: sd_notify::watchdog_enabled().is_some() })
    }

    pub fn notice(&self, notice: &Notice<'_>) {
        let status = |text: &str| format!("{text} {}", self.ring);
        match notice {
            Notice::Joined { .. } => {
                send(&[NotifyState::Ready, NotifyState::Status(&status("handler of ring"))]);
            }
            Notice::BecameGenerator { .. } => send(&[NotifyState::Status(&status("generator of ring"))]),
            Notice::BecameHandler => send(&[NotifyState::Status(&status("handler of ring"))]),
            Notice::RedisLost { .. } => send(&[NotifyState::Status("waits for Redis")]),
            Notice::RedisBack => send(&[NotifyState::Status(&status("member of ring"))]),
            Notice::Stopping => send(&[NotifyState::Stopping]),
            // This notice comes from the control thread, and needs no Redis.
            Notice::StillRunning if self.watches => send(&[NotifyState::Watchdog]),
            _ => {}
        }
    }
}

/// A message that cannot be sent is lost: the node must not stop because of its supervisor.
fn send(messages: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(messages) {
        tracing::debug!("cannot notify the service manager: {error}");
    }
}
