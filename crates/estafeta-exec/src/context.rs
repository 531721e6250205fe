//! What all commands of one node have in common.

use std::fmt;
use std::sync::Arc;

use estafeta::{Partition, RingName};

use crate::guard::Guard;
use crate::output::Relay;

/// The ring and the Redis of a node, the guard of its commands, and where their output goes.
#[derive(Clone)]
pub struct CommandContext {
    pub(crate) ring: RingName,
    /// The address of Redis, with its password.
    pub(crate) redis: Option<String>,
    /// How many partitions the ring has.
    pub(crate) partitions: u32,
    /// The partition that a source makes messages for.
    pub(crate) partition: Option<u32>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) relay: Relay,
}

impl fmt::Debug for CommandContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandContext").field("ring", &self.ring).finish_non_exhaustive()
    }
}

impl CommandContext {
    /// The commands of a node in this ring.
    pub fn new(ring: RingName, guard: Guard, relay: Relay) -> Self {
        Self { ring, redis: None, partitions: 1, partition: None, guard: guard.into(), relay }
    }

    /// Gives the commands the address of Redis, so that those that call `estafeta` themselves reach the same ring.
    #[must_use]
    pub fn with_redis(self, secret_url: String) -> Self {
        Self { redis: Some(secret_url), ..self }
    }

    /// Lets the commands know how many partitions the ring has.
    #[must_use]
    pub fn with_partitions(self, partitions: u32) -> Self {
        Self { partitions, ..self }
    }

    /// The same context for the source of one partition.
    #[must_use]
    pub fn in_partition(&self, partition: Partition) -> Self {
        Self { partition: (partition.count > 1).then_some(partition.index), ..self.clone() }
    }

    /// Waits for a bounded time until the last lines of the commands are written.
    pub fn finish(&self) {
        self.relay.finish();
    }
}
