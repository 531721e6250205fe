//! `estafeta getErrors`: takes all errors out of Redis, prints and removes them.
//!
//! A chunk is printed and flushed before Redis is told to let go of it. Whatever ends this process in between (a kill, a
//! closed pipe, a full disk), the chunk goes back and the next one prints it; it may print again what this one had
//! printed but not let go of.

use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use estafeta::{Config, ErrorReader};
use indicatif::{ProgressBar, ProgressStyle};

use super::is_closed_pipe;
use crate::find_redis;
use crate::output::write_error;
use crate::settings::Reach;
use crate::signals;

pub fn run(reach: &Reach, as_json: bool) -> Result<ExitCode> {
    let endpoint = find_redis::endpoint(&reach.redis)?;
    let config = Config::new(endpoint, reach.ring.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut reader = ErrorReader::join(config).await?;
        let printed = tokio::select! {
            printed = print_all(&mut reader, as_json) => printed.map(|()| ExitCode::SUCCESS),
            signal = signals::told_to_stop() => Ok(signals::exit_code(signal).into()),
        };
        let left = reader.leave().await;
        match printed {
            Err(error) if error.downcast_ref().is_some_and(is_closed_pipe) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error),
            Ok(code) => left.map(|()| code).map_err(Into::into),
        }
    })
}

async fn print_all(reader: &mut ErrorReader, as_json: bool) -> Result<()> {
    let progress = progress_bar(reader.count().await?)?;
    let mut out = BufWriter::new(std::io::stdout());
    loop {
        let chunk = reader.next().await?;
        if chunk.is_empty() {
            progress.finish_and_clear();
            return Ok(());
        }
        let printed = chunk.iter().try_for_each(|error| write_error(&mut out, error, as_json));
        let printed = printed.and_then(|()| out.flush());
        match printed {
            Err(error) if is_closed_pipe(&error) => return Err(error.into()),
            other => other.context("cannot print the errors; they stay in Redis")?,
        }
        progress.inc(chunk.len() as u64);
    }
}

/// A bar on stderr, if somebody sits there to see it and the errors do not scroll over it.
fn progress_bar(total: u64) -> Result<ProgressBar> {
    if !std::io::stderr().is_terminal() || std::io::stdout().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} errors, {eta} left")?;
    Ok(ProgressBar::new(total).with_style(style))
}
