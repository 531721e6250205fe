//! A separate line to Redis for one node. A test can disturb it.

use estafeta_lab::proxy::{Direction, Proxy, Upstream};
use estafeta_testbed::{Process, RedisServer};
use tokio::runtime::Runtime;

use super::{SOON, start};

pub struct Line {
    pub proxy: Proxy,
    // Declared after the proxy, which runs on it, so dropped after it.
    _runtime: Runtime,
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
        Self { proxy, _runtime: runtime }
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
