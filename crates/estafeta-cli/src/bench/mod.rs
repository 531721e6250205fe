//! Bench: measures a ring on a Redis, for users to judge their own with.
//!
//! Throughput and latency are those of members inside this process (`crew`), everything about deaths and about many copies
//! is that of real processes (`copies`). What Redis itself spends is read from its `INFO`, so nobody else should use the
//! server meanwhile. Every measurement has a ring of its own with a random name, which is erased afterwards, or by the
//! next bench if this one is killed; the server is one of its own unless another was named in the call.
//!
//! Speeds of shared machines say little, ratios say more: so the same run also measures the *floor*, the cheapest thing a
//! queue in Redis can be, with none of the promises.

mod copies;
mod crew;
mod failover;
mod floor;
mod idle;
mod latency;
mod plot;
mod redelivery;
mod scale;
mod server;
mod stand;
mod table;
mod throughput;

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use estafeta::Endpoint;

pub use plot::picture;
pub use table::Table;

use stand::Stand;

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// Messages a second, and what each costs Redis.
    Throughput,
    /// From publishing to the start of handling, on an idle ring.
    Latency,
    /// How soon another one generates when the generator is killed, stopped or frozen.
    Failover,
    /// How soon another one has the message of a handler that was killed.
    Redelivery,
    /// What a ring with nothing to do costs.
    Idle,
    /// Throughput and failover from a few copies to many.
    Scale,
}

impl Bench {
    pub const ALL: [Self; 6] =
        [Self::Throughput, Self::Latency, Self::Failover, Self::Redelivery, Self::Idle, Self::Scale];

    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Failover => "failover",
            Self::Redelivery => "redelivery",
            Self::Idle => "idle",
            Self::Scale => "scale",
        }
    }

    fn steps(self, order: &Order) -> usize {
        match self {
            Self::Throughput => throughput::steps(order),
            Self::Latency => 1,
            Self::Failover => failover::steps(order),
            Self::Redelivery => order.tries,
            Self::Idle => order.idle_copies.len(),
            Self::Scale => scale::steps(order),
        }
    }

    async fn run(self, stand: &Stand<'_>) -> Result<Table> {
        match self {
            Self::Throughput => throughput::run(stand).await,
            Self::Latency => latency::run(stand).await,
            Self::Failover => failover::run(stand).await,
            Self::Redelivery => redelivery::run(stand).await,
            Self::Idle => idle::run(stand).await,
            Self::Scale => scale::run(stand).await,
        }
    }
}

/// What the call names.
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

/// What was asked for.
pub struct Order {
    pub benches: Vec<Bench>,
    /// None: a server of bench's own.
    pub redis: Option<Endpoint>,
    /// How long each measurement lasts.
    pub length: Duration,
    pub tries: usize,
    /// How many messages wait before they are worked off.
    pub messages: u64,
    /// The size of a body, in bytes.
    pub body: usize,
    pub handlers: usize,
    /// Lanes of each handler.
    pub concurrency: usize,
    pub idle_copies: Vec<usize>,
    pub scale_copies: Vec<usize>,
    /// The lease of the copies.
    pub lease: Duration,
}

/// Is told what happens.
pub trait Audience {
    /// So many steps will be gone.
    fn expect(&self, steps: usize);
    /// Where and with what is measured, in words.
    fn place(&self, place: &str) -> Result<()>;
    /// The next step begins.
    fn step(&self, what: &str);
    fn table(&self, table: Table) -> Result<()>;
}

/// Measures it all, with everything it needs in `directory`. False if it was told to stop before its end.
pub async fn run(
    order: &Order,
    directory: &Path,
    audience: &dyn Audience,
    stop: impl Future<Output = ()>,
) -> Result<bool> {
    let mut stop = std::pin::pin!(stop);
    let stand = tokio::select! {
        stand = Stand::set_up(order, directory, audience) => stand?,
        () = &mut stop => return Ok(false),
    };
    let ended = tokio::select! {
        ended = measure(&stand) => ended.map(|()| true),
        gone = stand.until_redis_is_gone() => Err(gone),
        () = stop => Ok(false),
    };
    let ended = match ended {
        // Whatever failed when Redis was gone failed for that.
        Err(error) => Err(stand.redis_is_gone().await.unwrap_or(error)),
        ended => ended,
    };
    let cleared = stand.clear().await;
    ended.and_then(|ended| cleared.map(|()| ended))
}

async fn measure(stand: &Stand<'_>) -> Result<()> {
    let order = stand.order;
    stand.audience.expect(order.benches.iter().map(|bench| bench.steps(order)).sum());
    stand.audience.place(&stand.describe().await?)?;
    for bench in &order.benches {
        stand.audience.table(bench.run(stand).await?)?;
    }
    Ok(())
}
