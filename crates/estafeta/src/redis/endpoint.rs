//! Where the Redis of a ring is, and the credentials for it. A password is never shown.

mod url;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use super::call_error::CallError;
use super::tls::TlsPaths;
use crate::error::Error;

/// Where the Redis of a ring is, with the credentials for it: a server, the sentinels that name it, or nodes of a
/// cluster. Its `Display` and `Debug` output contains no secrets.
///
/// | URL | leads to |
/// |---|---|
/// | `redis://[user:password@]host:6379/0` | one server; if that is a node of a cluster, to the node that owns the ring |
/// | `redis+unix:///path/to/redis.sock?db=0` | the same, by its socket |
/// | `redis+sentinel://[user:password@]host:26379,host/name/0` | the master that these sentinels name |
/// | `redis+cluster://[user:password@]host:6379,host` | the node that owns the ring, whichever of these answers |
///
/// `rediss://`, `rediss+sentinel://` and `rediss+cluster://` connect over TLS. They accept the parameters `tls-ca`,
/// `tls-cert` and `tls-key`, each the path of a PEM file. A URL with sentinels accepts `sentinel-user` and
/// `sentinel-password-file`.
#[derive(Clone)]
pub struct Endpoint {
    /// The first door. Credentials and database are those of the server that keeps the ring.
    info: ConnectionInfo,
    way: Way,
    /// Where to ask for the server. Empty if the endpoint names it.
    doors: Vec<Door>,
    sentinel_user: Option<String>,
    sentinel_password_file: Option<PathBuf>,
    tls: TlsPaths,
}

/// How the server that keeps a ring is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The endpoint names it.
    Direct,
    /// Sentinels name it, as the master of this name.
    Sentinel(String),
    /// Any node of the cluster answers which one it is.
    Cluster,
}

/// The host and the port of a server or of a sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Door {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An IPv6 address has colons, so a URL puts it in brackets.
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

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
        Self::direct(info.expect("a host and a port make an address"))
    }

    /// A server on a socket in the file system.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        let info = ConnectionAddr::Unix(path.into()).into_connection_info();
        Self::direct(info.expect("a path makes an address"))
    }

    fn direct(info: ConnectionInfo) -> Self {
        Self {
            info,
            way: Way::Direct,
            doors: Vec::new(),
            sentinel_user: None,
            sentinel_password_file: None,
            tls: TlsPaths::default(),
        }
    }

    /// Returns the same server with another database. A cluster has only database 0.
    pub fn with_db(self, db: i64) -> Self {
        let settings = self.info.redis_settings().clone().set_db(db);
        Self { info: self.info.set_redis_settings(settings), ..self }
    }

    /// Returns the same server with a user name.
    pub fn with_user(self, user: &str) -> Self {
        let settings = self.info.redis_settings().clone().set_username(user);
        Self { info: self.info.set_redis_settings(settings), ..self }
    }

    /// Returns the same server with a password.
    pub fn with_password(self, password: &str) -> Self {
        let settings = self.info.redis_settings().clone().set_password(password);
        Self { info: self.info.set_redis_settings(settings), ..self }
    }

    /// Returns the same server, of which only certificates of this authority are trusted. The file holds one or more
    /// certificates in PEM format. It is read with each new connection.
    pub fn with_tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.ca = Some(absolute(file.into()));
        self
    }

    /// Returns the same server, to which clients show the certificate in this file. The file is in PEM format, and so is
    /// that of [`with_tls_key`](Self::with_tls_key). Both are read with each new connection.
    pub fn with_tls_cert(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.cert = Some(absolute(file.into()));
        self
    }

    /// Returns the same server, with the key of the certificate of [`with_tls_cert`](Self::with_tls_cert).
    pub fn with_tls_key(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.key = Some(absolute(file.into()));
        self
    }

    /// Whether the endpoint already has a user name.
    pub fn has_user(&self) -> bool {
        self.info.redis_settings().username().is_some()
    }

    /// Whether the endpoint already has a password.
    pub fn has_password(&self) -> bool {
        self.info.redis_settings().password().is_some()
    }

    /// The place where the server listens. None if the connection uses TLS, or if sentinels or nodes of a cluster name
    /// the server.
    pub fn address(&self) -> Option<Address> {
        match self.info.addr() {
            _ if self.way != Way::Direct => None,
            ConnectionAddr::Tcp(host, port) => Some(Address::Tcp(host.clone(), *port)),
            ConnectionAddr::Unix(path) => Some(Address::Unix(path.clone())),
            _ => None,
        }
    }

    /// The places where to ask for the server: sentinels, nodes of a cluster, or the server itself. Empty if connections use
    /// TLS.
    pub fn addresses(&self) -> Vec<Address> {
        match self.info.addr() {
            ConnectionAddr::TcpTls { .. } => Vec::new(),
            _ if self.way == Way::Direct => self.address().into_iter().collect(),
            _ => self.doors.iter().map(|door| Address::Tcp(door.host.clone(), door.port)).collect(),
        }
    }

    /// The server at this door, without a question to sentinels or to other nodes of a cluster.
    pub(crate) fn pinned_to(&self, door: Option<&Door>) -> Self {
        Self { tls: self.tls.clone(), ..Self::direct(self.at(door)) }
    }

    /// Whether the endpoint names one server, and neither sentinels nor a cluster.
    pub fn is_direct(&self) -> bool {
        self.way == Way::Direct
    }

    /// Whether sentinels name the server.
    pub fn names_sentinels(&self) -> bool {
        matches!(self.way, Way::Sentinel(_))
    }

    /// Checks what no single part of an endpoint shows.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.way == Way::Cluster && self.info.redis_settings().db() != 0 {
            let db = self.info.redis_settings().db();
            return Err(Error::expected("db", "0, because a cluster has no other database", db));
        }
        self.tls.check(self.uses_tls())
    }

    /// The URL, including secrets, by which a child process reaches the same database. Pass it in the child's
    /// environment: every user of the machine can read a command line.
    pub fn secret_url(&self) -> String {
        let settings = self.info.redis_settings();
        if let ConnectionAddr::Unix(path) = self.info.addr() {
            let path = encoded_path(path);
            let user = settings.username().map(|user| format!("&user={}", encoded(user)));
            let password = settings.password().map(|password| format!("&pass={}", encoded(password)));
            let (user, password) = (user.unwrap_or_default(), password.unwrap_or_default());
            return format!("redis+unix://{path}?db={}{user}{password}", settings.db());
        }
        let end = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => "#insecure",
            _ => "",
        };
        self.url(&self.credentials()) + &self.parameters() + end
    }

    /// The URL, including secrets, by which a process reaches the same database through other ports of this machine: one
    /// for each of the [`addresses`](Self::addresses), in their order.
    pub fn secret_url_through(&self, ports: &[u16]) -> String {
        let doors: Vec<Door> =
            ports.iter().map(|port| Door { host: "127.0.0.1".to_owned(), port: *port }).collect();
        let info = doors.first().map_or_else(
            || self.info.clone(),
            |door| self.info.clone().set_addr(ConnectionAddr::Tcp(door.host.clone(), door.port)),
        );
        let doors = if self.is_direct() { Vec::new() } else { doors };
        Self { info, doors, tls: TlsPaths::default(), ..self.clone() }.secret_url()
    }

    /// The URL of a server that is not on a socket, with these credentials and without parameters.
    fn url(&self, credentials: &str) -> String {
        let tls = if self.uses_tls() { "s" } else { "" };
        let doors: Vec<String> = self.doors.iter().map(ToString::to_string).collect();
        let (doors, db) = (doors.join(","), self.info.redis_settings().db());
        match &self.way {
            Way::Direct => match self.given_door() {
                Some(door) => format!("redis{tls}://{credentials}{door}/{db}"),
                None => "redis://an-address-of-an-unknown-kind".to_owned(),
            },
            Way::Sentinel(name) => {
                format!("redis{tls}+sentinel://{credentials}{doors}/{}/{db}", encoded(name))
            }
            Way::Cluster if db == 0 => format!("redis{tls}+cluster://{credentials}{doors}"),
            Way::Cluster => format!("redis{tls}+cluster://{credentials}{doors}/{db}"),
        }
    }

    /// The parameters of the URL, with the `?` in front of them.
    fn parameters(&self) -> String {
        let file = |file: &Option<PathBuf>| file.as_deref().map(encoded_path);
        let parameters = [
            ("sentinel-user", self.sentinel_user.as_deref().map(encoded)),
            ("sentinel-password-file", file(&self.sentinel_password_file)),
            ("tls-ca", file(&self.tls.ca)),
            ("tls-cert", file(&self.tls.cert)),
            ("tls-key", file(&self.tls.key)),
        ];
        let given = parameters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let given = given.collect::<Vec<_>>().join("&");
        if given.is_empty() { given } else { format!("?{given}") }
    }

    /// The credentials as a URL holds them in front of the host.
    fn credentials(&self) -> String {
        let settings = self.info.redis_settings();
        let user = settings.username().map(encoded).unwrap_or_default();
        let password = settings.password().map(|password| format!(":{}", encoded(password)));
        let credentials = user + &password.unwrap_or_default();
        if credentials.is_empty() { credentials } else { credentials + "@" }
    }

    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// Where to ask for the server. Empty if the endpoint names it.
    pub(crate) fn doors(&self) -> &[Door] {
        &self.doors
    }

    /// The host and the port that the endpoint names, if it names a server and not a socket.
    pub(crate) fn given_door(&self) -> Option<Door> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Door { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// Whether the connection is encrypted.
    pub fn uses_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// A client of the server at this door, or of the one that the endpoint names.
    pub(crate) fn client(&self, door: Option<&Door>, protocol: ProtocolVersion) -> Result<Client, CallError> {
        let settings = self.info.redis_settings().clone();
        let settings = settings.set_protocol(protocol).set_skip_set_lib_name();
        self.tls.client(self.at(door).set_redis_settings(settings))
    }

    /// A client of the sentinel at this door.
    pub(crate) fn sentinel_client(
        &self,
        door: &Door,
        protocol: ProtocolVersion,
    ) -> Result<Client, CallError> {
        let mut settings =
            redis::RedisConnectionInfo::default().set_protocol(protocol).set_skip_set_lib_name();
        if let Some(user) = &self.sentinel_user {
            settings = settings.set_username(user);
        }
        if let Some(file) = &self.sentinel_password_file {
            let password = std::fs::read_to_string(file).map_err(|error| {
                let file = file.display();
                CallError::Refused(format!("cannot read the password of the sentinels from {file}: {error}"))
            })?;
            settings = settings.set_password(password.trim_end_matches(['\r', '\n']));
        }
        self.tls.client(self.at(Some(door)).set_redis_settings(settings))
    }

    /// The same kind of address at another door.
    fn at(&self, door: Option<&Door>) -> ConnectionInfo {
        let Some(Door { host, port }) = door.cloned() else { return self.info.clone() };
        let address = match self.info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.info.clone().set_addr(address)
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

/// The path by which a process with another working directory finds the same file.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
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

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info.addr() {
            ConnectionAddr::Unix(path) => write!(f, "{}", path.display()),
            _ => f.write_str(&self.url("")),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
