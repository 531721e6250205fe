//! A worker process of `bench work`. Every message takes it a while, and it measures how long each message has waited.
//!
//! Bench starts its workers as `estafeta bench-worker KIND`. For every line on stdin, a worker prints the waits since
//! the line before, as one JSON object. The end of stdin stops it.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use estafeta::{Config, Endpoint, Failure, Job, Node, RingName};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::env::floor_key;
use super::streams;
use crate::clock::now_us;
use crate::report::json_line;

/// How many messages a worker handles concurrently.
pub const LANES: usize = 64;
/// How long each message takes.
pub const JOB: Duration = Duration::from_millis(17);

/// From where a worker gets its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerKind {
    /// It is a node of a ring.
    Node,
    /// It is a consumer of raw Redis Streams.
    Streams,
}

impl WorkerKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Streams => "streams",
        }
    }
}

impl FromStr for WorkerKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let kind = [Self::Node, Self::Streams].into_iter().find(|kind| kind.name() == word);
        kind.ok_or_else(|| format!("expected node or streams, got '{word}'"))
    }
}

/// Runs a worker until its stdin ends.
pub fn run(kind: WorkerKind, endpoint: Endpoint, ring: RingName) -> Result<()> {
    let (work, stop) = (TimedWork::default(), CancellationToken::new());
    let (asked, stopped) = (work.clone(), stop.clone());
    // The thread is never joined, because its read may block. It ends with the process.
    std::thread::spawn(move || {
        if let Err(error) = asked.report_on_request() {
            tracing::error!("cannot report to bench: {error}");
        }
        stopped.cancel();
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match kind {
            WorkerKind::Node => {
                let mut config = Config::new(endpoint, ring);
                (config.concurrency, config.never_generate) = (LANES, true);
                let node = Node::with(config).handle_with(work, async |work, job: Job<Bytes>| {
                    work.handle(&job.body).await.map_err(|error| Failure::fatal(error.to_string()))
                });
                Ok(node.until(stop.cancelled_owned()).await?)
            }
            WorkerKind::Streams => {
                let stream = floor_key(&ring);
                tokio::select! {
                    ended = streams::consume(&endpoint, &stream, &work) => ended,
                    () = stop.cancelled() => Ok(()),
                }
            }
        }
    })
}

/// The work that each message takes, and the waits of the messages.
#[derive(Clone, Default)]
pub struct TimedWork(Arc<Mutex<Waits>>);

impl TimedWork {
    pub async fn handle(&self, body: &[u8]) -> Result<()> {
        let stamp: u64 = std::str::from_utf8(body)?.parse().context("not a stamp")?;
        let wait = now_us().saturating_sub(stamp);
        self.0.lock().expect("no panic while held").add(wait);
        tokio::time::sleep(JOB).await;
        Ok(())
    }

    fn report_on_request(&self) -> io::Result<()> {
        for line in io::stdin().lock().lines() {
            line?;
            let waits = std::mem::take(&mut *self.0.lock().expect("no panic while held"));
            let mut out = io::stdout().lock();
            writeln!(out, "{}", json_line(&waits))?;
            out.flush()?;
        }
        Ok(())
    }
}

/// Returns a body of at least this size that holds the current time.
pub fn stamped_body(bytes: usize) -> Vec<u8> {
    format!("{:0bytes$}", now_us()).into_bytes()
}

/// How many messages waited how long, in steps of 10 us.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits(BTreeMap<u64, u64>);

impl Waits {
    const STEP_US: u64 = 10;

    fn add(&mut self, wait_us: u64) {
        *self.0.entry(wait_us / Self::STEP_US).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (wait, count) in &other.0 {
            *self.0.entry(*wait).or_default() += count;
        }
    }

    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the wait that this share of the messages did not exceed, in milliseconds.
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        let rank = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let wait = self.0.iter().find_map(|(wait, count)| {
            seen += count;
            (seen >= rank).then_some(wait)
        });
        // The middle of the step.
        wait.map(|wait| (*wait as f64 + 0.5) * Self::STEP_US as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_several_workers_are_counted_together() {
        let (mut waits, mut other) = (Waits::default(), Waits::default());
        (0..98).for_each(|_| waits.add(304));
        other.add(2_007);
        other.add(9_999);
        let line = json_line(&other);
        waits.merge(&serde_json::from_str(&line).unwrap());
        assert_eq!(waits.count(), 100);
        assert_eq!(
            [0.5, 0.99, 1.0].map(|share| waits.quantile_ms(share)),
            [Some(0.305), Some(2.005), Some(9.995)]
        );
        assert_eq!(Waits::default().quantile_ms(0.5), None);
    }

    #[tokio::test]
    async fn a_job_takes_its_time_and_reads_the_stamp_of_any_body() {
        let (work, start) = (TimedWork::default(), std::time::Instant::now());
        for bytes in [0, 64] {
            let body = stamped_body(bytes);
            assert!(body.len() >= bytes.max(1), "{body:?}");
            work.handle(&body).await.unwrap();
        }
        assert!(start.elapsed() >= 2 * JOB, "{:?}", start.elapsed());
        let waits = work.0.lock().unwrap().clone();
        assert_eq!(waits.count(), 2);
        assert!(waits.quantile_ms(1.0) < Some(60_000.0), "{waits:?}");
        assert!(work.handle(b"nonsense").await.is_err());
    }
}
