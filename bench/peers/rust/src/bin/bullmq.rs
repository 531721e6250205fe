//! BullMQ for Rust (the crate `bullmq-official`): two tasks, each with its own connections.
//!
//! Settings:
//!
//! - The producer adds jobs with `add_bulk`, "for maximum throughput" (documentation of the crate).
//! - The concurrency is 100, which BullMQ calls standard
//!   (<https://docs.bullmq.io/guide/parallelism-and-concurrency>). It was no faster with 50, 200 and 500.
//! - The worker removes finished jobs at once (<https://docs.bullmq.io/guide/workers/auto-removal-of-jobs>).
//!
//! If messages take a while, the concurrency is the number of slots. A single message is added with `add`.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use bullmq::options::RedisConnectionOptions;
use bullmq::types::RemoveOnFinish;
use bullmq::{Job, Queue, QueueOptions, Worker, WorkerOptions};
use contract::{MessageCounter, Mode, PeerTask, ProducerTask, Task, WorkerTask};
use versions::locked_version;

const QUEUE: &str = "jobs";
const CONCURRENCY: usize = 100;

#[tokio::main]
async fn main() -> Result<()> {
    match Task::from_env()? {
        Task::Speed(task) => speed(task).await,
        Task::Worker(task) => work_slowly(task).await,
        Task::Producer(task) => produce(task).await,
    }
}

async fn speed(task: PeerTask) -> Result<()> {
    let queue = connect(&task.redis_url).await?;
    let counter = Arc::new(MessageCounter::of(task.count));
    let counting = counter.clone();
    let handler = move |_: Job, _| {
        counting.count();
        async { Ok(serde_json::Value::Null) }
    };
    let worker = Worker::with_options(QUEUE, handler, options(&task.redis_url, CONCURRENCY)).await?;

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

async fn connect(redis_url: &str) -> Result<Queue> {
    let connection = RedisConnectionOptions::new().url(redis_url);
    Ok(Queue::with_options(QUEUE, QueueOptions { connection, ..QueueOptions::default() }).await?)
}

fn options(redis_url: &str, concurrency: usize) -> WorkerOptions {
    WorkerOptions {
        connection: RedisConnectionOptions::new().url(redis_url),
        concurrency,
        remove_on_complete: Some(RemoveOnFinish::Bool(true)),
        autorun: false,
        ..WorkerOptions::default()
    }
}

async fn put(queue: Queue, task: PeerTask) -> Result<()> {
    let body = task.body();
    for batch in task.batches() {
        let jobs = (0..batch).map(|_| bullmq::BulkJob::new("job", body.as_str())).collect();
        queue.add_bulk(jobs).await?;
    }
    Ok(())
}

async fn produce(task: ProducerTask) -> Result<()> {
    let queue = connect(&task.redis_url).await?;
    let put = async |bodies: Vec<String>| {
        if let [body] = bodies.as_slice() {
            queue.add("job", body).await?;
        } else {
            let jobs = bodies.iter().map(|body| bullmq::BulkJob::new("job", body.as_str())).collect();
            queue.add_bulk(jobs).await?;
        }
        Ok(())
    };
    task.produce("BullMQ for Rust", locked_version("bullmq-official"), put).await
}

async fn work_slowly(task: WorkerTask) -> Result<()> {
    let job = task.job();
    let handler = move |message: Job, _| {
        let job = job.clone();
        async move {
            let body = message.data().as_str().unwrap_or_default();
            job.handle(body.as_bytes())
                .await
                .map_err(|error| bullmq::Error::Unrecoverable(error.to_string()))?;
            Ok(serde_json::Value::Null)
        }
    };
    let worker = Worker::with_options(QUEUE, handler, options(&task.redis_url, task.slots)).await?;
    worker.run().await?;
    task.answer_while(std::future::pending()).await
}
