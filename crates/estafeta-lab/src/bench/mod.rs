//! Bench measures a ring on a Redis, so that users know how their own setup performs.
//!
//! Bench measures throughput and latency with members inside this process (`crew`). It measures deaths and large rings
//! with real processes (`nodes`), and so real work (`worker`). It reads the cost to Redis from `INFO`, so no other client should use the server
//! meanwhile. Bench starts its own server unless the command line names another.
//!
//! Every measurement has its own ring with a random name, and bench erases the ring afterwards. If bench is killed, the
//! next bench erases the ring. If bench loses Redis, it ends with that error.
//!
//! Speeds of shared machines have little meaning, ratios have more. So each run also measures the *floor*: the cheapest
//! possible queue in Redis, with none of the promises.

mod crew;
mod env;
mod failover;
mod floor;
mod idle;
mod latency;
mod nodes;
mod plot;
mod redelivery;
mod scale;
mod streams;
mod table;
mod throughput;
mod work;
mod worker;

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use estafeta::Endpoint;

pub use plot::picture;
pub use table::Table;
pub use worker::{WorkerKind, run as run_worker};

use env::BenchEnv;

/// One benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// Messages per second, and the cost of each to Redis.
    Throughput,
    /// The time from publishing to the start of handling, on an idle ring.
    Latency,
    /// The cost of messages that take a while, beside raw Redis Streams.
    Work,
    /// How soon another node generates after the generator is killed, stopped or frozen.
    Failover,
    /// How soon another node handles the message of a handler that was killed.
    Redelivery,
    /// The cost of a ring with nothing to do.
    Idle,
    /// Throughput and failover, from a few nodes to many.
    Scale,
}

impl Bench {
    pub const ALL: [Self; 7] = [
        Self::Throughput,
        Self::Latency,
        Self::Work,
        Self::Failover,
        Self::Redelivery,
        Self::Idle,
        Self::Scale,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Work => "work",
            Self::Failover => "failover",
            Self::Redelivery => "redelivery",
            Self::Idle => "idle",
            Self::Scale => "scale",
        }
    }

    fn steps(self, options: &BenchOptions) -> usize {
        match self {
            Self::Throughput => throughput::steps(options),
            Self::Latency => 1,
            Self::Work => work::STEPS,
            Self::Failover => failover::steps(options),
            Self::Redelivery => options.tries,
            Self::Idle => options.idle_nodes.len(),
            Self::Scale => scale::steps(options),
        }
    }

    async fn run(self, env: &BenchEnv<'_>) -> Result<Table> {
        match self {
            Self::Throughput => throughput::run(env).await,
            Self::Latency => latency::run(env).await,
            Self::Work => work::run(env).await,
            Self::Failover => failover::run(env).await,
            Self::Redelivery => redelivery::run(env).await,
            Self::Idle => idle::run(env).await,
            Self::Scale => scale::run(env).await,
        }
    }
}

/// A benchmark that the command line names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    All,
    One(Bench),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let bench = Bench::ALL.into_iter().find(|bench| bench.name() == word);
        match (word, bench) {
            ("all", _) => Ok(Self::All),
            (_, Some(bench)) => Ok(Self::One(bench)),
            _ => {
                let names = Bench::ALL.map(Bench::name).join(", ");
                Err(format!("expected {names} or all, got '{word}'"))
            }
        }
    }
}

/// The options of one run.
pub struct BenchOptions {
    pub benches: Vec<Bench>,
    /// None: bench starts its own server.
    pub redis: Option<Endpoint>,
    /// How long each measurement lasts.
    pub length: Duration,
    pub tries: usize,
    /// How many messages wait before handlers start.
    pub messages: u64,
    /// The size of a body, in bytes.
    pub body: usize,
    pub handlers: usize,
    /// Lanes of each handler.
    pub concurrency: usize,
    pub idle_nodes: Vec<usize>,
    pub scale_nodes: Vec<usize>,
    /// The lease of the nodes.
    pub lease: Duration,
}

/// Receives the progress and the results of a run.
pub trait BenchObserver {
    /// How many steps the run will have.
    fn expect(&self, steps: usize);
    /// Describes where and with what bench measures.
    fn place(&self, place: &str) -> Result<()>;
    /// The next step begins.
    fn step(&self, what: &str);
    fn table(&self, table: Table) -> Result<()>;
}

/// Runs all measurements, with all files in `directory`. Returns false if `stop` was ready before the end.
pub async fn run(
    options: &BenchOptions,
    directory: &Path,
    observer: &dyn BenchObserver,
    stop: impl Future<Output = ()>,
) -> Result<bool> {
    let mut stop = std::pin::pin!(stop);
    let env = tokio::select! {
        env = BenchEnv::set_up(options, directory, observer) => env?,
        () = &mut stop => return Ok(false),
    };
    let ended = tokio::select! {
        ended = measure(&env) => ended.map(|()| true),
        gone = env.until_redis_is_gone() => Err(gone),
        () = stop => Ok(false),
    };
    let ended = match ended {
        // If Redis is gone, that is the reason for every other failure.
        Err(error) => Err(env.redis_is_gone().await.unwrap_or(error)),
        ended => ended,
    };
    let cleared = env.clear().await;
    ended.and_then(|ended| cleared.map(|()| ended))
}

async fn measure(env: &BenchEnv<'_>) -> Result<()> {
    let options = env.options;
    env.observer.expect(options.benches.iter().map(|bench| bench.steps(options)).sum());
    env.observer.place(&env.describe().await?)?;
    for bench in &options.benches {
        env.observer.table(bench.run(env).await?)?;
    }
    Ok(())
}
