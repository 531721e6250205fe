//! The floor: the cheapest thing that a queue in Redis can be. One task pushes to a list, others pop from it, as many as
//! the ring has lanes, with the same client as the members have. Whatever was popped is lost with its popper, and nobody
//! notices.

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
use super::server;
use super::stand::{Stand, floor_key};
use super::throughput::Flow;

/// No more than this may wait, as in a ring.
const MOST_WAITING: u64 = 100_000;
/// Large bodies travel in smaller batches, as in a ring: a lane asks for about so many bytes.
const MOST_BYTES: usize = 1024 * 1024;
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone)]
struct Lane {
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

    fn go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// What a member does, in a thread of its own. It ends with this value.
struct Hand {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Hand {
    /// Does something in so many lanes at once, which share a connection.
    fn start<F: Future<Output = Result<()>> + Send + 'static>(
        lane: &Lane,
        lanes: usize,
        work: impl Fn(Lane, MultiplexedConnection) -> F + Send + 'static,
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

    fn start_popping(stand: &Stand<'_>, lane: &Lane, until_empty: bool) -> Result<Vec<Self>> {
        let pop = move |lane: Lane, connection| lane.pop(connection, until_empty);
        (0..stand.order.handlers).map(|_| Self::start(lane, stand.order.concurrency, pop)).collect()
    }

    async fn finish(mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        ended.ok().context("the floor panicked")?
    }
}

impl Drop for Hand {
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
        let batch = batch.min((MOST_BYTES / body.len().max(1)).max(1));
        let (pushed, popped, stop) = Default::default();
        let counts = Counts { pushed, popped, popping: Stretch::new(), stop };
        Self { endpoint: stand.endpoint.clone(), key, batch, body, counts: counts.into() }
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

    /// Pops until it is told to stop, or until nothing is left if so wished.
    async fn pop(self, mut connection: MultiplexedConnection, until_empty: bool) -> Result<()> {
        self.counts.popping.mark();
        while self.counts.go_on() {
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

async fn finish(hands: Vec<Hand>) -> Result<()> {
    for hand in hands {
        hand.finish().await?;
    }
    Ok(())
}

/// Pushed and popped at the same time.
pub async fn push_and_pop(stand: &Stand<'_>, batch: usize, length: Duration) -> Result<Flow> {
    let ring = stand.ring()?;
    let lane = Lane::new(stand, floor_key(&ring), batch);
    let counts = Arc::clone(&lane.counts);
    let mut hands = vec![Hand::start(&lane, 1, Lane::push)?];
    hands.extend(Hand::start_popping(stand, &lane, false)?);
    sleep(length / 10).await;
    let popped = || counts.popped.load(Ordering::Relaxed);
    let (before, from) = (stand.server.reading().await?, popped());
    sleep(length).await;
    let (after, to) = (stand.server.reading().await?, popped());
    counts.stop.store(true, Ordering::Relaxed);
    finish(hands).await?;
    stand.erase(&ring).await?;
    let span = after.since(&before);
    Ok(Flow::new((to - from).max(1), span.seconds, &span))
}

/// Pushed first, then popped; timed from the first call to the last batch.
pub async fn pop(stand: &Stand<'_>, batch: usize) -> Result<Flow> {
    let ring = stand.ring()?;
    let lane = Lane::new(stand, floor_key(&ring), batch);
    let counts = Arc::clone(&lane.counts);
    let (wanted, length) = (stand.order.messages, stand.order.length);
    let filling = Hand::start(&lane, 1, move |lane, mut connection| async move {
        let start = Instant::now();
        let pushed = || lane.counts.pushed.load(Ordering::Relaxed);
        while lane.counts.go_on() && pushed() < wanted && (start.elapsed() < length || pushed() == 0) {
            lane.push_one_batch(&mut connection).await?;
        }
        Ok(())
    })?;
    filling.finish().await?;
    let waiting = counts.waiting();
    let bytes = Some(stand.server.memory_of(&floor_key(&ring)).await? / waiting as f64);
    let before = stand.server.reading().await?;
    // One that has finished tells the others to stop.
    counts.stop.store(false, Ordering::Relaxed);
    finish(Hand::start_popping(stand, &lane, true)?).await?;
    let after = stand.server.reading().await?;
    stand.erase(&ring).await?;
    let seconds = counts.popping.length().as_secs_f64();
    Ok(Flow { bytes, ..Flow::new(waiting, seconds, &after.since(&before)) })
}
