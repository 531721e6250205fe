//! Where a publisher sends its messages: one connection per partition of the ring, and the choice of the partition.
//!
//! A message with a key or a single name belongs to the partition of that name, so that its duplicates meet. All other
//! messages of a call go to one partition, and the calls go to the partitions in turn. One call is one step in one
//! partition. Otherwise it could not be applied as a whole or not at all.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_util::sync::DropGuard;

use super::{PATIENCE, PublisherIdentity};
use crate::config::Config;
use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::inspect::{count_partitions, divide};
use crate::partition::{self, Partition};
use crate::redis::Store;

/// All partitions of a ring, for one publisher and its clones.
pub(super) struct Destinations {
    all: Vec<Destination>,
    /// How many calls have gone to partitions in turn.
    calls: AtomicU32,
}

/// One partition, or a ring that is not divided.
pub(super) struct Destination {
    pub partition: Partition,
    pub store: Store,
    /// The identities without a call in flight.
    pub idle: Mutex<Vec<PublisherIdentity>>,
    /// Ends the task that reconnects.
    _open: DropGuard,
}

impl Destinations {
    /// Connects to all partitions. Redis knows how many there are. The settings decide it for a new ring.
    pub async fn open(config: &Config) -> Result<Self> {
        partition::check(&config.ring, config.partitions)?;
        let (whole, open) = Store::open(config.redis.clone(), config.ring.clone(), PATIENCE).await?;
        let found = match count_partitions(&config.redis, &whole, PATIENCE).await {
            // Redis may be loading its data, for example. The steps compare the numbers again.
            Err(Error::Refused { .. }) => 1,
            found => found?,
        };
        let expected = config.partitions;
        let count = if expected == 1 { found } else { expected };
        if count == 1 {
            return Ok(
                vec![Destination::new(Partition { index: 0, count }, whole, open, config).await?].into()
            );
        }
        divide(&config.redis, &whole.trying_for(PATIENCE), count, PATIENCE).await?;
        let mut all = Vec::new();
        for part in Partition::all(count) {
            let name = part.name_in(&config.ring);
            let (store, open) = Store::open(config.redis.clone(), name, PATIENCE).await?;
            all.push(Destination::new(part, store, open, config).await?);
        }
        Ok(all.into())
    }

    pub fn count(&self) -> u32 {
        self.all[0].partition.count
    }

    /// The partition with this number.
    pub fn at(&self, index: u32) -> Option<&Destination> {
        self.all.get(index as usize)
    }

    /// The partition of a key or a single name.
    pub fn of_key(&self, key: &str) -> &Destination {
        &self.all[Partition::of_key(key, self.count()).index as usize]
    }

    /// The partition for the messages of one call, if `only` one may be used or any.
    pub fn choose<T>(&self, drafts: &[Draft<T>], only: Option<u32>) -> Result<&Destination> {
        let mut chosen = only.and_then(|index| self.at(index));
        for name in drafts.iter().filter_map(Draft::sticky_name).filter(|_| self.count() > 1) {
            let its = self.of_key(name);
            let index = its.partition.index;
            match chosen.replace(its).map(|other| other.partition.index) {
                Some(other) if other != index => {
                    let expected =
                        format!("keys and single names of one partition in one call, here of {other}");
                    let got = format!("'{name}' of partition {index}");
                    return Err(Error::Expected { what: "messages", expected, got });
                }
                _ => {}
            }
        }
        Ok(chosen.unwrap_or_else(|| {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            &self.all[(call % self.count()) as usize]
        }))
    }
}

impl From<Vec<Destination>> for Destinations {
    fn from(all: Vec<Destination>) -> Self {
        // Publishers that start together should not all begin with the same partition.
        Self { all, calls: AtomicU32::new(rand::random()) }
    }
}

impl Destination {
    async fn new(partition: Partition, store: Store, open: DropGuard, config: &Config) -> Result<Self> {
        let store = store.confirming(config.durability);
        store.check_durability().await?;
        Ok(Self { partition, store, idle: Mutex::default(), _open: open })
    }

    /// An identity for one call, with the number of that call.
    pub fn draw_identity(&self) -> PublisherIdentity {
        let idle = self.idle.lock().expect("no panic while held").pop();
        let new = || PublisherIdentity { incarnation: Incarnation::random(), sequence: 0 };
        let mut identity = idle.unwrap_or_else(new);
        identity.sequence += 1;
        identity
    }

    /// The identity has no call in flight any more.
    pub fn put_back(&self, identity: PublisherIdentity) {
        self.idle.lock().expect("no panic while held").push(identity);
    }
}
