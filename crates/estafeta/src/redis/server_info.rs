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
}

impl ServerInfo {
    /// Parses the answer to `INFO server`.
    pub fn read(info: &str) -> Self {
        let info = InfoDict::new(info);
        Self {
            version: info.get("redis_version").unwrap_or_default(),
            uptime: Duration::from_secs(info.get("uptime_in_seconds").unwrap_or_default()),
        }
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
            ServerInfo::read(&format!("# Server\r\nredis_version:{version}\r\nuptime_in_seconds:12\r\n"))
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
}
