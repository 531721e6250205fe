//! How soon another copy starts on the message of a handler that was killed with -9.
//!
//! One message is all there is. Whoever has it is killed while it works, again and again; the records of the copies show
//! when the next one began.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use super::Bench;
use super::copies::{Copies, PATIENCE, Pid};
use super::plot::Panel;
use super::stand::Stand;
use super::table::{TIMES, Table, column, times};
use crate::duration::now_ms;
use crate::record::{self, Step};

const COPIES: usize = 4;
const LOOK: Duration = Duration::from_millis(2);
/// Nobody's death is believed so soon after a start of Redis, because all look dead to whoever is back first; and a server
/// of one's own has only just started.
const SETTLING: Duration = Duration::from_millis(500);
/// The generator looks for the dead this often: the kill is to come at any moment between two looks.
const SWEEP: Duration = Duration::from_millis(100);

pub async fn run(stand: &Stand<'_>) -> Result<Table> {
    let tries = stand.order.tries;
    let attempts = u32::MAX.to_string();
    let options = ["--limit", "1", "--work-per-char", "1h", "--max-attempts", &attempts];
    let mut copies = Copies::new(stand, &options).await?.with_records();
    copies.start_many(COPIES).await?;
    let mut samples = Vec::new();
    let (mut holder, _) = begun(&copies, 1).await?;
    tokio::time::sleep(SETTLING.max(stand.order.lease / 4)).await;
    for attempt in 2..tries + 2 {
        stand.step(&format!("redelivery: {} of {tries}", attempt - 1));
        copies.until_whole().await?;
        tokio::time::sleep(SWEEP.mul_f64(rand::random())).await;
        let killed_ms = now_ms();
        copies.signal(holder, Signal::SIGKILL)?;
        let (next, at_ms) = begun(&copies, u32::try_from(attempt)?).await?;
        samples.push(at_ms.saturating_sub(killed_ms) as f64);
        copies.remove(holder)?;
        copies.start()?;
        holder = next;
    }
    copies.end().await?;
    let mut columns = vec![column("what", "what", 0)];
    columns.extend(TIMES);
    Ok(Table {
        bench: Bench::Redelivery,
        title: format!("a generator and {} handlers, one of which works on a message", COPIES - 1),
        columns,
        rows: vec![[vec!["kill -9 to the next handler's start".into()], times(samples).to_vec()].concat()],
        notes: Vec::new(),
        panels: vec![Panel::Spread],
    })
}

/// Waits until a copy begins this attempt: who, and when.
async fn begun(copies: &Copies<'_>, wanted: u32) -> Result<(Pid, u64)> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        for pid in copies.pids() {
            let path = copies.record_of(pid).context("no record")?;
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines = record::read(&text).map_err(anyhow::Error::msg)?;
            let began = lines
                .iter()
                .find(|line| matches!(line.step, Step::Began { attempt, .. } if attempt == wanted));
            if let Some(line) = began {
                return Ok((pid, line.at_ms));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(copies.complaint("a handler to begin"))
}
