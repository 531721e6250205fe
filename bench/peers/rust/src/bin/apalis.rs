//! apalis-redis: two tasks, each with its own connection.
//!
//! Settings, from the documentation of `apalis_redis::Config`: larger batches "can improve throughput", and locking "can
//! be turned off for tasks that last shorter than a worker heartbeat". There are no events, because nothing reads them.
//! Results are persisted, because otherwise apalis does not acknowledge a task at all. The producer pushes tasks with
//! `push_bulk`. The worker polls every millisecond instead of once per heartbeat.
//!
//! The producer waits while too many tasks are in the queue. See `BACKLOG_LIMIT`.
//!
//! If messages take a while, `concurrency` sets the number of slots, and one call fetches at most as many tasks. apalis
//! has no blocking read, so the worker polls. See `POLL`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage};
use contract::{MessageCounter, Mode, PeerJob, PeerTask, ProducerTask, Task, WorkerTask};
use versions::locked_version;

/// The script of apalis that fetches tasks unpacks all due tasks onto the stack of Lua, which holds about 8,000. If more
/// are due, the worker dies, and so does every worker after it.
const BACKLOG_LIMIT: u64 = 7_000;

/// How often a worker looks for tasks that take a while. Polling more often costs the server more, and shortens the wait.
const POLL: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> Result<()> {
    match Task::from_env()? {
        Task::Speed(task) => speed(task).await,
        Task::Worker(task) => work_slowly(task).await,
        Task::Producer(task) => produce(task).await,
    }
}

async fn speed(task: PeerTask) -> Result<()> {
    if task.mode == Mode::Consume && task.count > BACKLOG_LIMIT {
        bail!("apalis-redis cannot start on more than {BACKLOG_LIMIT} waiting tasks");
    }
    let producer = storage(&task.redis_url, task.batch()).await?;
    let backend = storage(&task.redis_url, task.batch()).await?.poll_with_interval(Duration::from_millis(1));
    let counter = Arc::new(MessageCounter::of(task.count));
    let worker = WorkerBuilder::new("worker").backend(backend).data(counter.clone()).build(handle);

    let (elapsed, handled) = match task.mode {
        Mode::EndToEnd => {
            let mut working = tokio::spawn(worker.run());
            let start = Instant::now();
            let putting = tokio::spawn(put(producer, task.clone(), Some(counter.clone())));
            let outcome = tokio::select! {
                outcome = counter.completed(start) => outcome,
                ended = &mut working => bail!("the worker ended too early: {:?}", ended?),
            };
            putting.await??;
            outcome
        }
        Mode::Consume => {
            put(producer, task.clone(), None).await?;
            task.filled()?;
            let start = Instant::now();
            let mut working = tokio::spawn(worker.run());
            tokio::select! {
                outcome = counter.completed(start) => outcome,
                ended = &mut working => bail!("the worker ended too early: {:?}", ended?),
            }
        }
    };
    task.report("apalis-redis", locked_version("apalis-redis"), handled, elapsed)
}

async fn handle(_: String, counter: Data<Arc<MessageCounter>>) -> Result<(), BoxDynError> {
    counter.count();
    Ok(())
}

async fn storage(redis_url: &str, batch: u64) -> Result<RedisStorage<String>> {
    let connection = apalis_redis::connect(redis_url).await?;
    let config =
        Config::default().queue("jobs").batch_size(batch as usize).lock_tasks(false).emit_events(false);
    ensure!(config.persist_results, "tasks would not be acknowledged");
    Ok(RedisStorage::new(connection).with_config(config))
}

async fn put(
    mut storage: RedisStorage<String>,
    task: PeerTask,
    worker: Option<Arc<MessageCounter>>,
) -> Result<()> {
    let body = task.body();
    let mut put = 0;
    for batch in task.batches() {
        while let Some(counter) = &worker
            && put + batch > counter.handled() + BACKLOG_LIMIT
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        storage.push_bulk(vec![body.clone(); batch as usize]).await?;
        put += batch;
    }
    Ok(())
}

async fn produce(task: ProducerTask) -> Result<()> {
    let mut storage = storage(&task.redis_url, 1).await?;
    let put = async |mut bodies: Vec<String>| {
        match (bodies.pop(), bodies.is_empty()) {
            (Some(body), true) => storage.push(body).await?,
            (body, _) => {
                bodies.extend(body);
                storage.push_bulk(bodies).await?;
            }
        }
        Ok(())
    };
    task.produce("apalis-redis", locked_version("apalis-redis"), put).await
}

async fn work_slowly(task: WorkerTask) -> Result<()> {
    let backend = storage(&task.redis_url, task.slots as u64).await?.poll_with_interval(POLL);
    let worker = WorkerBuilder::new(format!("worker-{}", std::process::id()))
        .backend(backend)
        .concurrency(task.slots)
        .data(task.job())
        .build(handle_slowly);
    let working = tokio::spawn(worker.run());
    task.answer_while(async { Ok(working.await??) }).await
}

async fn handle_slowly(body: String, job: Data<PeerJob>) -> Result<(), BoxDynError> {
    Ok(job.handle(body.as_bytes()).await?)
}
