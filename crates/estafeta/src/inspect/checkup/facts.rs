//! What a server reports about itself.

use std::collections::HashMap;

use redis::{FromRedisValue, InfoDict};

use super::is_refusal;
use crate::error::Result;
use crate::redis::Store;

/// The settings that a check-up wants to know.
const SETTINGS: [&str; 4] = ["save", "appendfsync", "min-replicas-to-write", "stop-writes-on-bgsave-error"];

/// What a server reports about itself. A server may keep some or all of it to itself.
pub(super) struct ServerFacts {
    info: InfoDict,
    settings: HashMap<String, String>,
}

/// A replica, as its master sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReplicaLine {
    pub address: String,
    pub is_online: bool,
    pub lag_s: u64,
    pub behind_bytes: u64,
}

impl ServerFacts {
    pub(super) fn new(info: &str, settings: HashMap<String, String>) -> Self {
        Self { info: InfoDict::new(info), settings }
    }

    pub(super) fn text(&self, field: &str) -> Option<String> {
        self.get(field)
    }

    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.get(field)
    }

    fn get<T: FromRedisValue>(&self, field: &str) -> Option<T> {
        self.info.get(field)
    }

    /// A setting. None if the server does not show its settings.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    pub(super) fn is_replica(&self) -> bool {
        self.text("role").as_deref() == Some("slave")
    }

    pub(super) fn replicas(&self) -> Vec<ReplicaLine> {
        let count = self.number("connected_slaves").unwrap_or(0);
        (0..count).filter_map(|index| self.replica(&self.text(&format!("slave{index}"))?)).collect()
    }

    fn replica(&self, line: &str) -> Option<ReplicaLine> {
        let parts: HashMap<&str, &str> = line.split(',').filter_map(|part| part.split_once('=')).collect();
        let number = |name: &str| parts.get(name).and_then(|value| value.parse::<u64>().ok());
        let offset = number("offset").unwrap_or(0);
        Some(ReplicaLine {
            address: format!("{}:{}", parts.get("ip")?, parts.get("port")?),
            is_online: parts.get("state") == Some(&"online"),
            lag_s: number("lag").unwrap_or(0),
            behind_bytes: self.number("master_repl_offset").unwrap_or(0).saturating_sub(offset),
        })
    }
}

impl Store {
    /// Asks the server about itself. What it refuses to show is missing from the answer.
    pub(super) async fn server_facts(&self) -> Result<ServerFacts> {
        let info = match self.read::<String>(&redis::cmd("INFO")).await {
            Err(error) if is_refusal(&error).is_some() => String::new(),
            read => read?,
        };
        let settings = match self.read(redis::cmd("CONFIG").arg("GET").arg(&SETTINGS)).await {
            Err(error) if is_refusal(&error).is_some() => HashMap::new(),
            read => read?,
        };
        Ok(ServerFacts::new(&info, settings))
    }
}
