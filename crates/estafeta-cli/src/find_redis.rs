//! Finds the Redis to use: the one that was named, the one at the usual port, or a private one.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Result;
use estafeta::Endpoint;

use crate::private_redis::{Ensured, PrivateRedis};
use crate::settings::Where;

const USUAL_PORT: u16 = 6379;

/// A Redis that was found or started.
pub struct Found {
    pub endpoint: Endpoint,
    /// The private one, if it was started just now.
    pub started: Option<PrivateRedis>,
}

/// The Redis to use. Starts a private one if none was named and nothing answers at the usual port.
pub fn endpoint(wanted: &Where) -> Result<Endpoint> {
    Ok(find(wanted)?.endpoint)
}

/// Like [`endpoint`], and tells whether one was started for it.
pub fn find(wanted: &Where) -> Result<Found> {
    find_beside(USUAL_PORT, wanted)
}

fn find_beside(usual_port: u16, wanted: &Where) -> Result<Found> {
    let refinement = match wanted {
        Where::Given(endpoint) => return Ok(Found { endpoint: Endpoint::clone(endpoint), started: None }),
        Where::Unsaid(refinement) => refinement,
    };
    if somebody_answers(usual_port) {
        let endpoint = refinement.apply(Endpoint::tcp("127.0.0.1", usual_port));
        return Ok(Found { endpoint, started: None });
    }
    let private = PrivateRedis::locate()?;
    let is_new = private.ensure()? == Ensured::Started;
    if is_new {
        let _ = writeln!(
            std::io::stderr(),
            "estafeta: no Redis at 127.0.0.1:{usual_port}, started a private one in {} (other machines won't see it; \
             stop it with `estafeta redis stop`)",
            private.directory().display()
        );
    }
    // It has no password: whoever can enter its directory is its user.
    let endpoint = refinement.without_password().apply(private.url().parse()?);
    Ok(Found { endpoint, started: is_new.then_some(private) })
}

fn somebody_answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

#[cfg(test)]
mod tests {
    use estafeta_testbed::RedisServer;

    use super::*;
    use crate::settings::Refinement;

    #[test]
    fn a_redis_at_the_usual_port_is_taken_and_none_is_started() {
        let redis = RedisServer::builder().tcp().start();
        let wanted = Where::Unsaid(Refinement { db: Some(3), password: Some("right".into()) });
        let found = find_beside(redis.port(), &wanted).unwrap();
        assert_eq!(found.endpoint.to_string(), format!("redis://127.0.0.1:{}/3", redis.port()));
        assert!(found.endpoint.has_password() && found.started.is_none());
    }
}
