//! Reads errors while the nodes are under attack, with `getErrors` as a user would call it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use estafeta::RingName;
use serde::Deserialize;

use super::judge::ReaderOutput;
use super::node::NodeTemplate;
use super::real_work::evidence::Letter;
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
    let args = ["getErrors", "--json"];
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
    let error = |object: &PrintedError| Some((object.id, digest(&object.body.bytes()?)));
    let errors = objects.iter().filter_map(error).collect();
    let letters = objects.into_iter().map(letter).collect();
    Ok(ReaderOutput { errors, letters, whole: ended.is_some_and(|status| status.success()) })
}

/// What chaos needs of an error. Other builds may print fewer fields than this one.
#[derive(Deserialize)]
struct PrintedError {
    id: u64,
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
