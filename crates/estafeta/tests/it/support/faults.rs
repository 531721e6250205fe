//! Handlers that hang, and damage that a foreign client does to a ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use estafeta::{Failure, Message};
use estafeta_testbed::RedisServer;
use tokio::sync::Notify;

use super::TestHandler;

/// Never returns.
pub struct Hang;

impl TestHandler for Hang {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        std::future::pending().await
    }
}

/// Signals `started` for each message, and returns when the test signals `finish`.
pub struct Gate {
    pub calls: Arc<AtomicUsize>,
    pub started: Arc<Notify>,
    pub finish: Arc<Notify>,
}

impl TestHandler for Gate {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.started.notify_one();
        self.finish.notified().await;
        Ok(())
    }
}

/// Deletes the hash of the member with this number. Its entry in the key `members` stays.
pub fn delete_member_hash(redis: &RedisServer, number: u64) {
    let mut connection = redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("{estafeta}:member:*").query(&mut connection).unwrap();
    let mut number_of =
        |key: &String| -> u64 { redis::cmd("HGET").arg(key).arg("number").query(&mut connection).unwrap() };
    let key = keys.into_iter().find(|key| number_of(key) == number).expect("a member");
    redis::cmd("DEL").arg(key).exec(&mut connection).unwrap();
}
