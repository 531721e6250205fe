//! Queries from outside the ring: by commands, monitors and failure detectors. They only read, except for two: one
//! resolves errors with the step `resolve`, and one erases the ring.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use redis::{Cmd, FromRedisValue as _, Value};

use super::event::Event;
use super::journal::JournalEntry;
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::keys::{Keys, RingName};
use crate::layout::Layouts;
use crate::message::DeadLetter;
use crate::partition;
use crate::redis::{Door, Reply, Store};
use crate::steps::Facts;

impl Store {
    /// Returns a range of the kept dead letters, oldest first.
    pub async fn errors(&self, from: u64, count: u64) -> Result<Vec<DeadLetter>> {
        let mut call = redis::cmd("LRANGE");
        call.arg(&self.keys().errors).arg(from).arg(from + count.max(1) - 1);
        let elements: Vec<Vec<u8>> = self.read(&call).await?;
        Ok(elements.into_iter().map(|element| DeadLetter::parse(self.ring(), element)).collect())
    }

    /// Retries or drops dead letters that the caller saw at these places, in the order of the list. Returns how many of
    /// them were still there.
    ///
    /// Readers take dead letters from the head of the list, and some may come back there. If that has moved the list,
    /// this looks for the dead letters up to `distance` places away from where they were, and tries again.
    pub async fn resolve_nearby(
        &self,
        verb: &str,
        mut chosen: Vec<(u64, &[u8])>,
        distance: u64,
    ) -> Result<u64> {
        const TRIES: usize = 5;
        let mut resolved = 0;
        for _ in 0..TRIES {
            let (Some(&(first, _)), Some(&(last, _))) = (chosen.first(), chosen.last()) else { break };
            let gone = self.resolve(verb, &chosen).await?;
            resolved += gone;
            if gone == chosen.len() as u64 {
                break;
            }
            let from = first.saturating_sub(distance);
            let nearby = self.errors(from, last - from + distance + 1).await?;
            let places: HashMap<&[u8], u64> = nearby.iter().map(DeadLetter::element).zip(from..).collect();
            let mut found: Vec<(u64, &[u8])> = chosen
                .iter()
                .filter_map(|(_, element)| places.get(element).map(|place| (*place, *element)))
                .collect();
            found.sort_unstable();
            // What is still in its place cannot be resolved, because the ring did not write it.
            if found == chosen {
                break;
            }
            chosen = found;
        }
        Ok(resolved)
    }

    /// Returns how many dead letters are kept and not held by a reader.
    pub async fn error_count(&self) -> Result<u64> {
        self.read(redis::cmd("LLEN").arg(&self.keys().errors)).await
    }

    /// Returns all entries of the member list. Foreign entries do not parse as an incarnation.
    pub async fn members(&self) -> Result<Vec<String>> {
        self.read(&self.members_query()).await
    }

    /// Returns what is wrong with the record of a member if it cannot be read.
    pub async fn facts(&self, member: Incarnation) -> Result<Result<Facts, String>> {
        let mut call = redis::cmd("HMGET");
        call.arg(self.keys().member(member)).arg("lanes").arg("presence").arg("lease");
        let fields = match self.send_unless_damaged(&call).await? {
            Ok(Value::Array(fields)) => fields,
            Ok(other) => return Err(Error::Answer(format!("HMGET answered {other:?}"))),
            Err(damage) => return Ok(Err(damage)),
        };
        let number = |index: usize| -> u64 {
            let field = fields.get(index).and_then(|field| String::from_redis_value_ref(field).ok());
            field.and_then(|field| field.parse().ok()).unwrap_or(0)
        };
        let lanes = usize::try_from(number(0)).unwrap_or(0);
        Ok(Ok(Facts { lanes, presence: number(1) == 1, lease: Duration::from_millis(number(2)) }))
    }

    /// The layout in force.
    pub async fn layout(&self) -> Result<Option<String>> {
        self.read(redis::cmd("GET").arg(&self.keys().schema)).await
    }

    /// Fails if the ring has a layout that this version does not know.
    pub async fn check_layout(&self) -> Result<()> {
        match self.layout().await? {
            Some(found) if !Layouts::KNOWN.has(&found) => {
                Err(Error::Layout { ring: self.ring().to_string(), found, known: Layouts::KNOWN })
            }
            _ => Ok(()),
        }
    }

    /// The number of partitions that the requirements of the ring state.
    pub async fn stated_partitions(&self) -> Result<Option<u32>> {
        let words: Vec<String> = self.read(redis::cmd("SMEMBERS").arg(&self.keys().requires)).await?;
        Ok(words.iter().find_map(|word| partition::count_in(word)))
    }

    pub async fn application(&self) -> Result<Option<String>> {
        self.read(redis::cmd("GET").arg(&self.keys().application)).await
    }

    /// Returns the names of all rings, and whether the whole keyspace was searched.
    pub async fn ring_names(&self) -> Result<(Vec<RingName>, bool)> {
        const PAGE: usize = 1000;
        const PAGES: usize = 1000;
        let (mut names, mut cursor) = (BTreeSet::new(), 0_u64);
        for _ in 0..PAGES {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(Keys::SCHEMA_PATTERN).arg("COUNT").arg(PAGE);
            let (next, found): (u64, Vec<Vec<u8>>) = self.read(&scan).await?;
            names.extend(found.iter().filter_map(|key| Keys::ring_of_schema(key)));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        Ok((names.into_iter().collect(), cursor == 0))
    }

    /// Returns where the masters of a cluster are. Empty if the server is no node of one.
    pub async fn cluster_masters(&self) -> Result<Vec<Door>> {
        let Some(session) = self.connection().current().filter(|session| session.server.reports_cluster())
        else {
            return Ok(Vec::new());
        };
        let ranges: Vec<Vec<Value>> = self.read(redis::cmd("CLUSTER").arg("SLOTS")).await?;
        let mut masters = Vec::new();
        for range in &ranges {
            // First and last slot, then the master, then its replicas.
            let Some(Value::Array(master)) = range.get(2) else { continue };
            let text = |index: usize| master.get(index).and_then(|it| String::from_redis_value_ref(it).ok());
            let own = session.door.clone().or_else(|| self.connection().endpoint().given_door());
            // A node that does not know its own address leaves it out.
            let host = text(0).filter(|host| !host.is_empty()).or(own.map(|door| door.host));
            let door = host.zip(text(1).and_then(|port| port.parse().ok()));
            masters.extend(door.map(|(host, port)| Door { host, port }));
        }
        masters.sort_unstable_by_key(Door::to_string);
        masters.dedup();
        Ok(masters)
    }

    /// Whether one of the keys exists that every ring has.
    pub async fn has_fixed_keys(&self) -> Result<bool> {
        let keys = self.keys().fixed().map(|(key, _)| key);
        let existing: u64 = self.read(redis::cmd("EXISTS").arg(&keys)).await?;
        Ok(existing > 0)
    }

    /// Whether no key of this ring exists, of any type.
    pub async fn is_untouched(&self) -> Result<bool> {
        let keys = self.own_keys().await?;
        // Every key of a publisher was found because it exists.
        if keys.iter().any(|key| self.keys().is_temporary(key)) {
            return Ok(false);
        }
        let existing: u64 = self.read(redis::cmd("EXISTS").arg(&keys)).await?;
        Ok(existing == 0)
    }

    /// Returns the outcomes that follow the journal entry `after` (empty: from the start), and the name of the last
    /// entry.
    pub async fn journal(&self, after: &str, count: usize) -> Result<(Vec<JournalEntry>, String)> {
        let call = entries_after(&self.keys().journal, after, count);
        let entries: Vec<(String, HashMap<String, String>)> = self.read(&call).await?;
        let last = entries.last().map_or_else(|| after.to_owned(), |(name, _)| name.clone());
        let entries = entries.iter().map(|(_, fields)| JournalEntry::parse(fields)).collect::<Result<_>>()?;
        Ok((entries, last))
    }

    /// Returns what happened to the ring after the entry `after` (empty: from the start), oldest first.
    pub async fn events_after(&self, after: &str, count: usize) -> Result<Vec<Event>> {
        // Redis answers a count of zero with no list at all.
        if count == 0 {
            return Ok(Vec::new());
        }
        let entries = self.send(&entries_after(&self.keys().events, after, count)).await?;
        Event::parse_all(Reply::new("XRANGE", entries)?)
    }

    /// Deletes the keys of this ring and no others. Returns how many there were.
    pub async fn erase(&self) -> Result<u64> {
        // The keys are found first and then deleted in one step. A node that is still running must find the ring either
        // whole or gone. Otherwise its writes in between would upset the balance of the next ring. What publishers have
        // left may be too much for one step, so it goes after the ring. A ring of which only that is left can be erased.
        let (temporary, ring): (Vec<_>, Vec<_>) =
            self.own_keys().await?.into_iter().partition(|key| self.keys().is_temporary(key));
        let mut erased: u64 = self.read(redis::cmd("UNLINK").arg(&ring)).await?;
        for some in temporary.chunks(1000) {
            erased += self.read::<u64>(redis::cmd("UNLINK").arg(some)).await?;
        }
        Ok(erased)
    }

    /// Returns every key that this ring may have, and every key that it has, whatever their types.
    async fn own_keys(&self) -> Result<BTreeSet<String>> {
        let mut ours: BTreeSet<String> =
            self.keys().fixed().into_iter().map(|(key, _)| key.to_owned()).collect();
        // A foreign value in the place of the members names none. The search below finds the keys that exist.
        let members = no_foreign_value(self.members().await)?.unwrap_or_default();
        for member in members.iter().filter_map(|name| name.parse().ok()) {
            ours.extend([self.keys().member(member), self.keys().inflight(member)]);
        }
        let found = self.scan(&self.keys().pattern()).await?;
        ours.extend(found.into_iter().filter(|key| self.keys().owns(key)));
        Ok(ours)
    }

    /// Deletes every key that effects wrote. Returns how many there were.
    pub async fn erase_user_keys(&self) -> Result<u64> {
        let keys = self.scan(&self.keys().user_keys_pattern()).await?;
        let mut erased = 0;
        for some in keys.chunks(1000) {
            erased += self.read::<u64>(redis::cmd("UNLINK").arg(some)).await?;
        }
        Ok(erased)
    }

    /// Returns how many keys there are that effects wrote.
    pub async fn count_user_keys(&self) -> Result<u64> {
        let keys: BTreeSet<String> = self.scan(&self.keys().user_keys_pattern()).await?.into_iter().collect();
        Ok(keys.len() as u64)
    }

    /// Returns the keys that match a pattern, perhaps some of them twice. Keys that are not text are left out.
    pub async fn scan(&self, pattern: &str) -> Result<Vec<String>> {
        let (mut all, mut cursor) = (Vec::new(), 0_u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
            let (next, found): (u64, Vec<Vec<u8>>) = self.read(&scan).await?;
            all.extend(found.into_iter().filter_map(|key| String::from_utf8(key).ok()));
            cursor = next;
            if cursor == 0 {
                return Ok(all);
            }
        }
    }
}

/// Returns None in place of an error about a foreign value.
fn no_foreign_value<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(Error::ForeignKey { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Builds a request for the entries of a stream that follow the one named `after`, or for the first ones if `after` is
/// empty.
fn entries_after(stream: &str, after: &str, count: usize) -> Cmd {
    let from = if after.is_empty() { "-".to_owned() } else { format!("({after}") };
    let mut call = redis::cmd("XRANGE");
    call.arg(stream).arg(from).arg("+").arg("COUNT").arg(count);
    call
}
