//! estafeta: a generator and a handler. Each has its own thread and connections, as two nodes have.
//!
//! Settings: no pause between messages, batches of the requested size, one lane, and room for all messages in the queue.
//! The time ends when Redis has recorded the last outcome, which is after the handler has returned. With `consume`, the
//! time also includes connecting and joining, because a member does that itself.
//!
//! `work.rs` has the settings for messages that take a while.

mod members;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use contract::{Mode, PeerTask, Task};
use estafeta::{Config, Failure, Job, Node, Ring, every};
use tokio_util::sync::CancellationToken;

use crate::members::RunningMembers;

fn main() -> Result<()> {
    let mut one_thread = tokio::runtime::Builder::new_current_thread();
    match Task::from_env()? {
        Task::Speed(task) => one_thread.enable_all().build()?.block_on(speed(task)),
        Task::Worker(task) => tokio::runtime::Runtime::new()?.block_on(work::handle(task)),
        Task::Producer(task) => one_thread.enable_all().build()?.block_on(work::generate(task)),
    }
}

async fn speed(task: PeerTask) -> Result<()> {
    let config = settings(&task)?;
    let handled = Arc::new(AtomicU64::new(0));
    let go = CancellationToken::new();
    let mut members = RunningMembers::none();
    let (body, started) = (Bytes::from(task.body()), go.clone());
    let source = every(Duration::ZERO, move || {
        let (body, started) = (body.clone(), started.clone());
        async move {
            started.cancelled().await;
            Ok(body)
        }
    });
    // The first member takes office.
    let generator = Node::with(config.clone()).generate(source).handle_with(Arc::clone(&handled), count);
    let generator = members.start(generator, task.count)?;
    members.working(generator.in_office()).await?;
    let handler = Node::with(config.clone()).handle_with(Arc::clone(&handled), count);

    let elapsed = match task.mode {
        Mode::EndToEnd => {
            let handler = members.start(handler, task.count)?;
            members.working(handler.joined()).await?;
            let start = Instant::now();
            go.cancel();
            members.working(handler.settled.completed(start)).await?.0
        }
        Mode::Consume => {
            go.cancel();
            members.working(generator.put.completed(Instant::now())).await?;
            task.filled()?;
            let start = Instant::now();
            let handler = members.start(handler, task.count)?;
            members.working(handler.settled.completed(start)).await?.0
        }
    };
    members.finish()?;
    check(&config, task.count).await?;
    task.report("estafeta", env!("CARGO_PKG_VERSION"), handled.load(Ordering::Relaxed), elapsed)
}

fn settings(task: &PeerTask) -> Result<Config> {
    let mut config = Config::new(task.redis_url.parse()?, "bench".parse()?);
    config.generator_handles = false;
    config.interval = Duration::ZERO;
    config.max_batch = usize::try_from(task.batch())?;
    config.limit = Some(task.count);
    // A batch never fills more than a quarter of the room.
    config.max_waiting = 4 * task.count.max(task.batch());
    Ok(config)
}

/// Fails unless the ring has recorded one outcome per message, and holds no other message.
async fn check(config: &Config, count: u64) -> Result<()> {
    let ring = Ring::connect(config.redis.clone(), config.ring.clone()).await?;
    let ring = ring.snapshot(0).await?;
    ensure!(
        ring.balanced && (ring.published, ring.done) == (count, count),
        "of {count} messages, {} were published and {} done",
        ring.published,
        ring.done
    );
    Ok(())
}

/// Counts messages.
async fn count(handled: Arc<AtomicU64>, _: Job<Bytes>) -> Result<(), Failure> {
    handled.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
