//! Finds the Redis to use: the one that the user named, the one at the usual port, or a private one.
//!
//! Only commands that start nodes may create a private Redis. All others use a private one that is running, or restart
//! one that still holds data. A mistyped or missing address must not silently lead to an empty Redis.
//!
//! The first of these rules that applies decides:
//!
//! - The user named a Redis: use it, without checking that it answers.
//! - A server accepts connections at the usual port: use it, with the database and credentials that were given.
//! - A private Redis is forbidden, or there is no home directory: fail with [`NoRedis`].
//! - A private Redis is running: use it.
//! - A private Redis is not running, holds no data, and may not be created: fail with [`NoRedis`].
//! - `redis-server` is not installed: fail with [`NoRedis`].
//! - Otherwise start the private Redis. If it does not start, fail with [`NoRedis`] and the reason.
//!
//! A container is no special case. Most containers have no `redis-server`, so they get [`NoRedis`]. A container that
//! has one and a home directory, such as one in which `make run` installed it, gets a private Redis.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Result;
use estafeta::Endpoint;
use estafeta_lab::redis_program;

use crate::cli::DEFAULT_PORT;
use crate::private_redis::{Ensured, PrivateRedis, PrivateRedisError};
use crate::settings::Where;

const INSTALL: &str = ", or install redis-server (`apt install redis-server`, `brew install redis`, `dnf install \
                       redis`), and estafeta starts a private one";

/// No Redis was found, and none may be started.
#[derive(Debug, thiserror::Error)]
#[error(
    "no Redis was named and none answers at 127.0.0.1:{port}: start one there, or name yours with --redis URL or \
     REDIS_URL{hint}"
)]
pub struct NoRedis {
    port: u16,
    hint: &'static str,
    /// Why the private Redis did not start, if the program tried to start it.
    #[source]
    private: Option<PrivateRedisError>,
}

/// A Redis that was found or started.
pub struct Found {
    pub endpoint: Endpoint,
    /// The private Redis, if this call started it.
    pub started: Option<PrivateRedis>,
}

/// The Redis to use for a command that starts no nodes.
pub fn existing(wanted: &Where) -> Result<Endpoint> {
    Ok(find(wanted, Creation::Forbidden)?.endpoint)
}

/// The Redis to use.
pub fn find(wanted: &Where, creation: Creation) -> Result<Found> {
    find_with_usual_port(DEFAULT_PORT, wanted, creation)
}

/// Whether a private Redis may be created if there is no other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    Allowed,
    Forbidden,
}

fn find_with_usual_port(usual_port: u16, wanted: &Where, creation: Creation) -> Result<Found> {
    let (refinement, private) = match wanted {
        Where::Given(endpoint) => return Ok(Found { endpoint: Endpoint::clone(endpoint), started: None }),
        Where::Unspecified { refinement, private } => (refinement, *private),
    };
    if accepts_connections(usual_port) {
        let endpoint = refinement.apply(Endpoint::tcp("127.0.0.1", usual_port));
        return Ok(Found { endpoint, started: None });
    }
    let none = |hint| NoRedis { port: usual_port, hint, private: None };
    if !private {
        return Err(none("").into());
    }
    let not_started = |error| match error {
        // Without a home directory, there is no place for a private Redis.
        PrivateRedisError::NoHome => none(""),
        error => NoRedis { private: Some(error), ..none("; a private one did not start") },
    };
    let private = PrivateRedis::locate().map_err(not_started)?;
    if !private.is_running() && !private.holds_data() && creation == Creation::Forbidden {
        return Err(none("; `estafeta run` and `estafeta monitor` also start a private one").into());
    }
    if redis_program::find().is_err() && !private.is_running() {
        return Err(none(INSTALL).into());
    }
    let is_new = private.ensure().map_err(not_started)? == Ensured::Started;
    if is_new {
        let _ = writeln!(
            std::io::stderr(),
            "estafeta: no Redis at 127.0.0.1:{usual_port}, started a private one in {} (other machines cannot reach it; \
             stop it with `estafeta redis stop`)",
            private.directory().display()
        );
    }
    // The private Redis has no password, because only its user may enter its directory.
    let endpoint = refinement.without_credentials().apply(private.url().parse()?);
    Ok(Found { endpoint, started: is_new.then_some(private) })
}

fn accepts_connections(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

#[cfg(test)]
mod tests {
    use estafeta_testbed::RedisServer;

    use super::*;
    use crate::settings::reach::Refinement;

    #[test]
    fn a_redis_at_the_usual_port_is_used_and_none_is_started() {
        let redis = RedisServer::builder().tcp().start();
        let refinement = Refinement { db: Some(3), password: Some("right".into()), ..Refinement::default() };
        let wanted = Where::Unspecified { refinement, private: true };
        let found = find_with_usual_port(redis.port(), &wanted, Creation::Allowed).unwrap();
        assert_eq!(found.endpoint.to_string(), format!("redis://127.0.0.1:{}/3", redis.port()));
        assert!(found.endpoint.has_password() && found.started.is_none());
    }
}
