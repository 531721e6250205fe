//! The code that all peers in Rust share: it reads the task, counts handled messages and prints the result.
//! `bench/peers/README.md` describes the contract, which the peers in other languages keep too.

mod work;

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::Notify;

pub use work::{Allowance, PeerJob, ProducerTask, WorkerTask, report_put};

/// The size of a batch, unless the task names one.
const BATCH: u64 = 100;

/// Which part of a run is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything. Producer and worker run at the same time.
    EndToEnd,
    /// Only the worker, which starts when all messages are in the queue.
    Consume,
}

impl Mode {
    /// Its name, as the first argument of a peer.
    pub fn name(self) -> &'static str {
        match self {
            Mode::EndToEnd => "end-to-end",
            Mode::Consume => "consume",
        }
    }
}

/// What a program has to do.
#[derive(Debug)]
pub enum Task {
    /// Put and handle messages as fast as it can.
    Speed(PeerTask),
    /// Be one of several workers, whose messages take a while.
    Worker(WorkerTask),
    /// Put messages for such workers.
    Producer(ProducerTask),
}

impl Task {
    /// Reads `REDIS_URL` and the arguments. The first one decides what the others mean.
    pub fn from_env() -> Result<Task> {
        let redis_url = std::env::var("REDIS_URL").context("REDIS_URL is not set")?;
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        Task::parse(redis_url, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn parse(redis_url: String, arguments: &[&str]) -> Result<Task> {
        Ok(match arguments {
            ["worker", rest @ ..] => Task::Worker(WorkerTask::parse(redis_url, rest)?),
            ["producer", rest @ ..] => Task::Producer(ProducerTask::parse(redis_url, rest)?),
            _ => Task::Speed(PeerTask::parse(redis_url, arguments)?),
        })
    }
}

/// What a peer has to do in one run, as fast as it can.
#[derive(Clone, Debug)]
pub struct PeerTask {
    /// The server, which no other program uses.
    pub redis_url: String,
    /// Which part of the run is timed.
    pub mode: Mode,
    /// The number of messages.
    pub count: u64,
    body_bytes: usize,
    batch: Option<u64>,
}

impl PeerTask {
    /// Reads the arguments `MODE COUNT BODY_BYTES [BATCH]`.
    fn parse(redis_url: String, arguments: &[&str]) -> Result<PeerTask> {
        let (mode, count, body_bytes, batch) = match *arguments {
            [mode, count, body_bytes] => (mode, count, body_bytes, None),
            [mode, count, body_bytes, batch] => (mode, count, body_bytes, Some(batch)),
            _ => bail!("expected MODE COUNT BODY_BYTES [BATCH], got {} arguments", arguments.len()),
        };
        let mode = match mode {
            "end-to-end" => Mode::EndToEnd,
            "consume" => Mode::Consume,
            other => bail!("expected end-to-end, consume, worker or producer, got {other}"),
        };
        let count = number("a number of messages", count)?;
        let body_bytes = number("a number of bytes", body_bytes)?;
        let batch = batch.map(|batch| number("a size of batches", batch)).transpose()?;
        ensure!(batch != Some(0), "expected a size of batches of at least 1, got 0");
        Ok(PeerTask { redis_url, mode, count, body_bytes, batch })
    }

    /// How many messages one call may put or take, if the queue has such calls.
    pub fn batch(&self) -> u64 {
        self.batch.unwrap_or(BATCH)
    }

    /// The body of every message. It has letters only, so no format makes it longer by escaping.
    pub fn body(&self) -> String {
        "x".repeat(self.body_bytes)
    }

    /// The number of messages in each call that puts messages.
    pub fn batches(&self) -> impl Iterator<Item = u64> + use<> {
        let (count, batch) = (self.count, self.batch());
        (0..count).step_by(batch as usize).map(move |done| batch.min(count - done))
    }

    /// Reports that all messages are in the queue, and waits until the runner has read the state of the server.
    ///
    /// A line, or the end, of stdin ends the wait. On a terminal, press Return.
    pub fn filled(&self) -> Result<()> {
        writeln!(std::io::stderr(), "filled")?;
        std::io::stdin().lock().read_line(&mut String::new())?;
        Ok(())
    }

    /// Prints the result, which is the only line on stdout. Fails unless `handled` is the number of messages.
    pub fn report(&self, peer: &str, version: &str, handled: u64, elapsed: Duration) -> Result<()> {
        ensure!(handled == self.count, "{peer} handled {handled} of {} messages", self.count);
        let line = serde_json::json!({
            "peer": peer,
            "batch": self.batch,
            "version": version,
            "mode": self.mode.name(),
            "count": self.count,
            "seconds": elapsed.as_secs_f64(),
        });
        writeln!(std::io::stdout(), "{line}")?;
        Ok(())
    }
}

/// Reads an argument that is a number.
fn number<T: std::str::FromStr>(what: &str, argument: &str) -> Result<T> {
    argument.parse().ok().with_context(|| format!("expected {what}, got {argument}"))
}

/// Counts handled messages. The handlers do nothing else.
#[derive(Debug)]
pub struct MessageCounter {
    handled: AtomicU64,
    expected: u64,
    complete: Notify,
}

impl MessageCounter {
    /// Creates a counter that is complete after this many messages.
    pub fn of(expected: u64) -> MessageCounter {
        MessageCounter { handled: AtomicU64::new(0), expected, complete: Notify::new() }
    }

    /// Counts one message.
    pub fn count(&self) {
        self.add(1);
    }

    /// Counts this many messages.
    pub fn add(&self, messages: u64) {
        let before = self.handled.fetch_add(messages, Ordering::Relaxed);
        if (before + 1..=before + messages).contains(&self.expected) {
            self.complete.notify_one();
        }
    }

    /// The number of messages handled so far.
    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Waits until all messages are handled. Returns the time since `start`, and how many messages were handled.
    pub async fn completed(&self, start: Instant) -> (Duration, u64) {
        self.complete.notified().await;
        (start.elapsed(), self.handled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_the_requested_size_and_the_last_one_takes_the_rest() {
        let redis_url = String::new();
        let task = PeerTask { redis_url, mode: Mode::EndToEnd, count: 250, body_bytes: 1, batch: None };
        assert_eq!(task.batches().collect::<Vec<_>>(), [100, 100, 50]);
        let task = PeerTask { batch: Some(1000), ..task };
        assert_eq!(task.batches().collect::<Vec<_>>(), [250]);
    }

    #[test]
    fn the_first_argument_decides_what_a_program_does() {
        let parse = |arguments: &[&str]| Task::parse(String::new(), arguments);
        assert!(matches!(parse(&["consume", "10", "64", "5"]), Ok(Task::Speed(task)) if task.batch() == 5));
        assert!(matches!(parse(&["worker", "64", "17"]), Ok(Task::Worker(task)) if task.slots == 64));
        assert!(matches!(parse(&["producer", "0", "64"]), Ok(Task::Producer(task)) if task.every.is_none()));
        for wrong in
            [&["rest", "1", "2"][..], &["worker", "64"], &["producer", "2"], &["consume", "1", "1", "0"]]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn a_counter_is_complete_with_the_last_message_even_if_more_come_with_it() {
        let counter = MessageCounter::of(10);
        counter.count();
        counter.add(8);
        tokio::select! {
            biased;
            _ = counter.completed(Instant::now()) => panic!("complete with nine of ten"),
            () = std::future::ready(()) => {}
        }
        counter.add(2);
        let (_, handled) = counter.completed(Instant::now()).await;
        assert_eq!(handled, 11, "it does not hide one message too many");
    }
}
