//! Messages that take a while: two worker processes, and a producer in a third one.
//!
//! The procedure is that of `estafeta bench work`. The workers work for a while before the measurement, and the time
//! that an idle server uses is subtracted. At the end the producer stops, and the workers have to handle everything that
//! it has put.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use estafeta_lab::quantile::quantile;
use estafeta_lab::server::{ServerReading, ServerUsage};
use serde::Deserialize;

use crate::catalogue::Queue;
use crate::children::{Children, ProcessGroup};
use crate::install::Installation;
use crate::measure::{PeerRunner, Sample};

pub const WORKERS: u64 = 2;
pub const SLOTS: u64 = 64;
pub const JOB_MS: u64 = 17;
/// About so many messages are in the queue or in work under full load.
pub const WAITING: u64 = 4_000;
/// The time from one message to the next, otherwise.
const PACE_MS: u64 = 2;

/// How often the runner asks the programs.
const TICK: Duration = Duration::from_millis(20);
/// How long a program may take to answer, and all messages to be handled at the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the server is watched without clients, at most.
const IDLE: Duration = Duration::from_secs(2);

/// How many messages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerLoad {
    /// More than the workers can handle.
    Full,
    /// One at a time, at an even pace.
    Paced,
}

impl PeerLoad {
    pub const ALL: [PeerLoad; 2] = [PeerLoad::Full, PeerLoad::Paced];

    /// Its name in the table.
    pub fn name(self) -> String {
        match self {
            PeerLoad::Full => "full".to_owned(),
            PeerLoad::Paced => format!("{}/s", 1000 / PACE_MS),
        }
    }

    /// The time between two messages that a producer keeps, or 0.
    fn every_ms(self) -> u64 {
        match self {
            PeerLoad::Full => 0,
            PeerLoad::Paced => PACE_MS,
        }
    }

    /// How many messages may have been put when so many are handled.
    fn allowance(self, handled: u64) -> u64 {
        match self {
            PeerLoad::Full => handled + WAITING,
            // A producer that keeps a pace needs no limit.
            PeerLoad::Paced => 1_000_000_000,
        }
    }

    /// How many messages are put before the workers start. A queue that limits itself may stop a little earlier.
    fn filled(self) -> u64 {
        match self {
            PeerLoad::Full => WAITING * 3 / 4,
            PeerLoad::Paced => 0,
        }
    }
}

/// Measures queues with messages that take a while.
pub struct WorkRunner<'a> {
    runner: &'a PeerRunner<'a>,
    installation: &'a Installation<'a>,
    length: Duration,
    body: usize,
    /// What the server uses while no client does anything.
    idle: ServerUsage,
}

impl<'a> WorkRunner<'a> {
    /// First watches the server without clients.
    pub fn new(
        runner: &'a PeerRunner<'a>,
        installation: &'a Installation<'a>,
        length: Duration,
        body: usize,
    ) -> Result<WorkRunner<'a>> {
        let mut connection = runner.connect()?;
        let before = ServerReading::take(&mut connection)?;
        std::thread::sleep(IDLE.min(length / 2));
        let idle = ServerReading::take(&mut connection)?.since(&before);
        Ok(WorkRunner { runner, installation, length, body, idle })
    }

    pub fn run(&self, queue: &Queue, load: PeerLoad) -> Result<Sample> {
        self.runner.flush()?;
        // What the programs of the run before have printed.
        File::create(self.stderr())?;
        let mut connection = self.runner.connect()?;
        let producer = ["producer".to_owned(), load.every_ms().to_string(), self.body.to_string()];
        let mut crew = Crew::new(load, self.start(queue, &producer)?);
        crew.fill()?;
        for _ in 0..WORKERS {
            let worker = ["worker".to_owned(), SLOTS.to_string(), JOB_MS.to_string()];
            crew.workers.push(RunningWorker { program: self.start(queue, &worker)?, handled: 0 });
        }
        crew.begin()?;
        crew.go_on(self.length / 5)?;

        crew.forget();
        let before = ServerReading::take(&mut connection)?;
        crew.go_on(self.length)?;
        let usage = ServerReading::take(&mut connection)?.since(&before).without_idle(&self.idle);
        crew.ask()?;
        let (mut waits, least_waiting) = (std::mem::take(&mut crew.waits), crew.least_waiting);
        let version = crew.finish(queue)?;

        let count = waits.len() as u64;
        ensure!(count > 0, "no message was handled in {} s", self.length.as_secs_f64());
        waits.sort_unstable();
        let wait = |share| quantile(&waits, share).map(|us| us as f64 / 1e3);
        Ok(Sample {
            version,
            runs: 1,
            count,
            seconds: usage.seconds,
            server_us: Some(usage.cpu_us(count)),
            commands: Some(usage.commands / count as f64),
            bytes_waiting: None,
            wait_p50_ms: wait(0.5),
            wait_p99_ms: wait(0.99),
            least_waiting: Some(least_waiting),
        })
    }

    fn start(&self, queue: &Queue, arguments: &[String]) -> Result<AnsweringProgram<'a>> {
        let mut command = self.installation.command(queue.program)?;
        command.args(arguments).env("REDIS_URL", self.runner.url());
        AnsweringProgram::start(self.runner.children(), command, self.stderr())
    }

    fn stderr(&self) -> PathBuf {
        self.runner.children().scratch().join("stderr")
    }
}

/// The producer and the workers of one run.
struct Crew<'a> {
    load: PeerLoad,
    producer: AnsweringProgram<'a>,
    workers: Vec<RunningWorker<'a>>,
    /// How many messages were put and handled in all.
    put: u64,
    handled: u64,
    /// Since the last call of `forget`: how long each handled message had waited, in microseconds, and the smallest
    /// number of messages that were in the queue or in work.
    waits: Vec<u64>,
    least_waiting: u64,
}

struct RunningWorker<'a> {
    program: AnsweringProgram<'a>,
    handled: u64,
}

/// The last line of a producer.
#[derive(Deserialize)]
struct ProducerReport {
    peer: String,
    version: String,
    put: u64,
}

impl<'a> Crew<'a> {
    fn new(load: PeerLoad, producer: AnsweringProgram<'a>) -> Crew<'a> {
        let workers = Vec::new();
        Crew { load, producer, workers, put: 0, handled: 0, waits: Vec::new(), least_waiting: u64::MAX }
    }

    /// Lets the producer put messages before the workers start.
    fn fill(&mut self) -> Result<()> {
        // The producer answers when it is ready, and a worker may need the queue that it has created.
        self.producer.ask("0")?;
        let start = Instant::now();
        while self.put < self.load.filled() {
            ensure!(start.elapsed() < PATIENCE, "after {} s, only {} were put", PATIENCE.as_secs(), self.put);
            self.allow()?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Waits until all workers are at work.
    fn begin(&mut self) -> Result<()> {
        // A worker answers when it is ready.
        self.ask()?;
        let start = Instant::now();
        while self.workers.iter().any(|worker| worker.handled == 0) {
            ensure!(start.elapsed() < PATIENCE, "a worker had nothing to do for {} s", PATIENCE.as_secs());
            self.go_on(TICK)?;
        }
        Ok(())
    }

    /// Keeps the producer supplied for so long.
    fn go_on(&mut self, length: Duration) -> Result<()> {
        let end = Instant::now() + length;
        loop {
            self.allow()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(TICK.min(left));
            self.ask()?;
        }
    }

    /// Begins a new measurement.
    fn forget(&mut self) {
        self.waits.clear();
        self.least_waiting = u64::MAX;
    }

    fn allow(&mut self) -> Result<()> {
        let answer = self.producer.ask(&self.load.allowance(self.handled).to_string())?;
        self.put = answer.parse().with_context(|| format!("expected a number, got {answer}"))?;
        self.least_waiting = self.least_waiting.min(self.put.saturating_sub(self.handled));
        Ok(())
    }

    /// Takes the waits of all workers since they were last asked.
    fn ask(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            worker.program.send("")?;
        }
        for worker in &mut self.workers {
            let answer = worker.program.answer()?;
            let waits: Vec<u64> =
                serde_json::from_str(&answer).with_context(|| format!("expected waits, got {answer}"))?;
            worker.handled += waits.len() as u64;
            self.handled += waits.len() as u64;
            self.waits.extend(waits);
        }
        Ok(())
    }

    /// Stops the producer, and waits until everything is handled. Returns the version of the queue.
    fn finish(mut self, queue: &Queue) -> Result<String> {
        let line = self.producer.end()?;
        let report: ProducerReport = serde_json::from_str(&line)
            .with_context(|| format!("expected the end of a producer, got {line}"))?;
        ensure!(report.peer == queue.name, "expected a producer of {}, got {line}", queue.name);
        let start = Instant::now();
        while self.handled < report.put && start.elapsed() < PATIENCE {
            std::thread::sleep(TICK);
            self.ask()?;
        }
        ensure!(self.handled == report.put, "{} messages were put, and {} handled", report.put, self.handled);
        Ok(report.version)
    }
}

/// A program that answers each line on its stdin with a line on its stdout.
struct AnsweringProgram<'a> {
    group: ProcessGroup<'a>,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
    stderr: PathBuf,
}

impl<'a> AnsweringProgram<'a> {
    fn start(children: &'a Children, mut command: Command, stderr: PathBuf) -> Result<AnsweringProgram<'a>> {
        let log = File::options().append(true).open(&stderr)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut group = children.start(command)?;
        let child = group.child.inner();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let (sender, answers) = channel();
        // It ends with the stdout of the program.
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(AnsweringProgram { group, stdin, answers, stderr })
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        self.answer()
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let mut stdin = self.stdin.as_ref().context("its stdin is closed")?;
        stdin.write_all(format!("{line}\n").as_bytes()).with_context(|| self.failure())
    }

    fn answer(&mut self) -> Result<String> {
        self.answers.recv_timeout(PATIENCE).with_context(|| self.failure())
    }

    /// Closes its stdin. Returns its last line.
    fn end(&mut self) -> Result<String> {
        self.stdin = None;
        let line = self.answer()?;
        let status = self.group.end()?;
        ensure!(status.success(), "{} ({status})", self.failure());
        Ok(line)
    }

    fn failure(&self) -> String {
        let printed = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        format!("a process of it failed; they printed:\n{printed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_load_follows_the_workers_and_a_pace_does_not() {
        assert_eq!(PeerLoad::ALL.map(PeerLoad::name), ["full", "500/s"]);
        assert_eq!(PeerLoad::Full.allowance(100), 4_100);
        assert!(
            PeerLoad::Full.filled() < PeerLoad::Full.allowance(0),
            "a queue that limits itself may stop earlier"
        );
        assert_eq!(
            (PeerLoad::Paced.allowance(0), PeerLoad::Paced.filled()),
            (PeerLoad::Paced.allowance(9), 0)
        );
    }
}
