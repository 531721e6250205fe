//! What a ring with nothing to do costs: Redis, memory, and how long a copy takes to join it.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::copies::{Copies, Pid};
use super::plot::Panel;
use super::stand::Stand;
use super::table::{Cell, Table, column};
use crate::output::grouped;
use crate::quantile::quantile;

/// Until the last newcomer has looked around.
const COMING_TO_REST: Duration = Duration::from_secs(1);

pub async fn run(stand: &Stand<'_>) -> Result<Table> {
    let (mut rows, mut before) = (Vec::new(), None);
    for &count in &stand.order.idle_copies {
        stand.step(&format!("idle: {} copies", grouped(count as u64)));
        let mut copies = Copies::new(stand, &["--interval", "1h"]).await?;
        let mut joining = copies.start_many(count).await?;
        copies.until_whole().await?;
        tokio::time::sleep(COMING_TO_REST.min(stand.order.length)).await;
        let start = stand.server.reading().await?;
        tokio::time::sleep(stand.order.length).await;
        let span = stand.server.reading().await?.since(&start);
        let memory = |field: fn(Pid) -> Option<f64>| {
            let mut all: Vec<f64> = copies.pids().filter_map(field).collect();
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
        copies.end().await?;
    }
    Ok(Table {
        bench: Bench::Idle,
        title: "a ring with nothing to do".to_owned(),
        columns: vec![
            column("copies", "copies", 0),
            column("commands_per_s", "commands/s", 1),
            column("round_trips_per_s", "round trips/s", 1),
            column("round_trips_per_s_and_further_copy", "a further copy", 2),
            column("server_cpu_percent", "server CPU %", 2),
            column("rss_mb", "RSS MB", 1),
            column("pss_mb", "PSS MB", 1),
            column("joined_p50_ms", "joined p50 ms", 1),
            column("joined_max_ms", "max ms", 1),
        ],
        rows,
        notes: vec![
            "commands: those inside scripts included; a further copy: round trips/s for each more than in the row before; \
             RSS and PSS: of one copy; joined: from its start until it is in the ring"
                .to_owned(),
        ],
        panels: vec![Panel::Curve("round_trips_per_s"), Panel::Curve("server_cpu_percent")],
    })
}

/// Memory that a process has, in megabytes; only Linux tells.
fn resident(pid: Pid) -> Option<f64> {
    kilobytes(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// The same, but what it shares with others counts by share.
fn proportional(pid: Pid) -> Option<f64> {
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
