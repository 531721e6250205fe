//! rsmq_async: two tasks, each with its own multiplexed connection.
//!
//! Settings, from the sections "Pick your client" and "Batching" of its README: the multiplexed client ("start here"),
//! which sends batches of 100 and receives batches of 500. It was fastest with these sizes. rsmq_async cannot delete in
//! batches. So this program sends all deletions of a batch at once over the multiplexed connection. The `Worker` of
//! rsmq_async would take one message per round trip.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use contract::{Mode, PeerTask};
use futures_util::future::try_join_all;
use rsmq_async::{Rsmq, RsmqConnection};
use versions::locked_version;

const QUEUE: &str = "jobs";
const RECEIVED_AT_ONCE: u32 = 500;

#[tokio::main]
async fn main() -> Result<()> {
    let task = PeerTask::from_env()?;
    let client = redis::Client::open(task.redis_url.as_str())?;
    let mut producer = connect(&client).await?;
    let worker = connect(&client).await?;
    producer.create_queue(QUEUE, None, None, None).await.context("cannot create the queue")?;

    let (handled, elapsed) = match task.mode {
        Mode::EndToEnd => {
            let start = Instant::now();
            let putting = tokio::spawn(put(producer, task.clone()));
            let handled = work(worker, task.count).await?;
            let elapsed = start.elapsed();
            putting.await??;
            (handled, elapsed)
        }
        Mode::Consume => {
            put(producer, task.clone()).await?;
            task.filled()?;
            let start = Instant::now();
            (work(worker, task.count).await?, start.elapsed())
        }
    };
    task.report("rsmq_async", locked_version("rsmq_async"), handled, elapsed)
}

async fn connect(client: &redis::Client) -> Result<Rsmq> {
    let connection = client.get_multiplexed_async_connection().await?;
    Ok(Rsmq::new_with_connection(connection, false, None).await?)
}

async fn put(mut rsmq: Rsmq, task: PeerTask) -> Result<()> {
    let body = task.body();
    for batch in task.batches() {
        rsmq.send_message_batch(QUEUE, vec![body.as_str(); batch as usize], None).await?;
    }
    Ok(())
}

async fn work(mut rsmq: Rsmq, count: u64) -> Result<u64> {
    let mut handled = 0;
    while handled < count {
        let messages = rsmq.receive_message_batch::<Vec<u8>>(QUEUE, None, RECEIVED_AT_ONCE).await?;
        if messages.is_empty() {
            // rsmq_async has no blocking read, so the worker polls.
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        handled += messages.len() as u64;
        let deletions = messages.into_iter().map(|message| {
            let mut rsmq = rsmq.clone();
            async move { rsmq.delete_message(QUEUE, &message.id).await }
        });
        let deleted = try_join_all(deletions).await?;
        ensure!(deleted.iter().all(|&deleted| deleted), "a message was gone before it was deleted");
    }
    Ok(handled)
}
