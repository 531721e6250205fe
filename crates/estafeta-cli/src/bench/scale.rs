//! From a few copies to many: throughput with a little work for each message, failover, and what Redis spends.

use anyhow::Result;

use super::copies::Copies;
use super::failover::{Blow, INTERVAL_TEXT, pass_on};
use super::plot::Panel;
use super::stand::Stand;
use super::table::{Cell, Table, column};
use super::{Bench, Order};
use crate::output::grouped;
use crate::quantile::quantile;

/// A message of the game has about 13 characters, so this is one to two milliseconds of work.
const WORK_PER_CHAR: &str = "100us";

pub fn steps(order: &Order) -> usize {
    2 * order.scale_copies.len()
}

pub async fn run(stand: &Stand<'_>) -> Result<Table> {
    let mut rows = Vec::new();
    for &count in &stand.order.scale_copies {
        let what = format!("scale: {} copies", grouped(count as u64));
        stand.step(&format!("{what}, throughput"));
        let mut row = vec![count.into()];
        row.extend(throughput(stand, count).await?);
        stand.step(&format!("{what}, failover"));
        row.extend(failover(stand, count).await?);
        rows.push(row);
    }
    Ok(Table {
        bench: Bench::Scale,
        title: format!("copies as processes, work of {WORK_PER_CHAR} a character (one to two ms a message)"),
        columns: vec![
            column("copies", "copies", 0),
            column("messages_per_s", "messages/s", 0),
            column("server_cpu_percent", "server CPU %", 1),
            column("server_us_per_message", "server us a message", 2),
            column("failover_p50_ms", "failover p50 ms", 0),
            column("failover_max_ms", "max ms", 0),
        ],
        rows,
        notes: vec![
            "A copy alone generates, and nobody handles. failover: from kill -9 of the generator until another one is in \
             office, with a message every 500 ms and no other work."
                .to_owned(),
        ],
        panels: vec![Panel::Curve("messages_per_s"), Panel::Curve("failover_p50_ms")],
    })
}

async fn throughput(stand: &Stand<'_>, count: usize) -> Result<[Cell; 3]> {
    let options = ["--brief", "--interval", "0", "--work-per-char", WORK_PER_CHAR, "--max-waiting", "10000"];
    let mut copies = Copies::new(stand, &options).await?;
    copies.start_many(count).await?;
    copies.until_whole().await?;
    tokio::time::sleep(stand.order.length / 10).await;
    let (before, from) = (stand.server.reading().await?, copies.ring.snapshot(0).await?);
    tokio::time::sleep(stand.order.length).await;
    let (after, to) = (stand.server.reading().await?, copies.ring.snapshot(0).await?);
    copies.end().await?;
    let (span, messages) = (after.since(&before), to.done - from.done);
    // By Redis' own clock: a machine with so many processes may keep us waiting between the two.
    let seconds = to.time_ms.saturating_sub(from.time_ms) as f64 / 1e3;
    let each = |figure: f64| if messages == 0 { Cell::Nothing } else { figure.into() };
    Ok([each(messages as f64 / seconds), span.cpu_share().into(), each(span.cpu_us(messages))])
}

async fn failover(stand: &Stand<'_>, count: usize) -> Result<[Cell; 2]> {
    if count < 2 {
        return Ok([Cell::Nothing, Cell::Nothing]);
    }
    let mut copies = Copies::new(stand, &["--interval", INTERVAL_TEXT]).await?;
    copies.start_many(count).await?;
    let mut samples = Vec::new();
    for _ in 0..stand.order.tries.div_ceil(10) {
        samples.push(pass_on(&mut copies, Blow::Kill).await?.office);
    }
    copies.end().await?;
    samples.sort_by(f64::total_cmp);
    Ok([quantile(&samples, 0.5).into(), quantile(&samples, 1.0).into()])
}
