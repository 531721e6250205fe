//! Redis Streams with a consumer group, with plain redis-rs, as a careful user writes it by hand.
//!
//! There are two tasks, each with its own connection. Settings, from the pages of Redis about pipelining
//! (<https://redis.io/docs/latest/develop/use/pipelining/>) and streams:
//!
//! - A pipeline has one XADD for each message of a batch.
//! - XREADGROUP has a COUNT, the size of a batch.
//! - XACK and XDEL of a batch share a round trip with the read of the next batch. Without XDEL, an acknowledged entry
//!   would stay in memory forever.
//!
//! If messages take a while, a consumer reads with COUNT as many entries as it has free slots. Each job sends XACK and
//! XDEL of its own entry in one pipeline. Reads and pipelines have separate connections, because a read that waits would
//! hold up everything else on its connection. One XACK and one XDEL for all jobs that ended meanwhile need fewer
//! commands, but took the server no less time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use contract::{Mode, PeerTask, ProducerTask, Task, WorkerTask};
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use versions::locked_version;

const STREAM: &str = "jobs";
const GROUP: &str = "workers";

#[tokio::main]
async fn main() -> Result<()> {
    match Task::from_env()? {
        Task::Speed(task) => speed(task).await,
        Task::Worker(task) => work_slowly(task).await,
        Task::Producer(task) => produce(task).await,
    }
}

async fn speed(task: PeerTask) -> Result<()> {
    let client = redis::Client::open(task.redis_url.as_str())?;
    let mut producer = connect(&client).await?;
    let worker = connect(&client).await?;
    create_group(&mut producer).await?;

    let (handled, elapsed) = match task.mode {
        Mode::EndToEnd => {
            let start = Instant::now();
            let putting = tokio::spawn(put(producer, task.clone()));
            let handled = work(worker, &task).await?;
            let elapsed = start.elapsed();
            putting.await??;
            (handled, elapsed)
        }
        Mode::Consume => {
            put(producer, task.clone()).await?;
            task.filled()?;
            let start = Instant::now();
            (work(worker, &task).await?, start.elapsed())
        }
    };
    task.report("raw Streams", &format!("redis-rs {}", locked_version("redis")), handled, elapsed)
}

async fn connect(client: &redis::Client) -> Result<MultiplexedConnection> {
    // A blocking read may take longer than the default time-out of redis-rs for an answer.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn create_group(connection: &mut MultiplexedConnection) -> Result<()> {
    let create = ["CREATE", STREAM, GROUP, "0", "MKSTREAM"];
    Ok(redis::cmd("XGROUP").arg(&create).query_async::<()>(connection).await?)
}

async fn put(mut connection: MultiplexedConnection, task: PeerTask) -> Result<()> {
    let body = task.body();
    for batch in task.batches() {
        let mut pipeline = redis::pipe();
        for _ in 0..batch {
            pipeline.cmd("XADD").arg(STREAM).arg("*").arg("b").arg(&body).ignore();
        }
        pipeline.query_async::<()>(&mut connection).await?;
    }
    Ok(())
}

async fn work(mut connection: MultiplexedConnection, task: &PeerTask) -> Result<u64> {
    let mut handled = 0;
    let mut done: Vec<String> = Vec::new();
    while handled < task.count {
        let mut pipeline = redis::pipe();
        settle(&mut pipeline, &done);
        pipeline.cmd("XREADGROUP").arg(&["GROUP", GROUP, "worker"]).arg("COUNT").arg(task.batch());
        pipeline.arg("BLOCK").arg(Duration::from_secs(1).as_millis() as u64).arg(&["STREAMS", STREAM, ">"]);
        let (reply,): (Option<StreamReadReply>,) = pipeline.query_async(&mut connection).await?;
        done = reply.into_iter().flat_map(|r| r.keys).flat_map(|k| k.ids).map(|entry| entry.id).collect();
        handled += done.len() as u64;
    }
    let mut pipeline = redis::pipe();
    settle(&mut pipeline, &done);
    pipeline.query_async::<()>(&mut connection).await?;
    Ok(handled)
}

fn settle(pipeline: &mut redis::Pipeline, done: &[String]) {
    if !done.is_empty() {
        pipeline.cmd("XACK").arg(STREAM).arg(GROUP).arg(done).ignore();
        pipeline.cmd("XDEL").arg(STREAM).arg(done).ignore();
    }
}

async fn produce(task: ProducerTask) -> Result<()> {
    let mut connection = connect(&redis::Client::open(task.redis_url.as_str())?).await?;
    create_group(&mut connection).await?;
    let put = async |bodies: Vec<String>| {
        let mut pipeline = redis::pipe();
        for body in bodies {
            pipeline.cmd("XADD").arg(STREAM).arg("*").arg("b").arg(body).ignore();
        }
        Ok(pipeline.query_async::<()>(&mut connection).await?)
    };
    task.produce("raw Streams", &format!("redis-rs {}", locked_version("redis")), put).await
}

async fn work_slowly(task: WorkerTask) -> Result<()> {
    let client = redis::Client::open(task.redis_url.as_str())?;
    let (reading, settling) = (connect(&client).await?, connect(&client).await?);
    task.answer_while(fill_slots(&task, reading, settling)).await
}

async fn fill_slots(
    task: &WorkerTask,
    mut reading: MultiplexedConnection,
    settling: MultiplexedConnection,
) -> Result<()> {
    let (consumer, slots) = (std::process::id().to_string(), Arc::new(Semaphore::new(task.slots)));
    let mut jobs = JoinSet::new();
    loop {
        let free = slots.acquire().await?;
        let mut read = redis::cmd("XREADGROUP");
        read.arg(&["GROUP", GROUP, &consumer, "COUNT"]).arg(1 + slots.available_permits());
        read.arg(&["BLOCK", "1000", "STREAMS", STREAM, ">"]);
        let reply: Option<StreamReadReply> = read.query_async(&mut reading).await?;
        drop(free);
        for entry in reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids) {
            let slot = Arc::clone(&slots).acquire_owned().await?;
            let (job, mut settling) = (task.job(), settling.clone());
            jobs.spawn(async move {
                let body: String = entry.get("b").context("an entry without a body")?;
                job.handle(body.as_bytes()).await?;
                let mut pipeline = redis::pipe();
                settle(&mut pipeline, &[entry.id]);
                pipeline.query_async::<()>(&mut settling).await?;
                drop(slot);
                anyhow::Ok(())
            });
        }
        while let Some(ended) = jobs.try_join_next() {
            ended??;
        }
    }
}
