//! The address of a Redis server and its credentials. The password is never shown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::error::Error;

/// The address of a Redis server with its credentials. Its `Display` and `Debug` output contains no secrets.
#[derive(Clone)]
pub struct Endpoint(ConnectionInfo);

impl Endpoint {
    /// Whether a text can be the host of a server: a name or an IP address.
    pub fn is_host(text: &str) -> bool {
        let is_name = |c: char| c.is_alphanumeric() || "-._".contains(c);
        // An IPv6 address may name a network interface: fe80::1%eth0.
        let address = text.split_once('%').map_or(text, |(address, _)| address);
        !text.is_empty() && text.chars().all(is_name) || address.parse::<std::net::Ipv6Addr>().is_ok()
    }

    /// A server on a TCP port.
    pub fn tcp(host: &str, port: u16) -> Self {
        let info = (host, port).into_connection_info();
        Self(info.expect("a host and a port make an address"))
    }

    /// A server on a socket in the file system.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        let info = ConnectionAddr::Unix(path.into()).into_connection_info();
        Self(info.expect("a path makes an address"))
    }

    /// Returns the same server with another database.
    pub fn with_db(self, db: i64) -> Self {
        let settings = self.0.redis_settings().clone().set_db(db);
        Self(self.0.set_redis_settings(settings))
    }

    /// Returns the same server with a user name.
    pub fn with_user(self, user: &str) -> Self {
        let settings = self.0.redis_settings().clone().set_username(user);
        Self(self.0.set_redis_settings(settings))
    }

    /// Returns the same server with a password.
    pub fn with_password(self, password: &str) -> Self {
        let settings = self.0.redis_settings().clone().set_password(password);
        Self(self.0.set_redis_settings(settings))
    }

    /// Whether the endpoint already has a user name.
    pub fn has_user(&self) -> bool {
        self.0.redis_settings().username().is_some()
    }

    /// Whether the endpoint already has a password.
    pub fn has_password(&self) -> bool {
        self.0.redis_settings().password().is_some()
    }

    /// The place where the server listens, or None if the connection uses TLS.
    pub fn address(&self) -> Option<Address> {
        match self.0.addr() {
            ConnectionAddr::Tcp(host, port) => Some(Address::Tcp(host.clone(), *port)),
            ConnectionAddr::Unix(path) => Some(Address::Unix(path.clone())),
            _ => None,
        }
    }

    /// The URL, including secrets, by which a child process reaches the same database. Pass it in the child's
    /// environment: every user of the machine can read a command line.
    pub fn secret_url(&self) -> String {
        let settings = self.0.redis_settings();
        let (scheme, host, port, end) = match self.0.addr() {
            ConnectionAddr::Unix(path) => {
                let path = encoded_path(path);
                let user = settings.username().map(|user| format!("&user={}", encoded(user)));
                let password = settings.password().map(|password| format!("&pass={}", encoded(password)));
                let (user, password) = (user.unwrap_or_default(), password.unwrap_or_default());
                return format!("redis+unix://{path}?db={}{user}{password}", settings.db());
            }
            ConnectionAddr::TcpTls { host, port, insecure, .. } => {
                ("rediss", host.as_str(), *port, if *insecure { "#insecure" } else { "" })
            }
            ConnectionAddr::Tcp(host, port) => ("redis", host.as_str(), *port, ""),
            _ => ("redis", "", 0, ""),
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("{scheme}://{}{host}:{port}/{}{end}", self.credentials(), settings.db())
    }

    /// The URL, including secrets, by which a process reaches the same database through another port of this machine.
    pub fn secret_url_through(&self, port: u16) -> String {
        format!("redis://{}127.0.0.1:{port}/{}", self.credentials(), self.0.redis_settings().db())
    }

    /// The credentials as a URL holds them in front of the host.
    fn credentials(&self) -> String {
        let settings = self.0.redis_settings();
        let user = settings.username().map(encoded).unwrap_or_default();
        let password = settings.password().map(|password| format!(":{}", encoded(password)));
        let credentials = user + &password.unwrap_or_default();
        if credentials.is_empty() { credentials } else { credentials + "@" }
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

/// The place where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A host and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// Encodes a text so that it is safe in any part of a URL.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Encodes a path so that its separators stay readable.
fn encoded_path(path: &Path) -> String {
    const UNSAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');
    percent_encode(path.as_os_str().as_encoded_bytes(), UNSAFE).to_string()
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        const EXPECTED: &str = "a URL such as redis://[user:password@]host:6379/0, rediss://host or \
                                redis+unix:///path/to/redis.sock";
        // The given text may contain a password, so the error does not repeat it.
        let wrong =
            |why: &str| Error::Expected { what: "Redis URL", expected: EXPECTED.into(), got: why.into() };
        let schemes = ["redis://", "rediss://", "redis+unix://", "unix://", "valkey://", "valkeys://"];
        if !schemes.iter().any(|scheme| url.starts_with(scheme)) {
            let (scheme, _) = url.split_once("://").unwrap_or_default();
            // Anything else in front of `://` may be a password.
            let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            return Err(match is_scheme && !scheme.is_empty() {
                true => wrong(&format!("one with the scheme {scheme}")),
                false => wrong("one without a scheme"),
            });
        }
        let info = url
            .into_connection_info()
            .map_err(|error| wrong(&format!("one that cannot be read ({})", error.category())))?;
        let endpoint = Self(info);
        let known = match endpoint.0.addr() {
            ConnectionAddr::Unix(_) => &["db", "user", "pass", "protocol"][..],
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } if !Self::is_host(host) => {
                return Err(wrong("one whose host is no host name and no IP address"));
            }
            _ => &["db", "protocol"],
        };
        let parsed = redis::parse_redis_url(url);
        let mut db = None;
        for (name, value) in parsed.iter().flat_map(|url| url.query_pairs()) {
            if !known.contains(&name.as_ref()) {
                return Err(wrong(&format!("one with a parameter other than {}", known.join(", "))));
            }
            if name == "db" {
                db = Some(value.parse().map_err(|_| wrong("one whose database is no number"))?);
            }
        }
        // For a TCP port, the client library reads the database only from the path.
        let in_path = endpoint.0.redis_settings().db();
        match db.unwrap_or(in_path) {
            ..0 => Err(wrong("one whose database is below 0")),
            db if db != in_path && in_path != 0 => Err(wrong("one with two databases")),
            db => Ok(endpoint.with_db(db)),
        }
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
        // An IPv6 address has colons, so a URL puts it in brackets.
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{host}{close}:{port}/{}", self.0.redis_settings().db())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_secret_url_of_any_server_leads_to_the_same_place(
            host in prop_oneof![Just("::1".to_owned()), "[a-z][a-z0-9.-]{0,9}"],
            port: u16,
            db in 0..16_i64,
            password in prop::option::of("\\PC{1,12}"),
        ) {
            let mut endpoint = Endpoint::tcp(&host, port).with_db(db);
            if let Some(password) = &password {
                endpoint = endpoint.with_password(password);
            }
            let shown: Endpoint = endpoint.to_string().parse().unwrap();
            prop_assert_eq!(shown.address(), endpoint.address());
            let again: Endpoint = endpoint.secret_url().parse().unwrap();
            prop_assert_eq!(again.address(), endpoint.address());
            let (found, given) = (again.0.redis_settings(), endpoint.0.redis_settings());
            prop_assert_eq!((found.db(), found.password()), (given.db(), password.as_deref()));
            prop_assert_eq!(again.has_password(), password.is_some());
        }

        #[test]
        fn any_text_is_read_or_refused_without_repeating_it(
            scheme in prop_oneof![Just("redis://"), Just("rediss://"), Just("redis+unix://"), Just("http://"), Just("")],
            rest in "[A-Z:@/?#\\[\\]%0-9]{6,20}",
        ) {
            let url = format!("{scheme}{rest}");
            if let Err(error) = url.parse::<Endpoint>() {
                prop_assert!(!error.to_string().contains(&rest), "{}", error);
            }
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let endpoint: Endpoint = "redis://bob:s3cret@localhost:7000/2".parse().unwrap();
        assert_eq!(format!("{endpoint} {endpoint:?}"), "redis://localhost:7000/2 redis://localhost:7000/2");
        for other in ["rediss://bob:s3cret@h", "redis+unix:///s?user=bob&pass=s3cret"] {
            let endpoint: Endpoint = other.parse().unwrap();
            let shown = format!("{endpoint} {endpoint:?}");
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        for bad in ["redis://:s3cret@host:port", "http://s3cret@x", "s3cret"] {
            let shown = bad.parse::<Endpoint>().unwrap_err().to_string();
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("expected a URL such as"), "{shown}");
        }
    }

    #[test]
    fn an_address_is_shown_and_passed_on_as_people_write_it() {
        let cases = [
            ("redis://bob:p%40ss@host:7000/2", "redis://host:7000/2", "redis://bob:p%40ss@host:7000/2"),
            ("rediss://host", "rediss://host:6379/0", "rediss://host:6379/0"),
            ("redis+unix:///a-b_c.d/e%20f?db=1", "/a-b_c.d/e f", "redis+unix:///a-b_c.d/e%20f?db=1"),
        ];
        for (given, shown, passed_on) in cases {
            let endpoint: Endpoint = given.parse().unwrap();
            assert_eq!((endpoint.to_string().as_str(), endpoint.secret_url().as_str()), (shown, passed_on));
            assert_eq!(endpoint.uses_tls(), given.starts_with("rediss:"));
        }
    }

    #[test]
    fn the_database_may_be_a_parameter_and_other_urls_are_refused_with_the_reason() {
        let db = |url: &str| url.parse::<Endpoint>().map(|endpoint| endpoint.0.redis_settings().db());
        for url in ["redis://h/3", "redis://h?db=3", "rediss://h/?db=3", "redis://h/3?db=3", "unix:///s?db=3"]
        {
            assert_eq!(db(url).unwrap(), 3, "{url}");
        }
        assert_eq!(db("redis://h/?protocol=resp3").unwrap(), 0);
        let refused = [
            ("redis://h/?timeout=5", "got one with a parameter other than db, protocol"),
            ("redis://h/?user=bob", "got one with a parameter other than db, protocol"),
            ("unix:///s?password=p", "got one with a parameter other than db, user, pass, protocol"),
            ("redis://h/?db=x", "got one whose database is no number"),
            ("redis://h/?db=-1", "got one whose database is below 0"),
            ("redis://h/-1", "got one whose database is below 0"),
            ("redis://h/2?db=3", "got one with two databases"),
            ("localhost:6379", "got one without a scheme"),
            ("://localhost", "got one without a scheme"),
            ("bob:s3cret@h://x", "got one without a scheme"),
            ("http://localhost:6379", "got one with the scheme http"),
        ];
        for (url, why) in refused {
            assert!(db(url).unwrap_err().to_string().ends_with(why), "{url}: {:?}", db(url));
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address() {
        let good =
            ["localhost", "my_redis-1.example.org", "10.0.0.5", "::1", "fe80::1%eth0", "bücher.example"];
        for host in good {
            assert!(Endpoint::is_host(host), "{host}");
        }
        for host in ["", "ho st", "host:6379", "[::1]", "redis://h", "a/b", "bob@h", "h\n", "ho%20st"] {
            assert!(!Endpoint::is_host(host), "{host}");
        }
        for url in ["redis://ho%20st", "rediss://ho!st:6379/0"] {
            let refused = url.parse::<Endpoint>().unwrap_err().to_string();
            assert!(refused.ends_with("got one whose host is no host name and no IP address"), "{refused}");
        }
    }

    #[test]
    fn the_way_through_another_port_keeps_everything_but_the_place() {
        let secret = "p@ss:w/ord";
        let endpoint: Endpoint = "redis://bob@localhost:7000/2".parse().unwrap();
        let endpoint = endpoint.with_password(secret);
        assert_eq!(endpoint.address(), Some(Address::Tcp("localhost".into(), 7000)));
        let through: Endpoint = endpoint.secret_url_through(4711).parse().unwrap();
        assert_eq!(through.to_string(), "redis://127.0.0.1:4711/2");
        let settings = through.0.redis_settings();
        assert_eq!((settings.username(), settings.password()), (Some("bob"), Some(secret)));

        let socket: Endpoint = "redis+unix:///run/redis.sock".parse().unwrap();
        assert_eq!(socket.address(), Some(Address::Unix("/run/redis.sock".into())));
        assert_eq!(socket.secret_url_through(4711), "redis://127.0.0.1:4711/0");
        assert_eq!("rediss://host".parse::<Endpoint>().unwrap().address(), None);
    }

    #[test]
    fn a_child_is_led_to_the_same_place_with_the_same_secrets() {
        let places = [
            "redis://bob@localhost:7000/2",
            "redis://[::1]:6379/0",
            "rediss://bob@example.org:6380/1",
            "redis+unix:///run/my redis/r.sock?db=3&user=bob",
        ];
        for url in places {
            let endpoint = url.parse::<Endpoint>().unwrap().with_password("p@ss:w/ord&x=?#");
            let child: Endpoint = endpoint.secret_url().parse().unwrap();
            assert_eq!(child.to_string(), endpoint.to_string());
            let (ours, theirs) = (endpoint.0.redis_settings(), child.0.redis_settings());
            assert_eq!(
                (ours.username(), ours.password(), ours.db()),
                (theirs.username(), theirs.password(), theirs.db())
            );
        }
        assert_eq!("redis://localhost".parse::<Endpoint>().unwrap().secret_url(), "redis://localhost:6379/0");
    }
}
