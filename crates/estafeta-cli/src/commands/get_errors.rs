//! `estafeta getErrors`: takes all errors out of Redis, prints and removes them.
//!
//! A chunk is printed and flushed before Redis is told to let go of it. Whatever ends this process in between (a kill, a
//! closed pipe, a full disk), the chunk goes back and the next one prints it; it may print again what this one had
//! printed but not let go of.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use estafeta::{Config, DeadLetter, DeadLetterReader};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::is_closed_pipe;
use crate::find_redis;
use crate::output::write_error;
use crate::settings::Reach;
use crate::signals;

/// How long the lines that are being printed may take after a signal.
const LAST_LINES: Duration = Duration::from_secs(1);

pub fn run(reach: &Reach, as_json: bool) -> Result<ExitCode> {
    if stdout_was_closed()? {
        bail!("stdout is closed: expected a place to print the errors to; they stay in Redis");
    }
    let endpoint = find_redis::endpoint(&reach.redis)?;
    let config = Config::new(endpoint, reach.ring.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut reader = DeadLetterReader::join(config).await?;
        let printed = print_all(&mut reader, as_json).await;
        let left = reader.leave().await;
        match printed {
            Err(error) if error.downcast_ref().is_some_and(is_closed_pipe) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(error),
            Ok(code) => left.map(|()| code).map_err(Into::into),
        }
    });
    // A write that hangs because nobody reads ends with the process.
    runtime.shutdown_background();
    outcome
}

async fn print_all(reader: &mut DeadLetterReader, as_json: bool) -> Result<ExitCode> {
    let progress = progress_bar(reader.count().await?)?;
    let mut stopped = std::pin::pin!(signals::told_to_stop());
    loop {
        let chunk = reader.next().await?;
        if chunk.is_empty() {
            progress.finish_and_clear();
            return Ok(ExitCode::SUCCESS);
        }
        let count = chunk.len() as u64;
        // Where it may block: a signal must be heard also while nobody reads what we print.
        let mut printing = tokio::task::spawn_blocking(move || print(&chunk, as_json));
        let (printed, signal) = tokio::select! {
            printed = &mut printing => (printed?, None),
            signal = &mut stopped => match tokio::time::timeout(LAST_LINES, printing).await {
                Ok(printed) => (printed?, Some(signal)),
                // Nobody reads: what is in hand goes back.
                Err(_) => return Ok(signals::exit_code(signal).into()),
            },
        };
        printed.context("cannot print the errors; they stay in Redis")?;
        progress.inc(count);
        if let Some(signal) = signal {
            reader.release().await?;
            return Ok(signals::exit_code(signal).into());
        }
    }
}

fn print(chunk: &[DeadLetter], as_json: bool) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    chunk.iter().try_for_each(|error| write_error(&mut out, error, as_json))?;
    out.flush()?;
    wait_until_read(out.get_ref())
}

/// A program that starts with a closed stdout gets /dev/null in its place, for reading and writing; somebody who wants to
/// throw the errors away opens it for writing.
fn stdout_was_closed() -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(io::stdout())?;
    let (stdout, null) = (rustix::fs::fstat(io::stdout())?, rustix::fs::stat("/dev/null"));
    let is_null = null.is_ok_and(|null| null.st_rdev == stdout.st_rdev && null.st_ino == stdout.st_ino);
    Ok(is_null && flags.contains(rustix::fs::OFlags::RDWR))
}

/// What still lies in a pipe when its reader goes has reached nobody, so it must not be let go of before.
fn wait_until_read(out: &impl AsFd) -> io::Result<()> {
    let pipe = File::from(out.as_fd().try_clone_to_owned()?);
    if !pipe.metadata()?.file_type().is_fifo() {
        return Ok(());
    }
    // Short for a reader at work, long for one at rest, such as a pager.
    let mut pause = Timespec { tv_sec: 0, tv_nsec: 100_000 };
    while rustix::io::ioctl_fionread(&pipe)? > 0 {
        pause.tv_nsec = (pause.tv_nsec * 2).min(50_000_000);
        // A writing end reports nothing but that the last reader is gone.
        if rustix::event::poll(&mut [PollFd::new(&pipe, PollFlags::empty())], Some(&pause))? > 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}

/// A bar on stderr, if somebody sits there to see it and the errors do not scroll over it.
fn progress_bar(total: u64) -> Result<ProgressBar> {
    if !std::io::stderr().is_terminal() || std::io::stdout().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} errors, {eta} left")?;
    Ok(ProgressBar::new(total).with_style(style))
}
