//! Queries from outside the ring: by commands, monitors and failure detectors. No query here moves a message except
//! `resolve`.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use redis::Cmd;

use super::journal::JournalEntry;
use super::snapshot::{Event, parse_events};
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::keys::SCHEMA;
use crate::message::DeadLetter;
use crate::redis::{Reply, Store};
use crate::steps::Facts;

impl Store {
    /// Returns a range of the kept dead letters, oldest first.
    pub async fn errors(&self, from: u64, count: u64) -> Result<Vec<DeadLetter>> {
        let mut call = redis::cmd("LRANGE");
        call.arg(&self.keys().errors).arg(from).arg(from + count.max(1) - 1);
        let elements: Vec<Vec<u8>> = self.read(&call).await?;
        Ok(elements.into_iter().map(DeadLetter::parse).collect())
    }

    /// Returns how many dead letters are kept and not held by a reader.
    pub async fn error_count(&self) -> Result<u64> {
        self.read(redis::cmd("LLEN").arg(&self.keys().errors)).await
    }

    /// Returns all entries of the member list. Foreign entries do not parse as an incarnation.
    pub async fn members(&self) -> Result<Vec<String>> {
        self.read(redis::cmd("ZRANGE").arg(&self.keys().members).arg(0).arg(-1)).await
    }

    /// Returns None if the member no longer exists.
    pub async fn facts(&self, member: Incarnation) -> Result<Option<Facts>> {
        let mut call = redis::cmd("HMGET");
        call.arg(self.keys().member(member)).arg("lanes").arg("presence").arg("lease");
        let (lanes, presence, lease): (Option<usize>, Option<u8>, Option<u64>) = self.read(&call).await?;
        let lease = Duration::from_millis(lease.unwrap_or(0));
        Ok(lanes.map(|lanes| Facts { lanes, presence: presence == Some(1), lease }))
    }

    /// Fails if the ring belongs to another version.
    pub async fn check_schema(&self) -> Result<()> {
        let found: Option<String> = self.read(redis::cmd("GET").arg(&self.keys().schema)).await?;
        match found {
            Some(found) if found != SCHEMA.to_string() => {
                Err(Error::Schema { ring: self.ring().to_string(), found, expected: SCHEMA })
            }
            _ => Ok(()),
        }
    }

    /// Whether no key of this ring exists, of any type.
    pub async fn is_untouched(&self) -> Result<bool> {
        let existing: u64 = self.read(redis::cmd("EXISTS").arg(&self.own_keys().await?)).await?;
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
        parse_events(Reply::new("XRANGE", entries)?)
    }

    /// Deletes the keys of this ring and no others. Returns how many there were.
    pub async fn erase(&self) -> Result<u64> {
        // The keys are found first and then deleted in one step. A node that is still running must find the ring either
        // whole or gone. Otherwise its writes in between would upset the balance of the next ring.
        self.read(redis::cmd("UNLINK").arg(&self.own_keys().await?)).await
    }

    /// Returns every key that this ring may have, and every key that it has.
    async fn own_keys(&self) -> Result<BTreeSet<String>> {
        let mut ours: BTreeSet<String> =
            self.keys().fixed().into_iter().map(|(key, _)| key.to_owned()).collect();
        for member in self.members().await?.iter().filter_map(|name| name.parse().ok()) {
            if let Some(facts) = self.facts(member).await? {
                ours.extend((0..facts.lanes).map(|lane| self.keys().inflight(member, lane)));
            }
        }
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(self.keys().pattern()).arg("COUNT").arg(1000);
            let (next, found): (u64, Vec<String>) = self.read(&scan).await?;
            ours.extend(found.into_iter().filter(|key| self.keys().owns(key)));
            cursor = next;
            if cursor == 0 {
                return Ok(ours);
            }
        }
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
