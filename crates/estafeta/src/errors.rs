//! Takes the errors out of Redis, each exactly once, losing none.
//!
//! A reader is a member of the ring with a lease and a presence of its own. It takes a chunk of errors into its hands,
//! where no other reader sees them; the caller shows them; the next call lets go of them for good. If the reader dies in
//! between, its chunk goes back to the head of the list like the messages of a dead handler.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::appetite::{Appetite, MOST};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::heartbeat::join;
use crate::member::open;
use crate::member_id::Identity;
use crate::message::FailedMessage;
use crate::pulse::Pulse;
use crate::store::{Beat, Kind, Settlement, Store, Turn};
use crate::sweeper::Judge;

/// A reader of errors.
pub struct ErrorReader {
    store: Store,
    config: Config,
    me: Identity,
    cursor: u64,
    /// Errors that were handed out and not let go of yet.
    shown: usize,
    appetite: Appetite,
    end: CancellationToken,
    pulse: Pulse,
}

impl ErrorReader {
    /// Joins the ring as a reader. What dead readers held is back in the list before this returns.
    pub async fn join(mut config: Config) -> Result<Self> {
        // A reader works one list, whatever the copies of the ring do.
        config.concurrency = 1;
        config.validate()?;
        let failed = |error: std::io::Error| Error::PartFailed("pulse", error.to_string());
        let pulse = Pulse::start().map_err(failed)?;
        let end = CancellationToken::new();
        let (link, keeper) = open(pulse.handle(), &config).await?;
        let store = Store::new(Arc::clone(&link), config.ring.clone());
        let me = join(&store, &config, Kind::Reader).await?;
        let token = end.clone();
        pulse.handle().spawn(async move { link.keep(keeper, token).await });
        let mut reader =
            Self { store, config, me, cursor: 0, shown: 0, appetite: Appetite::new(MOST), end, pulse };
        reader.beat();
        let mut judge = Judge::new(reader.store.clone(), reader.config.clone().into(), None);
        judge.sweep(&reader.end).await?;
        Ok(reader)
    }

    /// How many errors wait in the list.
    pub async fn count(&self) -> Result<u64> {
        self.store.error_count().await
    }

    /// Lets go of the errors handed out last, for good, and hands out the next ones. Empty when there are none left.
    pub async fn next(&mut self) -> Result<Vec<FailedMessage>> {
        loop {
            let want = self.appetite.want();
            if let Some(held) = self.take(want).await? {
                let bytes = held.iter().map(|error| error.body().len()).sum();
                // Only the size of the errors bounds a chunk; how fast they are shown does not matter.
                self.appetite.ate(held.len(), bytes, std::time::Duration::ZERO);
                self.shown = held.len();
                return Ok(held);
            }
        }
    }

    /// Lets go of the errors handed out last without taking more.
    pub async fn release(&mut self) -> Result<()> {
        self.take(0).await.map(drop)
    }

    /// Leaves the ring. Errors that were handed out and not released go back.
    pub async fn leave(self) -> Result<()> {
        let left = self.store.leave(self.me.incarnation, 1).await;
        self.end.cancel();
        let _ = tokio::task::spawn_blocking(move || drop(self.pulse)).await;
        left.map(drop)
    }

    /// None if this reader had been declared dead: what it held is back in the list, and it has joined again.
    async fn take(&mut self, want: usize) -> Result<Option<Vec<FailedMessage>>> {
        let settlement =
            Settlement { cursor: self.cursor, settled: self.shown, want, ..Settlement::default() };
        match self.store.take(self.me, &settlement).await? {
            Turn::Holds { cursor, held, .. } => {
                self.cursor = cursor;
                self.shown = 0;
                Ok(Some(held))
            }
            Turn::Lost => {
                // If it was not buried but forgotten in part, nobody else knows what it holds.
                self.store.leave(self.me.incarnation, 1).await?;
                self.me = join(&self.store, &self.config, Kind::Reader).await?;
                (self.cursor, self.shown) = (0, 0);
                self.beat();
                Ok(None)
            }
        }
    }

    /// Keeps the lease of the current incarnation running, on the pulse.
    fn beat(&mut self) {
        let (store, me) = (self.store.clone(), self.me.incarnation);
        let (lease, pace, end) = (self.config.lease, self.config.beat(), self.end.clone());
        self.pulse.handle().spawn(async move {
            while !end.is_cancelled() {
                match store.beat(me, lease).await {
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
