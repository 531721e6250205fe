//! The phases of a run. Each must end well, otherwise a promise is broken:
//!
//! 1. *Start*: all nodes join, and one of them publishes.
//! 2. *Attack*: chaos injects the faults of the plan. Meanwhile it takes snapshots, and each must balance. A reader
//!    takes the errors out at intervals, as a user would. A node may end only if chaos killed it.
//! 3. *Recovery*: within [`RECOVERY`] of the last fault, all nodes are alive in the ring, and one of them is in office.
//!    Nodes publish and settle messages again, and every node has done some work.
//! 4. *Stop*: chaos asks all nodes to stop, and they exit in good order.
//! 5. *Drain*: new nodes, which may not generate, handle what is left, and exit by themselves. Within [`DRAIN`] of the
//!    last fault, the queue is empty. A reader takes the last errors.
//!
//! If a phase fails, chaos skips the phases after it. The verdict names the failure. The judge still examines what the
//! run left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::proxy::{LinkCondition, Proxy};
use anyhow::{Context as _, Result, bail};
use estafeta::{Ring, Snapshot};
use nix::sys::signal::Signal;
use tokio::sync::watch::{Receiver, Sender};
use tokio_util::sync::CancellationToken;

use super::attack::Targets;
use super::judge::{Evidence, ReaderOutput};
use super::node::{ChaosNode, NodeTemplate};
use super::verdict::Verdict;
use super::watch::{Glance, RingWatch};
use super::{ChaosObserver, ChaosOptions, ChaosOutcome, DRAIN, RECOVERY, Times, plan, reader};
use crate::clock::now_ms;
use crate::ephemeral_redis::EphemeralRedis;
use crate::exit_code::REDIS;
use crate::record;
use crate::server::Server;

/// How long the nodes may take to form a ring at the start.
const START: Duration = Duration::from_secs(60);
/// How often to check whether all nodes still run.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How often a reader takes the errors out.
const READ_INTERVAL: Duration = Duration::from_secs(7);
/// How long writes that are already on their way to Redis may take to arrive.
const LATE_WRITES: Duration = Duration::from_millis(200);

pub struct Phases<'a, S> {
    pub options: &'a ChaosOptions,
    pub ring: Ring,
    pub template: NodeTemplate,
    pub targets: Arc<Targets>,
    /// The proxy of the readers, which are not attacked themselves.
    pub clear_proxy: Proxy,
    pub observer: S,
}

/// How far a run came.
#[derive(Default)]
struct PhaseProgress {
    readings: Vec<ReaderOutput>,
    recovery: Option<Duration>,
    recovered_ms: Option<u64>,
    drain: Option<Duration>,
}

impl<S: ChaosObserver> Phases<'_, S> {
    /// Fails only if there can be no verdict: a foreign member is in the ring, or Redis does not answer.
    pub async fn run(&self) -> Result<ChaosOutcome> {
        let began_ms = now_ms();
        let (glance, standstill) = (Sender::new(Glance::default()), Arc::new(AtomicU64::new(0)));
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let watch =
            RingWatch { ring: self.ring.clone(), template: self.template.clone(), glance: glance.clone() };
        let mut watching = tokio::spawn(watch.run(stop.clone()));
        tokio::spawn(measure_standstill(Arc::clone(&standstill), stop.clone()));

        let (mut progress, seen_now) = (PhaseProgress::default(), glance.subscribe());
        let ended = tokio::select! {
            ended = self.run_phases(&seen_now, &mut progress) => ended,
            // The watch ends early only if something is wrong.
            watched = &mut watching => return Err(watched?.err().unwrap_or_else(|| anyhow::anyhow!("the watch ended early"))),
        };
        self.observer.phase("judging");
        self.kill_nodes()?;
        // A phase that failed in the middle of a fault may have left Redis down.
        self.targets.with_redis(EphemeralRedis::revive).await?;
        let last = self.ring.snapshot(0).await?;
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
        let faults = self.targets.faults();
        let verdict = Verdict::new(self.options, &evidence, &seen, &last, &faults, times, failure);
        let redis = Server::connect(&self.template.endpoint).await?.product().await?;
        Ok(ChaosOutcome { verdict, faults, seen, records: evidence.records, began_ms, redis })
    }

    async fn run_phases(&self, glance: &Receiver<Glance>, progress: &mut PhaseProgress) -> Result<()> {
        self.start(glance).await?;
        self.attack(glance, &mut progress.readings).await?;
        let last_fault = Instant::now();
        self.recover(glance).await?;
        progress.recovery = Some(last_fault.elapsed());
        progress.recovered_ms = Some(now_ms());
        self.observer.phase("stopping the nodes");
        self.stop(last_fault + DRAIN).await?;
        self.drain(glance, last_fault + DRAIN).await?;
        progress.drain = Some(last_fault.elapsed());
        progress.readings.push(self.read_errors(progress.readings.len()).await?);
        Ok(())
    }

    async fn start(&self, glance: &Receiver<Glance>) -> Result<()> {
        self.observer.phase(&format!("starting {} nodes on {}", self.options.nodes, self.options.place()));
        self.targets.nodes.iter().try_for_each(|node| node.start(&[]))?;
        let whole = tokio::time::timeout(START, self.until_whole(glance, 0, 0)).await;
        whole.with_context(|| format!("the nodes did not form a ring within {} s", START.as_secs()))?
    }

    /// Carries out the plan. A reader takes the errors out at intervals.
    async fn attack(&self, glance: &Receiver<Glance>, readings: &mut Vec<ReaderOutput>) -> Result<()> {
        self.observer.phase("attacking");
        let options = self.options;
        let plan = plan::plan(options.seed, options.length, options.nodes, &options.kinds);
        let generator = || {
            let pid = u32::try_from(glance.borrow().generator?).ok()?;
            self.targets.nodes.iter().position(|node| node.pid() == Some(pid))
        };
        let observer = self.observer.clone();
        let faults = self.targets.attack(plan, generator, move |what| observer.injected(what));
        let (over, until) = (CancellationToken::new(), Instant::now() + options.length);
        let attack = async {
            faults.await?;
            tokio::time::sleep_until(until.into()).await;
            over.cancel();
            anyhow::Ok(())
        };
        let read = async {
            while over.run_until_cancelled(tokio::time::sleep(READ_INTERVAL)).await.is_some() {
                readings.push(self.read_errors(readings.len()).await?);
            }
            Ok(())
        };
        tokio::try_join!(attack, self.supervise_until(glance, &over), read).map(drop)
    }

    async fn supervise_until(&self, glance: &Receiver<Glance>, over: &CancellationToken) -> Result<()> {
        while !over.is_cancelled() {
            self.observer.progress(glance.borrow().published);
            self.supervise()?;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// Checks that no node has ended. A node that does not find Redis when it starts exits with an error. It is started
    /// again, as any supervisor would do. No other exit is accepted.
    fn supervise(&self) -> Result<()> {
        for node in &self.targets.nodes {
            match node.ended()? {
                None => {}
                Some(status) if status.code() == Some(REDIS.into()) && !node.has_joined()? => {
                    node.start(&[])?
                }
                Some(status) => {
                    bail!("node {} exited unexpectedly ({status}): {}", node.index + 1, node.last_line())
                }
            }
        }
        Ok(())
    }

    async fn read_errors(&self, number: usize) -> Result<ReaderOutput> {
        // The proxy of the readers is always clear, so only faults of Redis hit them.
        let url = self.template.endpoint.secret_url_through(self.clear_proxy.port());
        reader::read_errors(&self.template, &url, number).await
    }

    async fn recover(&self, glance: &Receiver<Glance>) -> Result<()> {
        self.observer.phase("waiting for the ring to recover");
        let recovered = async {
            // Only what is seen from now on counts.
            let mut fresh = glance.clone();
            fresh.mark_unchanged();
            fresh.changed().await?;
            let before = *fresh.borrow();
            let records: Vec<u64> = self.targets.nodes.iter().map(ChaosNode::record_length).collect();
            self.until_whole(glance, before.published, before.settled).await?;
            while self
                .targets
                .nodes
                .iter()
                .zip(&records)
                .any(|(node, before)| node.record_length() <= *before)
            {
                self.supervise()?;
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            Ok(())
        };
        let limit = RECOVERY.as_secs();
        let failed = || format!("not all nodes worked again within {limit} s of the last fault");
        tokio::time::timeout(RECOVERY, recovered).await.with_context(failed)?
    }

    /// Waits until all nodes are alive in the ring, one of them is in office, and more messages are published and
    /// settled.
    async fn until_whole(&self, glance: &Receiver<Glance>, published: u64, settled: u64) -> Result<()> {
        loop {
            let now = *glance.borrow();
            let whole =
                now.nodes == self.options.nodes && now.members == now.nodes && now.generator.is_some();
            if whole && now.published > published && now.settled > settled {
                return Ok(());
            }
            self.supervise()?;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    async fn stop(&self, deadline: Instant) -> Result<()> {
        self.targets.nodes.iter().try_for_each(|node| node.signal(Signal::SIGTERM))?;
        for node in &self.targets.nodes {
            node.finish(deadline).await?;
        }
        Ok(())
    }

    /// Starts nodes that handle everything that is left.
    async fn drain(&self, glance: &Receiver<Glance>, deadline: Instant) -> Result<()> {
        self.observer.phase("emptying the queue");
        let limit = self.ring.snapshot(0).await?.published.max(1).to_string();
        let options = ["--limit", &limit, "--until-done"];
        self.targets.nodes.iter().try_for_each(|node| node.start(&options))?;
        let all_end = async {
            for node in &self.targets.nodes {
                node.finish(deadline).await?;
            }
            anyhow::Ok(())
        };
        let mut glance = glance.clone();
        let is_lost = |glance: &Glance| glance.message_lost && glance.nodes == self.options.nodes;
        // What `wait_for` returns locks the glance. It is dropped at once, because the watch could not write otherwise.
        let message_lost = async { glance.wait_for(is_lost).await.map(drop) };
        tokio::select! {
            ended = all_end => ended.context("the queue was not emptied"),
            // A message is lost, and the nodes would wait for it for ever.
            _ = message_lost => self.stop(deadline).await,
        }
    }

    /// Kills all nodes that still run, and lets no more start.
    fn kill_nodes(&self) -> Result<()> {
        self.template.closed.store(true, Ordering::Relaxed);
        ChaosNode::kill_all(self.targets.nodes.iter())
    }

    /// Collects what the witnesses know: the journal, the records and the output of the readers.
    async fn evidence(
        &self,
        readers: Vec<ReaderOutput>,
        last: &Snapshot,
        complete: bool,
    ) -> Result<Evidence> {
        let journal = self.ring.journal().await?;
        let mut records = Vec::new();
        for node in &self.targets.nodes {
            let text = std::fs::read_to_string(node.record()).context("cannot read the record of a node")?;
            records.push(record::read(&text).map_err(anyhow::Error::msg)?);
        }
        Ok(Evidence { published: last.published, journal, records, readers, complete })
    }

    /// Ends everything. If `erase` is set, it also removes the ring from a Redis that the user named.
    pub async fn end(&self, erase: bool) -> Result<()> {
        self.kill_nodes()?;
        let proxies = self.targets.nodes.iter().map(|node| &node.proxy).chain([&self.clear_proxy]);
        proxies.for_each(|proxy| proxy.set(LinkCondition::Closed));
        if let Some(own) = &self.targets.redis {
            return Ok(own.kill()?);
        }
        if erase {
            tokio::time::sleep(LATE_WRITES).await;
            let ring = &self.ring;
            let snapshot = ring.snapshot(0).await?;
            if self.template.foreign_member_in(&snapshot).is_none() {
                ring.erase().await?;
            }
        }
        Ok(())
    }
}

/// Measures the longest delay of many short sleeps.
async fn measure_standstill(worst_ms: Arc<AtomicU64>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let start = Instant::now();
        tokio::time::sleep(CHECK_INTERVAL).await;
        let late = start.elapsed().saturating_sub(CHECK_INTERVAL).as_millis();
        worst_ms.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
