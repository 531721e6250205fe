//! Messages that take a while: a member that only generates, and members that only handle.
//!
//! Settings: one lane per slot. At a pace, the interval of the ring is the time between two messages. Under full load
//! there is no interval, and the ring limits how many messages wait. All other settings are the defaults.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use contract::{ProducerTask, WorkerTask, report_put};
use estafeta::{Config, Failure, Job, Node, every};

use crate::members::{MemberEvents, RunningMembers, observed};

/// As many as the runner lets other queues hold.
const MAX_WAITING: u64 = 4_000;

/// Handles messages until the runner ends it.
pub async fn handle(task: WorkerTask) -> Result<()> {
    let mut config = Config::new(task.redis_url.parse()?, "bench".parse()?);
    config.concurrency = task.slots;
    let events = Arc::new(MemberEvents::of(u64::MAX));
    let work = Arc::new(task.job());
    let member = Node::with(config).handle_with(work, async |work, job: Job<Bytes>| {
        work.handle(&job.body).await.map_err(|error| Failure::fatal(error.to_string()))
    });
    let mut working = tokio::spawn(observed(member, &events).until(std::future::pending()));
    tokio::select! {
        ended = &mut working => Ok(ended??),
        () = events.joined() => task.answer_while(async { Ok(working.await??) }).await,
    }
}

/// Generates messages until the runner ends it.
pub async fn generate(task: ProducerTask) -> Result<()> {
    let mut config = Config::new(task.redis_url.parse()?, "bench".parse()?);
    config.max_waiting = MAX_WAITING;
    let events = Arc::new(MemberEvents::of(u64::MAX));
    let counted = Arc::clone(&events);
    let mut allowance = task.allowance(move || counted.put.handled());
    allowance.wait_for(|allowed| allowed.ended || allowed.total > 0).await?;
    let mut members = RunningMembers::none();
    let interval = task.every.unwrap_or(Duration::ZERO);
    let stamps = every(interval, move || std::future::ready(Ok(Bytes::from(task.body()))));
    members.start_observed(Node::with(config).generate(stamps), &events)?;
    members.working(allowance.wait_for(|allowed| allowed.ended)).await??;
    members.finish()?;
    report_put("estafeta", env!("CARGO_PKG_VERSION"), events.put.handled())
}
