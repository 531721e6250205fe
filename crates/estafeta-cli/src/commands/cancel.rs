//! `estafeta cancel`: takes back messages that were published with a delay and are not due yet.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use estafeta::{Config, Publisher};
use estafeta_lab::text::counted;
use serde_json::json;

use super::{print_result, with_existing_ring};
use crate::cli::CancelArgs;
use crate::failure::usage;
use crate::settings::Reach;

pub fn run(reach: &Reach, args: &CancelArgs) -> Result<ExitCode> {
    if args.ids.contains(&0) {
        return Err(usage("ID: expected 1 or more, got '0'"));
    }
    let size = args.key.as_ref().map_or(1, String::len);
    if !(1..=Publisher::MAX_KEY).contains(&size) {
        return Err(usage(format!("--key: expected 1 to {} bytes, got {size}", Publisher::MAX_KEY)));
    }
    let (count, missing) = with_existing_ring(reach, async |ring| {
        let config = Config::new(ring.endpoint().clone(), ring.name().clone());
        let publisher: Publisher = Publisher::of_any_application(&config).await?;
        if let Some(key) = &args.key {
            let was_delayed = publisher.cancel_key(key).await?;
            let missing = (!was_delayed).then(|| format!("no delayed message has the key '{key}'"));
            return Ok((u64::from(was_delayed), missing));
        }
        let mut ids = args.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        let (mut count, mut missing) = (0, Vec::new());
        for id in ids {
            let cancelled = publisher.cancel(id).await;
            match cancelled.with_context(|| format!("{} cancelled, then #{id}", counted(count, "message")))? {
                true => count += 1,
                false => missing.push(format!("#{id}")),
            }
        }
        let report = || format!("no delayed message has the id {}", missing.join(", "));
        Ok((count, (!missing.is_empty()).then(report)))
    })?;
    let text = match args.output.json {
        true => json!({"cancelled": count}).to_string(),
        false => format!("{} cancelled", counted(count, "message")),
    };
    print_result(text)?;
    match missing {
        Some(missing) => bail!(missing),
        None => Ok(ExitCode::SUCCESS),
    }
}
