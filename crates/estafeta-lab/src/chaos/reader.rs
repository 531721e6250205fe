//! Reads errors while the nodes are under attack, with `getErrors` as a user would call it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::judge::ReaderOutput;
use super::node::NodeTemplate;
use crate::record::digest;
use crate::report::DeadLetterObject;

/// How long one reader may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub async fn read_errors(template: &NodeTemplate, url: &str, number: usize) -> Result<ReaderOutput> {
    let file = |kind: &str| template.directory.join(format!("errors-{number}.{kind}"));
    // Dropping this future kills the reader, so it never runs on unattended.
    let mut reader = template.start(&["getErrors", "--json"], url, &file("json"), &file("log"))?;
    let deadline = Instant::now() + PATIENCE;
    let mut ended = None;
    while ended.is_none() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
        ended = reader.exit_status()?;
    }
    drop(reader);
    let text = std::fs::read_to_string(file("json")).context("cannot read what getErrors printed")?;
    let errors = text.lines().filter_map(read_line).collect();
    Ok(ReaderOutput { errors, whole: ended.is_some_and(|status| status.success()) })
}

/// Returns the id of an error and the digest of its body. None for the half line of a reader that was killed.
fn read_line(line: &str) -> Option<(u64, u64)> {
    let error: DeadLetterObject = serde_json::from_str(line).ok()?;
    Some((error.id, digest(&error.body.bytes()?)))
}
