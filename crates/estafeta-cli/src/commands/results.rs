//! `estafeta results`: prints what handlers returned for their messages.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use estafeta::MessageResult;
use estafeta_lab::escape::escape;
use estafeta_lab::partitions::Partitions;
use estafeta_lab::report::{ResultObject, json_line};
use estafeta_lab::text::moment;

use super::{is_closed_pipe, sorted, with_partitions};
use crate::cli::ResultsArgs;
use crate::settings::Reach;
use estafeta_lab::message_id::MessageId;

pub fn run(reach: &Reach, args: &ResultsArgs) -> Result<ExitCode> {
    with_partitions(reach, async |partitions| print(&partitions, args).await)
}

/// Prints one result after another. The command fails if a message that was named has none.
async fn print(partitions: &Partitions, args: &ResultsArgs) -> Result<ExitCode> {
    let names_ids = !args.ids.is_empty();
    let mut out = BufWriter::new(io::stdout().lock());
    let mut missing = Vec::new();
    for (ring, named) in sorted(partitions, &args.ids)? {
        let partition = ring.name().partition();
        for id in if names_ids { named } else { ring.result_ids().await? } {
            match ring.result(id).await? {
                Some(result) => match write(&mut out, partition, &result, args.output.json) {
                    Err(error) if is_closed_pipe(&error) => return Ok(ExitCode::SUCCESS),
                    other => other?,
                },
                // If no id was given, the time to live of this one ended meanwhile.
                None if names_ids => missing.push(format!("#{}", MessageId { partition, id })),
                None => {}
            }
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

fn write(
    out: &mut impl Write,
    partition: Option<u32>,
    result: &MessageResult,
    as_json: bool,
) -> io::Result<()> {
    if as_json {
        return writeln!(out, "{}", json_line(&ResultObject { partition, ..ResultObject::from(result) }));
    }
    let id = MessageId { partition, id: result.id };
    writeln!(out, "#{id} done {}: \"{}\"", moment(result.done_ms), escape(&result.value))
}
