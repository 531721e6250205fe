//! How soon another node starts to handle the message of a handler that was killed with kill -9.
//!
//! There is only one message. The node that handles it is killed, again and again. The records of the nodes show when
//! the next node began.

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::Bench;
use super::env::BenchEnv;
use super::nodes::{BenchNodes, PATIENCE};
use super::plot::Panel;
use super::table::{TIMES, Table, column, times};
use crate::clock::now_ms;
use crate::fleet::NodeKey;
use crate::record::{self, Step};
use crate::text::grouped;

const NODES: usize = 4;
const POLL: Duration = Duration::from_millis(2);
/// How long nodes trust no sign of death after Redis has started, because every member looks dead to the first node
/// that reconnects. A server that bench started has only just come up.
const TRUST_DELAY: Duration = Duration::from_millis(500);
/// How often the generator sweeps. The kill comes at a random moment between two sweeps.
const SWEEP: Duration = Duration::from_millis(100);

pub async fn run(env: &BenchEnv<'_>) -> Result<Table> {
    let tries = env.options.tries;
    let deaths = u32::MAX.to_string();
    let options = ["--limit", "1", "--work-per-char", "1h", "--max-deaths", &deaths];
    let mut nodes = BenchNodes::new(env, &options).await?.with_records();
    nodes.start_many(NODES).await?;
    let mut samples = Vec::new();
    let (mut holder, _) = begun(&nodes, 1).await?;
    tokio::time::sleep(TRUST_DELAY.max(env.options.lease / 4)).await;
    for delivery in 2..tries + 2 {
        env.step(&format!("redelivery: {} of {}", grouped(delivery as u64 - 1), grouped(tries as u64)));
        nodes.until_whole().await?;
        tokio::time::sleep(SWEEP.mul_f64(rand::random())).await;
        let killed_ms = now_ms();
        nodes.signal(holder, Signal::SIGKILL);
        let (next, at_ms) = begun(&nodes, u32::try_from(delivery)?).await?;
        samples.push(at_ms.saturating_sub(killed_ms) as f64);
        nodes.remove(holder);
        nodes.start()?;
        holder = next;
    }
    nodes.end().await?;
    let mut columns = vec![column("what", "what", 0)];
    columns.extend(TIMES);
    Ok(Table {
        bench: Bench::Redelivery,
        title: format!("a generator and {} handlers, one of which works on a message", NODES - 1),
        columns,
        keys: 1,
        rows: vec![[vec!["kill -9 to the next handler's start".into()], times(samples).to_vec()].concat()],
        notes: Vec::new(),
        panels: vec![Panel::Spread],
    })
}

/// Waits until a node begins this delivery. Returns the node and the time.
async fn begun(nodes: &BenchNodes<'_>, wanted: u32) -> Result<(NodeKey, u64)> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        for node in nodes.keys() {
            let text = std::fs::read_to_string(nodes.record_of(node)?).unwrap_or_default();
            let lines = record::read(&text).map_err(anyhow::Error::msg)?;
            let began = lines
                .iter()
                .find(|line| matches!(line.step, Step::Began { delivery, .. } if delivery == wanted));
            if let Some(line) = began {
                return Ok((node, line.at_ms));
            }
        }
        tokio::time::sleep(POLL).await;
    }
    Err(nodes.time_out("a handler to begin"))
}
