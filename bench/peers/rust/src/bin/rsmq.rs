//! rsmq_async: two tasks, each with its own multiplexed connection.
//!
//! Settings, from the sections "Pick your client" and "Batching" of its README: the multiplexed client ("start here"),
//! which sends batches of 100 and receives batches of 500. It was fastest with these sizes. rsmq_async cannot delete in
//! batches. So this program sends all deletions of a batch at once over the multiplexed connection. The `Worker` of
//! rsmq_async would take one message per round trip.
//!
//! If messages take a while, the worker receives as many messages as it has free slots, and each job deletes its own
//! message. It polls, because notifications are for one subscriber per queue (section "Realtime notifications"), and there
//! are two workers. See `POLL`. The `Worker` of rsmq_async handles one message at a time, so 64 of them would poll.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use contract::{Mode, PeerTask, ProducerTask, Task, WorkerTask};
use futures_util::future::try_join_all;
use rsmq_async::{Rsmq, RsmqConnection, RsmqError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use versions::locked_version;

const QUEUE: &str = "jobs";
const RECEIVED_AT_ONCE: u32 = 500;
/// How often a worker looks for messages that take a while. Polling more often costs the server more, and shortens the
/// wait.
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

async fn produce(task: ProducerTask) -> Result<()> {
    let mut rsmq = connect(&redis::Client::open(task.redis_url.as_str())?).await?;
    rsmq.create_queue(QUEUE, None, None, None).await.context("cannot create the queue")?;
    let put = async |mut bodies: Vec<String>| {
        match (bodies.pop(), bodies.is_empty()) {
            (Some(body), true) => drop(rsmq.send_message(QUEUE, body, None).await?),
            (body, _) => {
                bodies.extend(body);
                rsmq.send_message_batch(QUEUE, bodies, None).await?;
            }
        }
        Ok(())
    };
    task.produce("rsmq_async", locked_version("rsmq_async"), put).await
}

async fn work_slowly(task: WorkerTask) -> Result<()> {
    let rsmq = connect(&redis::Client::open(task.redis_url.as_str())?).await?;
    task.answer_while(fill_slots(&task, rsmq)).await
}

async fn fill_slots(task: &WorkerTask, mut rsmq: Rsmq) -> Result<()> {
    let slots = Arc::new(Semaphore::new(task.slots));
    let mut jobs = JoinSet::new();
    loop {
        let free = slots.acquire().await?;
        let count = 1 + slots.available_permits();
        let messages = match rsmq.receive_message_batch::<Vec<u8>>(QUEUE, None, count as u32).await {
            // The producer creates it.
            Err(RsmqError::QueueNotFound) => Vec::new(),
            messages => messages?,
        };
        drop(free);
        let was_empty = messages.len() < count;
        for message in messages {
            let slot = Arc::clone(&slots).acquire_owned().await?;
            let (job, mut rsmq) = (task.job(), rsmq.clone());
            jobs.spawn(async move {
                job.handle(&message.message).await?;
                let deleted = rsmq.delete_message(QUEUE, &message.id).await?;
                ensure!(deleted, "a message was gone before it was deleted");
                drop(slot);
                Ok(())
            });
        }
        while let Some(ended) = jobs.try_join_next() {
            ended??;
        }
        if was_empty {
            tokio::time::sleep(POLL).await;
        }
    }
}
