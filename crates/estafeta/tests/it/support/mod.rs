//! Members that run inside the test, and ears for what they say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use estafeta::{
    Config, Endpoint, Error, Failure, Handler, Message, Node, Notice, Observer, Ring, RingName, Snapshot,
    Source,
};
use estafeta_testbed::RedisServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A generous limit for things that must happen, but whose speed is no subject of the test.
pub const SOON: Duration = Duration::from_secs(30);

pub fn endpoint(redis: &RedisServer) -> Endpoint {
    redis.url().parse().unwrap()
}

/// Settings for tests: a fast beat, all else as users have it.
pub fn config(redis: &RedisServer) -> Config {
    let mut config = Config::new(endpoint(redis), RingName::default());
    config.interval = Duration::from_millis(20);
    config
}

pub async fn ring(redis: &RedisServer) -> Ring {
    Ring::connect(endpoint(redis), RingName::default()).await.unwrap()
}

/// How many steps Redis has carried out since it started.
pub fn steps(redis: &RedisServer) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut redis.connect()).unwrap();
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// What members have said so far, awaitable.
#[derive(Clone)]
pub struct Ears(Arc<watch::Sender<Vec<String>>>);

impl Ears {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub fn heard(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Waits until something that starts like this was said.
    pub async fn hear(&self, start: &str) -> String {
        let mut said = self.0.subscribe();
        let heard = |said: &Vec<String>| said.iter().any(|line| line.starts_with(start));
        let waited = tokio::time::timeout(SOON, said.wait_for(heard)).await;
        let said = waited.unwrap_or_else(|_| panic!("never heard '{start}' in {:?}", self.heard())).unwrap();
        said.iter().find(|line| line.starts_with(start)).unwrap().clone()
    }
}

impl Observer for Ears {
    fn notice(&self, notice: Notice<'_>) {
        let lines = match notice {
            Notice::Generated { messages } => {
                vec![format!("generated {} from #{}", messages.len(), messages[0].id)]
            }
            Notice::Settled { messages, failures, .. } => {
                let failed = |index| failures.iter().find(|(failed, _)| *failed == index);
                let line = |(index, message): (usize, &Message)| match failed(index) {
                    Some((_, reason)) => format!("failed #{}.{}: {reason}", message.id, message.attempt),
                    None => format!("handled #{}.{}", message.id, message.attempt),
                };
                messages.iter().enumerate().map(line).collect()
            }
            other => vec![format!("{other:?}")],
        };
        self.0.send_modify(|said| said.extend(lines));
    }
}

/// Counts up.
pub struct Counter(pub u64);

impl Source for Counter {
    async fn next(&mut self) -> Vec<u8> {
        self.0 += 1;
        self.0.to_string().into_bytes()
    }
}

/// Gives out the same bodies again and again.
pub struct Bodies(pub Vec<Vec<u8>>);

impl Source for Bodies {
    async fn next(&mut self) -> Vec<u8> {
        self.0.rotate_left(1);
        self.0.last().unwrap().clone()
    }
}

/// Keeps every body it was given.
#[derive(Clone, Default)]
pub struct Keep(pub Arc<Mutex<Vec<Vec<u8>>>>);

impl Handler for Keep {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        self.0.lock().unwrap().push(message.body().to_vec());
        Ok(())
    }
}

/// A member that runs in the background until it is told to stop.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
    pub ears: Ears,
}

impl Running {
    pub fn start<S: Source, H: Handler>(config: Config, source: S, handler: H) -> Self {
        let ears = Ears::new();
        Self::start_with(config, source, handler, ears.clone(), ears)
    }

    /// With an observer of its own, which passes on to `ears` what it is told.
    pub fn start_with<S: Source, H: Handler, O: Observer>(
        config: Config,
        source: S,
        handler: H,
        observer: O,
        ears: Ears,
    ) -> Self {
        let stop = CancellationToken::new();
        let member = Node::new(config, source, handler, observer);
        let task = tokio::spawn(member.run(stop.clone().cancelled_owned()));
        Self { stop, task, ears }
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
