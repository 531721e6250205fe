//! Chaos injects faults into a ring of real nodes, and judges whether the ring kept its promises.
//!
//! Every node is a separate process behind its own proxy. Chaos starts its own Redis: a single server, or servers with
//! sentinels, or a cluster. The user may name another Redis instead. The seed decides all faults before the
//! first node starts (`plan`). `phases` describes the phases of a run and runs them. `attack` injects and undoes the
//! faults. `watch` takes snapshots of the ring during the whole run. `judge` compares what the run left behind.
//! `verdict` presents the findings, and `page` shows them as HTML.
//!
//! A phase that does not end well is a broken promise, and the verdict names it. Chaos itself fails only if it cannot
//! reach a verdict, because a foreign member is in the ring or Redis does not answer.
//!
//! A pipeline has two rings, and each of its processes has a node in both. Both rings are watched and judged in the same
//! way.
//!
//! All child processes end with chaos. If chaos itself is killed with SIGKILL, this holds only on Linux, where the
//! kernel kills them. Chaos removes its ring from a Redis that the user named. It keeps the ring if a promise was
//! broken, because the data shows why.

mod attack;
mod collect;
mod judge;
mod losses;
mod mixed;
mod node;
mod page;
mod phases;
mod plan;
mod promotions;
mod reader;
pub mod real_work;
mod story;
mod timeline;
mod verdict;
mod watch;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::proxy::Proxy;
use anyhow::{Context as _, Result, bail};
use estafeta::{Durability, Endpoint, Ring, RingName};

pub use attack::InjectedFault;
pub use mixed::OtherBuild;
pub use page::page;
pub use plan::{FaultKind, Wanted};
pub use verdict::Verdict;

use attack::Targets;
use losses::Losses;
use node::{ChaosNode, NodeTemplate, ProcessDuty};
use phases::Phases;
use watch::Seen;

use crate::record::RecordLine;
use crate::redis_servers::RedisServers;
pub use crate::redis_servers::Topology;

/// The lease of the nodes. It is shorter than the default, so that more happens in a minute.
pub const LEASE: Duration = Duration::from_secs(1);
/// How long the ring may take to work again after the last fault.
pub const RECOVERY: Duration = Duration::from_secs(10);
/// How long the queue may take to become empty after the last fault.
pub const DRAIN: Duration = Duration::from_secs(30);

/// What the nodes of a run do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Retried, snoozed and delayed messages, and publishers outside the ring.
    Work,
    /// The same in two rings: the first one gets its messages from a growing file, and forwards many to the second one.
    Pipeline,
    /// Random texts, as `estafeta run` makes them.
    Demo,
}

impl Workload {
    pub fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Pipeline => "pipeline",
            Self::Demo => "demo",
        }
    }

    /// How many publishers outside the ring it has.
    pub fn publishers(self) -> usize {
        match self {
            Self::Work | Self::Pipeline => 3,
            Self::Demo => 0,
        }
    }

    /// Whether the body of each message is a plan.
    pub fn has_plans(self) -> bool {
        self != Self::Demo
    }

    /// The rings that it uses. Those of a pipeline belong to a group of this name.
    pub fn rings(self, name: &RingName) -> estafeta::Result<Vec<RingName>> {
        match self {
            Self::Pipeline => {
                ["lines", "totals"].map(|ring| format!("{name}/{ring}").parse()).into_iter().collect()
            }
            Self::Work | Self::Demo => Ok(vec![name.clone()]),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [Self::Work, Self::Pipeline, Self::Demo];
        let workload = all.into_iter().find(|workload| workload.name() == word);
        workload.ok_or_else(|| format!("expected work, pipeline or demo, got '{word}'"))
    }
}

/// The options of one run.
pub struct ChaosOptions {
    pub workload: Workload,
    /// The build that the nodes have at first. None: all nodes are of this build.
    pub mixed: Option<OtherBuild>,
    pub nodes: usize,
    pub length: Duration,
    pub kinds: Vec<FaultKind>,
    pub seed: u64,
    /// The servers that chaos starts. None if the user named a Redis.
    pub topology: Option<Topology>,
    /// Where a step must be stored before nodes, publishers and readers report it.
    pub durability: Durability,
    /// The ring, or the rings of a pipeline in their order.
    pub rings: Vec<RingName>,
    /// None: chaos starts its own server.
    pub redis: Option<Endpoint>,
}

impl ChaosOptions {
    /// Describes the Redis under attack.
    pub fn place(&self) -> String {
        match (&self.redis, self.topology) {
            (Some(given), _) => given.to_string(),
            (None, Some(Topology::Sentinel)) => "an ephemeral Redis with sentinels".to_owned(),
            (None, Some(Topology::Cluster)) => "an ephemeral Redis Cluster".to_owned(),
            (None, _) => "an ephemeral Redis".to_owned(),
        }
    }

    /// The kinds of faults that are possible in the topology.
    pub fn possible_kinds(topology: Option<Topology>) -> impl Iterator<Item = FaultKind> {
        let is_possible = move |kind: &FaultKind| match topology {
            Some(topology) => kind.topologies().contains(&topology),
            None => !kind.needs_own_redis(),
        };
        FaultKind::ALL.into_iter().filter(is_possible)
    }

    /// Whether a single server has a replica behind the same address.
    fn has_replica(&self) -> bool {
        let needs_replicas = matches!(self.durability, Durability::Replicas(_) | Durability::AllReplicas);
        needs_replicas || self.kinds.contains(&FaultKind::Demote)
    }

    /// What Redis may lose of what it has acknowledged. `risky_times` are those in which a promotion may
    /// lose what a process reported.
    fn losses(&self, risky_times: Vec<(u64, u64)>) -> Losses {
        match (self.topology, self.durability) {
            // A single server swaps with its replica only when that has everything.
            (None | Some(Topology::Single), _) => Losses::Nothing,
            (_, Durability::AllReplicas) => Losses::Unconfirmed,
            // A master of the cluster has one replica.
            (Some(Topology::Cluster), Durability::Replicas(1)) => Losses::Unconfirmed,
            (Some(Topology::Sentinel), Durability::Replicas(2)) => Losses::Unconfirmed,
            _ => Losses::During(risky_times),
        }
    }

    /// The command line that gives the same plan again.
    pub fn call(&self) -> String {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
        let length = humantime::format_duration(self.length).to_string().replace(' ', "");
        let is_all = Self::possible_kinds(self.topology).eq(self.kinds.iter().copied());
        let faults = if is_all { "all".to_owned() } else { kinds.join(",") };
        let mut redis = String::new();
        if let Some(topology) = self.topology.filter(|topology| *topology != Topology::Single) {
            redis = format!("--topology {} ", topology.name());
        }
        if self.durability != Durability::Memory {
            redis += &format!("--durability {} ", self.durability);
        }
        let (workload, nodes, seed) = (self.workload.name(), self.nodes, self.seed);
        let mixed = self.mixed.as_ref().map(|other| format!("--mixed {} ", other.program.display()));
        let mixed = mixed.unwrap_or_default();
        format!(
            "estafeta chaos {redis}{mixed}--workload {workload} --nodes {nodes} --for {length} --faults {faults} --seed {seed}"
        )
    }
}

/// Receives the progress of a run, and shows it to the user.
pub trait ChaosObserver: Clone + Send + 'static {
    fn injected(&self, what: &str);
    fn phase(&self, what: &str);
    fn progress(&self, published: u64);
}

/// How long the parts of a run took. None if one did not end in time.
#[derive(Clone, Copy, Default)]
pub struct RunTimes {
    pub recovery: Option<Duration>,
    pub drain: Option<Duration>,
    /// When the ring had recovered.
    pub recovered_ms: Option<u64>,
    /// When chaos asked the first process to stop.
    pub stopped_ms: Option<u64>,
    /// From the first attack to the end of the last one, in ms since 1970.
    pub attack: Option<(u64, u64)>,
    /// The longest time in which chaos itself could not run, because of a busy disk or a paused virtual machine.
    pub standstill: Duration,
}

/// The result of one run.
pub struct ChaosOutcome {
    pub verdict: Verdict,
    pub faults: Vec<InjectedFault>,
    /// What chaos saw of the first ring.
    pub seen: Seen,
    /// One record per node, in the first ring, then one per publisher.
    pub records: Vec<Vec<RecordLine>>,
    /// The names of the nodes and the publishers, in the same order.
    pub names: Vec<String>,
    pub began_ms: u64,
    /// The name and version of the server.
    pub redis: String,
}

/// Runs all phases, with all files in `directory`. Returns None if `stop` was ready before the end.
pub async fn run(
    options: &ChaosOptions,
    directory: &Path,
    observer: impl ChaosObserver,
    stop: impl Future<Output = ()>,
) -> Result<Option<ChaosOutcome>> {
    let mut stop = std::pin::pin!(stop);
    let Some(own) = start_servers(options, directory, &mut stop).await? else { return Ok(None) };
    let phases = tokio::select! {
        phases = prepare(options, own, directory, observer) => phases?,
        () = &mut stop => return Ok(None),
    };
    let outcome = tokio::select! {
        outcome = phases.run() => Some(outcome?),
        () = stop => None,
    };
    let is_good = outcome.as_ref().is_none_or(|outcome| outcome.verdict.is_good());
    phases.end(options.redis.is_some() && is_good).await?;
    Ok(outcome)
}

/// Starts the servers under attack, unless the user named a Redis. Returns None if `stop` was ready before the end.
async fn start_servers(
    options: &ChaosOptions,
    directory: &Path,
    stop: &mut (impl Future<Output = ()> + Unpin),
) -> Result<Option<Option<RedisServers>>> {
    let Some(topology) = options.topology else { return Ok(Some(None)) };
    let (place, ring) = (directory.to_owned(), options.rings[0].clone());
    let (has_replica, durability) = (options.has_replica(), options.durability);
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let start = move || RedisServers::start(&place, topology, has_replica, durability, &ring, &is_over);
    let mut start = tokio::task::spawn_blocking(start);
    tokio::select! {
        started = &mut start => Ok(Some(Some(started??))),
        () = stop => {
            over.store(true, Ordering::Relaxed);
            // What has started by now ends here.
            drop(start.await);
            Ok(None)
        }
    }
}

async fn prepare<'a, S: ChaosObserver>(
    options: &'a ChaosOptions,
    own: Option<RedisServers>,
    directory: &Path,
    observer: S,
) -> Result<Phases<'a, S>> {
    let address = match (&own, &options.redis) {
        (Some(own), _) => own.endpoint()?,
        (None, Some(given)) => given.clone(),
        (None, None) => bail!("no Redis to attack"),
    };
    const TLS: &str =
        "chaos attacks connections through proxies, which do not support TLS: expected redis://";
    let clear_proxy = Proxy::to_endpoint(&address).await?.context(TLS)?;
    // The address of a single server with a replica leads to the other one later.
    let endpoint = match options.topology {
        Some(Topology::Single) if options.has_replica() => {
            address.secret_url_through(clear_proxy.ports()).parse()?
        }
        _ => address.clone(),
    };
    let mut rings = Vec::new();
    for name in &options.rings {
        let ring = Ring::connect(endpoint.clone(), name.clone()).await?;
        if !ring.is_untouched().await? || ring.count_user_keys().await? > 0 {
            bail!(
                "the ring '{name}' at {endpoint} has members or data: expected an empty ring (name another one with \
                 --ring, or remove what an earlier chaos left with `estafeta reset`)"
            );
        }
        rings.push(ring);
    }
    let template = NodeTemplate {
        directory: directory.to_owned(),
        endpoint,
        durability: options.durability,
        rings: options.rings.clone(),
        pids: Arc::default(),
        closed: Arc::default(),
        commands: Arc::default(),
    };
    let mut nodes = Vec::new();
    for index in 0..options.nodes + options.workload.publishers() {
        let duty = match (index.checked_sub(options.nodes), options.workload) {
            (Some(publisher), _) => ProcessDuty::Publisher { number: publisher + 1, seed: options.seed },
            (None, Workload::Work) => ProcessDuty::WorkNode,
            (None, Workload::Pipeline) => ProcessDuty::PipelineNode,
            (None, Workload::Demo) => ProcessDuty::DemoNode,
        };
        let proxy = Proxy::to_endpoint(&address).await?.context(TLS)?;
        nodes.push(ChaosNode::new(index, duty, template.clone(), proxy));
    }
    let targets = Arc::new(Targets::new(nodes, own, clear_proxy));
    Ok(Phases { options, rings, template, targets, observer })
}
