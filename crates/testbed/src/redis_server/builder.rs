use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::RedisServer;

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
    append_only: Option<Fsync>,
    password: Option<String>,
    extra: Vec<(String, String)>,
    pub(super) data: Option<PathBuf>,
    pub(super) envs: Vec<(String, OsString)>,
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

    /// Requires a password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
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

    /// The settings in the order in which the server reads them. Those of the test come last and override the others.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let mut settings: Vec<(&str, &str)> = Vec::new();
        match self.append_only {
            None => settings.push(("--appendonly", "no")),
            Some(Fsync::Always) => settings.extend([("--appendonly", "yes"), ("--appendfsync", "always")]),
            Some(Fsync::EverySec) => {
                settings.extend([("--appendonly", "yes"), ("--appendfsync", "everysec")])
            }
        }
        settings.extend(self.password.as_deref().map(|password| ("--requirepass", password)));
        let defaults = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        defaults.chain(self.extra.iter().cloned()).collect()
    }

    pub(super) fn socket_url(&self, socket: &Path) -> String {
        let path = socket.display();
        match &self.password {
            Some(password) => format!("redis+unix://{path}?pass={}", percent_encoded(password)),
            None => format!("redis+unix://{path}"),
        }
    }

    pub(super) fn tcp_url(&self, port: u16) -> String {
        match &self.password {
            Some(password) => format!("redis://:{}@127.0.0.1:{port}", percent_encoded(password)),
            None => format!("redis://127.0.0.1:{port}"),
        }
    }
}

fn percent_encoded(text: &str) -> String {
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
