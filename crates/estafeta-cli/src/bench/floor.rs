//! The floor: the cheapest thing that a queue in Redis can be. One task pushes to a list, another pops from it, with the
//! same client as the members have. Whatever was popped is lost with its popper, and nobody notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use estafeta::Endpoint;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use super::server;
use super::stand::{Stand, floor_key};
use super::throughput::Flow;

/// No more than this may wait, as in a ring.
const MOST_WAITING: u64 = 100_000;
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone)]
struct Lane {
    endpoint: Endpoint,
    key: String,
    batch: usize,
    body: Vec<u8>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    pushed: AtomicU64,
    popped: AtomicU64,
    stop: AtomicBool,
}

impl Counts {
    fn waiting(&self) -> u64 {
        let (pushed, popped) = (self.pushed.load(Ordering::Relaxed), self.popped.load(Ordering::Relaxed));
        pushed.saturating_sub(popped)
    }

    fn go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// A task in a thread of its own. It ends with this value.
struct Task {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Task {
    fn start<F: Future<Output = Result<()>>>(
        lane: Lane,
        work: impl FnOnce(Lane, MultiplexedConnection) -> F + Send + 'static,
    ) -> Result<Self> {
        let counts = Arc::clone(&lane.counts);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let connection = server::connect(&lane.endpoint).await?;
                work(lane, connection).await
            })
        });
        Ok(Self { counts, thread: Some(thread) })
    }

    async fn finish(mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        ended.ok().context("the floor panicked")?
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Lane {
    fn new(stand: &Stand<'_>, key: String, batch: usize) -> Self {
        let body = vec![b'x'; stand.order.body];
        Self { endpoint: stand.endpoint.clone(), key, batch, body, counts: Arc::default() }
    }

    async fn push(self, mut connection: MultiplexedConnection) -> Result<()> {
        while self.counts.go_on() {
            if self.counts.waiting() >= MOST_WAITING {
                sleep(PAUSE).await;
            } else {
                self.push_one_batch(&mut connection).await?;
            }
        }
        Ok(())
    }

    async fn push_one_batch(&self, connection: &mut MultiplexedConnection) -> Result<()> {
        let mut push = redis::cmd("RPUSH");
        push.arg(&self.key);
        for _ in 0..self.batch {
            push.arg(&self.body);
        }
        push.exec_async(connection).await?;
        self.counts.pushed.fetch_add(self.batch as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Pops until it is told to stop.
    async fn pop(self, mut connection: MultiplexedConnection) -> Result<()> {
        while self.counts.go_on() {
            let mut pop = redis::cmd("LPOP");
            let popped: Option<Vec<Vec<u8>>> =
                pop.arg(&self.key).arg(self.batch).query_async(&mut connection).await?;
            let count = popped.map_or(0, |bodies| bodies.len());
            self.counts.popped.fetch_add(count as u64, Ordering::Relaxed);
            if count == 0 {
                sleep(PAUSE).await;
            }
        }
        Ok(())
    }
}

/// Pushed by one task and popped by another at the same time.
pub async fn push_and_pop(stand: &Stand<'_>, batch: usize, length: Duration) -> Result<Flow> {
    let ring = stand.ring()?;
    let lane = Lane::new(stand, floor_key(&ring), batch);
    let counts = Arc::clone(&lane.counts);
    let tasks = [Task::start(lane.clone(), Lane::push)?, Task::start(lane, Lane::pop)?];
    sleep(length / 10).await;
    let popped = || counts.popped.load(Ordering::Relaxed);
    let (before, from) = (stand.server.reading().await?, popped());
    sleep(length).await;
    let (after, to) = (stand.server.reading().await?, popped());
    counts.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.finish().await?;
    }
    stand.erase(&ring).await?;
    let span = after.since(&before);
    Ok(Flow::new((to - from).max(1), span.seconds, &span))
}

/// Pushed first, then popped.
pub async fn pop(stand: &Stand<'_>, batch: usize) -> Result<Flow> {
    let ring = stand.ring()?;
    let lane = Lane::new(stand, floor_key(&ring), batch);
    let counts = Arc::clone(&lane.counts);
    let memory = stand.server.reading().await?;
    let (wanted, length) = (stand.order.messages, stand.order.length);
    let filling = Task::start(lane.clone(), move |lane, mut connection| async move {
        let start = Instant::now();
        let pushed = || lane.counts.pushed.load(Ordering::Relaxed);
        while lane.counts.go_on() && pushed() < wanted && (start.elapsed() < length || pushed() == 0) {
            lane.push_one_batch(&mut connection).await?;
        }
        Ok(())
    })?;
    filling.finish().await?;
    let before = stand.server.reading().await?;
    let waiting = counts.waiting();
    // A task that was finished tells the others to stop.
    counts.stop.store(false, Ordering::Relaxed);
    let start = Instant::now();
    let popping = Task::start(lane, |lane, connection| async move {
        let counts = Arc::clone(&lane.counts);
        let all_gone = async {
            while counts.waiting() > 0 {
                sleep(PAUSE).await;
            }
            Ok(())
        };
        tokio::select! {
            ended = lane.pop(connection) => ended,
            gone = all_gone => gone,
        }
    })?;
    popping.finish().await?;
    let seconds = start.elapsed().as_secs_f64();
    let after = stand.server.reading().await?;
    stand.erase(&ring).await?;
    let bytes = Some(before.since(&memory).memory / waiting as f64);
    Ok(Flow { bytes, ..Flow::new(waiting, seconds, &after.since(&before)) })
}
