//! `estafeta errors list|count|retry|drop`: works on the errors without taking them out.

mod by_reason;

use std::collections::BTreeSet;
use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use estafeta::{Ring, Selection};
use serde_json::json;

use super::{confirmed, is_closed_pipe, print_result, with_existing_ring};
use crate::cli::{DropArgs, ErrorsCommand, SelectArgs};
use crate::output::write_error;
use crate::settings::Reach;
use by_reason::Reasons;
use estafeta_lab::text::counted;

/// How many errors are in memory at once.
const CHUNK: u64 = 200;

pub fn run(reach: &Reach, action: &ErrorsCommand) -> Result<ExitCode> {
    match action {
        ErrorsCommand::List(args) => with_existing_ring(reach, async |ring| match args.by_reason {
            true => list_reasons(&ring, args.output.json).await,
            false => list(&ring, args.output.json).await,
        }),
        ErrorsCommand::Count(output) => {
            let count = with_existing_ring(reach, async |ring| Ok(ring.error_count().await?))?;
            match output.json {
                true => print_result(json!({"count": count}))?,
                false => print_result(count)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        ErrorsCommand::Retry(which) => with_existing_ring(reach, async |ring| {
            let ring = ring.with_durability(which.stored.durability);
            let missing = missing(&ring, which).await?;
            report(which, "retried", ring.retry_errors(&selection(which)).await?, &missing)
        }),
        ErrorsCommand::Drop(DropArgs { which, confirm }) => with_existing_ring(reach, async |ring| {
            if which.all && !confirm.yes {
                let count = ring.error_count().await?;
                if count > 0 && !confirmed(&format!("Delete {}?", counted(count, "error")))? {
                    bail!("nothing was deleted");
                }
            }
            let ring = ring.with_durability(which.stored.durability);
            let missing = missing(&ring, which).await?;
            report(which, "dropped", ring.drop_errors(&selection(which)).await?, &missing)
        }),
    }
}

async fn list(ring: &Ring, as_json: bool) -> Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut from = 0;
    loop {
        let chunk = ring.errors(from, CHUNK).await?;
        let written = chunk.iter().try_for_each(|error| write_error(&mut out, error, as_json));
        match written.and_then(|()| out.flush()) {
            Err(error) if is_closed_pipe(&error) => break,
            other => other?,
        }
        from += chunk.len() as u64;
        if chunk.is_empty() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list_reasons(ring: &Ring, as_json: bool) -> Result<ExitCode> {
    let reasons = Reasons::read(ring).await?;
    match reasons.write(&mut BufWriter::new(std::io::stdout().lock()), as_json) {
        Err(error) if !is_closed_pipe(&error) => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn selection(which: &SelectArgs) -> Selection {
    if which.all { Selection::All } else { Selection::Ids(which.ids.clone()) }
}

/// The given ids that belong to no error in Redis.
async fn missing(ring: &Ring, which: &SelectArgs) -> Result<Vec<u64>> {
    let mut missing: BTreeSet<u64> = which.ids.iter().copied().collect();
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
    Ok(missing.into_iter().collect())
}

/// Prints how many errors were retried or dropped. The command fails if a given id belongs to no error.
fn report(which: &SelectArgs, verb: &str, count: u64, missing: &[u64]) -> Result<ExitCode> {
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
