//! `estafeta cancel`: takes back messages that were published with a delay and are not due yet.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use estafeta::{Config, Publisher};
use estafeta_lab::text::counted;
use serde_json::json;

use super::{print_result, sorted, with_partitions};
use crate::cli::CancelArgs;
use crate::failure::usage;
use crate::settings::Reach;
use estafeta_lab::message_id::MessageId;

pub fn run(reach: &Reach, args: &CancelArgs) -> Result<ExitCode> {
    if args.ids.iter().any(|id| id.id == 0) {
        return Err(usage("ID: expected 1 or more, got '0'"));
    }
    let size = args.key.as_ref().map_or(1, String::len);
    if !(1..=Publisher::MAX_KEY).contains(&size) {
        return Err(usage(format!("--key: expected 1 to {} bytes, got {size}", Publisher::MAX_KEY)));
    }
    let (count, missing) = with_partitions(reach, async |partitions| {
        // A publisher works in all partitions, even if the command names one.
        let name = partitions.whole.name();
        let whole = name.whole().unwrap_or(name.clone());
        let mut config = Config::new(partitions.whole.endpoint().clone(), whole);
        config.durability = args.stored.durability;
        let publisher: Publisher = Publisher::of_any_application(&config).await?;
        if let Some(key) = &args.key {
            let was_delayed = publisher.cancel_key(key).await?;
            let missing = (!was_delayed).then(|| format!("no delayed message has the key '{key}'"));
            return Ok((u64::from(was_delayed), missing));
        }
        let (mut count, mut missing) = (0, Vec::new());
        for (ring, mut ids) in sorted(&partitions, &args.ids)? {
            let partition = ring.name().partition();
            let publisher = publisher.partition(partition.unwrap_or(0))?;
            ids.sort_unstable();
            ids.dedup();
            for id in ids {
                let shown = MessageId { partition, id };
                let cancelled = publisher.cancel(id).await;
                match cancelled
                    .with_context(|| format!("{} cancelled, then #{shown}", counted(count, "message")))?
                {
                    true => count += 1,
                    false => missing.push(format!("#{shown}")),
                }
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
