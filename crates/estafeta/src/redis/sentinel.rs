//! A connection to a sentinel.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisError};
use tokio::sync::mpsc;

use super::call_error::CallError;
use super::endpoint::{Door, Endpoint};

/// The channel on which a sentinel announces that a master was replaced.
const SWITCHES: &str = "+switch-master";

pub(crate) struct SentinelLink {
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    door: Door,
}

impl SentinelLink {
    /// Connects to the sentinel at this door.
    pub async fn open(endpoint: &Endpoint, door: &Door) -> Result<Self, CallError> {
        let (push_sender, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(push_sender);
        let client = endpoint.sentinel_client(door, ProtocolVersion::RESP3)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(|error| at(door, error))?;
        Ok(Self { connection, pushes, door: door.clone() })
    }

    /// The master with this name, if the sentinel knows one.
    pub async fn master(&mut self, name: &str) -> Result<Option<Door>, CallError> {
        let mut asking = redis::cmd("SENTINEL");
        asking.arg("get-master-addr-by-name").arg(name);
        let named: Option<(String, u16)> =
            asking.query_async(&mut self.connection).await.map_err(|error| at(&self.door, error))?;
        Ok(named.map(|(host, port)| Door { host, port }))
    }

    /// Waits until the sentinel announces a new master of any name. Never returns if the sentinel does not allow that, or
    /// is gone.
    pub async fn switched(&mut self) {
        // Subscribing again changes nothing.
        if self.connection.subscribe(SWITCHES).await.is_ok() {
            while let Some(push) = self.pushes.recv().await {
                if push.kind == PushKind::Message {
                    return;
                }
            }
        }
        std::future::pending().await
    }
}

/// An error of the sentinel at this door.
fn at(door: &Door, error: RedisError) -> CallError {
    match error.into() {
        CallError::Refused(reason) if reason.starts_with("ERR unknown command") => {
            CallError::Refused(format!("the server at {door} is no sentinel"))
        }
        CallError::Refused(reason) => CallError::Refused(format!("the sentinel at {door} refuses: {reason}")),
        other => CallError::Broken(format!("the sentinel at {door}: {other}")),
    }
}
