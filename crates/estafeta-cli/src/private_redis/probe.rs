//! Asking a socket whether a Redis is behind it.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use redis::{ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo, ServerErrorKind};

/// A server that takes longer for a PING is taken for one that does not answer, and asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// What was found behind a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Nobody, or somebody who does not answer.
    Nothing,
    /// A server that is alive and cannot serve yet, because it still reads its data.
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
        // An error with a code was sent by a server: a full disk, say, which the caller will hear of soon
        // enough. All others are about the connection.
        Err(error) if error.code().is_some() => Probe::Ready,
        Err(_) => Probe::Nothing,
    }
}

/// Connects without the greeting which a connection normally starts with: that one has no timeout on a unix
/// socket, and a frozen server would hold us for ever.
pub(super) fn connect(socket: &Path) -> Option<redis::Connection> {
    let greeting = RedisConnectionInfo::default().set_skip_set_lib_name();
    let info =
        ConnectionAddr::Unix(socket.to_owned()).into_connection_info().ok()?.set_redis_settings(greeting);
    let connection = redis::Client::open(info).ok()?.get_connection().ok()?;
    connection.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    connection.set_write_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    Some(connection)
}

/// The path may hold any byte (on macOS it always holds a space), a URL may not.
pub fn url(socket: &Path) -> String {
    let mut url = String::from("redis+unix://");
    for byte in socket.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => url.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => url.push(char::from(*byte)),
            byte => write!(url, "%{byte:02X}").unwrap_or_default(),
        }
    }
    url
}
