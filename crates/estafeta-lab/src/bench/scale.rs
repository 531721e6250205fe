//! Measures rings of a few to many nodes: throughput with a little work per message, failover, and the cost to Redis.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::env::BenchEnv;
use super::failover::{GeneratorFault, INTERVAL_TEXT, measure_take_over};
use super::nodes::BenchNodes;
use super::plot::Panel;
use super::table::{Cell, Table, column};
use super::{Bench, BenchOptions};
use crate::quantile::quantile;
use crate::text::counted;

/// A message of the demo has about 13 characters, so this is 1 to 2 ms of work per message.
const WORK_PER_CHAR: &str = "100us";

/// How long a ring of several nodes has for one message.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn steps(options: &BenchOptions) -> usize {
    2 * options.scale_nodes.len()
}

pub async fn run(env: &BenchEnv<'_>) -> Result<Table> {
    let mut rows = Vec::new();
    for &count in &env.options.scale_nodes {
        let what = format!("scale: {}", counted(count as u64, "node"));
        env.step(&format!("{what}, throughput"));
        let mut row = vec![count.into()];
        row.extend(throughput(env, count).await?);
        env.step(&format!("{what}, failover"));
        row.extend(failover(env, count).await?);
        rows.push(row);
    }
    Ok(Table {
        bench: Bench::Scale,
        title: format!("nodes as processes, work of {WORK_PER_CHAR} per character (1 to 2 ms per message)"),
        columns: vec![
            column("nodes", "nodes", 0),
            column("messagesPerS", "messages/s", 0),
            column("serverCpuPercent", "server CPU %", 1),
            column("serverUsPerMessage", "server us per message", 2),
            column("failoverP50Ms", "failover p50 ms", 0),
            column("failoverMaxMs", "max ms", 0),
        ],
        keys: 1,
        rows,
        notes: vec![
            "A single node is the generator, so no node handles messages.".to_owned(),
            format!(
                "failover: from kill -9 of the generator until another node is in office, with a message every \
                 {INTERVAL_TEXT} and no other work."
            ),
        ],
        panels: vec![Panel::Curve("messagesPerS"), Panel::Curve("failoverP50Ms")],
    })
}

async fn throughput(env: &BenchEnv<'_>, count: usize) -> Result<[Cell; 3]> {
    let options = ["--brief", "--interval", "0", "--work-per-char", WORK_PER_CHAR, "--max-waiting", "10000"];
    let mut nodes = BenchNodes::new(env, &options).await?;
    nodes.start_many(count).await?;
    nodes.until_whole().await?;
    tokio::time::sleep(env.options.length / 10).await;
    let (before, from) = (env.server.reading().await?, nodes.ring.snapshot(0).await?);
    tokio::time::sleep(env.options.length).await;
    // On a busy machine one message may take longer than a short bench. A node alone handles none.
    let patience = Instant::now() + PATIENCE;
    let (after, to) = loop {
        let (after, to) = (env.server.reading().await?, nodes.ring.snapshot(0).await?);
        if count == 1 || to.done > from.done || Instant::now() > patience {
            break (after, to);
        }
        tokio::time::sleep(env.options.length / 10).await;
    };
    nodes.end().await?;
    let (span, messages) = (after.since(&before), to.done - from.done);
    // The time comes from Redis' clock, because a machine with many processes may delay bench between the two readings.
    let seconds = to.time_ms.saturating_sub(from.time_ms) as f64 / 1e3;
    let each = |figure: f64| if messages == 0 { Cell::Missing } else { figure.into() };
    Ok([each(messages as f64 / seconds), span.cpu_share().into(), each(span.cpu_us(messages))])
}

async fn failover(env: &BenchEnv<'_>, count: usize) -> Result<[Cell; 2]> {
    if count < 2 {
        return Ok([Cell::Missing, Cell::Missing]);
    }
    let mut nodes = BenchNodes::new(env, &["--interval", INTERVAL_TEXT]).await?;
    nodes.start_many(count).await?;
    let mut samples = Vec::new();
    for _ in 0..env.options.tries.div_ceil(10) {
        samples.push(measure_take_over(&mut nodes, GeneratorFault::Kill).await?.office);
    }
    nodes.end().await?;
    samples.sort_by(f64::total_cmp);
    Ok([quantile(&samples, 0.5).into(), quantile(&samples, 1.0).into()])
}
