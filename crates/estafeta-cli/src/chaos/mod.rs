//! Chaos: a ring of real copies under fire, and a judgement whether it kept its promises.
//!
//! Every copy is a process of its own behind a proxy of its own; Redis is a server of chaos' own that puts everything on
//! disk before it acknowledges it, or one that was given. Faults come by a plan that the seed decides. A run has the
//! stages of `course`; what they leave behind is judged (`judge`), put into a verdict and, if wanted, on a page.
//!
//! Whatever ends chaos, its children end with it (after a kill -9 of chaos itself only on Linux, where the kernel sees to
//! it), and what was put into a Redis of others is removed, unless something went wrong and it is needed to see what.

mod attack;
mod copy;
mod course;
mod judge;
mod picture;
mod plan;
mod reader;
mod report;
mod story;
mod verdict;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use estafeta::{Address, Endpoint, Ring, RingName};
use estafeta_proxy::{Proxy, Upstream};

pub use attack::Blow;
pub use plan::{Kind, Wanted};
pub use report::page;
pub use verdict::Verdict;

use attack::Arena;
use copy::{Copy, Family};
use course::Course;
use watch::Seen;

use crate::own_redis::{Disk, OwnRedis};
use crate::record::Line;

/// The lease of the copies: shorter than usual, so that more happens in a minute.
pub const LEASE: Duration = Duration::from_secs(1);
/// How long after the last fault the ring may take to work again.
pub const RECOVERY: Duration = Duration::from_secs(10);
/// How long after the last fault the queue may take to be empty.
pub const DRAIN: Duration = Duration::from_secs(30);

/// What was asked for.
pub struct Order {
    pub copies: usize,
    pub length: Duration,
    pub kinds: Vec<Kind>,
    pub seed: u64,
    pub ring: RingName,
    /// None: a server of chaos' own.
    pub redis: Option<Endpoint>,
}

impl Order {
    /// Which Redis is attacked, in words.
    pub fn place(&self) -> String {
        self.redis.as_ref().map_or_else(|| "a Redis of their own".to_owned(), ToString::to_string)
    }

    /// The call that plans the same again.
    pub fn call(&self) -> String {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
        let length = humantime::format_duration(self.length).to_string().replace(' ', "");
        let faults = if self.kinds == Kind::ALL { "all".to_owned() } else { kinds.join(",") };
        format!(
            "estafeta chaos --copies {} --for {length} --faults {faults} --seed {}",
            self.copies, self.seed
        )
    }
}

/// Is told what happens, for whoever waits at the terminal.
pub trait Spectator: Clone + Send + 'static {
    fn struck(&self, what: &str);
    fn stage(&self, what: &str);
    fn progress(&self, published: u64);
}

/// How long things took; None where they did not happen in time.
#[derive(Clone, Copy, Default)]
pub struct Times {
    pub recovery: Option<Duration>,
    pub drain: Option<Duration>,
    /// When the ring had recovered.
    pub recovered_ms: Option<u64>,
    /// The longest time in which chaos itself could not do anything: a busy disk, a paused virtual machine.
    pub standstill: Duration,
}

/// What one run of chaos left behind.
pub struct Outcome {
    pub verdict: Verdict,
    pub blows: Vec<Blow>,
    pub seen: Seen,
    pub records: Vec<Vec<Line>>,
    pub began_ms: u64,
}

/// Runs it all, with everything it needs in `directory`. None if it was told to stop before its end.
pub async fn run(
    order: &Order,
    directory: &Path,
    spectator: impl Spectator,
    stop: impl Future<Output = ()>,
) -> Result<Option<Outcome>> {
    let mut stop = std::pin::pin!(stop);
    let course = tokio::select! {
        course = prepare(order, directory, spectator) => course?,
        () = &mut stop => return Ok(None),
    };
    let outcome = tokio::select! {
        outcome = course.run() => Some(outcome?),
        () = stop => None,
    };
    let is_good = outcome.as_ref().is_none_or(|outcome| outcome.verdict.is_good());
    course.end(order.redis.is_some() && is_good).await?;
    Ok(outcome)
}

async fn prepare<'a, S: Spectator>(
    order: &'a Order,
    directory: &Path,
    spectator: S,
) -> Result<Course<'a, S>> {
    let place = directory.to_owned();
    let own = match order.redis {
        Some(_) => None,
        None => Some(tokio::task::spawn_blocking(move || OwnRedis::start(&place, Disk::Everything)).await??),
    };
    let endpoint = match (&own, &order.redis) {
        (Some(own), _) => own.endpoint()?,
        (None, Some(given)) => given.clone(),
        (None, None) => bail!("no Redis to attack"),
    };
    let upstream = match endpoint.address() {
        Some(Address::Tcp(host, port)) => Upstream::Tcp(host, port),
        Some(Address::Unix(path)) => Upstream::Unix(path),
        None => {
            bail!("chaos stands between the copies and Redis, and cannot do that over TLS: expected redis://")
        }
    };
    let ring = Ring::connect(endpoint.clone(), order.ring.clone()).await?;
    if !ring.is_untouched().await? {
        bail!(
            "the ring '{}' at {endpoint} has members or data: chaos needs a ring of its own (--ring NAME; what an \
             earlier chaos left goes with `estafeta reset`)",
            order.ring
        );
    }
    let family = Family {
        directory: directory.to_owned(),
        endpoint,
        ring: order.ring.clone(),
        pids: Arc::default(),
        closed: Arc::default(),
    };
    let mut copies = Vec::new();
    for index in 0..order.copies {
        copies.push(Copy::new(index, family.clone(), upstream.clone()).await?);
    }
    let side_door = Proxy::start(upstream).await?;
    Ok(Course { order, ring, family, arena: Arc::new(Arena::new(copies, own)), side_door, spectator })
}
