//! Reads errors while the nodes are under attack, with `getErrors` as a user would call it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use estafeta::RingName;
use serde::Deserialize;

use super::judge::{PrintedLetter, ReaderOutput};
use super::node::NodeTemplate;
use super::real_work::evidence::Letter;
use crate::clock::now_ms;
use crate::record::digest;
use crate::report::Body;

/// How long one reader may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `getErrors` of this program, or of another build, and reads what it printed.
pub async fn read_errors(
    template: &NodeTemplate,
    ring: &RingName,
    program: Option<&Path>,
    url: &str,
    number: usize,
) -> Result<ReaderOutput> {
    let build = if program.is_some() { "former-" } else { "" };
    let name = ring.as_str().replace('/', "-");
    let file = |kind: &str| template.directory.join(format!("{build}errors-{name}-{number}.{kind}"));
    // Dropping this future kills the reader, so it never runs on unattended.
    let durability = template.durability_args();
    let mut args = vec!["getErrors", "--json"];
    args.extend(durability.iter().map(String::as_str));
    let from_ms = now_ms();
    let mut reader = template.start(ring, program, &args, url, &file("json"), &file("log"))?;
    let deadline = Instant::now() + PATIENCE;
    let mut ended = None;
    while ended.is_none() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
        ended = reader.exit_status()?;
    }
    drop(reader);
    let text = std::fs::read_to_string(file("json")).context("cannot read what getErrors printed")?;
    // A reader that was killed may leave half a line.
    let objects: Vec<PrintedError> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let error = |object: &PrintedError| {
        let PrintedError { id, epoch, body, .. } = object;
        Some(PrintedLetter { id: *id, epoch: *epoch, digest: digest(&body.bytes()?) })
    };
    let errors = objects.iter().filter_map(error).collect();
    let letters = objects.into_iter().map(letter).collect();
    let (whole, until_ms) = (ended.is_some_and(|status| status.success()), now_ms());
    Ok(ReaderOutput { errors, letters, whole, from_ms, until_ms })
}

/// What chaos needs of an error. Other builds may print fewer fields than this one.
#[derive(Deserialize)]
struct PrintedError {
    id: u64,
    #[serde(default)]
    epoch: u64,
    reason: String,
    #[serde(default)]
    failures: u32,
    #[serde(default)]
    snoozes: u32,
    #[serde(flatten)]
    body: Body,
}

fn letter(object: PrintedError) -> Letter {
    let PrintedError { id, failures, snoozes, reason, .. } = object;
    Letter { id, failures, snoozes, reason }
}
