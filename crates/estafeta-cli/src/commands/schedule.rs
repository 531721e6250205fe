//! `estafeta schedule`: prints the entries of a ring's schedule, and when each comes next.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use estafeta::{Definition, Missed, Overlap, PlannedEntry, Times};
use estafeta_lab::escape::escape;
use estafeta_lab::report::{json_line, planned_entry};

use super::{is_closed_pipe, with_one_partition};
use crate::cli::ScheduleArgs;
use crate::duration::HumanDuration;
use crate::settings::Reach;

pub fn run(reach: &Reach, args: &ScheduleArgs) -> Result<ExitCode> {
    with_one_partition(reach, async |ring| {
        let entries = ring.schedule(args.count.into()).await?;
        if entries.is_empty() && !args.output.json {
            bail!("ring {} has no schedule", ring.name());
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let write = |entry: &PlannedEntry| match args.output.json {
            true => writeln!(out, "{}", json_line(&planned_entry(entry))),
            false => print(&mut out, entry),
        };
        match entries.iter().try_for_each(write).and_then(|()| out.flush()) {
            Err(error) if !is_closed_pipe(&error) => Err(error.into()),
            _ => Ok(ExitCode::SUCCESS),
        }
    })
}

fn print(out: &mut impl Write, entry: &PlannedEntry) -> io::Result<()> {
    writeln!(out, "{}", escape(entry.name.as_bytes()))?;
    let mut row = |what: &str, text: &str| writeln!(out, "  {what:<12}  {text}");
    match &entry.definition {
        Some(definition) => {
            row("times", &times(&definition.times))?;
            row("missed ticks", &missed(definition))?;
            row("overlap", overlap(definition.overlap, entry.is_open))?;
        }
        None => row("unknown", &escape(entry.text.as_bytes()))?,
    }
    row("last tick", entry.last_tick.as_ref().map_or("none", |tick| &tick.local))?;
    let mut what = "next runs";
    for moment in &entry.upcoming {
        row(std::mem::take(&mut what), &moment.local)?;
    }
    Ok(())
}

fn times(times: &Times) -> String {
    match times {
        Times::Cron { expression, zone, .. } => {
            format!("{} in {}", escape(expression.as_bytes()), escape(zone.as_bytes()))
        }
        Times::Every { interval, .. } => format!("every {}", HumanDuration(*interval)),
        other => format!("{other:?}"),
    }
}

fn missed(definition: &Definition) -> String {
    let age = HumanDuration(definition.max_age);
    match definition.missed {
        Missed::Skip => "skipped".to_owned(),
        Missed::Last => format!("only the newest is published, if it is at most {age} old"),
        Missed::All => format!("published, if they are at most {age} old"),
        other => format!("{other:?}"),
    }
}

fn overlap(overlap: Overlap, is_open: bool) -> &'static str {
    match (overlap, is_open) {
        (Overlap::Skip, true) => "ticks are skipped now: a message of an earlier one has no outcome yet",
        (Overlap::Skip, false) => "ticks are skipped while a message of an earlier one has no outcome",
        _ => "ticks are published even if messages of earlier ones have no outcome",
    }
}
