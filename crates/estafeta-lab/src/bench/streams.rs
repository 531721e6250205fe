//! Raw Redis Streams with a consumer group, as plain as a careful user writes them: the yardstick of `bench work`.
//!
//! One client adds the entries. A consumer reads as many entries as it has free slots. Each job acknowledges and
//! deletes its own entry. Without XDEL, the entry would stay in memory for ever.
//!
//! Nothing here claims the entries of a dead consumer, counts deliveries, or elects a producer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use estafeta::Endpoint;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::work::Load;
use super::worker::{LANES, TimedWork, stamped_body};
use crate::server;

const GROUP: &str = "workers";
/// How many entries a pipeline adds under full load.
const BATCH: usize = 100;
/// How long the client waits under full load, while enough entries wait.
const PAUSE: Duration = Duration::from_millis(10);

/// The entries of each stream that was read: their ids, and their fields with values.
type Read = Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>;

pub async fn create(endpoint: &Endpoint, stream: &str) -> Result<()> {
    let mut connection = server::connect(endpoint).await?;
    redis::cmd("XGROUP").arg(&["CREATE", stream, GROUP, "0", "MKSTREAM"]).exec_async(&mut connection).await?;
    Ok(())
}

/// Adds entries until this future is dropped.
pub async fn produce(endpoint: &Endpoint, stream: &str, load: Load, body: usize) -> Result<()> {
    let mut connection = server::connect(endpoint).await?;
    match load {
        Load::Full { max_waiting } => {
            let mut length = 0;
            loop {
                let mut pipeline = redis::pipe();
                if length < max_waiting {
                    for _ in 0..BATCH {
                        pipeline.add_command(add(stream, body)).ignore();
                    }
                } else {
                    sleep(PAUSE).await;
                }
                (length,) = pipeline.cmd("XLEN").arg(stream).query_async(&mut connection).await?;
            }
        }
        Load::Every(time) => {
            let mut ticks = interval(time);
            loop {
                ticks.tick().await;
                add(stream, body).exec_async(&mut connection).await?;
            }
        }
    }
}

fn add(stream: &str, body: usize) -> redis::Cmd {
    let mut add = redis::cmd("XADD");
    add.arg(stream).arg("*").arg("body").arg(stamped_body(body));
    add
}

/// Reads entries and handles them, until this future is dropped.
pub async fn consume(endpoint: &Endpoint, stream: &str, job: &TimedWork) -> Result<()> {
    // A read that waits would hold up everything else on its connection.
    let (mut reading, settling) =
        (server::connect_to_wait(endpoint).await?, server::connect(endpoint).await?);
    let (consumer, slots) = (std::process::id().to_string(), Arc::new(Semaphore::new(LANES)));
    let mut jobs = JoinSet::new();
    loop {
        let free = Arc::clone(&slots).acquire_owned().await?;
        let count = 1 + slots.available_permits();
        let mut read = redis::cmd("XREADGROUP");
        read.arg(&["GROUP", GROUP, &consumer, "COUNT"]).arg(count);
        read.arg(&["BLOCK", "1000", "STREAMS", stream, ">"]);
        let entries: Option<Read> = read.query_async(&mut reading).await?;
        drop(free);
        for (id, fields) in entries.into_iter().flatten().flat_map(|(_, entries)| entries) {
            let slot = Arc::clone(&slots).acquire_owned().await?;
            let (job, stream, mut settling) = (job.clone(), stream.to_owned(), settling.clone());
            jobs.spawn(async move {
                job.handle(fields.get(1).map_or(b"", Vec::as_slice)).await?;
                let mut pipeline = redis::pipe();
                pipeline.cmd("XACK").arg(&[&stream, GROUP, &id]).cmd("XDEL").arg(&[&stream, &id]);
                pipeline.exec_async(&mut settling).await?;
                drop(slot);
                anyhow::Ok(())
            });
        }
        while let Some(ended) = jobs.try_join_next() {
            ended??;
        }
    }
}
