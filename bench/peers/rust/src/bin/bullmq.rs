//! BullMQ for Rust (the crate `bullmq-official`): two tasks, each with its own connections.
//!
//! Settings:
//!
//! - The producer adds jobs with `add_bulk`, "for maximum throughput" (documentation of the crate).
//! - The concurrency is 100, which BullMQ calls standard
//!   (<https://docs.bullmq.io/guide/parallelism-and-concurrency>). It was no faster with 50, 200 and 500.
//! - The worker removes finished jobs at once (<https://docs.bullmq.io/guide/workers/auto-removal-of-jobs>).

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use bullmq::options::RedisConnectionOptions;
use bullmq::types::RemoveOnFinish;
use bullmq::{Job, Queue, QueueOptions, Worker, WorkerOptions};
use contract::{MessageCounter, Mode, PeerTask};
use versions::locked_version;

const QUEUE: &str = "jobs";
const CONCURRENCY: usize = 100;

#[tokio::main]
async fn main() -> Result<()> {
    let task = PeerTask::from_env()?;
    let connection = RedisConnectionOptions::new().url(task.redis_url.as_str());
    let options = QueueOptions { connection: connection.clone(), ..QueueOptions::default() };
    let queue = Queue::with_options(QUEUE, options).await?;
    let counter = Arc::new(MessageCounter::of(task.count));
    let counting = counter.clone();
    let handler = move |_: Job, _| {
        counting.count();
        async { Ok(serde_json::Value::Null) }
    };
    let options = WorkerOptions {
        connection,
        concurrency: CONCURRENCY,
        remove_on_complete: Some(RemoveOnFinish::Bool(true)),
        autorun: false,
        ..WorkerOptions::default()
    };
    let worker = Worker::with_options(QUEUE, handler, options).await?;

    let (elapsed, handled) = match task.mode {
        Mode::EndToEnd => {
            worker.run().await?;
            let start = Instant::now();
            let putting = tokio::spawn(put(queue, task.clone()));
            let outcome = counter.completed(start).await;
            putting.await??;
            outcome
        }
        Mode::Consume => {
            put(queue, task.clone()).await?;
            task.filled()?;
            let start = Instant::now();
            worker.run().await?;
            counter.completed(start).await
        }
    };
    worker.close(5_000).await?;
    task.report("BullMQ for Rust", locked_version("bullmq-official"), handled, elapsed)
}

async fn put(queue: Queue, task: PeerTask) -> Result<()> {
    let body = task.body();
    for batch in task.batches() {
        let jobs = (0..batch).map(|_| bullmq::BulkJob::new("job", body.as_str())).collect();
        queue.add_bulk(jobs).await?;
    }
    Ok(())
}
