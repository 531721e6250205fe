//! What every peer in Rust does alike: read its task, count what it handled, report. `bench/peers/README.md` has the
//! contract in words; the programs in other languages keep to it as well.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::Notify;

/// How many messages go into one call where a peer takes several at once, unless the task says otherwise.
const BATCH: u64 = 100;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Producer and worker at work at the same time.
    EndToEnd,
    /// All messages are put first, which is not timed, then worked off.
    Consume,
}

impl Mode {
    /// As the first argument of a peer.
    pub fn name(self) -> &'static str {
        match self {
            Mode::EndToEnd => "end-to-end",
            Mode::Consume => "consume",
        }
    }
}

/// What this run has to do.
#[derive(Clone, Debug)]
pub struct Task {
    /// The server that this run has for itself.
    pub redis_url: String,
    /// What is timed.
    pub mode: Mode,
    /// How many messages there are.
    pub count: u64,
    body_bytes: usize,
    batch: Option<u64>,
}

impl Task {
    /// Reads `REDIS_URL` and the arguments `MODE COUNT BODY_BYTES [BATCH]`.
    pub fn from_env() -> Result<Task> {
        let redis_url = std::env::var("REDIS_URL").context("REDIS_URL is not set")?;
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let (mode, count, body_bytes, batch) = match arguments.as_slice() {
            [mode, count, body_bytes] => (mode, count, body_bytes, None),
            [mode, count, body_bytes, batch] => (mode, count, body_bytes, Some(batch)),
            _ => bail!("expected MODE COUNT BODY_BYTES [BATCH], got {} arguments", arguments.len()),
        };
        let mode = match mode.as_str() {
            "end-to-end" => Mode::EndToEnd,
            "consume" => Mode::Consume,
            other => bail!("expected end-to-end or consume, got {other}"),
        };
        let count = count.parse().with_context(|| format!("expected a number of messages, got {count}"))?;
        let body_bytes =
            body_bytes.parse().with_context(|| format!("expected a number of bytes, got {body_bytes}"))?;
        let batch = batch
            .map(|batch| {
                batch
                    .parse()
                    .ok()
                    .filter(|&batch| batch > 0)
                    .with_context(|| format!("expected a size of batches of at least 1, got {batch}"))
            })
            .transpose()?;
        Ok(Task { redis_url, mode, count, body_bytes, batch })
    }

    /// How many messages go into one call where a peer takes several at once.
    pub fn batch(&self) -> u64 {
        self.batch.unwrap_or(BATCH)
    }

    /// The body of every message. Letters only, so that no format makes it longer by escaping.
    pub fn body(&self) -> String {
        "x".repeat(self.body_bytes)
    }

    /// The sizes of the calls that put all messages.
    pub fn batches(&self) -> impl Iterator<Item = u64> + use<> {
        let (count, batch) = (self.count, self.batch());
        (0..count).step_by(batch as usize).map(move |done| batch.min(count - done))
    }

    /// Says that all messages are put, and waits until the runner has looked at the server.
    ///
    /// Without a runner stdin is usually a terminal or empty: Return or its end goes on.
    pub fn filled(&self) -> Result<()> {
        writeln!(std::io::stderr(), "filled")?;
        std::io::stdin().lock().read_line(&mut String::new())?;
        Ok(())
    }

    /// Prints the result: the one line that belongs on stdout.
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

/// The handler of every peer: it counts, and nothing else.
#[derive(Debug)]
pub struct Tally {
    handled: AtomicU64,
    expected: u64,
    complete: Notify,
}

impl Tally {
    /// Expects that many messages.
    pub fn of(expected: u64) -> Tally {
        Tally { handled: AtomicU64::new(0), expected, complete: Notify::new() }
    }

    /// One more message is handled.
    pub fn count(&self) {
        self.add(1);
    }

    /// So many more messages are handled.
    pub fn add(&self, messages: u64) {
        let before = self.handled.fetch_add(messages, Ordering::Relaxed);
        if (before + 1..=before + messages).contains(&self.expected) {
            self.complete.notify_one();
        }
    }

    /// How many are handled so far.
    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Waits until all are handled; says how long it took since `start`, and how many there were.
    pub async fn completed(&self, start: Instant) -> (Duration, u64) {
        self.complete.notified().await;
        (start.elapsed(), self.handled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_as_large_as_asked_for_and_the_last_one_takes_the_rest() {
        let redis_url = String::new();
        let task = Task { redis_url, mode: Mode::EndToEnd, count: 250, body_bytes: 1, batch: None };
        assert_eq!(task.batches().collect::<Vec<_>>(), [100, 100, 50]);
        let task = Task { batch: Some(1000), ..task };
        assert_eq!(task.batches().collect::<Vec<_>>(), [250]);
    }

    #[tokio::test]
    async fn a_tally_is_complete_with_the_last_message_even_if_more_come_with_it() {
        let tally = Tally::of(10);
        tally.count();
        tally.add(8);
        tokio::select! {
            biased;
            _ = tally.completed(Instant::now()) => panic!("complete with nine of ten"),
            () = std::future::ready(()) => {}
        }
        tally.add(2);
        let (_, handled) = tally.completed(Instant::now()).await;
        assert_eq!(handled, 11, "too many are not hidden");
    }
}
