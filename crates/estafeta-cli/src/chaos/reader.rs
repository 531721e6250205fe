//! A reader of errors at work beside the copies: `getErrors`, as a user would call it.

use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use serde_json::Value;

use super::copy::Family;
use super::judge::Reading;
use crate::record::digest;

/// How long one reader may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child that does not go on when nobody waits for it any more.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

pub async fn read_errors(family: &Family, url: &str, number: usize) -> Result<Reading> {
    let file = |kind: &str| family.directory.join(format!("errors-{number}.{kind}"));
    let mut reader = Reader(family.start(&["getErrors", "--json"], url, &file("json"), &file("log"))?);
    let deadline = Instant::now() + PATIENCE;
    let mut ended = None;
    while ended.is_none() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
        ended = reader.0.try_wait()?;
    }
    drop(reader);
    let text = std::fs::read_to_string(file("json")).context("cannot read what getErrors printed")?;
    let errors = text.lines().filter_map(|line| error(&serde_json::from_str(line).ok()?)).collect();
    Ok(Reading { errors, whole: ended.is_some_and(|status| status.success()) })
}

/// The id of an error and the digest of its body.
fn error(object: &Value) -> Option<(u64, u64)> {
    let body = match (object["body"].as_str(), object["body_base64"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(encoded)) => base64::engine::general_purpose::STANDARD.decode(encoded).ok()?,
        (None, None) => return None,
    };
    Some((object["id"].as_u64()?, digest(&body)))
}
