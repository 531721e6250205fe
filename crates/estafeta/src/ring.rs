//! A ring seen from outside: for commands, monitors and programs that want to look or clean up without taking part.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::journal::JournalEntry;
use crate::keys::RingName;
use crate::message::FailedMessage;
use crate::snapshot::{self, Event, KnownLanes, Snapshot};
use crate::store::{Keeper, Link, Store};
use crate::sweeper::{Burial, Judge};

/// How long a command waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Errors that pass through memory at once.
const CHUNK: u64 = 200;
/// Entries of the journal that are read at once.
const JOURNAL_CHUNK: usize = 1000;

/// A connection to a ring.
pub struct Ring {
    name: RingName,
    endpoint: Endpoint,
    store: Store,
    lanes: KnownLanes,
    /// A link whose keeper is gone could not be told that it broke.
    _keeper: Keeper,
}

impl Ring {
    /// Connects. The ring need not exist yet.
    pub async fn connect(endpoint: Endpoint, name: RingName) -> Result<Self> {
        let (link, keeper) = Link::open(endpoint.clone(), PATIENCE).await?;
        let store = Store::new(Arc::new(link), name.clone());
        Ok(Self { name, endpoint, store, lanes: KnownLanes::default(), _keeper: keeper })
    }

    /// A new connection to the same ring, in place of one that broke.
    pub async fn reconnect(&self) -> Result<Self> {
        Self::connect(self.endpoint.clone(), self.name.clone()).await
    }

    /// The ring at this moment, with the last `events` entries of its event stream.
    pub async fn snapshot(&self, events: usize) -> Result<Snapshot> {
        snapshot::read(&self.store, &self.name, &self.lanes, events).await
    }

    /// The first `count` entries of the event stream that follow the one named `after` (empty: from the start), oldest
    /// first. The stream keeps about the last 10,000, so whoever looks too rarely misses some.
    pub async fn events_after(&self, after: &str, count: usize) -> Result<Vec<Event>> {
        self.store.check_schema().await?;
        self.store.events_after(after, count).await
    }

    /// Buries all dead members now.
    pub async fn sweep(&self) -> Result<Vec<Burial>> {
        self.store.check_schema().await?;
        let config = Config::new(self.endpoint.clone(), self.name.clone());
        Judge::new(self.store.clone(), config.into(), None).sweep(&CancellationToken::new()).await
    }

    /// How many errors are kept and in no reader's hands.
    pub async fn error_count(&self) -> Result<u64> {
        self.store.check_schema().await?;
        self.store.error_count().await
    }

    /// A stretch of the kept errors, oldest first, without taking them.
    pub async fn errors(&self, from: u64, count: u64) -> Result<Vec<FailedMessage>> {
        self.store.check_schema().await?;
        self.store.errors(from, count).await
    }

    /// Puts errors back into the queue, with a fresh count of attempts. Says how many were there.
    pub async fn retry_errors(&self, which: &Selection) -> Result<u64> {
        self.resolve("retry", which).await
    }

    /// Deletes errors. Says how many were there.
    pub async fn drop_errors(&self, which: &Selection) -> Result<u64> {
        self.resolve("drop", which).await
    }

    async fn resolve(&self, verb: &str, which: &Selection) -> Result<u64> {
        self.store.check_schema().await?;
        let (mut from, mut resolved) = (0, 0);
        // Errors that fail again while we work are not ours to touch: no more than there were at the start.
        let mut left = self.store.error_count().await?;
        while left > 0 {
            let chunk = self.store.errors(from, CHUNK.min(left)).await?;
            if chunk.is_empty() {
                break;
            }
            left -= chunk.len() as u64;
            let chosen: Vec<&[u8]> =
                chunk.iter().filter(|error| which.has(error.id)).map(FailedMessage::element).collect();
            let gone = if chosen.is_empty() { 0 } else { self.store.resolve(verb, &chosen).await? };
            resolved += gone;
            from += chunk.len() as u64 - gone;
        }
        Ok(resolved)
    }

    /// Whether Redis has nothing at all of this ring.
    pub async fn is_untouched(&self) -> Result<bool> {
        self.store.is_untouched().await
    }

    /// The whole journal, oldest entry first; empty unless the members were configured to write one.
    pub async fn journal(&self) -> Result<Vec<JournalEntry>> {
        let (mut journal, mut last) = (Vec::new(), String::new());
        loop {
            let (entries, name) = self.store.journal(&last, JOURNAL_CHUNK).await?;
            if entries.is_empty() {
                return Ok(journal);
            }
            journal.extend(entries);
            last = name;
        }
    }

    /// Deletes the ring's keys and no others. Says how many there were.
    pub async fn erase(&self) -> Result<u64> {
        self.store.check_schema().await?;
        self.store.erase().await
    }
}

/// Which errors are meant.
#[derive(Clone, Debug)]
pub enum Selection {
    /// Every one that is kept.
    All,
    /// Those of the messages with these ids.
    Ids(Vec<u64>),
}

impl Selection {
    fn has(&self, id: u64) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.contains(&id),
        }
    }
}
