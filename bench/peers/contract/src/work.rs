//! Workers whose messages take a while, and the producer that puts them.
//!
//! The runner asks each program by a line on stdin, and the program answers with a line on stdout. The end of stdin ends
//! the program.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use tokio::sync::{oneshot, watch};

use crate::{BATCH, number};

/// What a worker process has to do.
#[derive(Debug)]
pub struct WorkerTask {
    /// The server, which only this queue uses.
    pub redis_url: String,
    /// How many messages it may handle at the same time.
    pub slots: usize,
    job: PeerJob,
}

impl WorkerTask {
    /// Reads the arguments `SLOTS JOB_MS`.
    pub(crate) fn parse(redis_url: String, arguments: &[&str]) -> Result<WorkerTask> {
        let [slots, job] = arguments else { bail!("expected worker SLOTS JOB_MS") };
        let length = Duration::from_millis(number("a time in milliseconds", job)?);
        let job = PeerJob { length, waits: Arc::default() };
        Ok(WorkerTask { redis_url, slots: number("a number of slots", slots)?, job })
    }

    /// The work that every message takes.
    pub fn job(&self) -> PeerJob {
        self.job.clone()
    }

    /// Answers the runner while the worker works. Returns at the end of stdin. Fails if the worker ends first.
    ///
    /// Call it when the worker is ready, because the first answer tells the runner so.
    pub async fn answer_while(&self, working: impl Future<Output = Result<()>>) -> Result<()> {
        let (job, (end, ended)) = (self.job(), oneshot::channel());
        // The thread is never joined, because its read may block. It ends with the process.
        std::thread::spawn(move || {
            let _ = end.send(job.answer(std::io::stdin().lock(), std::io::stdout()));
        });
        tokio::select! {
            outcome = working => {
                outcome?;
                bail!("the worker ended too early")
            }
            answered = ended => answered?,
        }
    }
}

/// The work that every message takes, and how long each handled message has waited for it.
#[derive(Clone, Debug)]
pub struct PeerJob {
    length: Duration,
    waits: Arc<Mutex<Vec<u64>>>,
}

impl PeerJob {
    /// Handles one message. Its body holds the time at which it was put.
    pub async fn handle(&self, body: &[u8]) -> Result<()> {
        let stamp: u64 = std::str::from_utf8(body)?.parse().context("expected a time in the body")?;
        let wait = now_us().saturating_sub(stamp);
        tokio::time::sleep(self.length).await;
        self.waits.lock().expect("no panic while held").push(wait);
        Ok(())
    }

    /// Answers each line with the waits, in microseconds, of the messages that were handled since the line before.
    fn answer(&self, input: impl BufRead, mut output: impl Write) -> Result<()> {
        for line in input.lines() {
            line?;
            let waits = std::mem::take(&mut *self.waits.lock().expect("no panic while held"));
            writeln!(output, "{}", serde_json::json!(waits))?;
            output.flush()?;
        }
        Ok(())
    }
}

/// What the producer has to do.
#[derive(Debug)]
pub struct ProducerTask {
    /// The server, which only this queue uses.
    pub redis_url: String,
    /// The time from one message to the next. None if the producer puts as many messages as the runner allows.
    pub every: Option<Duration>,
    body_bytes: usize,
}

/// What the runner allows a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// How many messages may have been put in all.
    pub total: u64,
    /// The producer should put no more messages.
    pub ended: bool,
}

impl ProducerTask {
    /// Reads the arguments `EVERY_MS BODY_BYTES`.
    pub(crate) fn parse(redis_url: String, arguments: &[&str]) -> Result<ProducerTask> {
        let [every, body_bytes] = arguments else { bail!("expected producer EVERY_MS BODY_BYTES") };
        let every = Duration::from_millis(number("a time in milliseconds", every)?);
        let every = (!every.is_zero()).then_some(every);
        Ok(ProducerTask { redis_url, every, body_bytes: number("a number of bytes", body_bytes)? })
    }

    /// Returns a body that holds the current time.
    pub fn body(&self) -> String {
        format!("{:0bytes$}", now_us(), bytes = self.body_bytes)
    }

    /// Puts messages until the end of stdin: one at a time if there is a pace, and otherwise in batches. `put` gets the
    /// bodies of each call.
    pub async fn produce(
        &self,
        peer: &str,
        version: &str,
        mut put: impl AsyncFnMut(Vec<String>) -> Result<()>,
    ) -> Result<()> {
        let done = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&done);
        let mut allowance = self.allowance(move || counted.load(Ordering::Relaxed));
        allowance.wait_for(|allowed| allowed.ended || allowed.total > 0).await?;
        let mut ticks = self.every.map(tokio::time::interval);
        loop {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            let so_far = done.load(Ordering::Relaxed);
            let allowed = *allowance.wait_for(|allowed| allowed.ended || allowed.total > so_far).await?;
            if allowed.ended {
                return report_put(peer, version, so_far);
            }
            let most = if ticks.is_some() { 1 } else { BATCH };
            let batch = most.min(allowed.total - so_far);
            put((0..batch).map(|_| self.body()).collect()).await?;
            done.fetch_add(batch, Ordering::Relaxed);
        }
    }

    /// Reads stdin from now on. Each line is a number of messages that may have been put in all. The answer is the number
    /// that have been put, which `put` returns.
    pub fn allowance(&self, put: impl Fn() -> u64 + Send + 'static) -> watch::Receiver<Allowance> {
        let (sender, receiver) = watch::channel(Allowance::default());
        // The thread is never joined, because its read may block. It ends with the process.
        std::thread::spawn(move || {
            // A runner that is gone, or sends nonsense, ends the producer too.
            let _ = follow(std::io::stdin().lock(), std::io::stdout(), &sender, put);
            sender.send_modify(|allowed| allowed.ended = true);
        });
        receiver
    }
}

/// Prints how many messages were put in all, as the last answer of a producer.
pub fn report_put(peer: &str, version: &str, put: u64) -> Result<()> {
    let line = serde_json::json!({"peer": peer, "version": version, "put": put});
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

fn follow(
    input: impl BufRead,
    mut output: impl Write,
    allowance: &watch::Sender<Allowance>,
    put: impl Fn() -> u64,
) -> Result<()> {
    for line in input.lines() {
        let total = number("a number of messages", &line?)?;
        allowance.send_modify(|allowed| allowed.total = total);
        writeln!(output, "{}", put())?;
        output.flush()?;
    }
    Ok(())
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_reports_each_wait_once_and_after_the_work() {
        let task = WorkerTask::parse(String::new(), &["64", "5"]).unwrap();
        let producer = ProducerTask::parse(String::new(), &["2", "64"]).unwrap();
        let (job, start) = (task.job(), std::time::Instant::now());
        let body = producer.body();
        assert_eq!(body.len(), 64);
        job.handle(body.as_bytes()).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(5), "{:?}", start.elapsed());
        assert!(job.handle(b"nonsense").await.is_err());

        let mut answers = Vec::new();
        job.answer(&b"\n\n"[..], &mut answers).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        let answers: Vec<Vec<u64>> =
            answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
        assert!(answers[0][0] < 60_000_000, "{answers:?}");
    }

    #[test]
    fn a_producer_learns_what_it_may_put_and_answers_what_it_has_put() {
        let (sender, receiver) = watch::channel(Allowance::default());
        let mut answers = Vec::new();
        follow(&b"100\n250\n"[..], &mut answers, &sender, || 7).unwrap();
        assert_eq!(answers, b"7\n7\n");
        assert_eq!(*receiver.borrow(), Allowance { total: 250, ended: false });
        assert!(follow(&b"many\n"[..], &mut answers, &sender, || 7).is_err());
    }
}
