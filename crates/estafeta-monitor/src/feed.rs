//! Reads the ring for the monitor, in two tasks with one connection each per partition. A slow search for errors therefore never
//! delays a poll.
//!
//! [`RingFeed`] polls the ring five times per second. A successful poll sends the snapshot, the new events and the newest
//! errors. If any call of a poll fails, the poll sends only the reason, and the next one follows after a pause. No
//! event is skipped then: the position in the events advances only after all calls of a poll succeeded.
//!
//! [`serve`] executes the requests of the errors view, one after the other. If a request fails, `serve` sends the
//! reason and continues with the next request.
//!
//! Both tasks end when the receiver of their updates is gone.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use estafeta::{DeadLetter, Event, Result, Ring, RingName, Selection, Snapshot};
use estafeta_lab::message_id::MessageId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::model::errors_view::{ErrorsAnswer, Page};
use crate::model::history::failed;
use crate::model::request::ErrorsRequest;
use crate::model::ring_update::RingUpdate;

/// The time between two polls.
const POLL_PERIOD: Duration = Duration::from_millis(200);
/// The time between two polls while Redis does not answer.
const RETRY_PERIOD: Duration = Duration::from_millis(500);
/// The most events that one poll fetches. The next poll fetches the rest.
const MAX_EVENTS: usize = 200;
/// The most errors that the main view shows.
const LAST_ERRORS: u64 = 20;
/// The shortest time between two fetches of them, because their bodies may be large.
const ERRORS_PERIOD: Duration = Duration::from_secs(1);
/// The most errors that the errors view shows.
const MAX_PAGE: usize = 500;
/// The most errors that one search reads, and its time limit. Both spare Redis.
const MAX_SEARCHED: u64 = 20_000;
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// The most errors that one call of a search reads.
const CHUNK: u64 = 100;
/// The time limit of one call. The monitor treats a slower Redis as lost.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// What the feed sends to the app.
pub enum FeedUpdate {
    Ring(Box<RingUpdate>),
    /// Why the last poll failed.
    Lost(String),
    Errors(Page),
    Answer(ErrorsAnswer),
}

/// Polls all partitions of the ring.
pub struct RingFeed {
    whole: RingName,
    parts: Vec<PartFeed>,
    /// The newest errors, as they were last fetched.
    errors: Vec<DeadLetter>,
    /// How many errors were kept, and how many there ever were, at that time.
    counts: (u64, u64),
    /// When `errors` was last fetched.
    fetched: Option<Instant>,
}

/// One partition, or a ring that is not divided.
struct PartFeed {
    ring: Ring,
    /// Which partition it is, if there are several.
    partition: Option<u32>,
    /// The id of the last event that was sent.
    last_event: String,
    /// Events from before the start. The first poll sends them.
    past: Vec<Event>,
}

impl PartFeed {
    async fn begin(ring: Ring, partition: Option<u32>, past: usize) -> Result<Self> {
        let mut past_events = ring.snapshot(past.max(1)).await?.events;
        let last_event = past_events.last().map_or_else(String::new, |event| event.id.clone());
        if past == 0 {
            past_events.clear();
        }
        Ok(Self { ring, partition, last_event, past: past_events })
    }

    /// The partition and its new events.
    async fn poll(&self) -> Result<(Snapshot, Vec<Event>)> {
        let snapshot = self.ring.snapshot(1).await?;
        let newest = snapshot.events.last().map_or("", |event| &event.id);
        let mut new_events = Vec::new();
        if newest != self.last_event {
            // If the newest id went back, the stream was wiped, and this poll reads it from its beginning.
            let was_wiped = numeric_id(newest) < numeric_id(&self.last_event);
            let after = if was_wiped { "" } else { &self.last_event };
            new_events = self.ring.events_after(after, MAX_EVENTS).await?;
        }
        Ok((snapshot, new_events))
    }

    /// The events of a poll that succeeded, and those from before the start.
    fn take(&mut self, snapshot: &Snapshot, mut new_events: Vec<Event>) -> Vec<Event> {
        let newest = snapshot.events.last().map_or("", |event| &event.id);
        if newest != self.last_event {
            self.last_event = new_events.last().map_or_else(String::new, |event| event.id.clone());
        }
        let mut events = std::mem::take(&mut self.past);
        events.append(&mut new_events);
        if let Some(index) = self.partition {
            events = events.into_iter().map(|event| event.in_partition(index)).collect();
        }
        events
    }
}

impl RingFeed {
    /// Begins to watch. The polls will send all events from now on, and the last `past` events from before.
    pub async fn begin(whole: RingName, rings: Vec<Ring>, past: usize) -> Result<Self> {
        let (mut parts, are_several) = (Vec::new(), rings.len() > 1);
        for (index, ring) in (0..).zip(rings) {
            parts.push(PartFeed::begin(ring, are_several.then_some(index), past).await?);
        }
        let (errors, counts, fetched) = (Vec::new(), (0, 0), None);
        Ok(Self { whole, parts, errors, counts, fetched })
    }

    /// Polls until the receiver of `out` is gone.
    pub async fn run(mut self, out: UnboundedSender<FeedUpdate>) {
        loop {
            let (update, pause) = match self.poll().await {
                Ok(update) => (FeedUpdate::Ring(Box::new(update)), POLL_PERIOD),
                Err(error) => (FeedUpdate::Lost(error.to_string()), RETRY_PERIOD),
            };
            if out.send(update).is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn poll(&mut self) -> Result<RingUpdate> {
        let mut polled = Vec::new();
        for part in &self.parts {
            polled.push(part.poll().await?);
        }
        let kept = polled.iter().map(|(snapshot, _)| snapshot.errors_kept).sum();
        let counts = (kept, polled.iter().map(|(snapshot, _)| failed(snapshot)).sum());
        let is_due = self.fetched.is_none_or(|fetched| fetched.elapsed() >= ERRORS_PERIOD);
        if counts != self.counts && is_due {
            let mut errors = Vec::new();
            for PartFeed { ring, partition, .. } in &self.parts {
                let from = ring.error_count().await?.saturating_sub(LAST_ERRORS);
                errors.extend(marked(ring.errors(from, LAST_ERRORS).await?, *partition));
            }
            errors.sort_by_key(|error| error.failed_ms);
            self.errors = errors.split_off(errors.len().saturating_sub(LAST_ERRORS as usize));
            (self.counts, self.fetched) = (counts, Some(Instant::now()));
        }
        // This comes after the last call that can fail. Otherwise a failed poll would lose its events.
        let (mut snapshots, mut events) = (Vec::new(), Vec::new());
        for (part, (snapshot, new_events)) in self.parts.iter_mut().zip(polled) {
            events.extend(part.take(&snapshot, new_events));
            snapshots.push(snapshot);
        }
        events.sort_by_key(|event| event.time_ms);
        let snapshot = together(&self.whole, snapshots);
        Ok(RingUpdate { snapshot, events, errors: self.errors.clone() })
    }
}

/// All partitions as one ring.
fn together(whole: &RingName, mut parts: Vec<Snapshot>) -> Snapshot {
    let only = if parts.len() == 1 { parts.pop() } else { Snapshot::of_partitions(whole, parts) };
    only.expect("a ring has at least one partition")
}

/// Errors whose members carry their partition.
fn marked(mut errors: Vec<DeadLetter>, partition: Option<u32>) -> Vec<DeadLetter> {
    if let Some(index) = partition {
        errors.iter_mut().for_each(|error| error.member = error.member.in_partition(index));
    }
    errors
}

/// Reads the ring once more, after the polls have ended. Returns the reason if Redis does not answer in time.
pub async fn last_look(whole: &RingName, rings: &[Ring]) -> std::result::Result<Snapshot, String> {
    let look = async {
        let mut snapshots = Vec::new();
        for ring in rings {
            snapshots.push(ring.snapshot(0).await?);
        }
        Ok::<_, estafeta::Error>(together(whole, snapshots))
    };
    match tokio::time::timeout(CALL_TIMEOUT, look).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer for {CALL_TIMEOUT:?}")),
    }
}

/// The id of an event as two numbers, which grow from event to event.
fn numeric_id(id: &str) -> (u64, u64) {
    let (ms, sequence) = id.split_once('-').unwrap_or((id, ""));
    (ms.parse().unwrap_or(0), sequence.parse().unwrap_or(0))
}

/// Executes one request after the other. Skips a list request if another request already waits behind it.
pub async fn serve(
    rings: Vec<Ring>,
    mut requests: UnboundedReceiver<ErrorsRequest>,
    out: UnboundedSender<FeedUpdate>,
) {
    while let Some(mut request) = requests.recv().await {
        while matches!(request, ErrorsRequest::List(_)) {
            match requests.try_recv() {
                Ok(next) => request = next,
                Err(_) => break,
            }
        }
        let update = answer(&rings, request)
            .await
            .unwrap_or_else(|error| FeedUpdate::Answer(ErrorsAnswer::Failed { reason: error.to_string() }));
        if out.send(update).is_err() {
            return;
        }
    }
}

async fn answer(rings: &[Ring], request: ErrorsRequest) -> Result<FeedUpdate> {
    Ok(match request {
        ErrorsRequest::List(text) => FeedUpdate::Errors(list(rings, &text).await?),
        ErrorsRequest::Retry(ids) => {
            let mut count = 0;
            for ring in rings {
                count += ring.retry_errors(&ids_in(ring, &ids)).await?;
            }
            FeedUpdate::Answer(ErrorsAnswer::Retried(count))
        }
        ErrorsRequest::Drop(ids) => {
            let mut count = 0;
            for ring in rings {
                count += ring.drop_errors(&ids_in(ring, &ids)).await?;
            }
            FeedUpdate::Answer(ErrorsAnswer::Dropped(count))
        }
    })
}

/// Those of the ids that belong to this partition.
fn ids_in(ring: &Ring, ids: &[MessageId]) -> Selection {
    let partition = ring.name().partition();
    Selection::Ids(ids.iter().filter(|id| id.partition == partition).map(|id| id.id).collect())
}

/// Fetches the newest errors that contain the text. Stops early at the limits above.
async fn list(rings: &[Ring], text: &str) -> Result<Page> {
    let mut page = Page { text: text.to_owned(), errors: Vec::new(), kept: 0, searched: 0 };
    let (wanted, started) = (text.to_lowercase(), Instant::now());
    for (index, ring) in (0..).zip(rings) {
        let (kept, mut searched, mut found) = (ring.error_count().await?, 0, Vec::new());
        while found.len() < MAX_PAGE
            && searched < kept.min(MAX_SEARCHED / rings.len() as u64)
            && started.elapsed() < SEARCH_TIMEOUT
        {
            let end = kept - searched;
            let from = end.saturating_sub(CHUNK);
            let chunk = ring.errors(from, end - from).await?;
            searched += end - from;
            found.extend(chunk.into_iter().rev().filter(|error| contains(error, &wanted)));
        }
        page.errors.extend(marked(found, (rings.len() > 1).then_some(index)));
        (page.kept, page.searched) = (page.kept + kept, page.searched + searched);
    }
    if rings.len() > 1 {
        page.errors.sort_by_key(|error| Reverse(error.failed_ms));
    }
    page.errors.truncate(MAX_PAGE);
    Ok(page)
}

/// Whether the number, the member, the reason or the body of the error contains the text. Ignores case. `wanted` is in
/// lower case.
fn contains(error: &DeadLetter, wanted: &str) -> bool {
    let text = || {
        let body = String::from_utf8_lossy(error.message.body());
        format!("#{} {} {} {body}", MessageId::from(&error.message), error.member, error.reason)
            .to_lowercase()
    };
    wanted.is_empty() || text().contains(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_any_field_as_it_is_stored_and_ignores_case() {
        let ring = "demo".parse().unwrap();
        let error = DeadLetter::parse(
            &ring,
            b"!2000 3 7 Too bad 17 2 1000 0 0 0 0 0 C:\\Temp\nline \xff end".to_vec(),
        );
        for wanted in ["", "#17", "17 3 too", "too bad", "c:\\temp", "temp\nline", "end"] {
            assert!(contains(&error, wanted), "{wanted:?}");
        }
        for wanted in ["#18", "c:\\\\temp", "temp\\nline", "\\xff"] {
            assert!(!contains(&error, wanted), "{wanted:?}");
        }
    }
}
