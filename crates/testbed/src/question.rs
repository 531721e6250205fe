//! What the topologies ask their servers.

use std::time::Duration;

use redis::{FromRedisValue, RedisResult};

use crate::RedisServer;

/// Another thread of the test may freeze a server at any time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends one command on a new connection through the socket.
pub(crate) fn ask<T: FromRedisValue>(server: &RedisServer, command: &[&str]) -> RedisResult<T> {
    let mut connection = server.try_connect()?;
    connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    redis::cmd(command[0]).arg(&command[1..]).query(&mut connection)
}

pub(crate) fn info(server: &RedisServer, section: &str) -> String {
    ask(server, &["INFO", section]).unwrap_or_default()
}

/// The value of a field in an answer to `INFO`. Empty if there is none.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).unwrap_or_default().trim_end()
}
