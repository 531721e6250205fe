//! Members inside this process, each in its own thread, and counts of their work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use estafeta::{Batch, Config, Failure, Feed, Generate, Job, Node, Notice, every};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long to wait for a change that a ring normally makes at once.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(1);

/// A running member. Dropping this value stops it.
pub struct RunningMember {
    stop: CancellationToken,
    thread: Option<JoinHandle<estafeta::Result<()>>>,
}

impl RunningMember {
    pub fn start(member: Node) -> Result<Self> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || runtime.block_on(member.until(stopped.cancelled_owned()));
        let thread = std::thread::Builder::new().name("member".to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the member, and waits until it has left the ring in good order.
    pub async fn finish(mut self) -> Result<()> {
        self.stop.cancel();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        Ok(ended.ok().context("a member panicked")??)
    }
}

impl Drop for RunningMember {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub async fn finish(members: Vec<RunningMember>) -> Result<()> {
    // All of them stop at once, so no handler finds the office vacant.
    members.iter().for_each(|member| member.stop.cancel());
    for member in members {
        member.finish().await?;
    }
    Ok(())
}

/// Waits until the value is reached. Fails if a member ends, or if the value does not change for long.
pub async fn until(
    members: &[RunningMember],
    value: impl Fn() -> u64,
    reached: u64,
    what: &str,
) -> Result<()> {
    let (mut last, mut changed) = (value(), Instant::now());
    while last < reached {
        if members.iter().any(RunningMember::has_ended) {
            bail!("a member ended while waiting for {what}");
        }
        if changed.elapsed() > PATIENCE {
            bail!("nothing happened for {} s while waiting for {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(POLL).await;
        let now = value();
        if now != last {
            (last, changed) = (now, Instant::now());
        }
    }
    Ok(())
}

/// What the members have done so far.
pub struct Tally {
    generated: AtomicU64,
    settled: AtomicU64,
    in_office: AtomicBool,
    settling: Stretch,
    /// Notified whenever messages are settled.
    room: Notify,
}

impl Tally {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            generated: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            in_office: AtomicBool::new(false),
            settling: Stretch::new(),
            room: Notify::new(),
        })
    }

    pub fn generated(&self) -> u64 {
        self.generated.load(Ordering::Relaxed)
    }

    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Relaxed)
    }

    pub fn in_office(&self) -> u64 {
        self.in_office.load(Ordering::Relaxed).into()
    }

    /// The time from the first outcome to the last one.
    pub fn settling(&self) -> Duration {
        self.settling.length()
    }
}

/// The time from the first mark to the last one. Any thread may set a mark.
pub struct Stretch {
    base: Instant,
    /// Both in nanoseconds since the base.
    first: AtomicU64,
    last: AtomicU64,
}

impl Stretch {
    pub fn new() -> Self {
        Self { base: Instant::now(), first: AtomicU64::new(u64::MAX), last: AtomicU64::new(0) }
    }

    pub fn mark(&self) {
        let now = u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.first.fetch_min(now, Ordering::Relaxed);
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    pub fn length(&self) -> Duration {
        let (first, last) = (self.first.load(Ordering::Relaxed), self.last.load(Ordering::Relaxed));
        Duration::from_nanos(last.saturating_sub(first))
    }
}

impl Tally {
    /// Counts what a node reports.
    pub fn notice(&self, notice: &Notice<'_>) {
        match notice {
            Notice::BecameGenerator { .. } => self.in_office.store(true, Ordering::Relaxed),
            Notice::Generated { messages } => {
                self.generated.fetch_add(messages.len() as u64, Ordering::Relaxed);
            }
            Notice::Settled { messages, .. } => {
                self.settling.mark();
                self.settled.fetch_add(messages.len() as u64, Ordering::Relaxed);
                self.room.notify_one();
            }
            _ => {}
        }
    }
}

/// A node that publishes `what` when it is in office, and does nothing with messages.
pub fn idle_node(config: Config, tally: &Arc<Tally>, what: impl Generate) -> Node {
    let tally = Arc::clone(tally);
    Node::with(config).generate(what).handle(do_nothing).observe(move |notice| tally.notice(notice))
}

/// Does nothing with a message.
pub async fn do_nothing(_: Job<Bytes>) -> Result<(), Failure> {
    Ok(())
}

/// Produces the same body again and again, until it is exhausted.
#[derive(Clone)]
pub struct ConstantSource {
    body: Bytes,
    exhausted: Arc<AtomicBool>,
}

impl ConstantSource {
    pub fn new(bytes: usize) -> Self {
        Self { body: vec![b'x'; bytes].into(), exhausted: Arc::default() }
    }

    pub fn exhaust(&self) {
        self.exhausted.store(true, Ordering::Relaxed);
    }

    /// The same body once per interval, or as fast as Redis takes it.
    pub fn every(self, interval: Duration) -> impl Generate {
        every(interval, move || {
            let source = self.clone();
            async move {
                if source.exhausted.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                Ok(source.body)
            }
        })
    }
}

/// Produces whole batches of one body, whenever there is room for a batch. At most `ahead` messages are produced and
/// not yet settled. So no step is spent on asking whether there is room, and no batch is smaller than another.
pub struct SteadySource {
    pub body: Bytes,
    pub batch: u64,
    pub ahead: u64,
    pub tally: Arc<Tally>,
    pub made: u64,
}

impl Feed for SteadySource {
    type Body = Bytes;
    type Checkpoint = ();

    async fn open(&mut self, _: Option<()>) -> Result<(), Failure> {
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<Bytes>, Failure> {
        while self.made + self.batch > self.tally.settled() + self.ahead {
            self.tally.room.notified().await;
        }
        self.made += self.batch;
        Ok(Batch::new((0..self.batch).map(|_| self.body.clone())))
    }
}
