//! `estafeta results`: prints what handlers returned for their messages.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use estafeta::{MessageResult, Ring};
use estafeta_lab::escape::escape;
use estafeta_lab::report::{ResultObject, json_line};
use estafeta_lab::text::moment;

use super::{is_closed_pipe, with_existing_ring};
use crate::cli::ResultsArgs;
use crate::settings::Reach;

pub fn run(reach: &Reach, args: &ResultsArgs) -> Result<ExitCode> {
    with_existing_ring(reach, async |ring| print(&ring, args).await)
}

/// Prints one result after another. The command fails if a message that was named has none.
async fn print(ring: &Ring, args: &ResultsArgs) -> Result<ExitCode> {
    let names_ids = !args.ids.is_empty();
    let ids = if names_ids { args.ids.clone() } else { ring.result_ids().await? };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut missing = Vec::new();
    for id in ids {
        match ring.result(id).await? {
            Some(result) => match write(&mut out, &result, args.output.json) {
                Err(error) if is_closed_pipe(&error) => return Ok(ExitCode::SUCCESS),
                other => other?,
            },
            // If no id was given, the time to live of this one ended meanwhile.
            None if names_ids => missing.push(format!("#{id}")),
            None => {}
        }
    }
    match out.flush() {
        Err(error) if !is_closed_pipe(&error) => return Err(error.into()),
        _ => {}
    }
    if !missing.is_empty() {
        bail!("Redis keeps no result of {}", missing.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

fn write(out: &mut impl Write, result: &MessageResult, as_json: bool) -> io::Result<()> {
    if as_json {
        return writeln!(out, "{}", json_line(&ResultObject::from(result)));
    }
    writeln!(out, "#{} done {}: \"{}\"", result.id, moment(result.done_ms), escape(&result.value))
}
