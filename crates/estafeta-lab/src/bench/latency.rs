//! The time from publishing to the start of handling on an idle ring, compared with the round trip of a PING.
//!
//! Both members are in this process, so both times come from one clock. The source stamps a message when it produces
//! it, which is before the generator publishes it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use estafeta::{Config, Failure, Job, every};
use tokio_util::sync::CancellationToken;

use super::Bench;
use super::crew::{ConstantSource, RunningMember, Tally, finish, idle_node, until};
use super::env::BenchEnv;
use super::plot::Panel;
use super::table::{Cell, TIMES, Table, column, times};
use crate::quantile::quantile;
use crate::server;
use crate::text::grouped;

/// 20 messages per second, so the ring is idle before each of them.
const INTERVAL: Duration = Duration::from_millis(50);
/// How many samples to drop. The first ones use connections and code for the first time.
const WARM_UP: usize = 3;

/// A body that holds the time since `base`.
fn stamp(base: Instant, bytes: usize) -> Bytes {
    format!("{:0bytes$}", base.elapsed().as_nanos()).into()
}

/// Measures how long ago a body was produced.
#[derive(Clone)]
struct Stopwatch {
    base: Instant,
    samples: Arc<Mutex<Vec<f64>>>,
}

async fn measure(stopwatch: Stopwatch, job: Job<Bytes>) -> Result<(), Failure> {
    let now = stopwatch.base.elapsed();
    let stamp = job.message().text().parse().map_err(|_| Failure::fatal("not a stamp"))?;
    let took = now.saturating_sub(Duration::from_nanos(stamp));
    stopwatch.samples.lock().expect("no panic while held").push(ms(took));
    Ok(())
}

pub async fn run(env: &BenchEnv<'_>) -> Result<Table> {
    env.step("latency: 20 messages per second");
    let (ring, tally, base) = (env.ring()?, Tally::new(), Instant::now());
    let mut config = Config::new(env.endpoint.clone(), ring.clone());
    (config.interval, config.generator_handles) = (INTERVAL, false);
    let samples = Arc::<Mutex<Vec<f64>>>::default();
    let bytes = env.options.body;
    let stamps = every(INTERVAL, move || async move { Ok(stamp(base, bytes)) });
    let mut members = vec![RunningMember::start(idle_node(config.clone(), &tally, stamps))?];
    until(&members, || tally.in_office(), 1, "a generator").await?;
    let stopwatch = Stopwatch { base, samples: Arc::clone(&samples) };
    let heir = idle_node(config, &tally, ConstantSource::new(0).every(INTERVAL));
    members.push(RunningMember::start(heir.handle_with(stopwatch, measure))?);
    until(&members, || tally.settled(), 1, "the first message").await?;

    let pings = ping_for(env).await?;
    let enough = || samples.lock().expect("no panic while held").len() as u64;
    until(&members, enough, WARM_UP as u64 + 1, "messages").await?;
    finish(members).await?;
    env.erase(&ring).await?;
    let samples = samples.lock().expect("no panic while held").split_off(WARM_UP);

    let middle = |samples: &[f64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        quantile(&sorted, 0.5).unwrap_or(f64::NAN)
    };
    let ratio = middle(&samples) / middle(&pings);
    let row = |what: &str, samples: Vec<f64>, of_ping: Cell| {
        [vec![what.into()], times(samples).to_vec(), vec![of_ping]].concat()
    };
    let mut columns = vec![column("what", "what", 0)];
    columns.extend(TIMES);
    columns.push(column("ofPing", "p50 / PING p50", 2));
    Ok(Table {
        bench: Bench::Latency,
        title: format!(
            "20 messages per second with bodies of {} bytes, one handler",
            grouped(env.options.body as u64)
        ),
        columns,
        keys: 1,
        rows: vec![
            row("publish to handler start", samples, ratio.into()),
            row("PING round trip", pings, Cell::Missing),
        ],
        notes: Vec::new(),
        panels: vec![Panel::Spread],
    })
}

/// Measures the round trip of a PING, at the same time and at the same pace. It runs in its own thread, as a member
/// does.
async fn ping_for(env: &BenchEnv<'_>) -> Result<Vec<f64>> {
    let (endpoint, stop) = (env.endpoint.clone(), CancellationToken::new());
    let _stop = stop.clone().drop_guard();
    let deadline = Instant::now() + env.options.length.max(INTERVAL * (WARM_UP as u32 + 2));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ping = move || {
        runtime.block_on(async {
            let mut connection = server::connect(&endpoint).await?;
            let mut samples = Vec::new();
            while Instant::now() < deadline && !stop.is_cancelled() {
                let start = Instant::now();
                redis::cmd("PING").exec_async(&mut connection).await?;
                samples.push(ms(start.elapsed()));
                tokio::time::sleep(INTERVAL).await;
            }
            anyhow::Ok(samples.split_off(WARM_UP.min(samples.len() - 1)))
        })
    };
    tokio::task::spawn_blocking(ping).await.context("pinging panicked")?
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
