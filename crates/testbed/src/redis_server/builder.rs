use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::RedisServer;
use crate::TlsFiles;

/// How often the append-only file reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before each answer. Nothing that was answered is lost.
    Always,
    /// Once per second. The last second may be lost if the machine fails, but not if only the process does.
    EverySec,
}

/// Options of a [`RedisServer`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    pub(super) tcp: bool,
    pub(super) kind: ServerKind,
    append_only: Option<Fsync>,
    password: Option<String>,
    tls: Option<TlsFiles>,
    users: Vec<Vec<String>>,
    extra: Vec<(String, String)>,
    pub(super) data: Option<PathBuf>,
    pub(super) envs: Vec<(String, OsString)>,
}

/// What a server is to others.
#[derive(Clone, Debug, Default)]
pub(super) enum ServerKind {
    #[default]
    Plain,
    /// A sentinel, and the lines of its configuration file that name the master.
    Sentinel(String),
    /// A node of a cluster, which has a second port for the other nodes.
    ClusterNode,
}

impl Builder {
    /// Keeps the data in an append-only file, so that it survives [`RedisServer::restart`].
    pub fn append_only(mut self, fsync: Fsync) -> Self {
        self.append_only = Some(fsync);
        self
    }

    /// Listens on a free port of 127.0.0.1, in addition to the socket.
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Feeds a replica at once. By default, a master first waits for more replicas, and it sends no writes before the
    /// first report of the replica, although the link is up. A replica that is promoted before that has none of them.
    pub fn with_replicas(self) -> Self {
        self.arg("--repl-diskless-sync", "no")
    }

    /// Requires a password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Speaks only TLS on its TCP port, to clients and to other servers. Implies [`tcp`](Self::tcp). The URLs then name
    /// the host `localhost`. The socket stays without TLS.
    pub fn tls(mut self, files: &TlsFiles) -> Self {
        self.tcp = true;
        self.tls = Some(files.clone());
        self
    }

    /// Adds a user with a password and with access rules: `.user("app", "secret", "~{ring}:* +@all")`.
    pub fn user(mut self, name: &str, password: &str, rules: &str) -> Self {
        let mut words = vec![name.to_owned(), "on".to_owned(), format!(">{password}")];
        words.extend(rules.split_whitespace().map(str::to_owned));
        self.users.push(words);
        self
    }

    /// Adds any other setting, as on the command line: `.arg("--maxmemory", "5mb")`.
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.extra.push((name.into(), value.into()));
        self
    }

    /// Keeps the data in `dir`, which may be on another disk. Socket and log stay where they are.
    pub fn data_in(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data = Some(dir.into());
        self
    }

    /// Sets an environment variable of the server.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// Starts the server and waits until it answers. Panics with its log if it does not.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        RedisServer::start_with(self)
    }

    pub(crate) fn into_sentinel(mut self, monitor: String) -> Self {
        self.kind = ServerKind::Sentinel(monitor);
        self.tcp()
    }

    pub(crate) fn into_cluster_node(mut self) -> Self {
        self.kind = ServerKind::ClusterNode;
        self.tcp()
    }

    pub(crate) fn secret(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(crate) fn tls_files(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// The host of the URLs. A certificate is valid for a name, not for an address.
    pub(crate) fn host(&self) -> &'static str {
        if self.tls.is_some() { "localhost" } else { "127.0.0.1" }
    }

    /// The settings in the order in which the server reads them. Those of the test come last and override the others.
    pub(super) fn settings(&self, port: Option<u16>, bus: Option<u16>) -> Vec<(String, Vec<String>)> {
        let mut settings: Vec<(String, Vec<String>)> = Vec::new();
        let mut add = |name: &str, value: &str| settings.push((name.to_owned(), vec![value.to_owned()]));
        let port = port.unwrap_or(0).to_string();
        match &self.tls {
            None => add("--port", &port),
            Some(files) => {
                for (name, value) in files.settings() {
                    add(name, &value);
                }
                add("--port", "0");
                add("--tls-port", &port);
            }
        }
        match self.append_only {
            None => add("--appendonly", "no"),
            Some(fsync) => {
                add("--appendonly", "yes");
                add("--appendfsync", if fsync == Fsync::Always { "always" } else { "everysec" });
            }
        }
        if let Some(password) = &self.password {
            add("--requirepass", password);
            add("--masterauth", password);
        }
        if let Some(bus) = bus {
            add("--cluster-enabled", "yes");
            add("--cluster-port", &bus.to_string());
        }
        settings.extend(self.users.iter().map(|words| ("--user".to_owned(), words.clone())));
        settings.extend(self.extra.iter().map(|(name, value)| (name.clone(), vec![value.clone()])));
        settings
    }

    pub(super) fn socket_url(&self, socket: &Path) -> String {
        let path = socket.display();
        match &self.password {
            Some(password) => format!("redis+unix://{path}?pass={}", percent_encoded(password)),
            None => format!("redis+unix://{path}"),
        }
    }

    pub(super) fn tcp_url(&self, port: u16) -> String {
        format!("{}://{}{}:{port}", self.scheme(), self.credentials(), self.host())
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "rediss" } else { "redis" }
    }

    /// The part of a URL before the host.
    pub(crate) fn credentials(&self) -> String {
        self.password.as_deref().map(|password| credentials("", password)).unwrap_or_default()
    }
}

/// The part of a URL before the host, for a user with a password.
pub(crate) fn credentials(user: &str, password: &str) -> String {
    format!("{}:{}@", percent_encoded(user), percent_encoded(password))
}

pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
