//! Nodes that run inside the test, and the notices that they send.

mod faults;
mod live_ring;
mod moving_address;
mod pair;
mod spans;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use estafeta::{
    Config, Endpoint, Error, Failure, Feed, Generate, Job, Message, Node, Notice, Outcome, Postponed, Ring,
    Snapshot, every,
};
use estafeta_testbed::RedisServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use faults::{Gate, Hang, delete_member_hash};
pub use live_ring::{LiveRing, config_at};
pub use moving_address::MovingAddress;
pub use pair::{Pair, tell};
pub use spans::{SeenSpan, Spans};

/// A generous limit for events that must happen, if the test does not check how fast they are.
pub const SOON: Duration = Duration::from_secs(30);

pub fn endpoint(redis: &RedisServer) -> Endpoint {
    redis.url().parse().unwrap()
}

/// Settings for tests: ticks are fast, and the generator does not handle. Everything else has its default.
pub fn config(redis: &RedisServer) -> Config {
    let mut config = Config::new(endpoint(redis), "estafeta".parse().unwrap());
    (config.interval, config.generator_handles) = (Duration::from_millis(20), false);
    config
}

/// The same settings with a change.
pub fn changed(mut config: Config, change: impl FnOnce(&mut Config)) -> Config {
    change(&mut config);
    config
}

pub async fn ring(redis: &RedisServer) -> Ring {
    Ring::connect(endpoint(redis), "estafeta".parse().unwrap()).await.unwrap()
}

/// How many scripts Redis has run since it started.
pub fn steps(redis: &RedisServer) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut redis.connect()).unwrap();
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// The notices of nodes so far, one line each. A test can wait for one.
#[derive(Clone)]
pub struct Notices(Arc<watch::Sender<Vec<String>>>);

impl Notices {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Waits for a line that starts with `start`, and returns it. It may have come before.
    pub async fn wait_for(&self, start: &str) -> String {
        let mut lines = self.0.subscribe();
        let contains = |lines: &Vec<String>| lines.iter().any(|line| line.starts_with(start));
        let waited = tokio::time::timeout(SOON, lines.wait_for(contains)).await;
        let lines = waited.unwrap_or_else(|_| panic!("never heard '{start}' in {:?}", self.all())).unwrap();
        lines.iter().find(|line| line.starts_with(start)).unwrap().clone()
    }
}

impl Notices {
    /// Adds the lines of a notice.
    pub fn add(&self, notice: &Notice<'_>) {
        let lines = match *notice {
            Notice::Generated { messages } => {
                vec![format!("generated {} from #{}", messages.len(), messages[0].id)]
            }
            Notice::Settled { messages, failures, .. } => {
                let failed = |index| failures.iter().find(|(failed, _)| *failed == index);
                let line = |(index, message): (usize, &Message)| match failed(index) {
                    Some((_, reason)) => format!("failed #{}.{}: {reason}", message.id, message.delivery),
                    None => format!("handled #{}.{}", message.id, message.delivery),
                };
                messages.iter().enumerate().map(line).collect()
            }
            Notice::Postponed { messages, .. } => {
                let line = |postponed: &Postponed| {
                    let (message, why) =
                        (&postponed.message, postponed.failure.as_deref().unwrap_or("snoozed"));
                    format!("again #{}.{} after {:?}: {why}", message.id, message.delivery, postponed.after)
                };
                messages.iter().map(line).collect()
            }
            // There are very many.
            Notice::StepAnswered { .. } | Notice::StillRunning | Notice::Timed { .. } => return,
            other => vec![format!("{other:?}")],
        };
        self.0.send_modify(|all| all.extend(lines));
    }
}

/// Makes the messages of a node in a test, one after another.
pub trait TestSource: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;
}

/// Handles the messages of a node in a test.
pub trait TestHandler<T: Into<Outcome> = ()>: Send + Sync + 'static {
    fn handle(&self, message: &Message) -> impl Future<Output = Result<T, Failure>> + Send;
}

/// Asks a source once per interval.
pub fn generate(interval: Duration, source: impl TestSource) -> impl Generate {
    let source = Arc::new(tokio::sync::Mutex::new(source));
    every(interval, move || {
        let source = Arc::clone(&source);
        async move { source.lock().await.next().await.map(Bytes::from) }
    })
}

/// Makes the bodies 1, 2, 3 and so on.
pub struct Counter(pub u64);

impl TestSource for Counter {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        self.0 += 1;
        Ok(self.0.to_string().into_bytes())
    }
}

/// Makes the same bodies again and again.
pub struct ListedBodies(pub Vec<Vec<u8>>);

impl TestSource for ListedBodies {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        self.0.rotate_left(1);
        Ok(self.0.last().unwrap().clone())
    }
}

/// Keeps every body that it handles.
#[derive(Clone, Default)]
pub struct Keep(pub Arc<Mutex<Vec<Vec<u8>>>>);

impl TestHandler for Keep {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        self.0.lock().unwrap().push(message.body().to_vec());
        Ok(())
    }
}

/// Lets a node handle its messages with this handler.
pub fn handle<T: Into<Outcome> + 'static>(node: Node, handler: impl TestHandler<T>) -> Node {
    node.handle_with(Arc::new(handler), async |handler, job: Job<Bytes>| handler.handle(job.message()).await)
}

/// Starts a node, and keeps its notices.
pub fn start(node: Node) -> RunningNode {
    let notices = Notices::new();
    let heard = notices.clone();
    RunningNode::spawn(node.observe(move |notice| heard.add(notice)), notices)
}

/// A node that runs in the background until the test stops it.
pub struct RunningNode {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
    pub notices: Notices,
}

impl RunningNode {
    pub fn start<T: Into<Outcome> + 'static>(
        config: Config,
        source: impl TestSource,
        handler: impl TestHandler<T>,
    ) -> Self {
        let source = generate(config.interval, source);
        Self::start_node(Node::with(config).generate(source), handler)
    }

    /// Runs a node in this process until it is killed.
    pub async fn for_ever<T: Into<Outcome> + 'static>(
        config: Config,
        source: impl TestSource,
        handler: impl TestHandler<T>,
    ) {
        let source = generate(config.interval, source);
        let node = handle(Node::with(config).generate(source), handler);
        node.until(std::future::pending()).await.unwrap();
    }

    /// Starts a node with a feed. The interval of the settings is its pace.
    pub fn start_feed<T: Into<Outcome> + 'static>(
        config: Config,
        feed: impl Feed,
        handler: impl TestHandler<T>,
    ) -> Self {
        let interval = config.interval;
        let node = Node::with(config).generate(feed).configure(|config| config.interval = interval);
        Self::start_node(node, handler)
    }

    fn start_node<T: Into<Outcome> + 'static>(node: Node, handler: impl TestHandler<T>) -> Self {
        start(handle(node, handler))
    }

    /// Starts a node whose observer passes its notices on to `notices`.
    pub fn spawn(node: Node, notices: Notices) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(node.until(stop.clone().cancelled_owned()));
        Self { stop, task, notices }
    }

    pub async fn stop(self) -> Result<(), Error> {
        self.stop.cancel();
        self.ended().await
    }

    pub async fn ended(self) -> Result<(), Error> {
        tokio::time::timeout(SOON, self.task).await.expect("the member ends").unwrap()
    }
}

/// Waits until the ring looks as described. Until then, every snapshot must add up.
pub async fn eventually(ring: &Ring, what: &str, mut fits: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let balanced_and_fits = |snapshot: &Snapshot| {
        assert!(snapshot.balanced, "{snapshot:?}");
        fits(snapshot)
    };
    after_damage(ring, what, balanced_and_fits).await
}

/// Waits until the ring looks as described. Until then, its snapshots may not add up, because the test changed Redis by
/// hand.
pub async fn after_damage(ring: &Ring, what: &str, mut fits: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let start = std::time::Instant::now();
    loop {
        let snapshot = ring.snapshot(100).await.unwrap();
        if fits(&snapshot) {
            return snapshot;
        }
        assert!(start.elapsed() < SOON, "{what}: {snapshot:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
