//! Where it is measured: a Redis, and rings on it that nobody else has.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use estafeta::{Endpoint, Ring, RingName};

use super::server::Server;
use super::{Audience, Order};
use crate::own_redis::{Disk, OwnRedis};

/// How long it may take until what was already on its way to Redis has arrived.
const LAST_WORDS: Duration = Duration::from_millis(200);

pub struct Stand<'a> {
    pub order: &'a Order,
    pub audience: &'a dyn Audience,
    pub endpoint: Endpoint,
    pub server: Server,
    pub directory: PathBuf,
    /// Rings that are not erased yet.
    rings: Mutex<Vec<RingName>>,
    /// It ends with this value.
    _own: Option<OwnRedis>,
}

impl<'a> Stand<'a> {
    pub async fn set_up(order: &'a Order, directory: &Path, audience: &'a dyn Audience) -> Result<Self> {
        let place = directory.to_owned();
        let (own, endpoint) = match &order.redis {
            Some(given) => (None, given.clone()),
            None => {
                let start = tokio::task::spawn_blocking(move || OwnRedis::start(&place, Disk::Nothing));
                let own = start.await??;
                let endpoint = own.endpoint()?;
                (Some(own), endpoint)
            }
        };
        // The library knows best why a server is of no use.
        Ring::connect(endpoint.clone(), new_name()?).await?;
        let server = Server::connect(&endpoint).await?;
        let (directory, rings) = (directory.to_owned(), Mutex::default());
        Ok(Self { order, audience, endpoint, server, directory, rings, _own: own })
    }

    /// What the figures depend on, in words.
    pub async fn describe(&self) -> Result<String> {
        let place = match &self.order.redis {
            Some(given) => given.to_string(),
            None => "a server of its own, unix socket".to_owned(),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.as_ref().and_then(|load| load.split(' ').next());
        let load = load.map_or_else(String::new, |load| format!(" with a load of {load}"));
        let version = self.server.version().await?;
        Ok(format!("Redis {version} ({place}), {cores} cores here{load}"))
    }

    /// A new ring.
    pub fn ring(&self) -> Result<RingName> {
        let name = new_name()?;
        self.rings.lock().expect("no panic while held").push(name.clone());
        Ok(name)
    }

    /// Takes everything of a ring out of Redis.
    pub async fn erase(&self, ring: &RingName) -> Result<()> {
        self.server.delete(&floor_key(ring)).await?;
        Ring::connect(self.endpoint.clone(), ring.clone()).await?.erase().await?;
        self.rings.lock().expect("no panic while held").retain(|other| other != ring);
        Ok(())
    }

    /// Erases what is left of measurements that were broken off.
    pub async fn clear(&self) -> Result<()> {
        let left = self.rings.lock().expect("no panic while held").clone();
        if self.order.redis.is_none() || left.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(LAST_WORDS).await;
        for ring in left {
            self.erase(&ring).await?;
        }
        Ok(())
    }

    pub fn step(&self, what: &str) {
        self.audience.step(what);
    }
}

/// The list by which the floor is measured.
pub fn floor_key(ring: &RingName) -> String {
    format!("{{{ring}}}:floor")
}

fn new_name() -> Result<RingName> {
    Ok(format!("bench-{:016x}", rand::random::<u64>()).parse()?)
}
