//! The floor: the cheapest possible queue in Redis. One task pushes to a list, and other tasks pop from it, as many as
//! the ring has lanes. They use the same client as the members. What a task has popped is lost if its process dies, and
//! no other client notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use estafeta::Endpoint;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::crew::Stretch;
use super::env::{BenchEnv, floor_key};
use super::throughput::Flow;
use crate::server;

/// How many bodies may wait, as in a ring.
const MOST_WAITING: u64 = 100_000;
/// Large bodies travel in smaller batches, as in a ring, where a lane requests about this many bytes.
const MOST_BYTES: usize = 1024 * 1024;
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone)]
struct FloorLane {
    endpoint: Endpoint,
    key: String,
    batch: usize,
    body: Vec<u8>,
    counts: Arc<Counts>,
}

struct Counts {
    pushed: AtomicU64,
    popped: AtomicU64,
    popping: Stretch,
    stop: AtomicBool,
}

impl Counts {
    fn waiting(&self) -> u64 {
        let (pushed, popped) = (self.pushed.load(Ordering::Relaxed), self.popped.load(Ordering::Relaxed));
        pushed.saturating_sub(popped)
    }

    fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// The counterpart of a member, in its own thread. Dropping this value stops it.
struct FloorWorker {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl FloorWorker {
    /// Runs `work` in several lanes at once, which share a connection.
    fn start<F: Future<Output = Result<()>> + Send + 'static>(
        lane: &FloorLane,
        lanes: usize,
        work: impl Fn(FloorLane, MultiplexedConnection) -> F + Send + 'static,
    ) -> Result<Self> {
        let (lane, counts) = (lane.clone(), Arc::clone(&lane.counts));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let connection = server::connect(&lane.endpoint).await?;
                let all: JoinSet<_> = (0..lanes).map(|_| work(lane.clone(), connection.clone())).collect();
                all.join_all().await.into_iter().collect()
            })
        });
        Ok(Self { counts, thread: Some(thread) })
    }

    fn start_popping(env: &BenchEnv<'_>, lane: &FloorLane, until_empty: bool) -> Result<Vec<Self>> {
        let pop = move |lane: FloorLane, connection| lane.pop(connection, until_empty);
        (0..env.options.handlers).map(|_| Self::start(lane, env.options.concurrency, pop)).collect()
    }

    async fn finish(mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        ended.ok().context("the floor panicked")?
    }
}

impl Drop for FloorWorker {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl FloorLane {
    fn new(env: &BenchEnv<'_>, key: String, batch: usize) -> Self {
        let body = vec![b'x'; env.options.body];
        let batch = batch.min((MOST_BYTES / body.len().max(1)).max(1));
        let (pushed, popped, stop) = Default::default();
        let counts = Counts { pushed, popped, popping: Stretch::new(), stop };
        Self { endpoint: env.endpoint.clone(), key, batch, body, counts: counts.into() }
    }

    async fn push(self, mut connection: MultiplexedConnection) -> Result<()> {
        while self.counts.is_running() {
            if self.counts.waiting() >= MOST_WAITING {
                sleep(PAUSE).await;
            } else {
                self.push_one_batch(&mut connection).await?;
            }
        }
        Ok(())
    }

    async fn push_one_batch(&self, connection: &mut MultiplexedConnection) -> Result<()> {
        let bytes = self.key.len() + self.batch * self.body.len();
        let mut push = redis::Cmd::with_capacity(2 + self.batch, 16 + bytes);
        push.arg("RPUSH").arg(&self.key);
        for _ in 0..self.batch {
            push.arg(&self.body);
        }
        push.exec_async(connection).await?;
        self.counts.pushed.fetch_add(self.batch as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Pops until the worker stops or, if so requested, until the list is empty.
    async fn pop(self, mut connection: MultiplexedConnection, until_empty: bool) -> Result<()> {
        self.counts.popping.mark();
        while self.counts.is_running() {
            let mut pop = redis::cmd("LPOP");
            let popped: Option<Vec<Vec<u8>>> =
                pop.arg(&self.key).arg(self.batch).query_async(&mut connection).await?;
            match popped {
                Some(bodies) => {
                    self.counts.popped.fetch_add(bodies.len() as u64, Ordering::Relaxed);
                    self.counts.popping.mark();
                }
                None if until_empty => break,
                None => sleep(PAUSE).await,
            }
        }
        Ok(())
    }
}

async fn finish(workers: Vec<FloorWorker>) -> Result<()> {
    for worker in workers {
        worker.finish().await?;
    }
    Ok(())
}

/// Measures pushes and pops at the same time.
pub async fn push_and_pop(env: &BenchEnv<'_>, batch: usize, length: Duration) -> Result<Flow> {
    let ring = env.ring()?;
    let lane = FloorLane::new(env, floor_key(&ring), batch);
    let counts = Arc::clone(&lane.counts);
    let mut workers = vec![FloorWorker::start(&lane, 1, FloorLane::push)?];
    workers.extend(FloorWorker::start_popping(env, &lane, false)?);
    sleep(length / 10).await;
    let popped = || counts.popped.load(Ordering::Relaxed);
    let (before, from) = (env.server.reading().await?, popped());
    sleep(length).await;
    let (after, to) = (env.server.reading().await?, popped());
    counts.stop.store(true, Ordering::Relaxed);
    finish(workers).await?;
    env.erase(&ring).await?;
    let span = after.since(&before);
    Ok(Flow::new((to - from).max(1), span.seconds, &span))
}

/// Fills the list first, then measures the pops, from the first call to the last batch.
pub async fn pop(env: &BenchEnv<'_>, batch: usize) -> Result<Flow> {
    let ring = env.ring()?;
    let lane = FloorLane::new(env, floor_key(&ring), batch);
    let counts = Arc::clone(&lane.counts);
    let (wanted, length) = (env.options.messages, env.options.length);
    let filling = FloorWorker::start(&lane, 1, move |lane, mut connection| async move {
        let start = Instant::now();
        let pushed = || lane.counts.pushed.load(Ordering::Relaxed);
        while lane.counts.is_running() && pushed() < wanted && (start.elapsed() < length || pushed() == 0) {
            lane.push_one_batch(&mut connection).await?;
        }
        Ok(())
    })?;
    filling.finish().await?;
    let waiting = counts.waiting();
    let bytes = Some(env.server.memory_of(&floor_key(&ring)).await? / waiting as f64);
    let before = env.server.reading().await?;
    // A worker that has finished makes the others stop.
    counts.stop.store(false, Ordering::Relaxed);
    finish(FloorWorker::start_popping(env, &lane, true)?).await?;
    let after = env.server.reading().await?;
    env.erase(&ring).await?;
    let seconds = counts.popping.length().as_secs_f64();
    Ok(Flow { bytes, ..Flow::new(waiting, seconds, &after.since(&before)) })
}
