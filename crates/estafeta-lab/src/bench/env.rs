//! The environment of a bench: a Redis, and rings on it that no other program uses.
//!
//! A bench that is killed leaves its rings behind. On a Redis that the user named, the next bench erases them. All
//! rings of a bench carry its tag, and so does the name of its connection. Redis lists that connection exactly as long
//! as the bench lives. A bench may have no right to name its connection, so a ring with live members is never erased.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use estafeta::{Endpoint, Health, Ring, RingName};

use super::{BenchObserver, BenchOptions};
use crate::ephemeral_redis::{Disk, EphemeralRedis};
use crate::server::{self, Server};
use crate::text::counted;

/// How long to wait before a lost connection is opened again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// How long writes that are already on their way to Redis may take to arrive.
const LATE_WRITES: Duration = Duration::from_millis(200);

pub struct BenchEnv<'a> {
    pub options: &'a BenchOptions,
    pub observer: &'a dyn BenchObserver,
    pub endpoint: Endpoint,
    pub server: Server,
    pub directory: PathBuf,
    tag: Tag,
    made: AtomicUsize,
    /// Rings that are not erased yet.
    rings: Mutex<Vec<RingName>>,
    /// The server that bench started, if it did. It ends with this value.
    _own: Option<EphemeralRedis>,
}

impl<'a> BenchEnv<'a> {
    pub async fn set_up(
        options: &'a BenchOptions,
        directory: &Path,
        observer: &'a dyn BenchObserver,
    ) -> Result<Self> {
        let place = directory.to_owned();
        let (own, endpoint) = match &options.redis {
            Some(given) => (None, given.clone()),
            None => {
                let start = tokio::task::spawn_blocking(move || EphemeralRedis::start(&place, Disk::Nothing));
                let own = start.await??;
                let endpoint = own.endpoint()?;
                (Some(own), endpoint)
            }
        };
        // The library gives the best explanation if a server cannot be used.
        let tag = Tag::random();
        // All rings of a bench are on the server that keeps this one at the moment.
        let endpoint = Ring::connect(endpoint.clone(), tag.ring(0)?).await?.located().await?;
        let server = Server::connect(&endpoint).await?;
        if let Err(error) = server.try_to_write(&tag.unused_key()).await {
            return Err(estafeta::Error::Refused { address: endpoint.to_string(), reason: error }.into());
        }
        let (directory, made, rings) = (directory.to_owned(), AtomicUsize::new(0), Mutex::default());
        let env = Self { options, observer, endpoint, server, directory, tag, made, rings, _own: own };
        if options.redis.is_some()
            && let Err(error) = env.erase_abandoned_rings().await
        {
            tracing::warn!("cannot look for rings of killed benches: {error:#}");
        }
        Ok(env)
    }

    /// Erases the rings of benches that were killed.
    async fn erase_abandoned_rings(&self) -> Result<()> {
        self.server.set_name(&self.tag.connection()).await?;
        // The order matters: a bench names its connection before it makes a ring.
        let keys = self.server.keys("{bench-*}/*").await?;
        let alive = self.server.names().await?;
        let rings: BTreeSet<String> = keys.iter().filter_map(|key| ring_of(key)).collect();
        for ring in rings {
            let is_named = |tag: Tag| alive.contains(&tag.connection());
            if Tag::of(&ring).is_some_and(|tag| !is_named(tag))
                && let Err(error) = self.erase_if_dead(&ring.parse()?).await
            {
                tracing::warn!("cannot erase {ring}, the ring of a killed bench: {error:#}");
            }
        }
        Ok(())
    }

    async fn erase_if_dead(&self, ring: &RingName) -> Result<()> {
        if !self.has_live_members(ring).await? {
            tracing::info!("erasing {ring}, the ring of a killed bench");
            self.erase(ring).await?;
        }
        Ok(())
    }

    /// Whether any member of the ring is alive.
    async fn has_live_members(&self, ring: &RingName) -> Result<bool> {
        let ring = Ring::connect(self.endpoint.clone(), ring.clone()).await?;
        Ok(ring.snapshot(0).await?.members.iter().any(|member| member.state == Health::Alive))
    }

    /// Waits until Redis is gone, and returns why. Most measurements would notice that late.
    pub async fn until_redis_is_gone(&self) -> anyhow::Error {
        let unused = self.tag.unused_key();
        loop {
            let Err(error) = server::until_gone(&self.endpoint, &unused).await;
            tracing::debug!("lost the connection that watches Redis: {error:#}");
            if let Some(gone) = self.redis_is_gone().await {
                return gone;
            }
            // Only this connection was lost.
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
    }

    /// Returns why Redis cannot be reached any more. None if it can.
    pub async fn redis_is_gone(&self) -> Option<anyhow::Error> {
        Ring::connect(self.endpoint.clone(), self.tag.ring(0).ok()?).await.err().map(Into::into)
    }

    /// Describes what the figures depend on.
    pub async fn describe(&self) -> Result<String> {
        let place = match &self.options.redis {
            Some(given) => given.to_string(),
            None => "ephemeral server, unix socket".to_owned(),
        };
        let cores = counted(std::thread::available_parallelism().map_or(1, usize::from) as u64, "core");
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.as_ref().and_then(|load| load.split(' ').next());
        let load = load.map_or_else(String::new, |load| format!(", load average {load}"));
        let server = self.server.product().await?;
        Ok(format!("{server} ({place}), {cores}{load}"))
    }

    /// Returns the name of a new ring.
    pub fn ring(&self) -> Result<RingName> {
        let name = self.tag.ring(self.made.fetch_add(1, Ordering::Relaxed) + 1)?;
        self.rings.lock().expect("no panic while held").push(name.clone());
        Ok(name)
    }

    /// Removes all data of a ring from Redis.
    pub async fn erase(&self, ring: &RingName) -> Result<()> {
        let floor = self.server.delete(&floor_key(ring)).await;
        Ring::connect(self.endpoint.clone(), ring.clone()).await?.erase().await?;
        floor?;
        self.rings.lock().expect("no panic while held").retain(|other| other != ring);
        Ok(())
    }

    /// Erases the rings of measurements that broke off, as many of them as possible.
    pub async fn clear(&self) -> Result<()> {
        let left = self.rings.lock().expect("no panic while held").clone();
        if self.options.redis.is_none() || left.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(LATE_WRITES).await;
        let mut cleared = Ok(());
        for ring in left {
            cleared = cleared.and(self.erase(&ring).await);
        }
        cleared
    }

    pub fn step(&self, what: &str) {
        self.observer.step(what);
    }
}

/// The key of the list with which the floor is measured.
pub fn floor_key(ring: &RingName) -> String {
    key(ring, "floor")
}

/// A key of a ring.
pub fn key(ring: &RingName, name: &str) -> String {
    match ring.as_str().split_once('/') {
        Some((group, ring)) => format!("{{{group}}}/{ring}:{name}"),
        None => format!("{{{ring}}}:{name}"),
    }
}

/// The ring of a group to which a key belongs.
fn ring_of(key: &str) -> Option<String> {
    let (group, rest) = key.strip_prefix('{')?.split_once("}/")?;
    let (name, _) = rest.split_once(':')?;
    Some(format!("{group}/{name}"))
}

/// The mark by which the rings and the connection of one bench are recognised. The rings are a group, so a cluster keeps
/// all of them on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag(u64);

impl Tag {
    fn random() -> Self {
        Self(rand::random())
    }

    fn ring(self, number: usize) -> Result<RingName> {
        Ok(format!("bench-{:016x}/{number}", self.0).parse()?)
    }

    /// Returns the tag of a ring. None if no bench made the ring.
    fn of(ring: &str) -> Option<Self> {
        let (tag, number) = ring.strip_prefix("bench-")?.split_once('/')?;
        let tag = Self(u64::from_str_radix(tag, 16).ok()?);
        (tag.ring(number.parse().ok()?).ok()?.to_string() == ring).then_some(tag)
    }

    /// A key in the slot of the rings that nothing uses.
    fn unused_key(self) -> String {
        format!("{{bench-{:016x}}}:nothing", self.0)
    }

    fn connection(self) -> String {
        format!("estafeta-bench-{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rings_that_a_bench_made_have_a_tag() {
        let tag = Tag(0xabc);
        let ring = tag.ring(7).unwrap();
        assert_eq!(ring.to_string(), "bench-0000000000000abc/7");
        assert_eq!(floor_key(&ring), "{bench-0000000000000abc}/7:floor");
        assert_eq!(ring_of(&floor_key(&ring)).and_then(|ring| Tag::of(&ring)), Some(tag));
        for other in [
            "bench",
            "bench-1",
            "bench-abc/7",
            "bench-0000000000000ABC/7",
            "bench-0000000000000abc/07",
            "orders",
        ] {
            assert_eq!(Tag::of(other), None, "{other}");
        }
    }
}
