//! What the program does, one module a command.

pub mod bench;
pub mod chaos;
pub mod clean_temp;
pub mod errors;
pub mod get_errors;
pub mod monitor;
pub mod redis;
pub mod reset;
pub mod run;
pub mod status;

use anyhow::Result;
use estafeta::Ring;

use crate::find_redis;
use crate::settings::Reach;

/// Runs a short command on a small runtime, connected to the ring.
fn with_ring<T>(reach: &Reach, command: impl AsyncFnOnce(Ring) -> Result<T>) -> Result<T> {
    let endpoint = find_redis::endpoint(&reach.redis)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { command(Ring::connect(endpoint, reach.ring.clone()).await?).await })
}

/// Whether a failure to write only means that the reader of our output has had enough (`| head -1`).
fn is_closed_pipe(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}
