//! Where Redis is and how to get in, without ever showing the password.

use std::fmt;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::error::Error;

/// The address of a Redis server with its credentials. What it shows of itself has no secrets in it.
#[derive(Clone)]
pub struct Endpoint(ConnectionInfo);

impl Endpoint {
    /// A server on a TCP port.
    pub fn tcp(host: &str, port: u16) -> Self {
        let info = (host, port).into_connection_info();
        Self(info.expect("a host and a port make an address"))
    }

    /// The same server, another database.
    pub fn with_db(self, db: i64) -> Self {
        let settings = self.0.redis_settings().clone().set_db(db);
        Self(self.0.set_redis_settings(settings))
    }

    /// The same server, with a password.
    pub fn with_password(self, password: &str) -> Self {
        let settings = self.0.redis_settings().clone().set_password(password);
        Self(self.0.set_redis_settings(settings))
    }

    /// Whether it has a password already.
    pub fn has_password(&self) -> bool {
        self.0.redis_settings().password().is_some()
    }

    pub(crate) fn info(&self, protocol: ProtocolVersion) -> ConnectionInfo {
        let settings = self.0.redis_settings().clone();
        let settings = settings.set_protocol(protocol).set_skip_set_lib_name();
        self.0.clone().set_redis_settings(settings)
    }

    pub(crate) fn uses_tls(&self) -> bool {
        matches!(self.0.addr(), ConnectionAddr::TcpTls { .. })
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        const EXPECTED: &str = "a URL such as redis://[user:password@]host:6379/0, rediss://host or \
                                redis+unix:///path/to/redis.sock";
        // The text that was given may hold a password, so it is not repeated.
        let wrong =
            |why: &str| Error::Expected { what: "Redis URL", expected: EXPECTED.into(), got: why.into() };
        let schemes = ["redis://", "rediss://", "redis+unix://", "unix://", "valkey://", "valkeys://"];
        if !schemes.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(wrong("one that begins otherwise"));
        }
        let info = url
            .into_connection_info()
            .map_err(|error| wrong(&format!("one that cannot be read ({})", error.category())))?;
        Ok(Self(info))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port, scheme) = match self.0.addr() {
            ConnectionAddr::Tcp(host, port) => (host, port, "redis"),
            ConnectionAddr::TcpTls { host, port, .. } => (host, port, "rediss"),
            ConnectionAddr::Unix(path) => return write!(f, "{}", path.display()),
            _ => return f.write_str("an address of a kind unknown to estafeta"),
        };
        write!(f, "{scheme}://{host}:{port}/{}", self.0.redis_settings().db())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let endpoint: Endpoint = "redis://bob:s3cret@localhost:7000/2".parse().unwrap();
        assert_eq!(format!("{endpoint} {endpoint:?}"), "redis://localhost:7000/2 redis://localhost:7000/2");
        for bad in ["redis://:s3cret@host:port", "http://s3cret@x", "s3cret"] {
            let shown = bad.parse::<Endpoint>().unwrap_err().to_string();
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("expected a URL such as"), "{shown}");
        }
    }
}
