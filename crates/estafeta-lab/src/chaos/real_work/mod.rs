//! The workload `work`: messages that are retried, snoozed and delayed, and publishers outside the ring.
//!
//! The body of every message is a plan ([`message_plan`]): how long the message is delayed, how often its handler
//! snoozes it and fails, and how it ends. The generator and the publishers make up plans at random. The handler
//! (`node`) follows them. Publishers (`publisher`) are separate processes. They publish with keys, repeat what they
//! published, cancel some of it, and are attacked like nodes. [`rules`] knows what must have happened: it reads the
//! [`evidence`] and the [`publications`], and returns its [`findings`].
//!
//! Nodes and publishers run as `estafeta chaos-worker ROLE`, which `--help` does not list.

pub mod effects;
pub mod evidence;
pub mod findings;
pub mod message_plan;
mod node;
pub mod publications;
mod publisher;
pub mod rules;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{Config, DeadLetter, Endpoint, Ring, RingName};
use tokio_util::sync::CancellationToken;

use super::LEASE;
use super::judge::{self, Evidence, ReaderOutput};
use crate::record::{self, RecordLine, Recorder, digest};
use effects::WrittenEffects;
use evidence::{Letter, RingCounts, WorkEvidence};
use message_plan::retry;

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
    pub ring: RingName,
    pub record: PathBuf,
    pub lanes: usize,
    /// The ring publishes no more than this, and the node ends when every message has its outcome.
    pub limit: Option<u64>,
    /// The number of a publisher, counted from 1.
    pub number: u64,
    pub seed: u64,
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
    let path = &options.record;
    let context = || format!("cannot use the record {}", path.display());
    // A publisher continues where its predecessor was killed.
    let past = match options.role {
        WorkerRole::Publisher if path.exists() => std::fs::read_to_string(path).with_context(context)?,
        _ => String::new(),
    };
    let past = record::read(&past).map_err(anyhow::Error::msg)?;
    let recorder = Arc::new(Recorder::open(path, stop.clone()).with_context(context)?);
    let mut config = Config::new(options.endpoint.clone(), options.ring.clone());
    config.application = APPLICATION.to_owned();
    let ended = match options.role {
        WorkerRole::Node => {
            (config.interval, config.generator_handles) = (Duration::ZERO, false);
            (config.concurrency, config.lease) = (options.lanes, LEASE);
            (config.limit, config.until_done) = (options.limit, options.limit.is_some());
            (config.max_waiting, config.max_deaths) = (MAX_WAITING, MAX_DEATHS);
            (config.retry, config.journal) = (retry(), true);
            node::run(config, Arc::clone(&recorder), stop).await
        }
        WorkerRole::Publisher => publisher::run(&config, &options, &past, &recorder, &stop).await,
    };
    ended?;
    recorder.finish().with_context(context)
}

/// Judges a ring at rest in which workers have worked, by its journal, its errors and their records. Returns the broken
/// promises.
pub async fn judge_ring(ring: &Ring, nodes: &[PathBuf], publishers: &[PathBuf]) -> Result<Vec<String>> {
    let read = |paths: &[PathBuf]| -> Result<Vec<Vec<RecordLine>>> {
        let text = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        paths.iter().map(|path| record::read(&text(path)?).map_err(anyhow::Error::msg)).collect()
    };
    let errors = ring.errors(0, ring.error_count().await?).await?;
    let letter = |error: &DeadLetter| Letter {
        id: error.message.id,
        failures: error.message.failures,
        snoozes: error.message.snoozes,
        reason: error.reason.clone(),
    };
    let reader = ReaderOutput {
        errors: errors.iter().map(|error| (error.message.id, digest(error.message.body()))).collect(),
        letters: errors.iter().map(letter).collect(),
        whole: true,
    };
    let snapshot = ring.snapshot(0).await?;
    let evidence = Evidence {
        published: snapshot.published,
        journal: ring.journal().await?,
        records: read(nodes)?,
        readers: vec![reader],
        complete: true,
        work: Some(WorkEvidence {
            publishers: read(publishers)?,
            counts: RingCounts::of(&snapshot),
            written: WrittenEffects::read(ring).await?,
            ..WorkEvidence::default()
        }),
    };
    Ok(judge::judge(&evidence).breaches.into_iter().map(|breach| breach.what).collect())
}
