//! Messages a second, and what each costs Redis: end to end, worked off from a full queue, with its file on disk, and with
//! few or many messages waiting; beside the floor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use estafeta::{Config, Node, RingName, Source};
use tokio::time::sleep;

use super::crew::{Ear, Feed, Hand, Nothing, Steady, Tally, finish, until};
use super::floor;
use super::plot::Panel;
use super::server::Span;
use super::stand::Stand;
use super::table::{Cell, Table, column};
use super::{Bench, Order};
use crate::output::{counted, grouped};

/// What may travel in one step: as much as the library takes by itself, and a modest number.
const BATCHES: [usize; 2] = [1000, 100];
/// Whether a message costs more where more wait is seen in small batches, which there are with few waiting, too.
const FEW: u64 = 100;
const FEW_BATCH: usize = 25;
/// How long a generator that was told to pause may still be busy with its last step.
const LAST_STEP: Duration = Duration::from_millis(100);

/// What was measured over some time.
pub struct Flow {
    pub per_second: f64,
    /// Server time a message, in microseconds.
    pub cpu_us: f64,
    pub commands: f64,
    /// Redis memory for each waiting message.
    pub bytes: Option<f64>,
}

impl Flow {
    pub fn new(messages: u64, seconds: f64, span: &Span) -> Self {
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

pub fn steps(order: &Order) -> usize {
    if order.redis.is_none() { 14 } else { 10 }
}

/// The rows so far, and the floors to compare them with.
struct Rows<'a> {
    stand: &'a Stand<'a>,
    /// Whether the server as it is keeps an append-only file.
    file: &'static str,
    rows: Vec<Vec<Cell>>,
}

impl Rows<'_> {
    fn begin(&self, what: &str, batch: usize, file: &str) {
        let file = if file == "off" { String::new() } else { format!(", file {file}") };
        self.stand.step(&format!("throughput: {what}, batches of {}{file}", grouped(batch as u64)));
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

    /// With half of the floor before and half of it after: a machine that others use is not the same for long.
    async fn end_to_end(&mut self, batch: usize, file: &str) -> Result<()> {
        let (stand, half) = (self.stand, self.stand.order.length / 2);
        self.begin("floor, push and pop", batch, file);
        let before = floor::push_and_pop(stand, batch, half).await?;
        self.begin("end to end", batch, file);
        let flow = end_to_end(stand, batch).await?;
        let floor = before.mean(&floor::push_and_pop(stand, batch, half).await?);
        self.add("floor, push and pop", batch, file, &floor, None);
        self.add("end to end", batch, file, &flow, Some(&floor));
        Ok(())
    }

    async fn consume(&mut self, batch: usize) -> Result<()> {
        self.begin("floor, pop", batch, self.file);
        let floor = floor::pop(self.stand, batch).await?;
        self.add("floor, pop", batch, self.file, &floor, None);
        self.begin("consume", batch, self.file);
        let flow = consume(self.stand, batch).await?;
        self.add("consume", batch, self.file, &flow, Some(&floor));
        Ok(())
    }

    async fn at_level(&mut self, waiting: u64) -> Result<()> {
        self.begin(&format!("{} waiting", grouped(waiting)), FEW_BATCH, self.file);
        let (flow, level) = at_level(self.stand, waiting).await?;
        self.add(&format!("with {} waiting", grouped(level)), FEW_BATCH, self.file, &flow, None);
        Ok(())
    }
}

pub async fn run(stand: &Stand<'_>) -> Result<Table> {
    let order = stand.order;
    let file = if stand.server.keeps_file().await? { "on" } else { "off" };
    let mut rows = Rows { stand, file, rows: Vec::new() };
    for batch in BATCHES {
        rows.end_to_end(batch, file).await?;
    }
    for batch in BATCHES {
        rows.consume(batch).await?;
    }
    for waiting in [FEW, order.messages.max(FEW)] {
        rows.at_level(waiting).await?;
    }
    if order.redis.is_none() {
        for sync in ["everysec", "always"] {
            stand.server.append_only(Some(sync)).await?;
            rows.end_to_end(BATCHES[0], sync).await?;
        }
        stand.server.append_only(None).await?;
    }
    let (handlers, lanes) =
        (counted(order.handlers as u64, "handler"), counted(order.concurrency as u64, "lane"));
    Ok(Table {
        bench: Bench::Throughput,
        title: format!("one generator, {handlers} with {lanes} that do nothing, bodies of {} bytes", order.body),
        columns: vec![
            column("what", "what", 0),
            column("batch", "batch", 0),
            column("append_only", "AOF", 0),
            column("messages_per_s", "messages/s", 0),
            column("of_floor", "of floor", 2),
            column("server_us_per_message", "server us", 2),
            column("commands_per_message", "commands", 3),
            column("bytes_per_waiting_message", "bytes waiting", 1),
        ],
        rows: rows.rows,
        notes: vec![
            "AOF: with which append-only file; a server that was named is left as it is. \
             floor: RPUSH and LPOP of as many by the same client, with no promise at all; \
             batch: the most in one step; server us and commands: of Redis for one message, scripts included; \
             with so many waiting: publishing and handling together, the better of two"
                .to_owned(),
        ],
        panels: vec![Panel::Bars("messages_per_s"), Panel::Bars("server_us_per_message")],
    })
}

fn settings(stand: &Stand<'_>, ring: &RingName, batch: usize) -> Config {
    let mut config = Config::new(stand.endpoint.clone(), ring.clone());
    config.interval = Duration::ZERO;
    config.max_batch = batch;
    config.concurrency = stand.order.concurrency;
    config
}

/// A member that takes office at once, as the first of its ring.
async fn generator(config: Config, source: impl Source, tally: &Arc<Tally>) -> Result<Hand> {
    let hand = Hand::start(Node::new(config, source, Nothing, Ear(Arc::clone(tally))))?;
    until(std::slice::from_ref(&hand), || tally.in_office(), 1, "a generator").await?;
    Ok(hand)
}

fn handlers(stand: &Stand<'_>, config: &Config, tally: &Arc<Tally>) -> Result<Vec<Hand>> {
    let feed = Feed::new(stand.order.body);
    let start = |_| Hand::start(Node::new(config.clone(), feed.clone(), Nothing, Ear(Arc::clone(tally))));
    (0..stand.order.handlers).map(start).collect()
}

/// Measures for a while how messages flow that others have set going.
async fn watch(stand: &Stand<'_>, count: impl Fn() -> u64) -> Result<Flow> {
    sleep(stand.order.length / 10).await;
    let (before, from) = (stand.server.reading().await?, count());
    sleep(stand.order.length).await;
    let (after, to) = (stand.server.reading().await?, count());
    let span = after.since(&before);
    Ok(Flow::new((to - from).max(1), span.seconds, &span))
}

async fn end_to_end(stand: &Stand<'_>, batch: usize) -> Result<Flow> {
    let (ring, tally) = (stand.ring()?, Tally::new());
    let config = settings(stand, &ring, batch);
    let mut hands = vec![generator(config.clone(), Feed::new(stand.order.body), &tally).await?];
    hands.extend(handlers(stand, &config, &tally)?);
    until(&hands, || tally.settled(), 1, "the first message").await?;
    let flow = watch(stand, || tally.settled()).await?;
    finish(hands).await?;
    stand.erase(&ring).await?;
    Ok(flow)
}

/// A queue that was filled before anybody handles: its generator, which rests, how many wait, and the memory of each.
struct Filled {
    generator: Hand,
    waiting: u64,
    bytes: f64,
}

/// Fills a queue with the wanted number of messages, or as many as there is time for: small batches take their time.
async fn fill(stand: &Stand<'_>, config: &Config, wanted: u64) -> Result<Filled> {
    let (tally, feed) = (Tally::new(), Feed::new(stand.order.body));
    // Four times the room: a batch is never more than a quarter of it.
    let config = Config { max_waiting: wanted * 4, limit: Some(wanted), ..config.clone() };
    let queue = format!("{{{}}}:ready", config.ring);
    let generator = generator(config, feed.clone(), &tally).await?;
    let start = Instant::now();
    while tally.generated() < wanted && start.elapsed() < 2 * stand.order.length {
        sleep(Duration::from_millis(1)).await;
    }
    feed.dry_up();
    sleep(LAST_STEP).await;
    until(std::slice::from_ref(&generator), || tally.generated(), 1, "the first message").await?;
    let waiting = tally.generated();
    let bytes = stand.server.memory_of(&queue).await? / waiting as f64;
    Ok(Filled { generator, waiting, bytes })
}

async fn consume(stand: &Stand<'_>, batch: usize) -> Result<Flow> {
    let (ring, tally) = (stand.ring()?, Tally::new());
    let config = settings(stand, &ring, batch);
    let filled = fill(stand, &config, stand.order.messages).await?;
    let before = stand.server.reading().await?;
    let mut hands = vec![filled.generator];
    hands.extend(handlers(stand, &config, &tally)?);
    until(&hands, || tally.settled(), filled.waiting, "the queue to be empty").await?;
    let span = stand.server.reading().await?.since(&before);
    finish(hands).await?;
    stand.erase(&ring).await?;
    let flow = Flow::new(filled.waiting, tally.settling().as_secs_f64(), &span);
    Ok(Flow { bytes: Some(filled.bytes), ..flow })
}

/// Measures while the queue is kept at a level; says what level that was.
async fn at_level(stand: &Stand<'_>, waiting: u64) -> Result<(Flow, u64)> {
    let (ring, tally) = (stand.ring()?, Tally::new());
    let full = fill(stand, &settings(stand, &ring, FEW_BATCH), waiting).await?;
    full.generator.finish().await?;
    let level = full.waiting;
    let config = Config { max_waiting: level + BATCHES[0] as u64, ..settings(stand, &ring, FEW_BATCH) };
    let (body, batch) = (vec![b'x'; stand.order.body], FEW_BATCH as u64);
    let steady = Steady { body, batch, ahead: FEW, tally: Arc::clone(&tally), made: 0 };
    let mut hands = vec![generator(config.clone(), steady, &tally).await?];
    hands.extend(handlers(stand, &config, &tally)?);
    until(&hands, || tally.settled(), FEW, "the first messages").await?;
    // Two levels are compared, so a disturbance from outside should not be in one of them: the better of two.
    let (one, other) = (watch(stand, || tally.settled()).await?, watch(stand, || tally.settled()).await?);
    finish(hands).await?;
    stand.erase(&ring).await?;
    Ok((if one.cpu_us <= other.cpu_us { one } else { other }, level))
}
