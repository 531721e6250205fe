//! A ring seen from outside, for commands, monitors and programs that inspect it or clean up without joining it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::checkup::{self, ServerFinding};
use super::event::Event;
use super::history::{HistoryRange, RingHistory};
use super::journal::JournalEntry;
use super::results::MessageResult;
use super::schedule::PlannedEntry;
use super::snapshot::{self, Snapshot};
use bytes::Bytes;

use crate::config::Config;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::keys::RingName;
use crate::layout::Layouts;
use crate::message::DeadLetter;
use crate::node::sweeper::{Burial, FailureDetector};
use crate::partition::Partition;
use crate::redis::Endpoint;
use crate::redis::Store;
use crate::steps::{Activity, LimitChange, Rate};

/// How long a call waits for an answer by default.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of dead letters that are in memory at once.
const CHUNK: u64 = 200;
/// How many characters of an actor's name the events contain.
const MOST_ACTOR: usize = 100;
/// The number of journal entries that are read at once.
const JOURNAL_CHUNK: usize = 1000;

/// A ring seen from outside. Clones share one connection, which reconnects by itself: a call fails while Redis cannot be
/// reached, and later calls work again.
#[derive(Clone)]
pub struct Ring {
    name: RingName,
    endpoint: Endpoint,
    store: Store,
    durability: Durability,
    patience: Duration,
    /// Ends the task that reconnects, once the last clone is gone.
    _open: Arc<DropGuard>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("name", &self.name)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Connects like [`connect`](Self::connect), to an address like `redis://127.0.0.1:6379`.
    pub async fn on(redis: &str, ring: &str) -> Result<Self> {
        Self::connect(redis.parse()?, ring.parse()?).await
    }

    /// Connects to Redis, and reconnects on the current tokio runtime whenever the connection breaks. The ring need not
    /// exist yet. A call fails if Redis does not answer for five seconds.
    pub async fn connect(endpoint: Endpoint, name: RingName) -> Result<Self> {
        Self::connect_with(endpoint, name, PATIENCE).await
    }

    /// Like [`connect`](Self::connect). A call fails if Redis does not answer for `patience`.
    pub async fn connect_with(endpoint: Endpoint, name: RingName, patience: Duration) -> Result<Self> {
        let (store, open) = Store::open(endpoint.clone(), name.clone(), patience).await?;
        let durability = Durability::default();
        Ok(Self { name, endpoint, store, durability, patience, _open: open.into() })
    }

    /// Returns the same ring, except that dead letters count as retried or dropped only when Redis has stored that at this
    /// level.
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Returns all partitions of this ring, in their order, each with its own connection. A ring that is not divided is
    /// its only partition.
    ///
    /// A divided ring keeps nothing under its plain name. Ask its partitions instead.
    pub async fn partitions(&self) -> Result<Vec<Self>> {
        let count = self.partition_count().await?;
        if count == 1 {
            return Ok(vec![self.clone()]);
        }
        let mut all = Vec::new();
        for part in Partition::all(count) {
            let (endpoint, name) = (self.endpoint.clone(), part.name_in(&self.name));
            let part = Self::connect_with(endpoint, name, self.patience).await?;
            all.push(part.with_durability(self.durability));
        }
        Ok(all)
    }

    /// Returns how many partitions this ring has. A ring that is not divided, or does not exist, has one.
    pub async fn partition_count(&self) -> Result<u32> {
        count_partitions(&self.endpoint, &self.store, self.patience).await
    }

    #[cfg(feature = "testing")]
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns why this Redis cannot store changes at this level at the moment. None if it can.
    pub async fn shortfall(&self, level: Durability) -> Result<Option<String>> {
        self.store.confirming(level).shortfall().await
    }

    /// Returns the same ring, except that events name `actor`: those about dead letters that it retries or drops, and
    /// about pauses that it begins or ends. Only the first 100 characters count.
    pub fn acting_as(&self, actor: &str) -> Self {
        let actor: String = actor.chars().take(MOST_ACTOR).collect();
        Self { store: self.store.acting_as(&actor), ..self.clone() }
    }

    /// The Redis that the ring is in.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the server that keeps the ring at this moment, as an endpoint that names that server alone. Sentinels or a
    /// cluster may give the ring to another server at any time.
    pub async fn located(&self) -> Result<Endpoint> {
        self.store.located().await
    }

    /// The ring's name.
    pub fn name(&self) -> &RingName {
        &self.name
    }

    /// Returns the ring at this moment, with the last `events` entries of its event stream.
    pub async fn snapshot(&self, events: usize) -> Result<Snapshot> {
        snapshot::read(&self.store, &self.name, events).await
    }

    /// Returns the first `count` entries of the event stream that follow the one named `after` (empty: from the start),
    /// oldest first. The stream keeps about the last 10,000 entries, so a caller that looks too rarely misses some.
    pub async fn events_after(&self, after: &str, count: usize) -> Result<Vec<Event>> {
        self.store.check_layout().await?;
        self.store.events_after(after, count).await
    }

    /// Returns the recent past of the ring: at most 360 samples, oldest first, and the gaps between them.
    pub async fn history(&self, range: HistoryRange) -> Result<RingHistory> {
        self.store.check_layout().await?;
        self.store.history(range).await
    }

    /// Buries all dead members now.
    pub async fn sweep(&self) -> Result<Vec<Burial>> {
        self.store.check_layout().await?;
        let config = Config::new(self.endpoint.clone(), self.name.clone());
        FailureDetector::new(self.store.clone(), config.into(), None).sweep(&CancellationToken::new()).await
    }

    /// Returns how many dead letters are kept and not held by a reader.
    pub async fn error_count(&self) -> Result<u64> {
        self.store.check_layout().await?;
        self.store.error_count().await
    }

    /// Returns a range of the kept dead letters, oldest first, without taking them.
    pub async fn errors(&self, from: u64, count: u64) -> Result<Vec<DeadLetter>> {
        self.store.check_layout().await?;
        self.store.errors(from, count).await
    }

    /// Puts dead letters back into the queue, with fresh counts of failures and deaths. Returns how many were still there.
    pub async fn retry_errors(&self, which: &Selection) -> Result<u64> {
        self.resolve("retry", which).await
    }

    /// Deletes dead letters. Returns how many were still there.
    pub async fn drop_errors(&self, which: &Selection) -> Result<u64> {
        self.resolve("drop", which).await
    }

    /// Like [`retry_errors`](Self::retry_errors), for dead letters that the caller has just [read](Self::errors). Each comes
    /// with its place in the list, counted from 0. Redis does not search the list for them. One that was taken meanwhile
    /// is left out, and so is one that has moved by more than 200 places.
    pub async fn retry_seen(&self, seen: &[(u64, DeadLetter)]) -> Result<u64> {
        self.resolve_seen("retry", seen).await
    }

    /// Like [`drop_errors`](Self::drop_errors), for dead letters that the caller has just [read](Self::errors). See
    /// [`retry_seen`](Self::retry_seen).
    pub async fn drop_seen(&self, seen: &[(u64, DeadLetter)]) -> Result<u64> {
        self.resolve_seen("drop", seen).await
    }

    async fn resolve_seen(&self, verb: &str, seen: &[(u64, DeadLetter)]) -> Result<u64> {
        self.store.check_layout().await?;
        let store = self.store.confirming(self.durability);
        let mut places: Vec<(u64, &[u8])> =
            seen.iter().map(|(place, error)| (*place, error.element())).collect();
        places.sort_unstable();
        let mut resolved = 0;
        // From the end of the list, so that no chunk moves the places of the next one.
        for chunk in places.rchunks(CHUNK as usize) {
            resolved += store.resolve_nearby(verb, chunk.to_vec(), CHUNK).await?;
        }
        Ok(resolved)
    }

    async fn resolve(&self, verb: &str, which: &Selection) -> Result<u64> {
        self.store.check_layout().await?;
        let store = self.store.confirming(self.durability);
        let (mut from, mut resolved) = (0, 0);
        // The loop handles at most as many dead letters as there were at the start. Those that fail again meanwhile
        // stay untouched.
        let mut left = self.store.error_count().await?;
        while left > 0 {
            let chunk = self.store.errors(from, CHUNK.min(left)).await?;
            if chunk.is_empty() {
                break;
            }
            left -= chunk.len() as u64;
            let chosen = (from..).zip(&chunk).filter(|(_, error)| which.has(error.message.id));
            let chosen = chosen.map(|(place, error)| (place, error.element())).collect();
            let gone = store.resolve_nearby(verb, chosen, CHUNK).await?;
            resolved += gone;
            from += chunk.len() as u64 - gone;
        }
        Ok(resolved)
    }

    /// Returns the result that the handler of this message [gave it](crate::Outcome::result). None if the message is not
    /// done, has no result, or the time to live of its result is over.
    pub async fn result(&self, id: u64) -> Result<Option<MessageResult>> {
        self.store.check_layout().await?;
        self.store.result(id).await
    }

    /// Returns the ids of all messages whose results are kept, sorted.
    pub async fn result_ids(&self) -> Result<Vec<u64>> {
        self.store.check_layout().await?;
        self.store.result_ids().await
    }

    /// Returns the settings of this Redis that may harm a ring, each with its remedy. Settings that Redis does not let us
    /// read are not checked.
    pub async fn server_warnings(&self) -> Result<Vec<String>> {
        self.store.server_warnings().await
    }

    /// Examines the Redis: whether a ring with this name can keep its promises there. Takes about a second.
    ///
    /// The check-up tries what a server could get wrong without reporting it. It writes only to keys that no ring has, and
    /// deletes them in the same step. It neither reads nor changes what the ring keeps.
    pub async fn checkup(&self) -> Result<Vec<ServerFinding>> {
        let config = Config::new(self.endpoint.clone(), self.name.clone());
        checkup::examine(&self.store, &self.endpoint, PATIENCE, config.lease).await
    }

    /// Returns the application that the ring belongs to. None if no node has ever joined it, and no publisher with an
    /// application has published.
    pub async fn application(&self) -> Result<Option<String>> {
        self.store.application().await
    }

    /// Returns the names of all rings in this Redis, sorted. In a cluster, that is every ring on any of its masters. The
    /// search of a server ends after a million keys. The flag is true if it saw all of them.
    pub async fn names(&self) -> Result<(Vec<RingName>, bool)> {
        let masters = match self.store.cluster_masters().await {
            // This user may not ask for the masters. Those rings are listed that are beside this one.
            Err(Error::Refused { .. }) => return Ok((self.store.ring_names().await?.0, false)),
            masters => masters?,
        };
        if masters.is_empty() {
            return self.store.ring_names().await;
        }
        let (mut all, mut complete) = (BTreeSet::new(), true);
        for master in masters {
            let (endpoint, name) = (self.endpoint.clone(), self.name.clone());
            let (store, _open) = Store::open_at(master, endpoint, name, PATIENCE).await?;
            let (names, saw_all) = store.ring_names().await?;
            all.extend(names);
            complete &= saw_all;
        }
        Ok((all.into_iter().collect(), complete))
    }

    /// Whether any node has ever joined this ring, or something else has written one of its keys.
    pub async fn exists(&self) -> Result<bool> {
        self.store.has_fixed_keys().await
    }

    /// Whether Redis holds nothing at all of this ring, not even a key that a damaged ring left behind.
    pub async fn is_untouched(&self) -> Result<bool> {
        self.store.is_untouched().await
    }

    /// Returns the whole journal, oldest entry first. It is empty unless the members were configured to write one.
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

    /// Returns the layout in force. None if the ring does not exist.
    pub async fn layout(&self) -> Result<Option<String>> {
        self.store.layout().await
    }

    /// Raises the ring to the newest layout that this version knows. All memberships end in the same step, and nodes
    /// join again by themselves. What they were handling goes back to the queue, so their work on it is repeated.
    ///
    /// Returns the former layout if it was raised, and None if the ring has the newest layout already. Fails if a member
    /// does not know that layout. Nothing has changed then.
    pub async fn upgrade(&self) -> Result<Option<u32>> {
        self.store.check_layout().await?;
        self.store.upgrade_to(Layouts::KNOWN.newest).await
    }

    /// Pauses producing, handling or both, for this time or until [`resume`](Self::resume) ends it. A new pause replaces
    /// the end of an earlier one. The ring must exist.
    ///
    /// While handling is paused, lanes finish what they have started, and nodes claim nothing. While producing is paused,
    /// the generator keeps its office and its messages, and publishers get [`Error::Paused`](crate::Error::Paused).
    pub async fn pause(&self, what: Activity, time: Option<Duration>) -> Result<()> {
        self.store.check_layout().await?;
        self.store.pause(what, time).await
    }

    /// Ends a pause now. Nothing changes if there is none.
    pub async fn resume(&self, what: Activity) -> Result<()> {
        self.store.check_layout().await?;
        self.store.resume(what).await
    }

    /// Limits how many messages all members together hold at one time. None removes the limit. The ring must exist.
    ///
    /// If members hold more already, they finish what they hold, and claim nothing until they hold fewer.
    pub async fn limit_in_flight(&self, limit: Option<u64>) -> Result<()> {
        self.store.check_layout().await?;
        self.store.limit(&LimitChange { in_flight: Some(limit), ..LimitChange::default() }).await
    }

    /// Limits how many messages members claim in a time. None removes the limit. The ring must exist.
    ///
    /// One message and those of 100 ms can be saved up while none are claimed. A message that is claimed again counts
    /// again.
    pub async fn limit_rate(&self, limit: Option<Rate>) -> Result<()> {
        self.store.check_layout().await?;
        self.store.limit(&LimitChange { rate: Some(limit), ..LimitChange::default() }).await
    }

    /// The checkpoint of the last batch that a feed published with one.
    pub async fn checkpoint(&self) -> Result<Option<Bytes>> {
        self.store.check_layout().await?;
        Ok(self.store.progress().await?.0.map(Bytes::from))
    }

    /// Sets the checkpoint with which the next generator opens its feed, or removes it. The ring must exist, and no node
    /// may be in office, because its feed would not notice.
    pub async fn set_checkpoint(&self, checkpoint: Option<&[u8]>) -> Result<()> {
        self.store.check_layout().await?;
        self.store.set_checkpoint(checkpoint).await
    }

    /// Returns the entries of the schedule that the last generator stored, by name, and the next `count` times of each.
    /// Empty if that generator had no schedule.
    pub async fn schedule(&self, count: usize) -> Result<Vec<PlannedEntry>> {
        self.store.check_layout().await?;
        self.store.schedule(count).await
    }

    /// Deletes the ring's keys and no others, even if another version of estafeta wrote them. Results are deleted as well.
    /// The keys that effects wrote (`{ring}:u:NAME`) belong to the user and stay. Returns how many keys there were.
    pub async fn erase(&self) -> Result<u64> {
        self.store.erase().await
    }

    /// Returns the key in Redis that an [effect](crate::Outcome) with this name writes: `{ring}:u:NAME`.
    pub fn user_key(&self, name: &str) -> String {
        self.store.keys().user_key(name)
    }

    /// Returns how many keys there are that [effects](crate::Outcome) wrote: `{ring}:u:NAME`.
    pub async fn count_user_keys(&self) -> Result<u64> {
        self.store.count_user_keys().await
    }

    /// Deletes every key that [effects](crate::Outcome) wrote: `{ring}:u:NAME`. Returns how many there were.
    pub async fn erase_user_keys(&self) -> Result<u64> {
        self.store.erase_user_keys().await
    }
}

/// Counts the partitions of a ring.
///
/// If Redis has lost its data under running nodes, they have begun the partitions again, but the plain name states
/// nothing. Then the first partition does. It may be on another server, so it gets another connection.
pub(crate) async fn count_partitions(endpoint: &Endpoint, ring: &Store, patience: Duration) -> Result<u32> {
    let name = ring.ring();
    if name.is_in_group() || name.whole().is_some() {
        return Ok(1);
    }
    if let Some(count) = ring.stated_partitions().await? {
        return Ok(count);
    }
    if ring.layout().await?.is_some() {
        return Ok(1);
    }
    let (first, _open) = Store::open(endpoint.clone(), name.part(0), patience).await?;
    Ok(first.stated_partitions().await?.unwrap_or(1))
}

/// Marks a ring as divided into so many partitions. Fails if it has another number of them.
///
/// If the plain name states nothing, it may be new, or Redis has lost its data. Then no partition may state another
/// number.
pub(crate) async fn divide(endpoint: &Endpoint, ring: &Store, count: u32, patience: Duration) -> Result<()> {
    if ring.stated_partitions().await?.is_none() {
        for part in Partition::all(count) {
            let name = part.name_in(ring.ring());
            let (store, _open) = Store::open(endpoint.clone(), name, patience).await?;
            if let Some(found) = store.stated_partitions().await?.filter(|found| *found != count) {
                return Err(Error::Partitions { ring: ring.ring().to_string(), found, expected: count });
            }
        }
    }
    ring.divide(count).await
}

/// Selects dead letters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Selection {
    /// Every dead letter that is kept.
    All,
    /// The dead letters of the messages with these ids.
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
