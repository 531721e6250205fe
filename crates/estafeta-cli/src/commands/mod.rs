//! What the program does, one module per command.

pub mod bench;
pub mod cancel;
pub mod chaos;
pub mod check;
pub mod checkpoint;
pub mod clean_temp;
pub mod doctor;
pub mod errors;
pub mod get_errors;
pub mod health;
pub mod limit;
pub mod monitor;
pub mod pages;
pub mod pause;
pub mod publish;
pub mod redis;
pub mod reset;
pub mod results;
pub mod rings;
pub mod run;
pub mod schedule;
pub mod status;
pub mod upgrade;
pub mod web;

use std::fmt::Display;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result, anyhow, bail};
use estafeta::{Endpoint, Ring};
use estafeta_lab::message_id::MessageId;
use estafeta_lab::partitions::Partitions;

use crate::failure::usage;
use crate::find_redis;
use crate::settings::{Reach, Where};

/// Connects to the ring and runs a short command on a small runtime.
fn with_ring<T>(reach: &Reach, command: impl AsyncFnOnce(Ring) -> Result<T>) -> Result<T> {
    let endpoint = find_redis::existing(&reach.redis)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { command(Ring::connect(endpoint, reach.ring.clone()).await?).await })
}

/// Like [`with_ring`], with a connection to each partition. Fails if there is no such ring.
fn with_partitions<T>(reach: &Reach, command: impl AsyncFnOnce(Partitions) -> Result<T>) -> Result<T> {
    with_ring(reach, async |ring| {
        let partitions = Partitions::of(ring).await?;
        if !partitions.exist().await? {
            return Err(no_such_ring(&partitions.whole));
        }
        command(partitions).await
    })
}

/// Like [`with_partitions`], for a command that works on one partition at a time.
fn with_one_partition<T>(reach: &Reach, command: impl AsyncFnOnce(Ring) -> Result<T>) -> Result<T> {
    with_partitions(reach, async |partitions| {
        let (name, count) = (partitions.whole.name(), partitions.all.len());
        if partitions.are_several() {
            bail!("ring {name} has {count} partitions: name one of them, such as --ring {name}:0");
        }
        command(partitions.whole).await
    })
}

/// The ids of each partition, in its order. An id that does not name its partition is a wrong call.
fn sorted<'a>(partitions: &'a Partitions, ids: &[MessageId]) -> Result<Vec<(&'a Ring, Vec<u64>)>> {
    partitions.sort(ids).map_err(|wrong| usage(format!("ID: {wrong}")))
}

/// The failure of a command on a ring that does not exist. Its name may be mistyped.
fn no_such_ring(ring: &Ring) -> anyhow::Error {
    let (name, redis) = (ring.name(), ring.endpoint());
    anyhow!("there is no ring {name} at {redis}: `estafeta rings` lists the rings there")
}

/// The Redis that a flag of this call names, if one does.
fn named_redis(reach: &Reach, redis_was_named: bool) -> Option<Endpoint> {
    match &reach.redis {
        Where::Given(endpoint) if redis_was_named => Some(Endpoint::clone(endpoint)),
        _ => None,
    }
}

/// Asks the user at the terminal. Fails if there is no terminal.
fn confirmed(question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("there is no terminal to ask at: use --yes if you mean it");
    }
    let mut err = std::io::stderr();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Prints what a command has done. If nobody reads it, the work is done all the same.
fn print_result(text: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if !is_closed_pipe(&error) => {
            Err(error).context("the command is done, but its result cannot be printed")
        }
        _ => Ok(()),
    }
}

/// Whether a write failed only because the reader of the output has ended, as in `| head -1`.
fn is_closed_pipe(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}
