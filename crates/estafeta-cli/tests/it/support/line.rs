//! A line of its own to Redis for one copy, which can be disturbed.

use estafeta_proxy::{Direction, Proxy, Upstream};
use estafeta_testbed::{Process, RedisServer};
use tokio::runtime::Runtime;

use super::{SOON, start};

pub struct Line {
    pub proxy: Proxy,
    // Declared after the proxy, which lives on it.
    _runtime: Runtime,
}

impl Line {
    pub fn to(redis: &RedisServer) -> Self {
        Self::tapped(redis, |_, _| {})
    }

    /// A line that shows everything to `tap` before it is passed on; `tap` may block.
    pub fn tapped(redis: &RedisServer, tap: impl Fn(Direction, &[u8]) + Send + Sync + 'static) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let proxy = runtime.block_on(Proxy::tapped(Upstream::Unix(redis.socket()), tap)).unwrap();
        Self { proxy, _runtime: runtime }
    }

    /// Starts the program at the end of this line.
    pub fn start(&self, args: &[&str]) -> Process {
        start(args, &[("REDIS_URL", &format!("redis://127.0.0.1:{}", self.proxy.port()))])
    }

    /// Starts a copy and waits until it has joined.
    pub fn copy(&self, args: &[&str]) -> Process {
        let copy = self.start(&[&["run"], args].concat());
        copy.wait_for_line(SOON, |line| line.starts_with("joined as member"));
        copy
    }
}
