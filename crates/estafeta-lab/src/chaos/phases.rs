//! The phases of a run. Each must end well, otherwise a promise is broken:
//!
//! 1. *Start*: all nodes join, and one of them publishes.
//! 2. *Attack*: chaos injects the faults of the plan. Meanwhile it takes snapshots, and each must balance. A reader
//!    takes the errors out at intervals, as a user would. A node may end only if chaos killed it, or if it found no
//!    Redis at its start. Chaos then starts it again.
//! 3. *Recovery*: within [`RECOVERY`] of the last fault, all nodes are alive in the ring, and one of them is in office.
//!    Nodes publish and settle messages again, and every node has done some work.
//! 4. *Health*, unless the workload is `demo`: for [`HEALTHY`] nothing is attacked, and messages must come in time.
//! 5. *Stop*: chaos asks all publishers and then all nodes to stop, and they exit in good order. Before that, the feed of
//!    a pipeline reaches the end of its file, which does not grow any more.
//! 6. *Drain*: new nodes, which may not generate, handle what is left, and exit by themselves. Within [`DRAIN`] of the
//!    last fault, the queue is empty. A reader takes the last errors.
//!
//! If a phase fails, chaos skips the phases after it. The verdict names the failure. The judge still examines what the
//! run left behind.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::proxy::LinkCondition;
use anyhow::{Context as _, Result, anyhow, bail};
use estafeta::{Ring, Snapshot};
use nix::sys::signal::Signal;
use tokio::sync::watch::{Receiver, Sender};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::attack::Targets;
use super::judge::ReaderOutput;
use super::mixed::{BuildUpgrade, UpgradeKind};
use super::node::{ChaosNode, NodeTemplate};
use super::real_work::feed;
use super::verdict::{JudgedRing, Verdict};
use super::watch::{Glance, RingWatch, Seen};
use super::{ChaosObserver, ChaosOptions, ChaosOutcome, DRAIN, RECOVERY, RunTimes, Workload, plan, reader};
use crate::clock::now_ms;
use crate::exit_code::REDIS;
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
    /// The ring, or the rings of a pipeline in their order.
    pub rings: Vec<Ring>,
    pub template: NodeTemplate,
    pub targets: Arc<Targets>,
    pub observer: S,
}

/// How far a run came.
#[derive(Default)]
struct PhaseProgress {
    readings: Readings,
    upgrade: Option<BuildUpgrade>,
    recovery: Option<Duration>,
    recovered_ms: Option<u64>,
    stopped_ms: Option<u64>,
    drain: Option<Duration>,
}

/// The tasks that watch the rings. Each returns the number of its ring, and what it saw.
type Watches = JoinSet<Result<(usize, Seen)>>;

/// What the readers of each ring printed.
pub type Readings = Vec<Vec<ReaderOutput>>;

impl<S: ChaosObserver> Phases<'_, S> {
    /// The ring, or the first ring of a pipeline.
    pub fn ring(&self) -> &Ring {
        &self.rings[0]
    }

    pub fn no_readings(&self) -> Readings {
        self.rings.iter().map(|_| Vec::new()).collect()
    }

    /// Fails only if there can be no verdict: a foreign member is in the ring, or Redis does not answer.
    pub async fn run(&self) -> Result<ChaosOutcome> {
        let began_ms = now_ms();
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let (mut watches, glances) = self.watch_rings(&stop);
        tokio::spawn(measure_standstill(Arc::clone(&self.targets), stop.clone()));
        let (moves, stopped) = (Arc::clone(&self.targets).watch_moves(), stop.clone());
        let mut moves = tokio::spawn(async move { stopped.run_until_cancelled(moves).await });

        let mut progress = PhaseProgress { readings: self.no_readings(), ..PhaseProgress::default() };
        let ended = tokio::select! {
            ended = self.run_phases(&glances, &mut progress) => ended,
            // Without this watch nobody knows what may be lost.
            moves = &mut moves => match moves? {
                Some(Err(error)) => Err(error),
                Some(Ok(never)) => match never {},
                None => Err(anyhow!("the watch of the servers ended early")),
            },
            // A watch ends early only if something is wrong.
            Some(watched) = watches.join_next() => {
                return Err(watched?.err().unwrap_or_else(|| anyhow!("a watch ended early")));
            }
        };
        self.observer.phase("judging");
        self.kill_nodes()?;
        // A phase that failed in the middle of a fault may have left Redis down.
        self.targets.revive().await?;
        self.targets.look().await?;
        let failure = ended.err().map(|error| format!("{error:#}"));
        let last = self.last_snapshots(failure.as_deref()).await?;
        stop.cancel();
        let mut seen: Vec<(usize, Seen)> = watches.join_all().await.into_iter().collect::<Result<_>>()?;
        seen.sort_by_key(|(index, _)| *index);
        let times = RunTimes {
            recovery: progress.recovery,
            recovered_ms: progress.recovered_ms,
            stopped_ms: progress.stopped_ms,
            drain: progress.drain,
            attack: self.targets.attacked(),
            standstill: Duration::from_millis(self.targets.standstill_ms.load(Ordering::Relaxed)),
        };
        let seen = seen.into_iter().map(|(_, seen)| seen).zip(last).zip(progress.readings);
        let mut rings = self.judged_rings(seen, times, failure.is_none()).await?;
        let faults = self.targets.faults();
        let mut verdict = Verdict::new(self.options, &rings, &faults, times, failure);
        if let Some(upgrade) = progress.upgrade {
            verdict.add_upgrade(upgrade);
        }
        let redis = Server::connect(&self.ring().located().await?).await?.product().await?;
        let names = self.targets.nodes.iter().map(ChaosNode::name).collect();
        let JudgedRing { evidence, seen, .. } = rings.swap_remove(0);
        let publishers = evidence.work.into_iter().flat_map(|work| work.publishers);
        let records = evidence.records.into_iter().chain(publishers).collect();
        Ok(ChaosOutcome { verdict, faults, seen, records, names, began_ms, redis })
    }

    /// Watches each ring until `stop` is cancelled.
    fn watch_rings(&self, stop: &CancellationToken) -> (Watches, Vec<Receiver<Glance>>) {
        let (mut watches, mut glances) = (JoinSet::new(), Vec::new());
        for (index, ring) in self.rings.iter().cloned().enumerate() {
            let glance = Sender::new(Glance::default());
            glances.push(glance.subscribe());
            let (watch, stop) = (RingWatch { ring, template: self.template.clone(), glance }, stop.clone());
            watches.spawn(async move { anyhow::Ok((index, watch.run(stop).await?)) });
        }
        (watches, glances)
    }

    /// The state of each ring at the end. Without it there is no verdict. The reason may be the failure of a phase.
    async fn last_snapshots(&self, failure: Option<&str>) -> Result<Vec<Snapshot>> {
        let mut last = Vec::new();
        for ring in &self.rings {
            let snapshot = ring.snapshot(0).await;
            last.push(snapshot.map_err(|error| match failure {
                Some(failure) => anyhow!("{failure}"),
                None => anyhow!("{error}"),
            })?);
        }
        Ok(last)
    }

    async fn run_phases(&self, glances: &[Receiver<Glance>], progress: &mut PhaseProgress) -> Result<()> {
        let feed = (self.options.workload == Workload::Pipeline).then(|| self.start_feed(&glances[0]));
        self.start_and_attack(glances, progress).await?;
        let last_fault = Instant::now();
        self.recover(glances).await?;
        progress.recovery = Some(last_fault.elapsed());
        progress.recovered_ms = Some(now_ms());
        let mut since = last_fault;
        if self.options.workload.has_plans() {
            self.observer.phase("watching the healthy ring");
            self.watch_health().await?;
            self.end_feed(feed).await?;
            since = Instant::now();
        }
        self.observer.phase("stopping the nodes");
        progress.stopped_ms = Some(now_ms());
        self.stop(since + DRAIN).await?;
        self.drain(glances, since + DRAIN).await?;
        progress.drain = Some(since.elapsed());
        self.read_errors(&mut progress.readings, None).await
    }

    /// Begins to write the file of a pipeline.
    fn start_feed(&self, glance: &Receiver<Glance>) -> FeedTask {
        let (path, seed, glance) = (self.template.feed(), self.options.seed, glance.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let published = move || glance.borrow().generated;
        let task = tokio::spawn(async move { feed::write_lines(&path, seed, published, stopped).await });
        FeedTask { stop: stop.drop_guard(), task }
    }

    /// Writes no more lines, if there is a file, and waits until all of them are published.
    async fn end_feed(&self, feed: Option<FeedTask>) -> Result<()> {
        let Some(FeedTask { stop, task }) = feed else { return Ok(()) };
        self.observer.phase("waiting for the feed to reach the end of its file");
        drop(stop);
        task.await??;
        let size = std::fs::metadata(self.template.feed())?.len();
        let deadline = Instant::now() + DRAIN;
        while feed::checkpoint(self.ring()).await? != Some(size) {
            if Instant::now() > deadline {
                bail!("the feed did not reach the end of its file within {} s", DRAIN.as_secs());
            }
            self.supervise()?;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// Starts the nodes and attacks them. If another build takes part, the nodes become this build meanwhile.
    async fn start_and_attack(
        &self,
        glances: &[Receiver<Glance>],
        progress: &mut PhaseProgress,
    ) -> Result<()> {
        let length = self.options.length;
        let Some(other) = &self.options.mixed else {
            self.start(glances).await?;
            return self.attack(glances, &mut progress.readings, length, None, None).await;
        };
        let (layout, is_known) = self.start_other(other).await?;
        if is_known {
            let mut printed = String::new();
            self.attack(glances, &mut progress.readings, length, None, Some(&mut printed)).await?;
            let (from, kind) = (other.version.clone(), UpgradeKind::Rolling { printed });
            progress.upgrade = Some(BuildUpgrade { from, from_layout: layout, kind });
            return Ok(());
        }
        let upgrade = progress.upgrade.insert(self.finish_other(other, layout, glances).await?);
        self.start(glances).await?;
        if let UpgradeKind::Anew { refusals: [_, theirs], .. } = &mut upgrade.kind {
            *theirs = self.refusal(Some(&other.program)).await?;
        }
        self.attack(glances, &mut progress.readings, length / 2, None, None).await
    }

    async fn start(&self, glances: &[Receiver<Glance>]) -> Result<()> {
        self.observer.phase(&format!("starting {} nodes on {}", self.options.nodes, self.options.place()));
        self.targets.nodes.iter().try_for_each(|node| node.start(None))?;
        let nothing = vec![Glance::default(); glances.len()];
        let whole = tokio::time::timeout(START, self.until_whole(glances, &nothing)).await;
        whole.with_context(|| format!("the nodes did not form a ring within {} s", START.as_secs()))?
    }

    /// Carries out the plan. A reader, of this build or another one, takes the errors out at intervals. If `upgraded` is
    /// given, the nodes are replaced by this build meanwhile, and it gets what `estafeta upgrade` printed.
    pub async fn attack(
        &self,
        glances: &[Receiver<Glance>],
        readings: &mut Readings,
        length: Duration,
        reader: Option<&Path>,
        upgraded: Option<&mut String>,
    ) -> Result<()> {
        self.observer.phase("attacking");
        let options = self.options;
        let processes = (options.nodes, options.workload.publishers());
        let plan = plan::plan(options.seed, length, processes, &options.kinds);
        let generator = || {
            let pid = u32::try_from(glances[0].borrow().generator?).ok()?;
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
                self.read_errors(readings, reader).await?;
            }
            Ok(())
        };
        tokio::try_join!(attack, self.supervise_until(glances, &over), read).map(drop)
    }

    async fn supervise_until(&self, glances: &[Receiver<Glance>], over: &CancellationToken) -> Result<()> {
        while !over.is_cancelled() {
            self.observer.progress(glances.iter().map(|glance| glance.borrow().published).sum());
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

    /// The URL of the readers and of other commands, which are not attacked themselves.
    pub fn clear_url(&self) -> String {
        self.template.endpoint.secret_url_through(self.targets.clear_proxy.ports())
    }

    /// Takes the errors out of each ring.
    pub async fn read_errors(&self, readings: &mut Readings, program: Option<&Path>) -> Result<()> {
        // The proxy of the readers is always clear, so only faults of Redis hit them.
        let url = self.clear_url();
        for (ring, readings) in self.template.rings.iter().zip(readings) {
            let number = readings.len();
            readings.push(reader::read_errors(&self.template, ring, program, &url, number).await?);
        }
        Ok(())
    }

    async fn recover(&self, glances: &[Receiver<Glance>]) -> Result<()> {
        self.observer.phase("waiting for the ring to recover");
        let recovered = async {
            // Only what is seen from now on counts.
            let mut before = Vec::new();
            for mut glance in glances.iter().cloned() {
                glance.mark_unchanged();
                glance.changed().await?;
                before.push(*glance.borrow());
            }
            let nodes = &self.targets.nodes;
            let sizes: Vec<Vec<u64>> = nodes.iter().map(ChaosNode::record_sizes).collect();
            self.until_whole(glances, &before).await?;
            while !nodes.iter().zip(&sizes).all(|(node, sizes)| node.has_worked_since(sizes)) {
                self.supervise()?;
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            Ok(())
        };
        let limit = RECOVERY.as_secs();
        let failed = || format!("not all nodes worked again within {limit} s of the last fault");
        tokio::time::timeout(RECOVERY, recovered).await.with_context(failed)?
    }

    /// Waits until all nodes are alive in each ring, one of them is in office, and more messages are published and
    /// settled. The second ring of a pipeline has no generator.
    async fn until_whole(&self, glances: &[Receiver<Glance>], before: &[Glance]) -> Result<()> {
        let is_whole = |(index, (glance, before)): (usize, (&Receiver<Glance>, &Glance))| {
            let now = *glance.borrow();
            now.nodes == self.options.nodes
                && now.members == now.nodes
                && (now.generator.is_some() || index > 0)
                && now.published > before.published
                && now.settled > before.settled
        };
        while !glances.iter().zip(before).enumerate().all(is_whole) {
            self.supervise()?;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        Ok(())
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
    async fn drain(&self, glances: &[Receiver<Glance>], deadline: Instant) -> Result<()> {
        self.observer.phase("emptying the queue");
        let limit = self.ring().snapshot(0).await?.published.max(1);
        self.nodes().try_for_each(|node| node.start(Some(limit)))?;
        let all_end = async {
            for node in self.nodes() {
                node.finish(deadline).await?;
            }
            anyhow::Ok(())
        };
        let is_lost = |glance: Glance| glance.message_lost && glance.nodes == self.options.nodes;
        let message_lost = async {
            while !glances.iter().any(|glance| is_lost(*glance.borrow())) {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            ended = all_end => ended.context("the queue was not emptied"),
            // A message is lost, and the nodes would wait for it for ever.
            () = message_lost => self.stop(deadline).await,
        }
    }

    /// Kills all nodes that still run, and lets no more start.
    fn kill_nodes(&self) -> Result<()> {
        self.template.closed.store(true, Ordering::Relaxed);
        ChaosNode::kill_all(self.targets.nodes.iter())
    }

    /// Ends everything. If `erase` is set, it also removes the ring from a Redis that the user named.
    pub async fn end(&self, erase: bool) -> Result<()> {
        self.kill_nodes()?;
        let proxies = self.targets.nodes.iter().map(|node| &node.proxy).chain([&self.targets.clear_proxy]);
        proxies.for_each(|proxy| proxy.set(LinkCondition::Closed));
        if let Some(own) = &self.targets.redis {
            return Ok(own.end()?);
        }
        if erase {
            tokio::time::sleep(LATE_WRITES).await;
            for ring in &self.rings {
                let snapshot = ring.snapshot(0).await?;
                if self.template.foreign_member_in(&snapshot).is_none() {
                    ring.erase().await?;
                    ring.erase_user_keys().await?;
                }
            }
        }
        Ok(())
    }
}

/// Writes the file of a pipeline.
struct FeedTask {
    /// Ends the task when it is dropped.
    stop: DropGuard,
    task: JoinHandle<Result<()>>,
}

/// Measures the longest delay of many short sleeps.
async fn measure_standstill(targets: Arc<Targets>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let start = Instant::now();
        tokio::time::sleep(CHECK_INTERVAL).await;
        let late = start.elapsed().saturating_sub(CHECK_INTERVAL).as_millis();
        targets.standstill_ms.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
