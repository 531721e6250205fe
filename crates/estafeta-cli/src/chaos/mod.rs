//! Chaos: a ring of real copies under fire, and a judgement whether it kept its promises.
//!
//! Every copy is a process of its own behind a proxy of its own; Redis is a server of chaos' own that puts everything on
//! disk before it acknowledges it, or one that was given. Faults come by a plan that the seed decides. A run has these
//! stages, and each must end well:
//!
//! 1. *Start*: the ring must be untouched; all copies join.
//! 2. *Attack*: strikes by the plan. Meanwhile the ring is watched: every snapshot must balance. A reader takes the errors
//!    out now and then, as a user would.
//! 3. *Recovery*: when the last fault is over, all copies must be in the ring and one of them publish within [`RECOVERY`].
//! 4. *Stop*: all copies are told to stop, and do so in good order.
//! 5. *Drain*: new copies handle what is left, without generating more, and end by themselves within [`DRAIN`]; the last
//!    errors are taken.
//! 6. *Judgement*: see `judge`.
//!
//! Whatever ends chaos, its children end with it.

mod attack;
mod copy;
mod judge;
mod plan;
mod redis;
mod report;
mod verdict;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use estafeta::{Address, Endpoint, Ring, RingName};
use estafeta_proxy::{Proxy, Upstream};
use nix::sys::signal::Signal;
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;

pub use attack::Blow;
pub use plan::{Kind, Wanted};
pub use report::page;
pub use verdict::Verdict;

use attack::Arena;
use copy::{Copy, Family};
use judge::{Evidence, Reading};
use redis::OwnRedis;
use watch::{Glance, Seen, Watch};

use crate::failure::REDIS;
use crate::record::{self, Line};

/// The lease of the copies: shorter than usual, so that more happens in a minute.
pub const LEASE: Duration = Duration::from_secs(1);
/// How long the ring may take to work again after the last fault.
pub const RECOVERY: Duration = Duration::from_secs(10);
/// How long it may take to stop, and then to empty the queue.
pub const DRAIN: Duration = Duration::from_secs(30);
/// How often somebody looks whether all copies still run.
const SUPERVISION: Duration = Duration::from_millis(50);
/// How often a reader takes the errors out.
const READING: Duration = Duration::from_secs(7);

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

/// Is told what happens, for whoever waits at the terminal.
pub trait Spectator: Clone + Send + 'static {
    fn struck(&self, what: &str);
    fn stage(&self, what: &str);
    fn progress(&self, published: u64);
}

/// How long things took; None where they did not happen in time.
#[derive(Clone, Copy)]
pub struct Times {
    pub recovery: Option<Duration>,
    pub drain: Option<Duration>,
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

pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Runs it all, with everything it needs in `directory`. None if it was told to stop before its end.
pub async fn run(
    order: &Order,
    directory: &Path,
    spectator: impl Spectator,
    stop: impl Future<Output = ()>,
) -> Result<Option<Outcome>> {
    let own = order.redis.is_none().then(|| OwnRedis::start(directory)).transpose()?;
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
        bail!("the ring '{}' at {endpoint} has members or data: chaos needs a ring of its own", order.ring);
    }
    let family = Family {
        program: std::env::current_exe().context("cannot find this program itself")?,
        directory: directory.to_owned(),
        endpoint: endpoint.clone(),
        ring: order.ring.clone(),
        pids: Arc::default(),
    };
    let mut copies = Vec::new();
    for index in 0..order.copies {
        copies.push(Copy::new(index, family.clone(), upstream.clone()).await?);
    }
    let arena = Arc::new(Arena::new(copies, own));
    let side_door = Proxy::start(upstream).await?;
    let course = Course { order, ring, family, arena, side_door, spectator };
    let outcome = tokio::select! {
        outcome = course.run(endpoint) => Some(outcome?),
        () = stop => None,
    };
    course.arena.copies.iter().try_for_each(Copy::kill)?;
    // What is left on a Redis of others is cleared away, unless it is needed to see what went wrong.
    if order.redis.is_some() && outcome.as_ref().is_none_or(|outcome| outcome.verdict.is_good()) {
        course.ring.reconnect().await?.erase().await?;
    }
    Ok(outcome)
}

struct Course<'a, S> {
    order: &'a Order,
    ring: Ring,
    family: Family,
    arena: Arc<Arena>,
    /// The way of those who are not attacked themselves.
    side_door: Proxy,
    spectator: S,
}

impl<S: Spectator> Course<'_, S> {
    async fn run(&self, endpoint: Endpoint) -> Result<Outcome> {
        let began_ms = now_ms();
        let glance = signal::Sender::new(Glance::default());
        let (pids, ring) = (Arc::clone(&self.family.pids), self.order.ring.clone());
        let watch = Watch { endpoint, ring, pids, glance: glance.clone() };
        let stop = CancellationToken::new();
        let mut watching = tokio::spawn(watch.run(stop.clone()));
        let _stop = stop.clone().drop_guard();

        let glance = glance.subscribe();
        let stages = async {
            self.start(&glance).await?;
            let (mut readers, standstill) = self.attack(&glance).await?;
            let recovery = self.recover(&glance).await?;
            self.stop().await?;
            let drain = self.drain(&mut readers).await?;
            anyhow::Ok((readers, Times { recovery, drain, standstill }))
        };
        let (readers, times) = tokio::select! {
            done = stages => done?,
            // It ends early only if something is wrong.
            watched = &mut watching => bail!(watched?.err().map_or_else(|| "watching ended".into(), |error| format!("{error:#}"))),
        };
        stop.cancel();
        let seen = watching.await??;
        self.spectator.stage("judging");
        let evidence = self.evidence(readers).await?;
        let blows = self.arena.blows();
        let verdict = Verdict::new(self.order, &evidence, &seen, &blows, times);
        Ok(Outcome { verdict, blows, seen, records: evidence.records, began_ms })
    }

    async fn start(&self, glance: &signal::Receiver<Glance>) -> Result<()> {
        self.spectator.stage("starting the copies");
        self.arena.copies.iter().try_for_each(|copy| copy.start(&[]))?;
        let whole = tokio::time::timeout(DRAIN, self.until_whole(glance, 0)).await;
        whole.context("the copies do not come together")?
    }

    /// The plan, with a reader now and then. Says for how long the machine itself stood still, at worst.
    async fn attack(&self, glance: &signal::Receiver<Glance>) -> Result<(Vec<Reading>, Duration)> {
        self.spectator.stage("attacking");
        let order = self.order;
        let plan = plan::plan(order.seed, order.length, order.copies, &order.kinds);
        let generator = || {
            let pid = u32::try_from(glance.borrow().generator?).ok()?;
            self.arena.copies.iter().position(|copy| copy.pid() == Some(pid))
        };
        let spectator = self.spectator.clone();
        let strikes = self.arena.attack(plan, generator, move |what| spectator.struck(what));
        let (over, until) = (CancellationToken::new(), Instant::now() + order.length);
        let attack = async {
            strikes.await?;
            tokio::time::sleep_until(until.into()).await;
            over.cancel();
            anyhow::Ok(())
        };
        let ((), standstill, readings) =
            tokio::try_join!(attack, self.look_on(glance, &over), self.read_now_and_then(&over))?;
        Ok((readings, standstill))
    }

    async fn look_on(&self, glance: &signal::Receiver<Glance>, over: &CancellationToken) -> Result<Duration> {
        let mut standstill = Duration::ZERO;
        while !over.is_cancelled() {
            let start = Instant::now();
            self.spectator.progress(glance.borrow().published);
            self.supervise()?;
            tokio::time::sleep(SUPERVISION).await;
            standstill = standstill.max(start.elapsed().saturating_sub(SUPERVISION));
        }
        Ok(standstill)
    }

    /// A copy ends when it is killed or told to stop, and never otherwise; except that one which does not find Redis when
    /// it starts says so and ends, and is started again, as any supervisor would.
    fn supervise(&self) -> Result<()> {
        for copy in &self.arena.copies {
            match copy.ended()? {
                None => {}
                Some(status) if status.code() == Some(REDIS.into()) && !copy.has_joined()? => {
                    copy.start(&[])?
                }
                Some(status) => {
                    bail!("copy {} ended by itself ({status}): {}", copy.index + 1, copy.last_words())
                }
            }
        }
        Ok(())
    }

    async fn read_now_and_then(&self, over: &CancellationToken) -> Result<Vec<Reading>> {
        let mut readings = Vec::new();
        while over.run_until_cancelled(tokio::time::sleep(READING)).await.is_some() {
            readings.push(self.read_errors(readings.len()).await?);
        }
        Ok(readings)
    }

    async fn read_errors(&self, number: usize) -> Result<Reading> {
        let family = &self.family;
        let output = family.directory.join(format!("errors-{number}.json"));
        // Through a proxy that does no harm: readers are hit by what hits Redis only.
        let url = family.endpoint.secret_url_through(self.side_door.port());
        let mut child = family.start(&["getErrors", "--json"], &url, &output)?;
        let deadline = Instant::now() + DRAIN;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    child.kill()?;
                    break child.wait()?;
                }
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let text = std::fs::read_to_string(&output).context("cannot read what getErrors printed")?;
        // Besides the errors there may be a complaint about Redis, which is no JSON.
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["id"].as_u64();
        Ok(Reading { ids: text.lines().filter_map(id).collect(), whole: status.success() })
    }

    /// Waits for the ring to work again, and says how long that took; None if it takes too long.
    async fn recover(&self, glance: &signal::Receiver<Glance>) -> Result<Option<Duration>> {
        self.spectator.stage("waiting for the ring to recover");
        let start = Instant::now();
        let published = glance.borrow().published;
        let recovered = tokio::time::timeout(RECOVERY, self.until_whole(glance, published)).await;
        Ok(recovered.ok().transpose()?.map(|()| start.elapsed()))
    }

    /// Waits until all copies are in the ring and one of them has published something more.
    async fn until_whole(&self, glance: &signal::Receiver<Glance>, published: u64) -> Result<()> {
        loop {
            let now = *glance.borrow();
            if now.generator.is_some() && now.published > published && now.copies == self.order.copies {
                return Ok(());
            }
            self.supervise()?;
            tokio::time::sleep(SUPERVISION).await;
        }
    }

    async fn stop(&self) -> Result<()> {
        self.spectator.stage("stopping the copies");
        self.arena.copies.iter().try_for_each(|copy| copy.signal(Signal::SIGTERM))?;
        for copy in &self.arena.copies {
            copy.finish(DRAIN).await?;
        }
        Ok(())
    }

    /// Has everything handled that is left, and says how long that took; None if it takes too long.
    async fn drain(&self, readers: &mut Vec<Reading>) -> Result<Option<Duration>> {
        self.spectator.stage("emptying the queue");
        let start = Instant::now();
        let limit = self.ring.reconnect().await?.snapshot(0).await?.published.max(1).to_string();
        let options = ["--limit", &limit, "--until-done"];
        self.arena.copies.iter().try_for_each(|copy| copy.start(&options))?;
        for copy in &self.arena.copies {
            if copy.finish(DRAIN.saturating_sub(start.elapsed())).await.is_err() {
                return Ok(None);
            }
        }
        let drained = start.elapsed();
        readers.push(self.read_errors(readers.len()).await?);
        Ok(Some(drained))
    }

    async fn evidence(&self, readers: Vec<Reading>) -> Result<Evidence> {
        let ring = self.ring.reconnect().await?;
        let (published, journal) = (ring.snapshot(0).await?.published, ring.journal().await?);
        let mut records = Vec::new();
        for copy in &self.arena.copies {
            let text = std::fs::read_to_string(copy.record()).context("cannot read the record of a copy")?;
            records.push(record::read(&text).map_err(anyhow::Error::msg)?);
        }
        Ok(Evidence { published, journal, records, readers })
    }
}
