//! Nodes that run inside the test, and the notices that they send.

mod faults;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use estafeta::{
    Config, Endpoint, Error, Failure, Handler, Message, Node, Notice, Observer, Outcome, Postponed, Ring,
    Snapshot, Source,
};
use estafeta_testbed::RedisServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use faults::{Gate, Hang, delete_member_hash};

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

impl Observer for Notices {
    fn notice(&self, notice: Notice<'_>) {
        let lines = match notice {
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
            other => vec![format!("{other:?}")],
        };
        self.0.send_modify(|all| all.extend(lines));
    }
}

/// Makes the bodies 1, 2, 3 and so on.
pub struct Counter(pub u64);

impl Source for Counter {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        self.0 += 1;
        Ok(self.0.to_string().into_bytes())
    }
}

/// Makes the same bodies again and again.
pub struct ListedBodies(pub Vec<Vec<u8>>);

impl Source for ListedBodies {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        self.0.rotate_left(1);
        Ok(self.0.last().unwrap().clone())
    }
}

/// Keeps every body that it handles.
#[derive(Clone, Default)]
pub struct Keep(pub Arc<Mutex<Vec<Vec<u8>>>>);

impl Handler for Keep {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        self.0.lock().unwrap().push(message.body().to_vec());
        Ok(())
    }
}

/// A node that runs in the background until the test stops it.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
    pub notices: Notices,
}

impl Running {
    pub fn start<S: Source, H: Handler<T>, T>(config: Config, source: S, handler: H) -> Self
    where
        T: Into<Outcome> + 'static,
    {
        let notices = Notices::new();
        Self::start_with(config, source, handler, notices.clone(), notices)
    }

    /// Starts a node with this observer, which passes its notices on to `notices`.
    pub fn start_with<S: Source, H: Handler<T>, O: Observer, T>(
        config: Config,
        source: S,
        handler: H,
        observer: O,
        notices: Notices,
    ) -> Self
    where
        T: Into<Outcome> + 'static,
    {
        let stop = CancellationToken::new();
        let node = Node::new(config, source, handler, observer);
        let task = tokio::spawn(node.run(stop.clone().cancelled_owned()));
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

/// Waits until the ring looks as described.
pub async fn eventually(ring: &Ring, what: &str, mut fits: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let start = std::time::Instant::now();
    loop {
        let snapshot = ring.snapshot(100).await.unwrap();
        assert!(snapshot.balanced, "{snapshot:?}");
        if fits(&snapshot) {
            return snapshot;
        }
        assert!(start.elapsed() < SOON, "{what}: {snapshot:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
