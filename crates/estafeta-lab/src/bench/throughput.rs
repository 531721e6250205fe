//! Messages per second, and the cost of each to Redis: end to end, from a full queue, with an append-only file, and
//! with few or many messages waiting. The floor is measured beside them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use estafeta::{Config, Generate, RingName};
use tokio::time::sleep;

use super::crew::{ConstantSource, RunningMember, SteadySource, Tally, finish, idle_node, until};
use super::env::{self, BenchEnv};
use super::floor;
use super::plot::Panel;
use super::table::{Cell, Table, column};
use super::{Bench, BenchOptions};
use crate::server::ServerUsage;
use crate::text::{counted, grouped};

/// The most messages in one step: the default of the library, and a modest number.
const BATCHES: [usize; 2] = [1000, 100];
/// How many messages wait, and in which batches, to show whether a message costs more when more of them wait. Small
/// batches are possible even if few messages wait.
const FEW: u64 = 100;
const FEW_BATCH: usize = 25;
/// How long the last step of a generator may take after its source is exhausted.
const LAST_STEP: Duration = Duration::from_millis(100);

/// The figures of one measurement.
pub struct Flow {
    pub per_second: f64,
    /// Server time per message, in microseconds.
    pub cpu_us: f64,
    pub commands: f64,
    /// Redis memory per waiting message.
    pub bytes: Option<f64>,
}

impl Flow {
    pub fn new(messages: u64, seconds: f64, span: &ServerUsage) -> Self {
        let each = |value: f64| value / messages as f64;
        Self {
            per_second: messages as f64 / seconds,
            cpu_us: span.cpu_us(messages),
            commands: each(span.commands),
            bytes: None,
        }
    }

    fn mean(&self, other: &Self) -> Self {
        let mean = |figure: fn(&Self) -> f64| f64::midpoint(figure(self), figure(other));
        Self {
            per_second: mean(|flow| flow.per_second),
            cpu_us: mean(|flow| flow.cpu_us),
            commands: mean(|flow| flow.commands),
            bytes: None,
        }
    }
}

pub fn steps(options: &BenchOptions) -> usize {
    if options.redis.is_none() { 14 } else { 10 }
}

/// The rows so far.
struct Rows<'a> {
    env: &'a BenchEnv<'a>,
    /// Whether the server keeps an append-only file in its original configuration, as `on` or `off`.
    file: &'static str,
    rows: Vec<Vec<Cell>>,
}

impl Rows<'_> {
    fn begin(&self, what: &str, batch: usize, file: &str) {
        let file = if file == "off" { String::new() } else { format!(", file {file}") };
        self.env.step(&format!("throughput: {what}, batches of {}{file}", grouped(batch as u64)));
    }

    fn add(&mut self, what: &str, batch: usize, file: &str, flow: &Flow, floor: Option<&Flow>) {
        self.rows.push(vec![
            what.into(),
            batch.into(),
            file.into(),
            flow.per_second.into(),
            floor.map(|floor| flow.per_second / floor.per_second).into(),
            flow.cpu_us.into(),
            flow.commands.into(),
            flow.bytes.into(),
        ]);
    }

    /// Measures one half of the floor before and one half after, because the speed of a shared machine changes.
    async fn end_to_end(&mut self, batch: usize, file: &str) -> Result<()> {
        let (env, half) = (self.env, self.env.options.length / 2);
        self.begin("floor, push and pop", batch, file);
        let before = floor::push_and_pop(env, batch, half).await?;
        self.begin("end to end", batch, file);
        let flow = end_to_end(env, batch).await?;
        let floor = before.mean(&floor::push_and_pop(env, batch, half).await?);
        self.add("floor, push and pop", batch, file, &floor, None);
        self.add("end to end", batch, file, &flow, Some(&floor));
        Ok(())
    }

    async fn consume(&mut self, batch: usize) -> Result<()> {
        self.begin("floor, pop", batch, self.file);
        let floor = floor::pop(self.env, batch).await?;
        self.add("floor, pop", batch, self.file, &floor, None);
        self.begin("consume", batch, self.file);
        let flow = consume(self.env, batch).await?;
        self.add("consume", batch, self.file, &flow, Some(&floor));
        Ok(())
    }

    async fn at_level(&mut self, waiting: u64) -> Result<()> {
        self.begin(&format!("{} waiting", grouped(waiting)), FEW_BATCH, self.file);
        let (flow, level) = at_level(self.env, waiting).await?;
        self.add(&format!("with {} waiting", grouped(level)), FEW_BATCH, self.file, &flow, None);
        Ok(())
    }
}

pub async fn run(env: &BenchEnv<'_>) -> Result<Table> {
    let options = env.options;
    let file = if env.server.keeps_file().await? { "on" } else { "off" };
    let mut rows = Rows { env, file, rows: Vec::new() };
    for batch in BATCHES {
        rows.end_to_end(batch, file).await?;
    }
    for batch in BATCHES {
        rows.consume(batch).await?;
    }
    for waiting in [FEW, options.messages.max(FEW)] {
        rows.at_level(waiting).await?;
    }
    if options.redis.is_none() {
        for sync in ["everysec", "always"] {
            env.server.append_only(Some(sync)).await?;
            rows.end_to_end(BATCHES[0], sync).await?;
        }
        env.server.append_only(None).await?;
    }
    let (handlers, lanes) =
        (counted(options.handlers as u64, "handler"), counted(options.concurrency as u64, "lane"));
    Ok(Table {
        bench: Bench::Throughput,
        title: format!(
            "one generator, {handlers} with {lanes} that do nothing, bodies of {} bytes",
            grouped(options.body as u64)
        ),
        columns: vec![
            column("what", "what", 0),
            column("batch", "batch", 0),
            column("appendOnly", "AOF", 0),
            column("messagesPerS", "messages/s", 0),
            column("ofFloor", "of floor", 2),
            column("serverUsPerMessage", "server us", 2),
            column("commandsPerMessage", "commands", 3),
            column("bytesPerWaitingMessage", "bytes waiting", 1),
        ],
        keys: 3,
        rows: rows.rows,
        notes: [
            "floor: RPUSH and LPOP of as many messages by the same client, with no promise at all.",
            "with N waiting: publishing and handling together; the better of two measurements.",
            "batch: the most messages in one step.",
            "AOF: the append-only file of Redis. Bench never changes the settings of a server that you name.",
            "server us, commands: what one message costs Redis, including commands inside scripts.",
            "bytes waiting: the memory of one waiting message.",
        ]
        .map(str::to_owned)
        .into(),
        panels: vec![Panel::Bars("messagesPerS"), Panel::Bars("serverUsPerMessage")],
    })
}

fn settings(env: &BenchEnv<'_>, ring: &RingName, batch: usize) -> Config {
    let mut config = Config::new(env.endpoint.clone(), ring.clone());
    config.interval = Duration::ZERO;
    config.max_batch = batch;
    config.concurrency = env.options.concurrency;
    config.generator_handles = false;
    config
}

/// Starts a member that takes office at once, because it is the first of its ring.
async fn generator(config: Config, what: impl Generate, tally: &Arc<Tally>) -> Result<RunningMember> {
    let member = RunningMember::start(idle_node(config, tally, what))?;
    until(std::slice::from_ref(&member), || tally.in_office(), 1, "a generator").await?;
    Ok(member)
}

fn constant(env: &BenchEnv<'_>) -> impl Generate {
    ConstantSource::new(env.options.body).every(Duration::ZERO)
}

fn handlers(env: &BenchEnv<'_>, config: &Config, tally: &Arc<Tally>) -> Result<Vec<RunningMember>> {
    let source = ConstantSource::new(env.options.body);
    let start = |_| {
        let source = source.clone().every(config.interval);
        RunningMember::start(idle_node(config.clone(), tally, source))
    };
    (0..env.options.handlers).map(start).collect()
}

/// Measures the flow of messages for a while. The members are already at work.
async fn watch(env: &BenchEnv<'_>, count: impl Fn() -> u64) -> Result<Flow> {
    sleep(env.options.length / 10).await;
    let (before, from) = (env.server.reading().await?, count());
    sleep(env.options.length).await;
    let (after, to) = (env.server.reading().await?, count());
    let span = after.since(&before);
    Ok(Flow::new((to - from).max(1), span.seconds, &span))
}

async fn end_to_end(env: &BenchEnv<'_>, batch: usize) -> Result<Flow> {
    let (ring, tally) = (env.ring()?, Tally::new());
    let config = settings(env, &ring, batch);
    let mut members = vec![generator(config.clone(), constant(env), &tally).await?];
    members.extend(handlers(env, &config, &tally)?);
    until(&members, || tally.settled(), 1, "the first message").await?;
    let flow = watch(env, || tally.settled()).await?;
    finish(members).await?;
    env.erase(&ring).await?;
    Ok(flow)
}

/// A queue that was filled before any member handles: its idle generator, how many messages wait, and the memory per
/// message.
struct Filled {
    generator: RunningMember,
    waiting: u64,
    bytes: f64,
}

/// Fills a queue with the wanted number of messages, or with as many as the time allows. Small batches are slow.
async fn fill(env: &BenchEnv<'_>, config: &Config, wanted: u64) -> Result<Filled> {
    let (tally, source) = (Tally::new(), ConstantSource::new(env.options.body));
    // A batch is at most a quarter of the room, so the room is four times the wanted number.
    let mut config = config.clone();
    (config.max_waiting, config.limit) = (wanted * 4, Some(wanted));
    let queue = env::key(&config.ring, "ready");
    let generator = generator(config, source.clone().every(Duration::ZERO), &tally).await?;
    let start = Instant::now();
    while tally.generated() < wanted && start.elapsed() < 2 * env.options.length {
        sleep(Duration::from_millis(1)).await;
    }
    source.exhaust();
    sleep(LAST_STEP).await;
    until(std::slice::from_ref(&generator), || tally.generated(), 1, "the first message").await?;
    let waiting = tally.generated();
    let bytes = env.server.memory_of(&queue).await? / waiting as f64;
    Ok(Filled { generator, waiting, bytes })
}

async fn consume(env: &BenchEnv<'_>, batch: usize) -> Result<Flow> {
    let (ring, tally) = (env.ring()?, Tally::new());
    let config = settings(env, &ring, batch);
    let filled = fill(env, &config, env.options.messages).await?;
    let before = env.server.reading().await?;
    let mut members = vec![filled.generator];
    members.extend(handlers(env, &config, &tally)?);
    until(&members, || tally.settled(), filled.waiting, "the queue to be empty").await?;
    let span = env.server.reading().await?.since(&before);
    finish(members).await?;
    env.erase(&ring).await?;
    let flow = Flow::new(filled.waiting, tally.settling().as_secs_f64(), &span);
    Ok(Flow { bytes: Some(filled.bytes), ..flow })
}

/// Measures while the queue stays at a level. Also returns that level.
async fn at_level(env: &BenchEnv<'_>, waiting: u64) -> Result<(Flow, u64)> {
    let (ring, tally) = (env.ring()?, Tally::new());
    let full = fill(env, &settings(env, &ring, FEW_BATCH), waiting).await?;
    full.generator.finish().await?;
    let level = full.waiting;
    let mut config = settings(env, &ring, FEW_BATCH);
    config.max_waiting = level + BATCHES[0] as u64;
    let (body, batch) = (vec![b'x'; env.options.body].into(), FEW_BATCH as u64);
    let steady = SteadySource { body, batch, ahead: FEW, tally: Arc::clone(&tally), made: 0 };
    let mut members = vec![generator(config.clone(), steady, &tally).await?];
    members.extend(handlers(env, &config, &tally)?);
    until(&members, || tally.settled(), FEW, "the first messages").await?;
    // Two levels are compared, so an outside disturbance should not affect only one of them. The better of two
    // measurements counts.
    let (one, other) = (watch(env, || tally.settled()).await?, watch(env, || tally.settled()).await?);
    finish(members).await?;
    env.erase(&ring).await?;
    Ok((if one.cpu_us <= other.cpu_us { one } else { other }, level))
}
