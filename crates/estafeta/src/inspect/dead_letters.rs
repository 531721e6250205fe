//! Takes the dead letters out of Redis and loses none. Redis removes each of them once, after the caller has had it.
//!
//! A reader is a member of the ring, with its own lease and presence. It takes a chunk of dead letters into its list,
//! where no other reader sees them. The caller shows them, and the next call removes them for good. If the reader dies
//! in between, its chunk goes back to the head of the list, like the messages of a dead handler.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::message::DeadLetter;
use crate::node::batch_size::{BatchSize, MOST};
use crate::node::control_thread::ControlThread;
use crate::node::heartbeat::join;
use crate::node::open;
use crate::node::sweeper::FailureDetector;
use crate::redis::{Store, Topology};
use crate::steps::{Beat, Known, MemberKind, ShownLetters, Take};

/// A reader of dead letters.
pub struct DeadLetterReader {
    store: Store,
    config: Config,
    me: Identity,
    cursor: u64,
    /// Dead letters that were handed out and not yet released.
    shown: usize,
    batch_size: BatchSize,
    end: CancellationToken,
    control: ControlThread,
}

impl fmt::Debug for DeadLetterReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetterReader").field("ring", &self.config.ring).finish_non_exhaustive()
    }
}

impl DeadLetterReader {
    /// Joins the ring as a reader. Before this returns, everything that dead readers held is back in the list.
    pub async fn join(mut config: Config) -> Result<Self> {
        // A reader works on one list, however many lanes the ring's nodes have.
        config.concurrency = 1;
        config.validate()?;
        let failed = |error: std::io::Error| Error::PartFailed("control", error.to_string());
        let control = ControlThread::start().map_err(failed)?;
        let end = CancellationToken::new();
        let topology = Arc::new(Topology::new(config.redis.clone(), &config.ring));
        let (connection, keeper) = open(control.handle(), &config, &topology).await?;
        let store = Store::new(Arc::clone(&connection), config.ring.clone());
        let me = join(&store, &config, MemberKind::Reader).await?;
        let token = end.clone();
        control.handle().spawn(async move { connection.keep(keeper, token).await });
        let mut reader =
            Self { store, config, me, cursor: 0, shown: 0, batch_size: BatchSize::new(MOST), end, control };
        reader.beat();
        let mut detector = FailureDetector::new(reader.store.clone(), reader.config.clone().into(), None);
        detector.sweep(&reader.end).await?;
        Ok(reader)
    }

    /// Returns how many dead letters wait in the list.
    pub async fn count(&self) -> Result<u64> {
        self.store.error_count().await
    }

    /// Removes the dead letters handed out last, for good, and returns the next ones. The result is empty when none are
    /// left.
    pub async fn next(&mut self) -> Result<Vec<DeadLetter>> {
        loop {
            let want = self.batch_size.next();
            if let Some(held) = self.take(want).await? {
                let bytes = held.iter().map(|error| error.message.body().len()).sum();
                // Only the size of the dead letters bounds a chunk. How fast the caller shows them does not matter.
                self.batch_size.record(held.len(), bytes, std::time::Duration::ZERO);
                self.shown = held.len();
                return Ok(held);
            }
        }
    }

    /// Removes the dead letters handed out last, without taking more.
    pub async fn release(&mut self) -> Result<()> {
        self.take(0).await.map(drop)
    }

    /// Leaves the ring. Dead letters that were handed out and not released go back to the list.
    pub async fn leave(self) -> Result<()> {
        let left = self.store.leave(self.me.incarnation).await;
        self.end.cancel();
        let _ = tokio::task::spawn_blocking(move || drop(self.control)).await;
        left.map(drop)
    }

    /// Returns None if this reader had been declared dead. What it held is then back in the list, and it has joined
    /// again.
    async fn take(&mut self, want: usize) -> Result<Option<Vec<DeadLetter>>> {
        let shown = ShownLetters { cursor: self.cursor, count: self.shown, want };
        match self.store.confirming(self.config.durability).take(self.me, &shown).await? {
            Take::Holds { cursor, held } => {
                self.cursor = cursor;
                self.shown = 0;
                Ok(Some(held))
            }
            Take::Lost => {
                // If Redis lost only part of the registration, the member was not buried, and no other member knows
                // what it holds.
                self.store.leave(self.me.incarnation).await?;
                self.me = join(&self.store, &self.config, MemberKind::Reader).await?;
                (self.cursor, self.shown) = (0, 0);
                self.beat();
                Ok(None)
            }
        }
    }

    /// Keeps extending the lease of the current incarnation, on the control thread.
    fn beat(&mut self) {
        let (store, me) = (self.store.clone(), self.me.incarnation);
        let (lease, pace, end) = (self.config.lease, self.config.beat(), self.end.clone());
        self.control.handle().spawn(async move {
            while !end.is_cancelled() {
                match store.beat(me, lease, Known::default()).await {
                    Ok(Beat::Stands(_)) => {}
                    Ok(Beat::Lost) => return,
                    Err(error) => tracing::debug!("a reader's beat failed: {error}"),
                }
                tokio::select! {
                    () = end.cancelled() => {}
                    () = tokio::time::sleep(pace) => {}
                }
            }
        });
    }
}
