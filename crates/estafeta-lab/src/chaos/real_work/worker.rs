//! The processes of these workloads: nodes and publishers.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use estafeta::{Config, Durability, Endpoint, RingName};
use tokio_util::sync::CancellationToken;

use super::feed::LineFeed;
use super::message_plan::retry;
use super::{node, publisher};
use crate::chaos::LEASE;
use crate::record::{self, Recorder};

/// What a worker of chaos does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerRole {
    /// It is a node of the ring.
    Node,
    /// It publishes from outside the ring.
    Publisher,
}

impl WorkerRole {
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Publisher => "publisher",
        }
    }
}

impl FromStr for WorkerRole {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let role = [Self::Node, Self::Publisher].into_iter().find(|role| role.name() == word);
        role.ok_or_else(|| format!("expected node or publisher, got '{word}'"))
    }
}

/// The options of one worker process.
pub struct WorkerOptions {
    pub role: WorkerRole,
    pub endpoint: Endpoint,
    /// Where a step must be stored before the process reports it.
    pub durability: Durability,
    pub ring: RingName,
    pub record: PathBuf,
    pub lanes: usize,
    /// The ring publishes no more than this, and the node ends when every message has its outcome.
    pub limit: Option<u64>,
    /// The number of a publisher, counted from 1.
    pub number: u64,
    pub seed: u64,
    /// What a node needs in a pipeline.
    pub pipeline: Option<PipelineOptions>,
}

/// What a node needs in a pipeline, besides the first ring and its record.
pub struct PipelineOptions {
    /// The file whose lines are published.
    pub feed: PathBuf,
    /// The second ring.
    pub ring: RingName,
    /// The record of the node in the second ring.
    pub record: PathBuf,
}

/// The application of the rings. Nodes of the demo do not join them.
const APPLICATION: &str = "estafeta-chaos";
/// The generator pauses while this many messages wait. A message that is due stands behind them, so they must be few on
/// a slow machine, if it is to come in time.
const MAX_WAITING: u64 = 300;
/// No message becomes an error because its handlers died. Its plan alone decides its end.
const MAX_DEATHS: u32 = 1_000_000;

/// Runs a worker until `stop` is cancelled.
pub async fn run(options: WorkerOptions, stop: CancellationToken) -> Result<()> {
    match (options.role, &options.pipeline) {
        (WorkerRole::Publisher, _) => run_publisher(&options, stop).await,
        (WorkerRole::Node, None) => {
            let recorder = open(&options.record, &stop)?;
            let config = node_config(&options, &options.ring, options.limit);
            let node = node::handling(config, Arc::clone(&recorder), None);
            node.generate(node::random_plans()).until(stop.cancelled_owned()).await?;
            finish(&options.record, &recorder)
        }
        (WorkerRole::Node, Some(pipeline)) => run_pipeline(&options, pipeline, stop).await,
    }
}

async fn run_publisher(options: &WorkerOptions, stop: CancellationToken) -> Result<()> {
    // A publisher continues where its predecessor was killed.
    let past =
        if options.record.exists() { std::fs::read_to_string(&options.record)? } else { String::new() };
    let past = record::read(&past).map_err(anyhow::Error::msg)?;
    let recorder = open(&options.record, &stop)?;
    publisher::run(&config(options, &options.ring), options, &past, &recorder, &stop).await?;
    finish(&options.record, &recorder)
}

/// Runs a node in each ring. If one of them fails, both end.
async fn run_pipeline(
    options: &WorkerOptions,
    pipeline: &PipelineOptions,
    stop: CancellationToken,
) -> Result<()> {
    let recorders = [open(&options.record, &stop)?, open(&pipeline.record, &stop)?];
    let (next, feed) = (Some(pipeline.ring.clone()), LineFeed::new(pipeline.feed.clone()));
    let first = node_config(options, &options.ring, options.limit);
    let first = node::handling(first, Arc::clone(&recorders[0]), next).generate(feed);
    // The second ring has reached this limit when it has any message.
    let second = node_config(options, &pipeline.ring, options.limit.map(|_| 1));
    let second = node::handling(second, Arc::clone(&recorders[1]), None);
    let stopped = || stop.clone().cancelled_owned();
    match options.limit {
        None => {
            tokio::try_join!(first.until(stopped()), second.until(stopped()))?;
        }
        // When the first ring is empty, nothing more is forwarded.
        Some(_) => {
            first.until(stopped()).await?;
            second.until(stopped()).await?;
        }
    }
    finish(&options.record, &recorders[0])?;
    finish(&pipeline.record, &recorders[1])
}

fn config(options: &WorkerOptions, ring: &RingName) -> Config {
    let mut config = Config::new(options.endpoint.clone(), ring.clone());
    config.application = APPLICATION.to_owned();
    config.durability = options.durability;
    config
}

/// The settings of a node in one ring. With a limit, it ends when every message has its outcome.
fn node_config(options: &WorkerOptions, ring: &RingName, limit: Option<u64>) -> Config {
    let mut config = config(options, ring);
    config.generator_handles = false;
    (config.concurrency, config.lease) = (options.lanes, LEASE);
    (config.limit, config.until_done) = (limit, limit.is_some());
    (config.max_waiting, config.max_deaths) = (MAX_WAITING, MAX_DEATHS);
    (config.retry, config.journal) = (retry(), true);
    config
}

fn open(record: &Path, stop: &CancellationToken) -> Result<Arc<Recorder>> {
    let opened = Recorder::open(record, stop.clone());
    Ok(Arc::new(opened.with_context(|| format!("cannot use the record {}", record.display()))?))
}

fn finish(record: &Path, recorder: &Recorder) -> Result<()> {
    recorder.finish().with_context(|| format!("cannot use the record {}", record.display()))
}
