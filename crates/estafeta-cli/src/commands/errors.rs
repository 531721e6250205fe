//! `estafeta errors list|count|retry|drop`: work on the errors without taking them.

use std::collections::HashSet;
use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use estafeta::{Ring, Selection};
use serde_json::json;

use super::{is_closed_pipe, with_ring};
use crate::cli::{ErrorsCommand, SelectArgs};
use crate::output::{counted, write_error};
use crate::settings::Reach;

/// Errors that pass through memory at once.
const CHUNK: u64 = 200;

pub fn run(reach: &Reach, action: &ErrorsCommand) -> Result<ExitCode> {
    match action {
        ErrorsCommand::List(output) => with_ring(reach, async |ring| list(&ring, output.json).await),
        ErrorsCommand::Count(output) => {
            let count = with_ring(reach, async |ring| Ok(ring.error_count().await?))?;
            let mut out = std::io::stdout();
            match output.json {
                true => writeln!(out, "{}", json!({"count": count}))?,
                false => writeln!(out, "{count}")?,
            }
            Ok(ExitCode::SUCCESS)
        }
        ErrorsCommand::Retry(which) => {
            let retried = with_ring(reach, async |ring| Ok(ring.retry_errors(&selection(which)).await?))?;
            tell(which, "retried", retried)
        }
        ErrorsCommand::Drop(which) => {
            let dropped = with_ring(reach, async |ring| Ok(ring.drop_errors(&selection(which)).await?))?;
            tell(which, "dropped", dropped)
        }
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

fn selection(which: &SelectArgs) -> Selection {
    if which.all { Selection::All } else { Selection::Ids(which.ids.clone()) }
}

/// Prints how many there were; ids that were not there make the command fail.
fn tell(which: &SelectArgs, verb: &str, count: u64) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    match which.output.json {
        true => writeln!(out, "{}", json!({ verb: count }))?,
        false => writeln!(out, "{} {verb}", counted(count, "error"))?,
    }
    let named: HashSet<u64> = which.ids.iter().copied().collect();
    let missing = (named.len() as u64).saturating_sub(count);
    if missing > 0 {
        bail!("{missing} of these ids: expected an error that is kept, got none");
    }
    Ok(ExitCode::SUCCESS)
}
