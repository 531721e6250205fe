//! Reports to systemd, over the socket that `NOTIFY_SOCKET` names: when the node has joined its ring,
//! when it stops, and that its control threads run.

use std::collections::BTreeSet;
use std::sync::Mutex;

use estafeta::{Notice, Partition};
use sd_notify::NotifyState;

/// The service manager that started this process.
pub struct ServiceManager {
    ring: String,
    /// Whether it ends a service that it does not hear of.
    watches: bool,
    progress: Mutex<Progress>,
}

/// Which partitions have reported. A ring that is not divided has one.
#[derive(Default)]
struct Progress {
    joined: BTreeSet<u32>,
    leads: BTreeSet<u32>,
    /// Those whose control threads ran since the last message about that.
    ran: BTreeSet<u32>,
}

impl ServiceManager {
    /// None if no service manager expects messages.
    pub fn from_environment(ring: String) -> Option<Self> {
        std::env::var_os("NOTIFY_SOCKET")?;
        let watches = sd_notify::watchdog_enabled().is_some();
        Some(Self { ring, watches, progress: Mutex::new(Progress::default()) })
    }

    pub fn notice(&self, partition: Partition, notice: &Notice<'_>) {
        let mut progress = self.progress.lock().expect("no panic while held");
        let Progress { joined, leads, ran } = &mut *progress;
        let Partition { index, count, .. } = partition;
        let are_all = |partitions: &BTreeSet<u32>| partitions.len() as u64 == u64::from(count);
        let role = |leads: &BTreeSet<u32>| {
            let role = if leads.is_empty() { "handler" } else { "generator" };
            format!("{role} of ring {}", self.ring)
        };
        match notice {
            Notice::Joined { .. } => {
                joined.insert(index);
                // The node works when it is a member of all partitions.
                if are_all(joined) {
                    send(&[NotifyState::Ready, NotifyState::Status(&role(leads))]);
                }
            }
            Notice::BecameGenerator { .. } => {
                leads.insert(index);
                send(&[NotifyState::Status(&role(leads))]);
            }
            Notice::BecameHandler => {
                leads.remove(&index);
                send(&[NotifyState::Status(&role(leads))]);
            }
            Notice::DeclaredDead => {
                leads.remove(&index);
            }
            Notice::RedisLost { .. } => send(&[NotifyState::Status("waits for Redis")]),
            Notice::RedisBack => send(&[NotifyState::Status(&format!("member of ring {}", self.ring))]),
            Notice::Stopping => send(&[NotifyState::Stopping]),
            // This notice comes from a control thread, and needs no Redis. If one of them hangs, the node hangs.
            Notice::StillRunning if self.watches => {
                ran.insert(index);
                if are_all(ran) {
                    ran.clear();
                    send(&[NotifyState::Watchdog]);
                }
            }
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
