//! The course of a run, stage by stage. Each must end well, or that is a broken promise:
//!
//! 1. *Start*: all copies join, and one of them publishes.
//! 2. *Attack*: strikes by the plan. Meanwhile the ring is watched: every snapshot must balance. A reader takes the errors
//!    out now and then, as a user would. A copy ends when it is killed, and never otherwise.
//! 3. *Recovery*: within [`RECOVERY`] of the last fault all copies are in the ring and well, one of them in office; messages
//!    are published and settled again, and every single copy does something.
//! 4. *Stop*: all copies are told to stop, and do so in good order.
//! 5. *Drain*: new copies, which may not generate, handle what is left, and end by themselves; [`DRAIN`] after the last
//!    fault the queue is empty. The last errors are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::{Ring, Snapshot};
use estafeta_proxy::{Proxy, Weather};
use nix::sys::signal::Signal;
use tokio::sync::watch::{Receiver, Sender};
use tokio_util::sync::CancellationToken;

use super::attack::Arena;
use super::copy::{Copy, Family};
use super::judge::{Evidence, Reading};
use super::verdict::Verdict;
use super::watch::{Glance, Watch};
use super::{DRAIN, Order, Outcome, RECOVERY, Spectator, Times, plan, reader};
use crate::duration::now_ms;
use crate::failure::REDIS;
use crate::own_redis::OwnRedis;
use crate::record;

/// How long the copies may take to come together at the start.
const START: Duration = Duration::from_secs(60);
/// How often somebody looks whether all copies still run.
const SUPERVISION: Duration = Duration::from_millis(50);
/// How often a reader takes the errors out.
const READING: Duration = Duration::from_secs(7);
/// How long it may take until what was already on its way to Redis has arrived.
const LAST_WORDS: Duration = Duration::from_millis(200);

pub struct Course<'a, S> {
    pub order: &'a Order,
    pub ring: Ring,
    pub family: Family,
    pub arena: Arc<Arena>,
    /// The way of those who are not attacked themselves.
    pub side_door: Proxy,
    pub spectator: S,
}

/// How far a run came.
#[derive(Default)]
struct Progress {
    readings: Vec<Reading>,
    recovery: Option<Duration>,
    recovered_ms: Option<u64>,
    drain: Option<Duration>,
}

impl<S: Spectator> Course<'_, S> {
    /// Fails only where there is nothing to judge: a stranger in the ring, or Redis itself out of reach.
    pub async fn run(&self) -> Result<Outcome> {
        let began_ms = now_ms();
        let (glance, standstill) = (Sender::new(Glance::default()), Arc::new(AtomicU64::new(0)));
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let watch = Watch { family: self.family.clone(), glance: glance.clone() };
        let mut watching = tokio::spawn(watch.run(stop.clone()));
        tokio::spawn(measure_standstill(Arc::clone(&standstill), stop.clone()));

        let (mut progress, seen_now) = (Progress::default(), glance.subscribe());
        let ended = tokio::select! {
            ended = self.stages(&seen_now, &mut progress) => ended,
            // It ends early only if something is wrong.
            watched = &mut watching => return Err(watched?.err().unwrap_or_else(|| anyhow::anyhow!("nobody watches"))),
        };
        self.spectator.stage("judging");
        self.silence()?;
        // If a stage failed in the middle of a strike, there may be something to undo.
        self.arena.with_redis(OwnRedis::revive).await?;
        let last = self.ring.reconnect().await?.snapshot(0).await?;
        stop.cancel();
        let mut seen = watching.await??;
        seen.note(&last);
        let failure = ended.err().map(|error| format!("{error:#}"));
        let times = Times {
            recovery: progress.recovery,
            recovered_ms: progress.recovered_ms,
            drain: progress.drain,
            standstill: Duration::from_millis(standstill.load(Ordering::Relaxed)),
        };
        let evidence = self.evidence(progress.readings, &last, failure.is_none()).await?;
        let blows = self.arena.blows();
        let verdict = Verdict::new(self.order, &evidence, &seen, &last, &blows, times, failure);
        Ok(Outcome { verdict, blows, seen, records: evidence.records, began_ms })
    }

    async fn stages(&self, glance: &Receiver<Glance>, progress: &mut Progress) -> Result<()> {
        self.start(glance).await?;
        self.attack(glance, &mut progress.readings).await?;
        let last_fault = Instant::now();
        self.recover(glance).await?;
        progress.recovery = Some(last_fault.elapsed());
        progress.recovered_ms = Some(now_ms());
        self.spectator.stage("stopping the copies");
        self.stop(last_fault + DRAIN).await?;
        self.drain(glance, last_fault + DRAIN).await?;
        progress.drain = Some(last_fault.elapsed());
        progress.readings.push(self.read_errors(progress.readings.len()).await?);
        Ok(())
    }

    async fn start(&self, glance: &Receiver<Glance>) -> Result<()> {
        self.spectator.stage(&format!("starting {} copies on {}", self.order.copies, self.order.place()));
        self.arena.copies.iter().try_for_each(|copy| copy.start(&[]))?;
        let whole = tokio::time::timeout(START, self.until_whole(glance, 0, 0)).await;
        whole.context("the copies do not come together")?
    }

    /// The plan, with a reader now and then.
    async fn attack(&self, glance: &Receiver<Glance>, readings: &mut Vec<Reading>) -> Result<()> {
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
        let read = async {
            while over.run_until_cancelled(tokio::time::sleep(READING)).await.is_some() {
                readings.push(self.read_errors(readings.len()).await?);
            }
            Ok(())
        };
        tokio::try_join!(attack, self.look_on(glance, &over), read).map(drop)
    }

    async fn look_on(&self, glance: &Receiver<Glance>, over: &CancellationToken) -> Result<()> {
        while !over.is_cancelled() {
            self.spectator.progress(glance.borrow().published);
            self.supervise()?;
            tokio::time::sleep(SUPERVISION).await;
        }
        Ok(())
    }

    /// A copy that does not find Redis when it starts says so and ends, and is started again, as any supervisor would. No
    /// other end is accepted.
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

    async fn read_errors(&self, number: usize) -> Result<Reading> {
        // Through a proxy that does no harm: readers are hit by what hits Redis only.
        let url = self.family.endpoint.secret_url_through(self.side_door.port());
        reader::read_errors(&self.family, &url, number).await
    }

    async fn recover(&self, glance: &Receiver<Glance>) -> Result<()> {
        self.spectator.stage("waiting for the ring to recover");
        let recovered = async {
            // What was seen before does not count.
            let mut fresh = glance.clone();
            fresh.mark_unchanged();
            fresh.changed().await?;
            let before = *fresh.borrow();
            let records: Vec<u64> = self.arena.copies.iter().map(Copy::record_length).collect();
            self.until_whole(glance, before.published, before.settled).await?;
            while self.arena.copies.iter().zip(&records).any(|(copy, before)| copy.record_length() <= *before)
            {
                self.supervise()?;
                tokio::time::sleep(SUPERVISION).await;
            }
            Ok(())
        };
        let limit = RECOVERY.as_secs();
        let told = || format!("{limit} s after the last fault not all copies worked again");
        tokio::time::timeout(RECOVERY, recovered).await.with_context(told)?
    }

    /// Waits until all copies are in the ring and well, one of them in office, and more is published and settled.
    async fn until_whole(&self, glance: &Receiver<Glance>, published: u64, settled: u64) -> Result<()> {
        loop {
            let now = *glance.borrow();
            let whole =
                now.copies == self.order.copies && now.members == now.copies && now.generator.is_some();
            if whole && now.published > published && now.settled > settled {
                return Ok(());
            }
            self.supervise()?;
            tokio::time::sleep(SUPERVISION).await;
        }
    }

    async fn stop(&self, deadline: Instant) -> Result<()> {
        self.arena.copies.iter().try_for_each(|copy| copy.signal(Signal::SIGTERM))?;
        for copy in &self.arena.copies {
            copy.finish(deadline).await?;
        }
        Ok(())
    }

    /// Has everything handled that is left.
    async fn drain(&self, glance: &Receiver<Glance>, deadline: Instant) -> Result<()> {
        self.spectator.stage("emptying the queue");
        let limit = self.ring.reconnect().await?.snapshot(0).await?.published.max(1).to_string();
        let options = ["--limit", &limit, "--until-done"];
        self.arena.copies.iter().try_for_each(|copy| copy.start(&options))?;
        let all_end = async {
            for copy in &self.arena.copies {
                copy.finish(deadline).await?;
            }
            anyhow::Ok(())
        };
        let mut glance = glance.clone();
        let bereft = |glance: &Glance| glance.bereft && glance.copies == self.order.copies;
        tokio::select! {
            ended = all_end => ended.context("the queue was not emptied"),
            // A message is missing for good, and they would wait for it for ever.
            _ = glance.wait_for(bereft) => self.stop(deadline).await,
        }
    }

    /// Ends all copies that still run, for good.
    fn silence(&self) -> Result<()> {
        self.family.closed.store(true, Ordering::Relaxed);
        Copy::kill_all(self.arena.copies.iter())
    }

    /// What the witnesses have to say.
    async fn evidence(&self, readers: Vec<Reading>, last: &Snapshot, complete: bool) -> Result<Evidence> {
        let journal = self.ring.reconnect().await?.journal().await?;
        let mut records = Vec::new();
        for copy in &self.arena.copies {
            let text = std::fs::read_to_string(copy.record()).context("cannot read the record of a copy")?;
            records.push(record::read(&text).map_err(anyhow::Error::msg)?);
        }
        Ok(Evidence { published: last.published, journal, records, readers, complete })
    }

    /// Ends everything; on a Redis of others it removes what the ring has left there, if that is wished.
    pub async fn end(&self, erase: bool) -> Result<()> {
        self.silence()?;
        let doors = self.arena.copies.iter().map(|copy| &copy.proxy).chain([&self.side_door]);
        doors.for_each(|proxy| proxy.set(Weather::Closed));
        if let Some(own) = &self.arena.redis {
            return Ok(own.kill()?);
        }
        if erase {
            tokio::time::sleep(LAST_WORDS).await;
            let ring = self.ring.reconnect().await?;
            let snapshot = ring.snapshot(0).await?;
            if self.family.stranger_in(&snapshot).is_none() {
                ring.erase().await?;
            }
        }
        Ok(())
    }
}

/// Notes by how much the worst of many short sleeps came too late.
async fn measure_standstill(worst_ms: Arc<AtomicU64>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let start = Instant::now();
        tokio::time::sleep(SUPERVISION).await;
        let late = start.elapsed().saturating_sub(SUPERVISION).as_millis();
        worst_ms.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
