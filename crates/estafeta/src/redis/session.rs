//! One session of a connection, from connect to disconnect, and the rules for sending on it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, RedisResult, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::call_error::CallError;
use super::confirmation::ReplicationInfo;
use super::server_info::ServerInfo;

/// How long to look for an answer once more after its time is over, because the thread may have been held up, not
/// Redis.
const LAST_LOOK: Duration = Duration::from_millis(10);

/// The current session of a connection.
#[derive(Clone)]
pub(crate) struct Session {
    pub connection: MultiplexedConnection,
    /// How many sessions the connection has had, including this one.
    pub generation: u64,
    pub since: Instant,
    pub server: ServerInfo,
    pub speaks_resp3: bool,
    /// The server's replication, as a store that confirms its steps last saw it.
    pub replication: Arc<Mutex<Option<ReplicationInfo>>>,
    /// Reports to the keeper that this session broke.
    reports: mpsc::UnboundedSender<u64>,
    /// Without RESP3, Redis never pushes anything. The channel stays open all the same, because its end means a
    /// disconnect.
    _silent: Option<mpsc::UnboundedSender<PushInfo>>,
}

impl Session {
    /// `silent` is the channel for pushes, given only if the session does not speak RESP3.
    pub fn new(
        connection: MultiplexedConnection,
        generation: u64,
        server: ServerInfo,
        silent: Option<mpsc::UnboundedSender<PushInfo>>,
        reports: mpsc::UnboundedSender<u64>,
    ) -> Self {
        Self {
            connection,
            generation,
            since: Instant::now(),
            server,
            speaks_resp3: silent.is_none(),
            replication: Arc::default(),
            reports,
            _silent: silent,
        }
    }

    /// Waits for an answer, but at most for `patience` and one last look.
    pub async fn answer<T>(
        &self,
        sending: impl Future<Output = RedisResult<T>>,
        patience: Duration,
    ) -> Result<T, CallError> {
        let mut sending = std::pin::pin!(sending);
        let answer = match timeout(patience, &mut sending).await {
            Ok(answer) => Ok(answer),
            Err(_) => timeout(LAST_LOOK, sending).await,
        };
        match answer {
            Ok(answer) => answer.map_err(|error| self.report(error.into())),
            Err(_) => Err(self.report(CallError::Broken(format!("no answer for {patience:?}")))),
        }
    }

    /// Turns an answer that contains an error into a call error.
    pub fn checked(&self, answer: Value) -> Result<Value, CallError> {
        answer.extract_error().map_err(|error| self.report(error.into()))
    }

    /// Ends this session, because its server does not keep the ring for this reason.
    pub fn leave(&self, reason: &str) -> CallError {
        self.report(CallError::Elsewhere(reason.to_owned()))
    }

    fn report(&self, error: CallError) -> CallError {
        if error.ends_session() {
            let _ = self.reports.send(self.generation);
        }
        error
    }
}
