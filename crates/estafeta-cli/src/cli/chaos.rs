//! The options of `estafeta chaos`.

use std::path::PathBuf;

use clap::Args;
use estafeta::{Durability, RingName};
use estafeta_lab::chaos::real_work::WorkerRole;
use estafeta_lab::chaos::{Topology, Wanted, Workload};

use super::JsonArg;
use crate::duration::HumanDuration;

#[derive(Debug, Args)]
pub struct ChaosArgs {
    /// Nodes to start, 2 to 200
    #[arg(short = 'n', long, alias = "copies", value_name = "N", default_value_t = 8)]
    pub nodes: usize,

    /// What the nodes do: work, pipeline or demo [default: work, or demo with --mixed]
    ///
    /// With `work`, messages are retried, snoozed and delayed, and write effects. Three publishers outside the ring
    /// publish with keys, repeat and cancel, and are attacked as well. With `pipeline`, there are two such rings in the
    /// group that --ring names. The first one publishes the lines of a growing file, and forwards messages to the second
    /// one. With `demo`, the nodes are those of `estafeta run`.
    #[arg(long, value_name = "NAME")]
    pub workload: Option<Workload>,

    /// Begin with the nodes of another build of estafeta, and upgrade to this one in the middle
    ///
    /// If this build knows the layout of the other one, chaos replaces the nodes one by one under attack and then runs
    /// `estafeta upgrade`. Otherwise both builds must refuse each other. Then the other build empties its ring, and this
    /// one starts in a new ring.
    #[arg(long, value_name = "BINARY")]
    pub mixed: Option<PathBuf>,

    /// The Redis that chaos starts: single, sentinel or cluster [default: single]
    ///
    /// With `sentinel`, three sentinels watch a master and two replicas. With `cluster`, three masters have one replica
    /// each.
    #[arg(long, value_name = "NAME")]
    pub topology: Option<Topology>,

    /// Where Redis must have stored a change before nodes, publishers and readers report it: memory, replicas=N,
    /// replicas=all or disk
    #[arg(long, value_name = "LEVEL", default_value_t)]
    pub durability: Durability,

    /// How long to attack
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    pub length: HumanDuration,

    /// Faults to inject, separated by commas: all, or some of kill, freeze, cut, lag, half-open, lost-reply,
    /// redis-kill, redis-stall, script-flush, client-kill, flood, failover, migrate, demote, replica-lag, node-kill
    ///
    /// Chaos starts its own Redis, unless --redis or --host names one. It never attacks a named Redis itself, so only
    /// the first six faults are possible there. `redis-kill` needs --topology single. `failover`, `replica-lag` and
    /// `node-kill` need sentinel or cluster, and `migrate` needs cluster.
    #[arg(long, value_name = "KINDS", default_value = "all")]
    pub faults: Wanted,

    /// Seed of the plan of faults [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    #[command(flatten)]
    pub output: JsonArg,

    /// Write an HTML page with a timeline of the run
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ChaosWorkerArgs {
    /// node or publisher
    pub role: WorkerRole,

    /// The file for its record
    #[arg(long)]
    pub record: PathBuf,

    /// Messages that a node handles concurrently
    #[arg(long, default_value_t = 1)]
    pub lanes: usize,

    /// Messages that the whole ring generates. A node exits once every message has its outcome
    #[arg(long)]
    pub limit: Option<u64>,

    /// The number of a publisher
    #[arg(long, default_value_t = 1)]
    pub number: u64,

    /// The seed of a publisher
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Where Redis must have stored a change before it is reported
    #[arg(long, default_value_t)]
    pub durability: Durability,

    #[command(flatten)]
    pub pipeline: Option<PipelineArgs>,
}

#[derive(Debug, Args)]
pub struct PipelineArgs {
    /// The file whose lines the first ring of a pipeline publishes
    #[arg(long, required = false)]
    pub feed: PathBuf,

    /// The second ring of a pipeline
    #[arg(long, required = false)]
    pub next_ring: RingName,

    /// The file for the record of the node in the second ring
    #[arg(long, required = false)]
    pub next_record: PathBuf,
}
