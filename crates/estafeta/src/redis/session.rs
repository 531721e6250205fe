//! One session of a connection, from connect to disconnect, and the rules for sending on it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, RedisResult, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::call_error::CallError;
use super::endpoint::Door;
use super::server_info::ServerInfo;
use super::topology::Topology;

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
    /// Where the server is, if it is not the one that the endpoint names.
    pub door: Option<Door>,
    pub speaks_resp3: bool,
    /// The server's replication, as a store that confirms its steps last saw it.
    pub replication: Arc<Mutex<Option<crate::steps::Replication>>>,
    topology: Arc<Topology>,
    /// How often sessions of this process had been at the wrong server when this one began.
    pub moves: u64,
    /// Reports to the keeper that this session broke.
    reports: mpsc::UnboundedSender<u64>,
    /// Without RESP3, Redis never pushes anything. The channel stays open all the same, because its end means a
    /// disconnect.
    _silent: Option<mpsc::UnboundedSender<PushInfo>>,
}

impl Session {
    pub fn new(greeted: Greeted, server: ServerInfo, generation: u64, owner: SessionOwner) -> Self {
        Self {
            connection: greeted.connection,
            generation,
            since: Instant::now(),
            server,
            door: greeted.door,
            speaks_resp3: greeted.silent.is_none(),
            topology: owner.topology,
            moves: owner.moves,
            replication: Arc::default(),
            reports: owner.reports,
            _silent: greeted.silent,
        }
    }

    /// Waits for an answer, but at most for `patience` and one last look, and no longer than this server keeps the ring.
    pub async fn answer<T>(
        &self,
        sending: impl Future<Output = RedisResult<T>>,
        patience: Duration,
    ) -> Result<T, CallError> {
        let mut sending = std::pin::pin!(sending);
        let first = tokio::select! {
            biased;
            first = timeout(patience, &mut sending) => first,
            () = self.topology.left_since(self.moves) => {
                return Err(CallError::Broken("another server keeps the ring now".into()));
            }
        };
        let answer = match first {
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
        if matches!(error, CallError::Elsewhere(_)) {
            self.topology.move_on(self.moves);
        }
        error
    }
}

/// A server that has answered the greeting.
pub(crate) struct Greeted {
    pub connection: MultiplexedConnection,
    /// None if it is the server that the endpoint names.
    pub door: Option<Door>,
    /// The channel for pushes, only if the session does not speak RESP3.
    pub silent: Option<mpsc::UnboundedSender<PushInfo>>,
}

/// What a session needs of the connection that opened it.
pub(crate) struct SessionOwner {
    pub topology: Arc<Topology>,
    /// How often sessions of this process had been at the wrong server before this one.
    pub moves: u64,
    pub reports: mpsc::UnboundedSender<u64>,
}
