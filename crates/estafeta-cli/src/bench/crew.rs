//! Members inside this process, each in a thread of its own, and what is counted of their work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::{Failure, Handler, Message, Node, Notice, Observer, Source};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long something may take that a ring does at once.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);

/// A member at work. It ends with this value.
pub struct Hand {
    stop: CancellationToken,
    thread: Option<JoinHandle<estafeta::Result<()>>>,
}

impl Hand {
    pub fn start<S: Source, H: Handler, O: Observer>(member: Node<S, H, O>) -> Result<Self> {
        let stop = CancellationToken::new();
        let told = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || runtime.block_on(member.run(told.cancelled_owned()));
        let thread = std::thread::Builder::new().name("member".to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Lets it leave the ring in good order.
    pub async fn finish(mut self) -> Result<()> {
        self.stop.cancel();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        Ok(ended.ok().context("a member panicked")??)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub async fn finish(hands: Vec<Hand>) -> Result<()> {
    // All of them at once: none of the handlers is to find the office vacant.
    hands.iter().for_each(|hand| hand.stop.cancel());
    for hand in hands {
        hand.finish().await?;
    }
    Ok(())
}

/// Waits until the value is reached; it must not stand still for long.
pub async fn until(hands: &[Hand], value: impl Fn() -> u64, reached: u64, what: &str) -> Result<()> {
    let (mut last, mut changed) = (value(), Instant::now());
    while last < reached {
        if hands.iter().any(Hand::has_ended) {
            bail!("a member ended while waiting for {what}");
        }
        if changed.elapsed() > PATIENCE {
            bail!("nothing happened for {} s while waiting for {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK).await;
        let now = value();
        if now != last {
            (last, changed) = (now, Instant::now());
        }
    }
    Ok(())
}

/// What members have done so far.
pub struct Tally {
    generated: AtomicU64,
    settled: AtomicU64,
    in_office: AtomicBool,
    settling: Stretch,
    /// Rings whenever something was settled.
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

    /// From the first outcome to the last one.
    pub fn settling(&self) -> Duration {
        self.settling.length()
    }
}

/// From the first moment that was marked to the last one, whoever marks them.
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

/// Tells a tally of what a member does.
pub struct Ear(pub Arc<Tally>);

impl Observer for Ear {
    fn notice(&self, notice: Notice<'_>) {
        match notice {
            Notice::BecameGenerator { .. } => self.0.in_office.store(true, Ordering::Relaxed),
            Notice::Generated { messages } => {
                self.0.generated.fetch_add(messages.len() as u64, Ordering::Relaxed);
            }
            Notice::Settled { messages, .. } => {
                self.0.settling.mark();
                self.0.settled.fetch_add(messages.len() as u64, Ordering::Relaxed);
                self.0.room.notify_one();
            }
            _ => {}
        }
    }
}

/// The same body again and again, until it is told to dry up.
#[derive(Clone)]
pub struct Feed {
    body: Vec<u8>,
    dry: Arc<AtomicBool>,
}

impl Feed {
    pub fn new(bytes: usize) -> Self {
        Self { body: vec![b'x'; bytes], dry: Arc::default() }
    }

    pub fn dry_up(&self) {
        self.dry.store(true, Ordering::Relaxed);
    }
}

impl Source for Feed {
    async fn next(&mut self) -> Vec<u8> {
        if self.dry.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.body.clone()
    }
}

/// Whole batches of a body, whenever there is room for one: so many messages, and no more, are made and not yet settled.
/// No step is then spent on asking whether there is room, and none is smaller than another.
pub struct Steady {
    pub body: Vec<u8>,
    pub batch: u64,
    pub ahead: u64,
    pub tally: Arc<Tally>,
    pub made: u64,
}

impl Source for Steady {
    async fn next(&mut self) -> Vec<u8> {
        if self.made.is_multiple_of(self.batch) {
            while self.made + self.batch > self.tally.settled() + self.ahead {
                self.tally.room.notified().await;
            }
        }
        self.made += 1;
        self.body.clone()
    }
}

/// Does nothing with a message.
#[derive(Clone, Copy)]
pub struct Nothing;

impl Handler for Nothing {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        Ok(())
    }
}
