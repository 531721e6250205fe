//! One node: what it is given, and the parts that run it.
//!
//! [`Node`] gathers the settings, the source and the handler. [`engine`] starts the parts and stops them in order.

pub(crate) mod batch_size;
mod clerk;
mod complaints;
pub(crate) mod control_thread;
mod desk;
mod election;
mod engine;
mod generator;
pub(crate) mod heartbeat;
mod lane;
mod latency_log;
mod partitions;
mod refusals;
mod ring_view;
mod sampler;
mod signals;
pub(crate) mod state;
pub(crate) mod sweeper;

pub(crate) use engine::open;
pub(crate) use generator::{Generator, GeneratorStart};
pub(crate) use lane::{Lane, LaneStart};
#[cfg(feature = "testing")]
pub(crate) use lane::{LaneAnswer, LaneTask};
pub(crate) use ring_view::RingView;
pub use sweeper::Burial;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::feed::{Every, Feed, FeedSource};
use crate::handler::{AsyncHandler, BatchHandler, BlockingHandler, Next, Work, WrappedHandler};
use crate::job::Job;
use crate::observer::{Notice, Observer};
use crate::outcome::{Outcome, Outcomes};
use crate::partition::Partition;
use crate::retry::Retry;
use crate::schedule::Schedule;
use crate::source::Produce;
use signals::StopSignals;

/// A node: one process that works in a ring. Start the same program on as many machines as you like.
///
/// ```no_run
/// use estafeta::{Failure, Job, Node};
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     id: u64,
/// }
///
/// async fn ship(job: Job<Order>) -> Result<(), Failure> {
///     println!("order {}", job.body.id);
///     Ok(())
/// }
///
/// # async fn example() -> Result<(), estafeta::Error> {
/// Node::on("redis://127.0.0.1:6379", "orders")?.handle(ship).concurrency(16).run().await?;
/// # Ok(())
/// # }
/// ```
///
/// A node that has something to [`generate`](Self::generate) can be elected to do so. A node with a handler handles
/// messages, even while it generates. A node needs at least one of the two.
#[must_use = "a node does nothing until it runs"]
pub struct Node {
    config: Config,
    source: Option<NodeSource>,
    handler: Option<Arc<dyn Work>>,
    wrappers: Vec<Wrapper>,
    observers: Vec<Observer>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What a node generates.
enum NodeSource {
    One(Result<Box<dyn Produce>>),
    /// Makes the source of each partition, with the settings of the node there.
    Each(MakeSource),
}

impl NodeSource {
    /// The source of a ring that is not divided.
    fn only(self) -> Option<Box<dyn Produce>> {
        match self {
            Self::One(source) => source.ok(),
            Self::Each(_) => None,
        }
    }
}

type MakeSource = Box<dyn FnMut(Partition, &mut Config) -> Result<Box<dyn Produce>> + Send>;

type Wrapper = Box<dyn FnOnce(Arc<dyn Work>) -> Arc<dyn Work> + Send>;

impl Node {
    /// A node in this Redis and in this ring, with the default settings. The address is like `redis://127.0.0.1:6379`.
    /// Nothing is connected yet.
    pub fn on(redis: &str, ring: &str) -> Result<Self> {
        Ok(Self::with(Config::on(redis, ring)?))
    }

    /// A node with these settings.
    pub fn with(config: Config) -> Self {
        Self { config, source: None, handler: None, wrappers: Vec::new(), observers: Vec::new() }
    }

    /// What this node publishes while it is elected: a [`Schedule`](crate::Schedule), a [`Feed`], or a function that
    /// [`every`](crate::every) calls once per interval. A later call replaces an earlier one.
    pub fn generate(mut self, what: impl Generate) -> Self {
        self.source = Some(NodeSource::One(what.into_source(&mut self.config).map(|source| source.0)));
        self
    }

    /// Divides the ring into this many partitions, 1 to 1,024, which a Redis Cluster can keep on different servers.
    /// Default: 1.
    ///
    /// Each partition is a ring like any other: `orders:0`, `orders:1` and so on. Each has a generator, and this node
    /// joins all of them. The lanes of the node, the [limit](Config::limit) and [`Config::max_waiting`] are shared out
    /// among the partitions. Each partition has at least one lane. If the node fails in one partition, it stops in all.
    ///
    /// The first node or publisher decides the number for the life of the ring. A node with another number is refused
    /// with [`Error::Partitions`]. What several partitions generate comes from [`generate_each`](Self::generate_each).
    /// A ring in a group cannot be divided, because a group is on one server.
    pub fn partitions(self, count: u32) -> Self {
        self.configure(|config| config.partitions = count)
    }

    /// Like [`generate`](Self::generate), for a ring with [partitions](Self::partitions). The function gets each
    /// partition and makes its source, which makes only the messages of that partition.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use estafeta::{Failure, Node, every};
    /// # async fn next_order(shard: u32, of: u32) -> Result<String, Failure> { Ok(String::new()) }
    /// # fn example(node: Node) -> Node {
    /// node.partitions(3).generate_each(|partition| {
    ///     // Customers whose number leaves this remainder.
    ///     every(Duration::from_secs(1), move || next_order(partition.index, partition.count))
    /// })
    /// # }
    /// ```
    pub fn generate_each<G: Generate>(
        mut self,
        mut make: impl FnMut(Partition) -> G + Send + 'static,
    ) -> Self {
        let each =
            move |part: Partition, config: &mut Config| make(part).into_source(config).map(|source| source.0);
        self.source = Some(NodeSource::Each(Box::new(each)));
        self
    }

    /// Handles messages with an async function. It returns `Ok(())` or an [`Outcome`]. `?` works with any error that
    /// is `Send + Sync + 'static`. For others, use `.map_err(|error| Failure::new(error))?`.
    ///
    /// A [`Failure`] puts the message off for another attempt, until its attempts are used up. A panic counts as one. A
    /// [fatal](Failure::fatal) failure makes the message a dead letter at once. The outcome is recorded once. **The
    /// function may be called again for the same message if this node dies before its outcome is recorded**;
    /// [`Job::message_name`] helps to do the work only once.
    ///
    /// ```no_run
    /// # use estafeta::{Job, Node};
    /// # fn example(node: Node) -> Node {
    /// node.handle(async |job: Job<String>| {
    ///     println!("{}", job.body);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn handle<F, T, A, O>(self, function: F) -> Self
    where
        F: Fn(Job<T>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<O, Failure>> + Send + 'static,
        O: Into<Outcome> + 'static,
        T: DeserializeOwned + Send + 'static,
    {
        self.work(AsyncHandler::new(function))
    }

    /// Handles messages with an async function that also gets a state, such as a pool of connections. Each call gets a
    /// clone, so an `Arc` is fine.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use estafeta::{Failure, Job, Node};
    /// # struct Shop;
    /// async fn ship(shop: Arc<Shop>, job: Job<u64>) -> Result<(), Failure> {
    ///     // ...
    ///     # let _ = (shop, job);
    ///     Ok(())
    /// }
    /// # fn example(node: Node) -> Node {
    /// node.handle_with(Arc::new(Shop), ship)
    /// # }
    /// ```
    pub fn handle_with<S, F, T, A, O>(self, state: S, function: F) -> Self
    where
        S: Clone + Send + Sync + 'static,
        F: Fn(S, Job<T>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<O, Failure>> + Send + 'static,
        O: Into<Outcome> + 'static,
        T: DeserializeOwned + Send + 'static,
    {
        self.handle(move |job| function(state.clone(), job))
    }

    /// Handles messages with a function that blocks its thread, because it computes for long or waits without `await`.
    /// Each message gets a thread of tokio's blocking pool.
    ///
    /// Nothing can end such a function from outside. If it exceeds its time limit, its message has failed, and the lane
    /// counts as *stuck* until the function returns. A function that takes long should call [`Job::is_cancelled`] now
    /// and then.
    pub fn handle_blocking<F, T, O>(self, function: F) -> Self
    where
        F: Fn(Job<T>) -> Result<O, Failure> + Send + Sync + 'static,
        O: Into<Outcome> + Send + 'static,
        T: DeserializeOwned + Send + 'static,
    {
        self.work(BlockingHandler::new(function))
    }

    /// Handles several messages with one call of an async function, for example with one bulk insert. A batch begins
    /// when it has `most` messages, or `wait` after it got its first one. `most` is 1 to 1,024. `wait` counts towards
    /// the [time limit](Self::time_limit), and must be shorter than it.
    ///
    /// The function returns `Ok(())` if all messages are done, or [`Outcomes::each`] with one outcome per message. An
    /// `Err` is a failure of every message of the batch, and so is a panic. Each message keeps its own attempts, effects
    /// and outcome. A body that does not parse becomes a dead letter, and the others are handled without it.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use estafeta::{Failure, Job, Node};
    /// # async fn insert(rows: &[String]) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn store(jobs: Vec<Job<String>>) -> Result<(), Failure> {
    ///     let rows: Vec<String> = jobs.into_iter().map(|job| job.body).collect();
    ///     Ok(insert(&rows).await?)
    /// }
    /// # fn example(node: Node) -> Node {
    /// node.handle_batch(100, Duration::from_millis(50), store)
    /// # }
    /// ```
    ///
    /// Each message of a batch takes a lane, so the [`concurrency`](Self::concurrency) is at least `most`. With twice as
    /// many lanes, two batches are handled at the same time. A [wrapper](Self::wrap) is called for each message. A node
    /// that stops begins its last batch at once.
    pub fn handle_batch<F, T, A, O>(self, most: usize, wait: Duration, function: F) -> Self
    where
        F: Fn(Vec<Job<T>>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<O, Failure>> + Send + 'static,
        O: Into<Outcomes> + 'static,
        T: DeserializeOwned + Send + 'static,
    {
        self.work(BatchHandler::new(most, wait, function))
    }

    fn work(self, handler: impl Work + 'static) -> Self {
        Self { handler: Some(Arc::new(handler)), ..self }
    }

    /// Puts a function around the handler: for logs, measurements, permits. The wrapper sees the body before it is
    /// parsed. The first one that is added is the outermost.
    ///
    /// ```no_run
    /// # use estafeta::Node;
    /// # fn example(node: Node) -> Node {
    /// node.wrap(async |job, next| {
    ///     let (id, start) = (job.id(), std::time::Instant::now());
    ///     let outcome = next.run(job).await;
    ///     println!("message {id}: {:?} in {:?}", outcome.is_ok(), start.elapsed());
    ///     outcome
    /// })
    /// # }
    /// ```
    pub fn wrap<F, A>(mut self, wrapper: F) -> Self
    where
        F: Fn(Job<Bytes>, Next) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        self.wrappers.push(Box::new(move |inner| Arc::new(WrappedHandler::new(inner, wrapper))));
        self
    }

    /// Calls this function for everything that happens to the node. The node calls it from several threads, between two
    /// steps, so it should be quick.
    pub fn observe(self, observer: impl Fn(&Notice<'_>) + Send + Sync + 'static) -> Self {
        self.observe_each(move |_, notice| observer(notice))
    }

    /// Like [`observe`](Self::observe). The function also gets the [partition](Self::partitions) in which it happened.
    pub fn observe_each(mut self, observer: impl Fn(Partition, &Notice<'_>) + Send + Sync + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// How many messages this node handles concurrently. Default: 1.
    pub fn concurrency(self, lanes: usize) -> Self {
        self.configure(|config| config.concurrency = lanes)
    }

    /// How often a message is tried, and how long it waits after each failure. Default: 8 attempts in about 83 minutes.
    pub fn retry(self, retry: Retry) -> Self {
        self.configure(|config| config.retry = retry)
    }

    /// How long the handler may take for one message. Default: 10 minutes.
    pub fn time_limit(self, limit: Duration) -> Self {
        self.configure(|config| config.time_limit = limit)
    }

    /// The application that this node belongs to. The first node to join a ring decides to which application the ring
    /// belongs, and nodes of other applications are refused. Default: the ring's name.
    pub fn application(self, name: impl Into<String>) -> Self {
        self.configure(|config| config.application = name.into())
    }

    /// Changes any of the settings.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Joins the ring and works in it until the process gets SIGTERM or SIGINT (Ctrl-C).
    ///
    /// The node then stops in stages. It takes no new messages and resigns. Handlers may finish their messages for up to
    /// 25 s ([`Config::stop_deadline`]), and what is left goes back to the queue. A second signal ends the process at once.
    ///
    /// Fails if Redis cannot be reached or refuses the node at the start. Once it has joined, the node survives every
    /// outage of Redis. The runtime must have its timers and its I/O enabled.
    pub async fn run(self) -> Result<()> {
        let signals = StopSignals::listen();
        self.until(signals.first()).await
    }

    /// Joins the ring and works in it like [`run`](Self::run), until `stop` is ready. Signals are left alone. A process can
    /// run several nodes, in one ring or in several.
    pub async fn until(self, stop: impl Future<Output = ()>) -> Result<()> {
        let Self { mut config, source, mut handler, wrappers, observers } = self;
        if source.is_none() && handler.is_none() {
            return Err(Error::expected("node", "something to generate or to handle", "neither"));
        }
        config.never_generate |= source.is_none();
        config.never_handle |= handler.is_none();
        handler.as_ref().map_or(Ok(()), |handler| handler.adapt(&mut config))?;
        for wrapper in wrappers.into_iter().rev() {
            handler = handler.map(wrapper);
        }
        let handler = handler.filter(|_| !config.never_handle);
        partitions::run(config, source, handler, observers.into(), stop).await
    }
}

/// What a node can [generate](Node::generate).
#[diagnostic::on_unimplemented(
    message = "a node cannot generate `{Self}`",
    note = "generate a `Schedule`, a type that implements `Feed`, or what `estafeta::every` returns",
    note = "an entry of a schedule needs its messages: `.body(..)` or `.each(..)`"
)]
pub trait Generate: sealed::Sealed {
    #[doc(hidden)]
    fn into_source(self, config: &mut Config) -> Result<sealed::AnySource>;
}

mod sealed {
    use std::fmt;

    use crate::source::Produce;

    pub trait Sealed {}

    /// A source of any type.
    pub struct AnySource(pub(crate) Box<dyn Produce>);

    impl fmt::Debug for AnySource {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("AnySource")
        }
    }
}

impl<F: Feed> sealed::Sealed for F {}

impl<F: Feed> Generate for F {
    fn into_source(self, config: &mut Config) -> Result<sealed::AnySource> {
        // A feed sets its own pace.
        config.interval = Duration::ZERO;
        Ok(sealed::AnySource(Box::new(FeedSource::new(self))))
    }
}

impl<F, T> sealed::Sealed for Every<F, T> {}

impl<F, A, T> Generate for Every<F, T>
where
    F: FnMut() -> A + Send + 'static,
    A: Future<Output = Result<T, Failure>> + Send + 'static,
    T: Serialize + Send + 'static,
{
    fn into_source(self, config: &mut Config) -> Result<sealed::AnySource> {
        config.interval = self.interval;
        config.catch_up |= self.catch_up;
        Ok(sealed::AnySource(Box::new(self)))
    }
}

impl<T> sealed::Sealed for Schedule<T> {}

impl<T: Serialize + Send + 'static> Generate for Schedule<T> {
    fn into_source(self, config: &mut Config) -> Result<sealed::AnySource> {
        self.check()?;
        config.interval = Duration::ZERO;
        Ok(sealed::AnySource(Box::new(self)))
    }
}
