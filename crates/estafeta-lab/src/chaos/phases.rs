//! The phases of a run. Each must end well, otherwise a promise is broken:
//!
//! 1. *Start*: all nodes join, and one of them publishes.
//! 2. *Attack*: chaos injects the faults of the plan. Meanwhile it takes snapshots, and each must balance. A reader
//!    takes the errors out at intervals, as a user would. A node may end only if chaos killed it, or if it found no
//!    Redis at its start. Chaos then starts it again.
//! 3. *Recovery*: within [`RECOVERY`] of the last fault, all nodes are alive in the ring, and one of them is in office.
//!    Nodes publish and settle messages again, and every node has done some work.
//! 4. *Health*, with the workload `work`: for [`HEALTHY`] nothing is attacked, and messages must come in time.
//! 5. *Stop*: chaos asks all publishers and then all nodes to stop, and they exit in good order.
//! 6. *Drain*: new nodes, which may not generate, handle what is left, and exit by themselves. Within [`DRAIN`] of the
//!    last fault, the queue is empty. A reader takes the last errors.
//!
//! If a phase fails, chaos skips the phases after it. The verdict names the failure. The judge still examines what the
//! run left behind.

use std::path::Path;
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
use super::mixed::{BuildUpgrade, UpgradeKind};
use super::node::{ChaosNode, NodeTemplate};
use super::real_work::effects::WrittenEffects;
use super::real_work::evidence::{RingCounts, WorkEvidence};
use super::verdict::Verdict;
use super::watch::{Glance, RingWatch, Seen};
use super::{ChaosObserver, ChaosOptions, ChaosOutcome, DRAIN, RECOVERY, Times, Workload, plan, reader};
use crate::clock::now_ms;
use crate::ephemeral_redis::EphemeralRedis;
use crate::exit_code::REDIS;
use crate::record::{self, RecordLine};
use crate::server::Server;

/// How long the nodes may take to form a ring at the start.
pub const START: Duration = Duration::from_secs(60);
/// How often to check whether all nodes still run.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How long the ring is watched without faults, if the workload has messages that wait for a time.
pub const HEALTHY: Duration = Duration::from_secs(6);
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
pub struct PhaseProgress {
    pub readings: Vec<ReaderOutput>,
    upgrade: Option<BuildUpgrade>,
    recovery: Option<Duration>,
    recovered_ms: Option<u64>,
    stopped_ms: Option<u64>,
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
        let failure = ended.err().map(|error| format!("{error:#}"));
        let last = self.ring.snapshot(0).await;
        // Without a snapshot there is no verdict. The reason may be the failure.
        let last =
            last.map_err(|error| anyhow::anyhow!("{}", failure.clone().unwrap_or(error.to_string())))?;
        stop.cancel();
        let mut seen = watching.await??;
        seen.note(&last);
        let times = Times {
            recovery: progress.recovery,
            recovered_ms: progress.recovered_ms,
            stopped_ms: progress.stopped_ms,
            drain: progress.drain,
            standstill: Duration::from_millis(standstill.load(Ordering::Relaxed)),
        };
        let mut evidence = self.evidence(progress.readings, &last, failure.is_none()).await?;
        if self.options.workload == Workload::Work {
            evidence.work = Some(self.work_evidence(&last, &seen, times).await?);
        }
        let faults = self.targets.faults();
        let mut verdict = Verdict::new(self.options, &evidence, &seen, &last, &faults, times, failure);
        if let Some(upgrade) = progress.upgrade {
            verdict.add_upgrade(upgrade);
        }
        let redis = Server::connect(&self.template.endpoint).await?.product().await?;
        let names = self.targets.nodes.iter().map(ChaosNode::name).collect();
        let publishers = evidence.work.into_iter().flat_map(|work| work.publishers);
        let records = evidence.records.into_iter().chain(publishers).collect();
        Ok(ChaosOutcome { verdict, faults, seen, records, names, began_ms, redis })
    }

    async fn run_phases(&self, glance: &Receiver<Glance>, progress: &mut PhaseProgress) -> Result<()> {
        self.start_and_attack(glance, progress).await?;
        let last_fault = Instant::now();
        self.recover(glance).await?;
        progress.recovery = Some(last_fault.elapsed());
        progress.recovered_ms = Some(now_ms());
        let mut since = last_fault;
        if self.options.workload == Workload::Work {
            self.observer.phase("watching the healthy ring");
            self.watch_health().await?;
            since = Instant::now();
        }
        self.observer.phase("stopping the nodes");
        progress.stopped_ms = Some(now_ms());
        self.stop(since + DRAIN).await?;
        self.drain(glance, since + DRAIN).await?;
        progress.drain = Some(since.elapsed());
        progress.readings.push(self.read_errors(progress.readings.len(), None).await?);
        Ok(())
    }

    /// Starts the nodes and attacks them. If another build takes part, the nodes become this build meanwhile.
    async fn start_and_attack(&self, glance: &Receiver<Glance>, progress: &mut PhaseProgress) -> Result<()> {
        let length = self.options.length;
        let Some(other) = &self.options.mixed else {
            self.start(glance).await?;
            return self.attack(glance, &mut progress.readings, length, None, None).await;
        };
        let (layout, is_known) = self.start_other(other).await?;
        if is_known {
            let mut said = String::new();
            self.attack(glance, &mut progress.readings, length, None, Some(&mut said)).await?;
            let (from, kind) = (other.version.clone(), UpgradeKind::Rolling { said });
            progress.upgrade = Some(BuildUpgrade { from, from_layout: layout, kind });
            return Ok(());
        }
        let upgrade = progress.upgrade.insert(self.finish_other(other, layout, glance).await?);
        self.start(glance).await?;
        if let UpgradeKind::Anew { refusals: [_, theirs], .. } = &mut upgrade.kind {
            *theirs = self.refusal(Some(&other.program)).await?;
        }
        self.attack(glance, &mut progress.readings, length / 2, None, None).await
    }

    async fn start(&self, glance: &Receiver<Glance>) -> Result<()> {
        self.observer.phase(&format!("starting {} nodes on {}", self.options.nodes, self.options.place()));
        self.targets.nodes.iter().try_for_each(|node| node.start(None))?;
        let whole = tokio::time::timeout(START, self.until_whole(glance, 0, 0)).await;
        whole.with_context(|| format!("the nodes did not form a ring within {} s", START.as_secs()))?
    }

    /// Carries out the plan. A reader, of this build or another one, takes the errors out at intervals. If `upgraded` is
    /// given, the nodes are replaced by this build meanwhile, and it gets what `estafeta upgrade` printed.
    pub async fn attack(
        &self,
        glance: &Receiver<Glance>,
        readings: &mut Vec<ReaderOutput>,
        length: Duration,
        reader: Option<&Path>,
        upgraded: Option<&mut String>,
    ) -> Result<()> {
        self.observer.phase("attacking");
        let options = self.options;
        let processes = (options.nodes, options.workload.publishers());
        let plan = plan::plan(options.seed, length, processes, &options.kinds);
        let generator = || {
            let pid = u32::try_from(glance.borrow().generator?).ok()?;
            self.targets.nodes.iter().position(|node| node.pid() == Some(pid))
        };
        let observer = self.observer.clone();
        let faults = self.targets.attack(plan, generator, move |what| observer.injected(what));
        let (over, until) = (CancellationToken::new(), Instant::now() + length);
        let roll = async {
            if let Some(upgraded) = upgraded {
                *upgraded = self.roll().await?;
            }
            Ok(())
        };
        let attack = async {
            tokio::try_join!(faults, roll)?;
            tokio::time::sleep_until(until.into()).await;
            over.cancel();
            anyhow::Ok(())
        };
        let read = async {
            while over.run_until_cancelled(tokio::time::sleep(READ_INTERVAL)).await.is_some() {
                readings.push(self.read_errors(readings.len(), reader).await?);
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
    pub fn supervise(&self) -> Result<()> {
        for node in &self.targets.nodes {
            match node.ended()? {
                None => {}
                Some(status) if status.code() == Some(REDIS.into()) && !node.has_joined()? => {
                    node.start(None)?
                }
                Some(status) => {
                    bail!("{} exited unexpectedly ({status}): {}", node.name(), node.last_line())
                }
            }
        }
        Ok(())
    }

    pub async fn read_errors(&self, number: usize, program: Option<&Path>) -> Result<ReaderOutput> {
        // The proxy of the readers is always clear, so only faults of Redis hit them.
        let url = self.template.endpoint.secret_url_through(self.clear_proxy.port());
        reader::read_errors(&self.template, program, &url, number).await
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

    async fn watch_health(&self) -> Result<()> {
        let until = Instant::now() + HEALTHY;
        while Instant::now() < until {
            self.supervise()?;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// Stops the publishers, then the nodes.
    pub async fn stop(&self, deadline: Instant) -> Result<()> {
        for are_nodes in [false, true] {
            let these = || self.targets.nodes.iter().filter(|node| node.is_node() == are_nodes);
            these().try_for_each(|node| node.signal(Signal::SIGTERM))?;
            for node in these() {
                node.finish(deadline).await?;
            }
        }
        Ok(())
    }

    pub fn nodes(&self) -> impl Iterator<Item = &ChaosNode> {
        self.targets.nodes.iter().filter(|node| node.is_node())
    }

    /// Starts nodes that handle everything that is left.
    async fn drain(&self, glance: &Receiver<Glance>, deadline: Instant) -> Result<()> {
        self.observer.phase("emptying the queue");
        let limit = self.ring.snapshot(0).await?.published.max(1);
        self.nodes().try_for_each(|node| node.start(Some(limit)))?;
        let all_end = async {
            for node in self.nodes() {
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
        let records = read_records(self.nodes())?;
        Ok(Evidence { published: last.published, journal, records, readers, complete, work: None })
    }

    /// Collects what the publishers know, and what the ring has counted.
    async fn work_evidence(&self, last: &Snapshot, seen: &Seen, times: Times) -> Result<WorkEvidence> {
        let publishers = self.targets.nodes.iter().filter(|node| !node.is_node());
        Ok(WorkEvidence {
            publishers: read_records(publishers)?,
            counts: RingCounts::of(last),
            written: WrittenEffects::read(&self.ring).await?,
            healthy: times.recovered_ms.zip(times.stopped_ms),
            clock_ahead_ms: seen.clock_ahead_ms.unwrap_or(0),
            standstill_ms: u64::try_from(times.standstill.as_millis()).unwrap_or(u64::MAX),
        })
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
                ring.erase_user_keys().await?;
            }
        }
        Ok(())
    }
}

pub fn read_records<'a>(nodes: impl Iterator<Item = &'a ChaosNode>) -> Result<Vec<Vec<RecordLine>>> {
    let read = |node: &ChaosNode| {
        let text = std::fs::read_to_string(node.record());
        let text = text.with_context(|| format!("cannot read the record of {}", node.name()))?;
        record::read(&text).map_err(anyhow::Error::msg)
    };
    nodes.map(read).collect()
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
