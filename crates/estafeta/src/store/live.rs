//! A connection for as long as it lasts, and who may send on it.
//!
//! A connection on which Redis lets a command wait ([`Live::hold`]) serves nobody else until that is over. Whoever has
//! another way takes it meanwhile: [`Live::free`] gives a connection only while nothing waits on it, and keeps it so.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, RedisResult, Value};
use tokio::sync::{OwnedRwLockReadGuard, RwLock, mpsc};
use tokio::time::timeout;

use super::server::Server;
use super::trouble::Trouble;

/// An answer is looked for once more when its time is over: the thread may have been held up, not Redis.
const LAST_LOOK: Duration = Duration::from_millis(10);

/// A connection of the moment.
#[derive(Clone)]
pub(crate) struct Live {
    pub connection: MultiplexedConnection,
    /// How many its link has had, this one included.
    pub generation: u64,
    pub since: Instant,
    pub server: Server,
    pub speaks_resp3: bool,
    /// Where the keeper is told that it broke.
    reports: mpsc::UnboundedSender<u64>,
    /// Held by those who send and must not meet a command that waits; all of it, by one that waits.
    line: Arc<RwLock<()>>,
    _pass: Option<Arc<OwnedRwLockReadGuard<()>>>,
    /// Without RESP3 nothing is ever pushed; the channel stays open all the same, for its end means a disconnect.
    _silent: Option<mpsc::UnboundedSender<PushInfo>>,
}

impl Live {
    /// `silent`: where pushes would go, if it does not speak RESP3.
    pub fn new(
        connection: MultiplexedConnection,
        generation: u64,
        server: Server,
        silent: Option<mpsc::UnboundedSender<PushInfo>>,
        reports: mpsc::UnboundedSender<u64>,
    ) -> Self {
        Self {
            connection,
            generation,
            since: Instant::now(),
            server,
            speaks_resp3: silent.is_none(),
            reports,
            line: Arc::default(),
            _pass: None,
            _silent: silent,
        }
    }

    /// The same, if nothing waits on it. Nothing will, as long as the answer lives.
    pub fn free(self) -> Option<Self> {
        let pass = Arc::clone(&self.line).try_read_owned().ok()?;
        Some(Self { _pass: Some(pass.into()), ..self })
    }

    /// Sends a command that Redis answers only after a while; nobody finds the connection free meanwhile.
    pub async fn hold(&self, command: &Cmd, patience: Duration) -> Result<Value, Trouble> {
        // Without an answer Redis may let the connection wait all the same: the line stays taken then.
        let line = ManuallyDrop::new(Arc::clone(&self.line).write_owned().await);
        let mut connection = self.connection.clone();
        let answer = self.answer(connection.send_packed_command(command), patience).await;
        if !matches!(answer, Err(Trouble::Broken(_))) {
            drop(ManuallyDrop::into_inner(line));
        }
        self.checked(answer?)
    }

    /// Waits for an answer, but not for ever.
    pub async fn answer<T>(
        &self,
        sending: impl Future<Output = RedisResult<T>>,
        patience: Duration,
    ) -> Result<T, Trouble> {
        let mut sending = std::pin::pin!(sending);
        let answer = match timeout(patience, &mut sending).await {
            Ok(answer) => Ok(answer),
            Err(_) => timeout(LAST_LOOK, sending).await,
        };
        match answer {
            Ok(answer) => answer.map_err(|error| self.report(error.into())),
            Err(_) => Err(self.report(Trouble::Broken(format!("no answer for {patience:?}")))),
        }
    }

    /// An answer that is none but an error becomes a trouble.
    pub fn checked(&self, answer: Value) -> Result<Value, Trouble> {
        answer.extract_error().map_err(|error| self.report(error.into()))
    }

    fn report(&self, trouble: Trouble) -> Trouble {
        if matches!(trouble, Trouble::Broken(_)) {
            let _ = self.reports.send(self.generation);
        }
        trouble
    }
}
