//! Tests of handlers, schedules and feeds on a real ring. This module is behind the feature `testing`:
//!
//! ```toml
//! [dev-dependencies]
//! estafeta = { path = "../estafeta/crates/estafeta", features = ["testing"] }
//! ```
//!
//! A [`TestRing`] starts a Redis, which ends with it. A test publishes messages, has its handler called for one after
//! another, and lets time pass. Messages go through the same steps as in production, so retries and dead letters are
//! real:
//!
//! ```
//! use std::time::Duration;
//!
//! use estafeta::testing::{JobOutcome, TestRing};
//! use estafeta::{Failure, Job};
//!
//! async fn ship(job: Job<String>) -> Result<(), Failure> {
//!     if job.attempt() == 1 { Err("no driver".into()) } else { Ok(()) }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), estafeta::Error> {
//! let ring = TestRing::start().await?;
//! ring.publish(&"two pizzas").await?;
//! let handled = ring.work_one(ship).await?.expect("a message waits");
//! let second = Duration::from_secs(1);
//! assert_eq!(handled.outcome, JobOutcome::Retried { after: second, reason: "no driver".to_owned() });
//!
//! // The message waits for its second attempt.
//! assert!(ring.work_one(ship).await?.is_none());
//! ring.advance(second).await?;
//! assert_eq!(ring.work_one(ship).await?.expect("it is due").outcome, JobOutcome::Done);
//! # Ok(())
//! # }
//! ```
//!
//! - Handlers: [`publish`](TestRing::publish), [`work_one`](TestRing::work_one), [`drain`](TestRing::drain).
//! - Code that publishes: [`published`](TestRing::published) returns the bodies of the messages that wait.
//! - Time: [`advance`](TestRing::advance), and [`begin`](TestRing::begin) for schedules.
//! - Nodes, with all their parts: [`node`](TestRing::node), [`take_over`](TestRing::take_over),
//!   [`wait_until`](TestRing::wait_until).
//! - Everything else: [`ring`](TestRing::ring) for snapshots, dead letters, results and pauses, and
//!   [`url`](TestRing::url).
//!
//! A test of a handler alone needs no Redis: call it with [`Job::sample`](crate::Job::sample).

mod office;
pub(crate) mod published;
mod server;
pub(crate) mod time;
mod work;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;

pub use work::{HandledJob, JobOutcome};

use crate::config::Config;
use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::inspect::Ring;
use crate::node::Node;
use crate::publisher::{Publisher, Publishing};
use crate::redis::Endpoint;
use server::TestServer;

/// How long a test waits for something that should happen at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it waits before it looks again.
const PAUSE: Duration = Duration::from_millis(5);

/// A ring for one test. The [module](self) has an example.
///
/// Its settings are the defaults, except that the [lease](Config::lease) is 1 s. Waits for a retry have no
/// [jitter](crate::Retry::jitter), so that a test can name them.
pub struct TestRing {
    ring: Ring,
    url: String,
    config: Config,
    publisher: Publisher,
    /// Members whose calls were dropped before they ended.
    dropped: Mutex<Vec<Incarnation>>,
    /// Less than [`PATIENCE`] only in tests of this module.
    patience: Duration,
    /// None if the test brought its own Redis. It is dropped last.
    server: Option<Arc<TestServer>>,
}

impl TestRing {
    /// A ring named `test` in a new Redis: the `redis-server` or `valkey-server` on the PATH. It listens only on a socket in a
    /// temporary directory, and keeps nothing on disk. Any number of tests can run at the same time.
    ///
    /// The server ends with the last ring on it, even if the test panics or its process is killed.
    pub async fn start() -> Result<Self> {
        let mut server = TestServer::start()?;
        let (endpoint, started) = (server.endpoint(), Instant::now());
        let config = config(endpoint, "test")?;
        loop {
            match Self::connect(config.clone()).await {
                Ok(ring) => return Ok(Self { server: Some(Arc::new(server)), ..ring }),
                Err(error) => {
                    server.check()?;
                    if started.elapsed() > PATIENCE {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A ring in a Redis that the test brings, for example a service of its CI. The ring stays there when the test ends,
    /// so each test needs another name, or begins with [`Ring::erase`].
    pub async fn on(redis: &str, ring: &str) -> Result<Self> {
        Self::connect(config(redis.parse()?, ring)?).await
    }

    /// Another ring in the same Redis, such as the one to which a handler [forwards](crate::Outcome::forward). It has its
    /// own settings.
    pub async fn beside(&self, ring: &str) -> Result<Self> {
        let beside = Self::connect(config(self.config.redis.clone(), ring)?).await?;
        Ok(Self { server: self.server.clone(), ..beside })
    }

    async fn connect(config: Config) -> Result<Self> {
        let ring = Ring::connect(config.redis.clone(), config.ring.clone()).await?;
        let publisher = Publisher::of(&config).await?;
        let url = config.redis.secret_url();
        Ok(Self { ring, url, config, publisher, dropped: Mutex::default(), patience: PATIENCE, server: None })
    }

    /// Changes the settings of [`node`](Self::node), and of everything that this ring does itself. The Redis and the
    /// ring stay as they are, and the ring has one partition. A new rule for retries loses its jitter.
    ///
    /// ```no_run
    /// # use estafeta::{Retry, testing::TestRing};
    /// # async fn example() -> Result<(), estafeta::Error> {
    /// let ring = TestRing::start().await?.configure(|config| config.retry = Retry::default().attempts(3));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        let (redis, ring) = (self.config.redis.clone(), self.config.ring.clone());
        change(&mut self.config);
        (self.config.redis, self.config.ring, self.config.partitions) = (redis, ring, 1);
        self.config.retry.jitter = 0.0;
        self.publisher = self.publisher.with_settings_of(&self.config);
        self
    }

    /// Publishes a message, like a [`Publisher`] does. Add a key, a delay, headers or a single name, and await the result
    /// to send it. The body is written as JSON, unless it is [`Bytes`](crate::Bytes).
    pub fn publish<T: Serialize + 'static>(&self, body: &T) -> Publishing<'_, crate::Bytes> {
        self.publisher.publish(Draft::of_value(body))
    }

    /// A node in this ring, for tests of several parts together. Give it something to handle or to generate, and run it
    /// with [`Node::until`]. Several nodes can run in one test.
    pub fn node(&self) -> Node {
        Node::with(self.config.clone())
    }

    /// The ring seen from outside: snapshots, dead letters, results, pauses and limits.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The URL of its Redis, for everything else. If the test brought a URL with a password, this URL contains the
    /// password.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Debug for TestRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "test ring {} in {}", self.config.ring, self.config.redis)
    }
}

fn config(redis: Endpoint, ring: &str) -> Result<Config> {
    let mut config = Config::new(redis, ring.parse()?);
    (config.retry.jitter, config.lease) = (0.0, Duration::from_secs(1));
    Ok(config)
}

/// The error after a wait in vain.
fn in_vain(expected: &str, patience: Duration, got: impl fmt::Display) -> Error {
    Error::TestRing(format!("expected {expected} within {patience:?}, got {got}"))
}
