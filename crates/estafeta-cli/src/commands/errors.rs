//! `estafeta errors list|count|retry|drop`: works on the errors without taking them out.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use estafeta::{Ring, Selection};
use serde_json::json;

use super::{confirmed, is_closed_pipe, print_result, sorted, with_partitions};
use crate::cli::{DropArgs, ErrorsCommand, SelectArgs};
use crate::output::write_error;
use crate::settings::Reach;
use estafeta_lab::by_reason::Reasons;
use estafeta_lab::message_id::MessageId;
use estafeta_lab::partitions::Partitions;
use estafeta_lab::text::counted;

/// How many errors are in memory at once.
const CHUNK: u64 = 200;

pub fn run(reach: &Reach, action: &ErrorsCommand) -> Result<ExitCode> {
    match action {
        ErrorsCommand::List(args) => with_partitions(reach, async |partitions| match args.by_reason {
            true => list_reasons(&partitions.all, args.output.json).await,
            false => list(&partitions.all, args.output.json).await,
        }),
        ErrorsCommand::Count(output) => {
            let count = with_partitions(reach, async |partitions| Ok(partitions.error_count().await?))?;
            match output.json {
                true => print_result(json!({"count": count}))?,
                false => print_result(count)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        ErrorsCommand::Retry(which) => with_partitions(reach, async |partitions| {
            let (mut count, mut missing) = (0, Vec::new());
            for (ring, chosen) in chosen(&partitions, which)? {
                let ring = &ring.clone().with_durability(which.stored.durability);
                missing.extend(find_missing(ring, &chosen).await?);
                count += ring.retry_errors(&chosen).await?;
            }
            report(which, "retried", count, &missing)
        }),
        ErrorsCommand::Drop(DropArgs { which, confirm }) => with_partitions(reach, async |partitions| {
            if which.all && !confirm.yes {
                let count = partitions.error_count().await?;
                if count > 0 && !confirmed(&format!("Delete {}?", counted(count, "error")))? {
                    bail!("nothing was deleted");
                }
            }
            let (mut count, mut missing) = (0, Vec::new());
            for (ring, chosen) in chosen(&partitions, which)? {
                let ring = &ring.clone().with_durability(which.stored.durability);
                missing.extend(find_missing(ring, &chosen).await?);
                count += ring.drop_errors(&chosen).await?;
            }
            report(which, "dropped", count, &missing)
        }),
    }
}

/// Prints the errors of one partition after another.
async fn list(rings: &[Ring], as_json: bool) -> Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for ring in rings {
        let mut from = 0;
        loop {
            let chunk = ring.errors(from, CHUNK).await?;
            let written = chunk.iter().try_for_each(|error| write_error(&mut out, error, as_json));
            match written.and_then(|()| out.flush()) {
                Err(error) if is_closed_pipe(&error) => return Ok(ExitCode::SUCCESS),
                other => other?,
            }
            from += chunk.len() as u64;
            if chunk.is_empty() {
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list_reasons(rings: &[Ring], as_json: bool) -> Result<ExitCode> {
    let mut reasons = Reasons::default();
    for ring in rings {
        reasons.read(ring).await?;
    }
    match reasons.write(&mut BufWriter::new(std::io::stdout().lock()), as_json) {
        Err(error) if !is_closed_pipe(&error) => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Which errors are meant in each partition.
fn chosen<'a>(partitions: &'a Partitions, which: &SelectArgs) -> Result<Vec<(&'a Ring, Selection)>> {
    if which.all {
        return Ok(partitions.all.iter().map(|ring| (ring, Selection::All)).collect());
    }
    let chosen = sorted(partitions, &which.ids)?.into_iter().filter(|(_, ids)| !ids.is_empty());
    Ok(chosen.map(|(ring, ids)| (ring, Selection::Ids(ids))).collect())
}

/// The given ids that belong to no error in Redis.
async fn find_missing(ring: &Ring, chosen: &Selection) -> Result<Vec<MessageId>> {
    let Selection::Ids(ids) = chosen else { return Ok(Vec::new()) };
    let mut missing: BTreeSet<u64> = ids.iter().copied().collect();
    let mut from = 0;
    while !missing.is_empty() {
        let chunk = ring.errors(from, CHUNK).await?;
        if chunk.is_empty() {
            break;
        }
        from += chunk.len() as u64;
        for error in &chunk {
            missing.remove(&error.message.id);
        }
    }
    let partition = ring.name().partition();
    Ok(missing.into_iter().map(|id| MessageId { partition, id }).collect())
}

/// Prints how many errors were retried or dropped. The command fails if a given id belongs to no error.
fn report(which: &SelectArgs, verb: &str, count: u64, missing: &[MessageId]) -> Result<ExitCode> {
    match which.output.json {
        true => print_result(json!({ verb: count }))?,
        false => print_result(format_args!("{} {verb}", counted(count, "error")))?,
    }
    if !missing.is_empty() {
        let ids: Vec<String> = missing.iter().map(|id| format!("#{id}")).collect();
        bail!("no error in Redis has the id {}", ids.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}
