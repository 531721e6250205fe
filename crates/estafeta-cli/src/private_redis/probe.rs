//! Finds out whether a Redis answers at a socket.

use std::path::Path;
use std::time::Duration;

use redis::{ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo, ServerErrorKind};

/// A server that takes longer to answer a PING counts as one that does not answer. The caller tries again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// What was found at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// No server, or one that does not answer.
    Nothing,
    /// A server that is alive but cannot serve yet, because it still loads its data.
    Loading,
    /// A server that serves.
    Ready,
}

pub(super) fn probe(socket: &Path) -> Probe {
    let Some(mut connection) = connect(socket) else {
        return Probe::Nothing;
    };
    match redis::cmd("PING").exec(&mut connection) {
        Ok(()) => Probe::Ready,
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading) => Probe::Loading,
        // An error with a code comes from a server, for example one whose disk is full. The caller meets that error
        // with its own commands. All other errors are about the connection.
        Err(error) if error.code().is_some() => Probe::Ready,
        Err(_) => Probe::Nothing,
    }
}

/// Connects without the greeting that a client normally sends first. On a unix socket the greeting has no timeout, so a
/// frozen server would block the caller for ever.
pub(super) fn connect(socket: &Path) -> Option<redis::Connection> {
    let greeting = RedisConnectionInfo::default().set_skip_set_lib_name();
    let info =
        ConnectionAddr::Unix(socket.to_owned()).into_connection_info().ok()?.set_redis_settings(greeting);
    let connection = redis::Client::open(info).ok()?.get_connection().ok()?;
    connection.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    connection.set_write_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    Some(connection)
}
