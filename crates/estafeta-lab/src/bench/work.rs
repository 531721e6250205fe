//! The cost of real work: two worker processes with 64 lanes each, and messages that take 17 ms. Raw Redis Streams do
//! the same work in the same run.
//!
//! With jobs of this length, a server spends little time on each message. So its fixed costs count: scripts under full
//! load, and wake-ups at a low rate.
//!
//! Bench measures one half of raw Streams before the ring and one half after it, because the speed of a shared machine
//! changes. It subtracts what the server uses while no client does anything.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use estafeta::{Config, RingName, every};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::unix::pipe::Receiver;
use tokio::time::sleep;

use super::Bench;
use super::crew::{RunningMember, Tally, idle_node, until};
use super::env::{BenchEnv, floor_key};
use super::nodes::{PATIENCE, last_line, log};
use super::plot::Panel;
use super::streams;
use super::table::{Cell, Table, column};
use super::worker::{JOB, LANES, Waits, WorkerKind, stamped_body};
use crate::child_process::{self, ChildProcess};
use crate::server::ServerUsage;

const WORKERS: usize = 2;
/// How often to check whether every worker has begun.
const POLL: Duration = Duration::from_millis(10);

/// How long the server is watched without clients, at most.
const IDLE: Duration = Duration::from_secs(2);

/// How many messages come.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// More than the workers can handle: about this many always wait.
    Full { max_waiting: u64 },
    /// One in this time.
    Every(Duration),
}

const LOADS: [(&str, Load); 2] =
    [("full", Load::Full { max_waiting: 10_000 }), ("500/s", Load::Every(Duration::from_millis(2)))];

pub const STEPS: usize = 1 + 3 * LOADS.len();

pub async fn run(env: &BenchEnv<'_>) -> Result<Table> {
    let (length, mut rows) = (env.options.length, Vec::new());
    env.step("work: a server without clients");
    let before = env.server.reading().await?;
    sleep(IDLE.min(length / 2)).await;
    let idle = env.server.reading().await?.since(&before);
    for (name, load) in LOADS {
        env.step(&format!("work: raw Streams, load {name}"));
        let before = on_streams(env, load, length / 2).await?;
        env.step(&format!("work: estafeta, load {name}"));
        let ring = on_ring(env, load, length).await?;
        env.step(&format!("work: raw Streams again, load {name}"));
        let streams = before.and(&on_streams(env, load, length / 2).await?);
        let (ring_us, streams_us) = (ring.cpu_us(&idle), streams.cpu_us(&idle));
        rows.push(streams.row(name, "raw Streams", streams_us, Cell::Missing));
        rows.push(ring.row(name, "estafeta", ring_us, (ring_us / streams_us).into()));
    }
    Ok(Table {
        bench: Bench::Work,
        title: format!(
            "messages that take {} ms, {WORKERS} worker processes with {LANES} lanes each",
            JOB.as_millis()
        ),
        columns: vec![
            column("load", "load", 0),
            column("what", "what", 0),
            column("messagesPerS", "messages/s", 0),
            column("serverUsPerMessage", "server us", 1),
            column("ofStreams", "of Streams", 2),
            column("commandsPerMessage", "commands", 2),
            column("waitP50Ms", "p50 ms", 2),
            column("waitP99Ms", "p99 ms", 2),
        ],
        keys: 2,
        rows,
        notes: [
            "server us, commands: what one message costs Redis, without what an idle server uses.",
            "of Streams: server us, compared with raw Streams in the same run.",
            "p50, p99: from publishing to the start of handling. Under full load, that is the length of the queue.",
        ]
        .map(str::to_owned)
        .into(),
        panels: vec![Panel::Bars("serverUsPerMessage")],
    })
}

/// What was measured with one kind of workers.
struct Measured {
    usage: ServerUsage,
    waits: Waits,
}

impl Measured {
    fn and(mut self, other: &Self) -> Self {
        self.usage = self.usage.and(&other.usage);
        self.waits.merge(&other.waits);
        self
    }

    /// Server time per message in microseconds, without what the idle server uses.
    fn cpu_us(&self, idle: &ServerUsage) -> f64 {
        self.usage.without_idle(idle).cpu * 1e6 / self.messages()
    }

    fn messages(&self) -> f64 {
        self.waits.count().max(1) as f64
    }

    fn row(&self, load: &str, what: &str, cpu_us: f64, of_streams: Cell) -> Vec<Cell> {
        vec![
            load.into(),
            what.into(),
            (self.messages() / self.usage.seconds).into(),
            cpu_us.into(),
            of_streams,
            (self.usage.commands / self.messages()).into(),
            self.waits.quantile_ms(0.5).into(),
            self.waits.quantile_ms(0.99).into(),
        ]
    }
}

/// The generator is in this process, and only generates.
async fn on_ring(env: &BenchEnv<'_>, load: Load, length: Duration) -> Result<Measured> {
    let (name, tally) = (env.ring()?, Tally::new());
    let mut config = Config::new(env.endpoint.clone(), name.clone());
    config.never_handle = true;
    match load {
        Load::Full { max_waiting } => (config.interval, config.max_waiting) = (Duration::ZERO, max_waiting),
        Load::Every(time) => config.interval = time,
    }
    let body = env.options.body;
    let stamps = every(config.interval, move || async move { Ok(Bytes::from(stamped_body(body))) });
    let generator = RunningMember::start(idle_node(config, &tally, stamps))?;
    until(std::slice::from_ref(&generator), || tally.in_office(), 1, "a generator").await?;
    let workers = WorkerProcesses::start(env, &name, WorkerKind::Node)?;
    let measured = workers.measure(env, length).await?;
    generator.finish().await?;
    env.erase(&name).await?;
    Ok(measured)
}

async fn on_streams(env: &BenchEnv<'_>, load: Load, length: Duration) -> Result<Measured> {
    let name = env.ring()?;
    let stream = floor_key(&name);
    streams::create(&env.endpoint, &stream).await?;
    let workers = WorkerProcesses::start(env, &name, WorkerKind::Streams)?;
    let measured = tokio::select! {
        measured = workers.measure(env, length) => measured?,
        ended = streams::produce(&env.endpoint, &stream, load, env.options.body) => {
            ended?;
            bail!("the client that adds entries ended");
        }
    };
    env.erase(&name).await?;
    Ok(measured)
}

/// The worker processes of one measurement. Dropping this value kills them.
struct WorkerProcesses(Vec<WorkerProcess>);

struct WorkerProcess {
    /// Killed when dropped.
    _child: ChildProcess,
    stdin: ChildStdin,
    answers: Lines<BufReader<Receiver>>,
}

impl WorkerProcesses {
    fn start(env: &BenchEnv<'_>, name: &RingName, kind: WorkerKind) -> Result<Self> {
        let start = |_| {
            let mut command = child_process::this_program(name, &env.endpoint.secret_url())?;
            command.args(["bench-worker", kind.name()]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.stderr(File::options().append(true).create(true).open(log(env))?);
            let mut child = ChildProcess::spawn(command).context("cannot start a worker")?;
            let stdin = child.inner().stdin.take().context("a worker without stdin")?;
            let stdout = child.inner().stdout.take().context("a worker without stdout")?;
            let answers = BufReader::new(Receiver::from_owned_fd(OwnedFd::from(stdout))?).lines();
            Ok(WorkerProcess { _child: child, stdin, answers })
        };
        (0..WORKERS).map(start).collect::<Result<_>>().map(Self)
    }

    /// Measures as soon as all of the workers are at work. Ends them afterwards.
    async fn measure(mut self, env: &BenchEnv<'_>, length: Duration) -> Result<Measured> {
        let (start, mut begun) = (Instant::now(), [false; WORKERS]);
        while begun.contains(&false) {
            if start.elapsed() > PATIENCE {
                bail!("waited {} s for the first messages; {}", PATIENCE.as_secs(), last_line(&log(env)));
            }
            sleep(POLL).await;
            for (begun, waits) in begun.iter_mut().zip(self.ask(env).await?) {
                *begun |= waits.count() > 0;
            }
        }
        sleep(length / 5).await;
        self.ask(env).await?;
        let before = env.server.reading().await?;
        sleep(length).await;
        let usage = env.server.reading().await?.since(&before);
        let mut waits = Waits::default();
        self.ask(env).await?.iter().for_each(|one| waits.merge(one));
        Ok(Measured { usage, waits })
    }

    /// Returns the waits of each worker since the last call.
    async fn ask(&mut self, env: &BenchEnv<'_>) -> Result<Vec<Waits>> {
        let gone = || format!("a worker exited unexpectedly; {}", last_line(&log(env)));
        for worker in &mut self.0 {
            worker.stdin.write_all(b"\n").with_context(gone)?;
        }
        let mut all = Vec::new();
        for worker in &mut self.0 {
            let answer = tokio::time::timeout(PATIENCE, worker.answers.next_line()).await;
            let answer = answer.context("a worker does not answer")??.with_context(gone)?;
            all.push(serde_json::from_str(&answer).context("not an answer of a worker")?);
        }
        Ok(all)
    }
}
