//! A separate line to Redis for one node. A test can disturb it.

use estafeta_lab::proxy::{Direction, LinkCondition, Proxy, Upstream};
use estafeta_testbed::{Process, RedisServer, eventually};
use tokio::runtime::Runtime;

use super::{SOON, start};

pub struct Line {
    pub proxy: Proxy,
    // Declared after the proxy, which runs on it, so dropped after it.
    runtime: Runtime,
}

impl Line {
    pub fn to(redis: &RedisServer) -> Self {
        Self::tapped(redis, |_, _| {})
    }

    /// A line that shows all data to `tap` before it passes it on. `tap` may block, and then the data waits.
    pub fn tapped(redis: &RedisServer, tap: impl Fn(Direction, &[u8]) + Send + Sync + 'static) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let proxy = runtime.block_on(Proxy::tapped(Upstream::Unix(redis.socket()), tap)).unwrap();
        Self { proxy, runtime }
    }

    /// Makes every open connection half-open: it stays open, but no data passes any more. New connections work.
    pub fn kill_open_connections_silently(&self) {
        self.proxy.set(LinkCondition::Silent);
        // The change woke the task of every connection. Once the runtime has nothing to do, all of them have seen it.
        eventually(SOON, "the proxy is idle", || self.is_idle().then_some(()));
        self.proxy.set(LinkCondition::Clear);
    }

    fn is_idle(&self) -> bool {
        let metrics = self.runtime.metrics();
        // An odd count means that the worker sleeps. A worker takes tasks from the queue only while it is awake, so the
        // queue is checked first.
        metrics.global_queue_depth() == 0
            && (0..metrics.num_workers()).all(|worker| metrics.worker_park_unpark_count(worker) % 2 == 1)
    }

    /// Starts the program so that it reaches Redis through this line.
    pub fn start(&self, args: &[&str]) -> Process {
        start(args, &[("REDIS_URL", &format!("redis://127.0.0.1:{}", self.proxy.port()))])
    }

    /// Starts a node and waits until it has joined.
    pub fn node(&self, args: &[&str]) -> Process {
        let node = self.start(&[&["run"], args].concat());
        node.wait_for_line(SOON, |line| line.starts_with("joined as member"));
        node
    }
}
