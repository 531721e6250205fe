//! `estafeta getErrors`: takes all errors out of Redis, prints them and removes them.
//!
//! The command joins the ring as a reader and takes the errors in chunks. It prints and flushes a chunk before Redis
//! removes it. If the output is a pipe, the command also waits until the chunk was read. So no error is lost. An error
//! may be printed twice, if the command ends after it printed the error and before Redis removed it. These events end
//! the command early:
//!
//! - It is killed: the chunk goes back to the head of the errors, and the next getErrors prints it.
//! - The pipe is closed: the chunk goes back, and the command succeeds.
//! - The output fails for another reason, such as a full disk: the chunk goes back, and the command fails.
//! - A signal asks it to stop: the command has one second to finish the chunk. If the chunk is then printed, Redis
//!   removes it. Otherwise it goes back.
//! - Stdout was closed from the start: the command fails before it takes any error.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use estafeta::{Config, DeadLetter, DeadLetterReader, Ring};
use estafeta_lab::partitions::Partitions;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::signal::unix::SignalKind;

use super::is_closed_pipe;
use crate::cli::GetErrorsArgs;
use crate::find_redis;
use crate::output::write_error;
use crate::settings::Reach;
use crate::signals;

/// How long the current chunk may take to be printed after a signal.
const PRINT_TIMEOUT: Duration = Duration::from_secs(1);

pub fn run(reach: &Reach, args: GetErrorsArgs) -> Result<ExitCode> {
    if stdout_was_closed()? {
        bail!("stdout is closed: expected a place to print the errors to; they stay in Redis");
    }
    let endpoint = find_redis::existing(&reach.redis)?;
    let mut config = Config::new(endpoint, reach.ring.clone());
    config.durability = args.stored.durability;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        // A reader that joined would create the ring, and a mistyped name would look like a ring without errors.
        let ring = Ring::connect(config.redis.clone(), config.ring.clone()).await?;
        let partitions = Partitions::of(ring).await?;
        if !partitions.exist().await? {
            let (name, redis) = (&reach.ring, partitions.whole.endpoint());
            let _ =
                writeln!(io::stderr(), "estafeta: there is no ring {name} at {redis}, so it has no errors");
            return Ok(ExitCode::SUCCESS);
        }
        let progress = progress_bar(partitions.error_count().await?)?;
        let mut stopped = std::pin::pin!(signals::stop_signal());
        for ring in &partitions.all {
            // A partition that no node has joined yet has no errors.
            if partitions.are_several() && !ring.exists().await? {
                continue;
            }
            let mut config = config.clone();
            config.ring = ring.name().clone();
            let mut reader = DeadLetterReader::join(config).await?;
            let printed = print_all(&mut reader, args.output.json, &progress, &mut stopped).await;
            let left = reader.leave().await;
            match printed {
                Err(error) if error.downcast_ref().is_some_and(is_closed_pipe) => {
                    return Ok(ExitCode::SUCCESS);
                }
                Err(error) => return Err(error),
                Ok(stopped_with) => {
                    left?;
                    if let Some(code) = stopped_with {
                        return Ok(code);
                    }
                }
            }
        }
        progress.finish_and_clear();
        Ok(ExitCode::SUCCESS)
    });
    // If the reader of the output does not read, a write hangs. It ends with the process.
    runtime.shutdown_background();
    outcome
}

/// Prints all errors of one partition. Returns the exit code if a signal ended it early.
async fn print_all(
    reader: &mut DeadLetterReader,
    as_json: bool,
    progress: &ProgressBar,
    stopped: &mut (impl Future<Output = SignalKind> + Unpin),
) -> Result<Option<ExitCode>> {
    loop {
        let chunk = reader.next().await?;
        if chunk.is_empty() {
            return Ok(None);
        }
        let count = chunk.len() as u64;
        // Printing may block, so it runs on another thread. The command must react to a signal even if its output is
        // not read.
        let mut printing = tokio::task::spawn_blocking(move || print(&chunk, as_json));
        let (printed, signal) = tokio::select! {
            printed = &mut printing => (printed?, None),
            signal = &mut *stopped => match tokio::time::timeout(PRINT_TIMEOUT, printing).await {
                Ok(printed) => (printed?, Some(signal)),
                // The output is not read, so the chunk goes back.
                Err(_) => return Ok(Some(signals::exit_code(signal).into())),
            },
        };
        printed.context("cannot print the errors; they stay in Redis")?;
        progress.inc(count);
        if let Some(signal) = signal {
            reader.release().await?;
            return Ok(Some(signals::exit_code(signal).into()));
        }
    }
}

fn print(chunk: &[DeadLetter], as_json: bool) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    chunk.iter().try_for_each(|error| write_error(&mut out, error, as_json))?;
    out.flush()?;
    wait_until_read(out.get_ref())
}

/// A program that starts with a closed stdout gets /dev/null in its place, open for reading and writing. A user who
/// wants to throw the errors away opens /dev/null only for writing.
fn stdout_was_closed() -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(io::stdout())?;
    let (stdout, null) = (rustix::fs::fstat(io::stdout())?, rustix::fs::stat("/dev/null"));
    let is_null = null.is_ok_and(|null| null.st_rdev == stdout.st_rdev && null.st_ino == stdout.st_ino);
    Ok(is_null && flags.contains(rustix::fs::OFlags::RDWR))
}

/// Waits until the reader of a pipe has read everything. Errors that are in the pipe when its reader ends are lost, so
/// they must not be removed from Redis before.
fn wait_until_read(out: &impl AsFd) -> io::Result<()> {
    let pipe = File::from(out.as_fd().try_clone_to_owned()?);
    if !pipe.metadata()?.file_type().is_fifo() {
        return Ok(());
    }
    // The pause is short for a reader at work. It grows for one at rest, such as a pager.
    let mut pause = Timespec { tv_sec: 0, tv_nsec: 100_000 };
    while rustix::io::ioctl_fionread(&pipe)? > 0 {
        pause.tv_nsec = (pause.tv_nsec * 2).min(50_000_000);
        // The writing end of a pipe reports only one thing: that the last reader is gone.
        if rustix::event::poll(&mut [PollFd::new(&pipe, PollFlags::empty())], Some(&pause))? > 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}

/// A progress bar on stderr. It is hidden if stderr is not a terminal, or if the errors would scroll over it.
fn progress_bar(total: u64) -> Result<ProgressBar> {
    if !std::io::stderr().is_terminal() || std::io::stdout().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} errors, {eta} left")?;
    Ok(ProgressBar::new(total).with_style(style))
}
