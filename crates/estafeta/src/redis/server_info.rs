//! What a Redis server reports about itself.

use std::time::Duration;

use redis::InfoDict;

use super::call_error::CallError;

/// The oldest Redis version whose scripts can have flags and call `PUBSUB`.
const OLDEST: (u32, u32) = (7, 0);

/// The facts about a server that the library needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerInfo {
    version: String,
    pub uptime: Duration,
    /// `standalone`, `cluster` or `sentinel`.
    mode: String,
    /// `master` or `slave`.
    role: String,
    /// Whether the server has been promoted from a replica since it started.
    pub was_promoted: bool,
}

impl ServerInfo {
    /// Parses the answers to `INFO server` and `INFO replication`.
    pub fn read(server: &str, replication: &str) -> Self {
        let (server, replication) = (InfoDict::new(server), InfoDict::new(replication));
        let mode = server.get("redis_mode").or_else(|| server.get("server_mode"));
        Self {
            version: server.get("redis_version").unwrap_or_default(),
            uptime: Duration::from_secs(server.get("uptime_in_seconds").unwrap_or_default()),
            mode: mode.unwrap_or_default(),
            role: replication.get("role").unwrap_or_default(),
            // A promoted server keeps the offset up to which it had followed its master.
            was_promoted: replication.get("second_repl_offset").is_some_and(|offset: i64| offset >= 0),
        }
    }

    pub fn is_sentinel(&self) -> bool {
        self.mode == "sentinel"
    }

    /// Whether it is a node of a cluster. A server that does not report its mode may be one.
    pub fn is_cluster_node(&self) -> bool {
        self.mode != "standalone"
    }

    /// Whether it reports that it is a node of a cluster.
    pub fn reports_cluster(&self) -> bool {
        self.mode == "cluster"
    }

    pub fn is_master(&self) -> bool {
        self.role == "master"
    }

    /// Major and minor version.
    fn release(&self) -> (u32, u32) {
        let mut parts = self.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    /// Whether it can confirm that its disk has a change.
    pub fn has_waitaof(&self) -> bool {
        self.release() >= (7, 2)
    }

    pub fn check_version(&self) -> Result<(), CallError> {
        if self.release() >= OLDEST {
            return Ok(());
        }
        let (major, minor) = OLDEST;
        Err(CallError::Refused(format!("expected Redis {major}.{minor} or newer, got {}", self.version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_taken_from_7_0_on() {
        let server = |version: &str| {
            let server = format!("# Server\r\nredis_version:{version}\r\nuptime_in_seconds:12\r\n");
            ServerInfo::read(&server, "")
        };
        assert_eq!(server("7.0.15").uptime, Duration::from_secs(12));
        for good in ["7.0.0", "7.2.4", "8.0.1", "10.0"] {
            assert!(server(good).check_version().is_ok(), "{good}");
        }
        for old in ["6.2.14", "6.9", "", "unknown"] {
            let message = server(old).check_version().expect_err(old).to_string();
            assert_eq!(message, format!("expected Redis 7.0 or newer, got {old}"));
        }
    }

    #[test]
    fn mode_and_role_are_read_and_a_server_that_was_a_replica_is_known() {
        let read = |mode: &str, role: &str| ServerInfo::read(&format!("{mode}\r\n"), &format!("{role}\r\n"));
        assert!(read("redis_mode:sentinel", "").is_sentinel());
        assert!(read("server_mode:cluster", "").reports_cluster());
        let alone = read("redis_mode:standalone", "role:master\r\nsecond_repl_offset:-1");
        assert!(
            alone.is_master() && !alone.is_cluster_node() && !alone.reports_cluster() && !alone.was_promoted
        );
        let promoted = read("", "role:master\r\nsecond_repl_offset:0");
        assert!(promoted.was_promoted && promoted.is_cluster_node() && !promoted.reports_cluster());
        assert!(!read("", "role:slave").is_master());
    }
}
