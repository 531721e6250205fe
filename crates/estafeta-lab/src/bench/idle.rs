//! The cost of a ring with nothing to do: the load on Redis, memory, and how long a node takes to join.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::env::BenchEnv;
use super::nodes::BenchNodes;
use super::plot::Panel;
use super::table::{Cell, Table, column};
use crate::quantile::quantile;
use crate::text::counted;

/// How long the last node may take to become idle after it joined.
const COMING_TO_REST: Duration = Duration::from_secs(1);

pub async fn run(env: &BenchEnv<'_>) -> Result<Table> {
    let (mut rows, mut before) = (Vec::new(), None);
    for &count in &env.options.idle_nodes {
        env.step(&format!("idle: {}", counted(count as u64, "node")));
        let mut nodes = BenchNodes::new(env, &["--interval", "1h"]).await?;
        let mut joining = nodes.start_many(count).await?;
        nodes.until_whole().await?;
        tokio::time::sleep(COMING_TO_REST.min(env.options.length)).await;
        let start = env.server.reading().await?;
        tokio::time::sleep(env.options.length).await;
        let span = env.server.reading().await?.since(&start);
        let memory = |field: fn(u32) -> Option<f64>| {
            let mut all: Vec<f64> = nodes.pids().filter_map(field).collect();
            all.sort_by(f64::total_cmp);
            quantile(&all, 0.5)
        };
        let (rss, pss) = (memory(resident), memory(proportional));
        joining.sort_by(f64::total_cmp);
        let trips = span.round_trips / span.seconds;
        let slope = before
            .filter(|(fewer, _)| *fewer < count)
            .map(|(fewer, then): (usize, f64)| (trips - then) / (count - fewer) as f64);
        before = Some((count, trips));
        rows.push(vec![
            count.into(),
            (span.commands / span.seconds).into(),
            trips.into(),
            slope.into(),
            span.cpu_share().into(),
            rss.into(),
            pss.into(),
            Cell::from(quantile(&joining, 0.5)),
            quantile(&joining, 1.0).into(),
        ]);
        nodes.end().await?;
    }
    Ok(Table {
        bench: Bench::Idle,
        title: "a ring with nothing to do".to_owned(),
        columns: vec![
            column("nodes", "nodes", 0),
            column("commandsPerS", "commands/s", 1),
            column("roundTripsPerS", "round trips/s", 1),
            column("roundTripsPerSPerFurtherNode", "per further node", 2),
            column("serverCpuPercent", "server CPU %", 2),
            column("rssMb", "RSS MB", 1),
            column("pssMb", "PSS MB", 1),
            column("joinedP50Ms", "joined p50 ms", 1),
            column("joinedMaxMs", "max ms", 1),
        ],
        keys: 1,
        rows,
        notes: [
            "commands/s: including commands inside scripts.",
            "per further node: round trips/s for each node more than in the row above.",
            "RSS, PSS: the memory of one node. PSS divides shared memory among the processes that share it.",
            "joined: from the start of a node until it is in the ring.",
        ]
        .map(str::to_owned)
        .into(),
        panels: vec![Panel::Curve("roundTripsPerS"), Panel::Curve("serverCpuPercent")],
    })
}

/// The resident memory of a process, in megabytes. Only Linux reports it.
fn resident(pid: u32) -> Option<f64> {
    kilobytes(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// The same, but memory that several processes share is divided among them.
fn proportional(pid: u32) -> Option<f64> {
    kilobytes(&std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Pss:")
}

fn kilobytes(text: &str, field: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let number = line.trim().strip_suffix("kB")?;
    number.trim().parse::<f64>().ok().map(|kilobytes| kilobytes / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_megabytes() {
        let status = "Name:\testafeta\nVmRSS:\t    6144 kB\nVmData:\t 9 kB\n";
        assert_eq!(kilobytes(status, "VmRSS:"), Some(6.0));
        assert_eq!(kilobytes(status, "Pss:"), None);
    }
}
