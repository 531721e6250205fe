//! The workloads `work` and `pipeline`: messages that are retried, snoozed and delayed, and publishers outside the ring.
//!
//! The body of every message is a plan ([`message_plan`]): how long the message is delayed, how often its handler
//! snoozes it and fails, and how it ends. The generator and the publishers make up plans at random. The handler
//! (`node`) follows them, and writes [`effects`]. Publishers (`publisher`) are separate processes. They publish with
//! keys, repeat what they published, cancel some of it, and are attacked like nodes. [`rules`] knows what must have
//! happened: it reads the [`evidence`] and the [`publications`], and returns its [`findings`].
//!
//! In a pipeline, the generator publishes the lines of a file instead (`feed`), and many messages forward others to a
//! second ring of the same group. Each process has a node in both rings. The second ring has no generator.
//!
//! Nodes and publishers run as `estafeta chaos-worker ROLE`, which `--help` does not list.

pub mod effects;
pub mod evidence;
pub mod feed;
pub mod findings;
pub mod message_plan;
mod node;
pub mod publications;
mod publisher;
pub mod rules;
mod worker;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use estafeta::{DeadLetter, Ring};

use super::judge::{self, Evidence, PrintedLetter, ReaderOutput};
use crate::record::{self, RecordLine, digest};
use effects::WrittenEffects;
use evidence::{Letter, RingCounts, WorkEvidence};
pub use worker::{PipelineOptions, WorkerOptions, WorkerRole, run};

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
    let printed = |error: &DeadLetter| PrintedLetter {
        id: error.message.id,
        epoch: error.message.epoch.0,
        digest: digest(error.message.body()),
    };
    let reader = ReaderOutput {
        errors: errors.iter().map(printed).collect(),
        letters: errors.iter().map(letter).collect(),
        whole: true,
        ..ReaderOutput::default()
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
        ..Evidence::default()
    };
    Ok(judge::judge(&evidence).breaches.into_iter().map(|breach| breach.what).collect())
}
