//! estafeta: a generator and a handler. Each has its own thread and connections, as two nodes have.
//!
//! Settings: no pause between messages, batches of the requested size, one lane, and room for all messages in the queue.
//! The time ends when Redis has recorded the last outcome, which is after the handler has returned. With `consume`, the
//! time also includes connecting and joining, because a member does that itself.

mod members;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use contract::{Mode, PeerTask};
use estafeta::{Config, Failure, Handler, Message, Ring, Source};
use tokio_util::sync::CancellationToken;

use crate::members::RunningMembers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let task = PeerTask::from_env()?;
    let config = settings(&task)?;
    let handled = Arc::new(AtomicU64::new(0));
    let go = CancellationToken::new();
    let mut members = RunningMembers::none();
    let source = RepeatedBody { body: task.body().into_bytes(), go: go.clone(), going: false };
    // The first member takes office.
    let generator = members.start(&config, source, CountingHandler(Arc::clone(&handled)), task.count)?;
    members.working(generator.in_office()).await?;
    // The handler never takes office. If it did, this source would give it no message.
    let never = RepeatedBody { body: Vec::new(), go: CancellationToken::new(), going: false };

    let elapsed = match task.mode {
        Mode::EndToEnd => {
            let handler = members.start(&config, never, CountingHandler(Arc::clone(&handled)), task.count)?;
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
            let handler = members.start(&config, never, CountingHandler(Arc::clone(&handled)), task.count)?;
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

/// Returns the same body again and again, once `go` is cancelled.
struct RepeatedBody {
    body: Vec<u8>,
    go: CancellationToken,
    going: bool,
}

impl Source for RepeatedBody {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        if !self.going {
            self.go.cancelled().await;
            self.going = true;
        }
        Ok(self.body.clone())
    }
}

/// Counts messages.
struct CountingHandler(Arc<AtomicU64>);

impl Handler for CountingHandler {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
