//! Redis Streams with a consumer group, with plain redis-rs, as a careful user writes it by hand.
//!
//! There are two tasks, each with its own connection. Settings, from the pages of Redis about pipelining
//! (<https://redis.io/docs/latest/develop/use/pipelining/>) and streams:
//!
//! - A pipeline has one XADD for each message of a batch.
//! - XREADGROUP has a COUNT, the size of a batch.
//! - XACK and XDEL of a batch share a round trip with the read of the next batch. Without XDEL, an acknowledged entry
//!   would stay in memory forever.

use std::time::{Duration, Instant};

use anyhow::Result;
use contract::{Mode, PeerTask};
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use versions::locked_version;

const STREAM: &str = "jobs";
const GROUP: &str = "workers";

#[tokio::main]
async fn main() -> Result<()> {
    let task = PeerTask::from_env()?;
    let client = redis::Client::open(task.redis_url.as_str())?;
    let mut producer = connect(&client).await?;
    let worker = connect(&client).await?;
    let create = ["CREATE", STREAM, GROUP, "0", "MKSTREAM"];
    redis::cmd("XGROUP").arg(&create).query_async::<()>(&mut producer).await?;

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
