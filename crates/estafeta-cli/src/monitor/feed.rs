//! Looks at the ring five times a second, and works on its errors when asked to. Both over connections of their own, made
//! anew when they break: the monitor outlives any trouble of Redis.

use std::time::{Duration, Instant};

use estafeta::{DeadLetter, Endpoint, Event, Result, Ring, RingName, Selection};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::errors_view::Page;
use super::history::failed;
use super::state::{Errand, Look};
use crate::escape::escape;
use crate::output::counted;

/// Between two looks.
const PACE: Duration = Duration::from_millis(200);
/// Between two tries while Redis does not answer.
const RETRY: Duration = Duration::from_millis(500);
/// Events that one look brings at most; the rest comes with the next.
const EVENTS: usize = 200;
/// Errors that the main view may show, and how often they are fetched at most: their bodies may be large.
const LAST_ERRORS: u64 = 20;
const ERRORS_PACE: Duration = Duration::from_secs(1);
/// Errors of the errors view, and how far and how long a search goes: nobody scrolls further, and Redis has other work.
const PAGE: usize = 500;
const SEARCHED: u64 = 20_000;
const SEARCHING: Duration = Duration::from_secs(2);
const CHUNK: u64 = 100;
/// How long a look may take; a Redis that is slower than this is as good as lost.
const PATIENCE: Duration = Duration::from_secs(2);

pub enum Fed {
    Look(Box<Look>),
    Lost(String),
    Errors(Page),
    /// What came of an errand, in words.
    Answer(String),
    /// Why an errand failed.
    Failed(String),
}

/// Where the ring is.
#[derive(Clone)]
pub struct Place {
    pub endpoint: Endpoint,
    pub ring: RingName,
}

impl Place {
    async fn connect(&self) -> Result<Ring> {
        Ring::connect(self.endpoint.clone(), self.ring.clone()).await
    }
}

/// Looks at the ring.
pub struct Watch {
    place: Place,
    ring: Option<Ring>,
    /// The name of the last event that was told.
    last_event: String,
    /// Told with the first look.
    past: Vec<Event>,
    errors: Vec<DeadLetter>,
    /// Errors kept, and ever, when `errors` was read, and when that was.
    counts: (u64, u64),
    fetched: Option<Instant>,
}

impl Watch {
    /// Begins to watch: events from now on will be told, and the last `past` of those before.
    pub async fn begin(place: Place, past: usize) -> Result<Self> {
        let ring = place.connect().await?;
        let mut past_events = ring.snapshot(past.max(1)).await?.events;
        let last_event = past_events.first().map_or_else(String::new, |event| event.id.clone());
        past_events.truncate(past);
        past_events.reverse();
        let (errors, counts, fetched) = (Vec::new(), (0, 0), None);
        Ok(Self { place, ring: Some(ring), last_event, past: past_events, errors, counts, fetched })
    }

    /// Looks until nobody listens.
    pub async fn run(mut self, out: UnboundedSender<Fed>) {
        loop {
            let (fed, pause) = match tokio::time::timeout(PATIENCE, self.look()).await {
                Ok(Ok(look)) => (Fed::Look(Box::new(look)), PACE),
                Ok(Err(error)) => (Fed::Lost(error.to_string()), RETRY),
                Err(_) => (Fed::Lost(format!("no answer for {} s", PATIENCE.as_secs())), RETRY),
            };
            if matches!(fed, Fed::Lost(_)) {
                self.ring = None;
            }
            if out.send(fed).is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn look(&mut self) -> Result<Look> {
        if self.ring.is_none() {
            self.ring = Some(self.place.connect().await?);
        }
        let ring = self.ring.as_ref().expect("connected above");
        let snapshot = ring.snapshot(1).await?;
        let newest = snapshot.events.first().map_or("", |event| &event.id);
        let mut new_events = Vec::new();
        if newest != self.last_event {
            // A stream that was wiped begins anew.
            let is_new = stamp(newest) < stamp(&self.last_event);
            let after = if is_new { "" } else { &self.last_event };
            new_events = ring.events_after(after, EVENTS).await?;
        }
        let counts = (snapshot.errors_kept, failed(&snapshot));
        let is_time = self.fetched.is_none_or(|fetched| fetched.elapsed() >= ERRORS_PACE);
        if counts != self.counts && is_time {
            let from = ring.error_count().await?.saturating_sub(LAST_ERRORS);
            self.errors = ring.errors(from, LAST_ERRORS).await?;
            (self.counts, self.fetched) = (counts, Some(Instant::now()));
        }
        // Only now that nothing can fail any more: what is told is not told again.
        if newest != self.last_event {
            self.last_event = new_events.last().map_or_else(String::new, |event| event.id.clone());
        }
        let mut events = std::mem::take(&mut self.past);
        events.append(&mut new_events);
        Ok(Look { snapshot, events, errors: self.errors.clone() })
    }
}

/// The name of an event as numbers that grow.
fn stamp(id: &str) -> (u64, u64) {
    let (ms, sequence) = id.split_once('-').unwrap_or((id, ""));
    (ms.parse().unwrap_or(0), sequence.parse().unwrap_or(0))
}

/// Does one errand after the other. Of several wishes to see the errors only the last one counts.
pub async fn run_errands(place: Place, mut errands: UnboundedReceiver<Errand>, out: UnboundedSender<Fed>) {
    let mut ring = None;
    while let Some(mut errand) = errands.recv().await {
        while matches!(errand, Errand::List(_)) {
            match errands.try_recv() {
                Ok(next) => errand = next,
                Err(_) => break,
            }
        }
        let done = match run_errand(&place, &mut ring, errand).await {
            Ok(done) => done,
            Err(error) => {
                ring = None;
                Fed::Failed(escape(error.to_string().as_bytes()))
            }
        };
        if out.send(done).is_err() {
            return;
        }
    }
}

async fn run_errand(place: &Place, ring: &mut Option<Ring>, errand: Errand) -> Result<Fed> {
    if ring.is_none() {
        *ring = Some(place.connect().await?);
    }
    let ring = ring.as_ref().expect("connected above");
    Ok(match errand {
        Errand::List(text) => Fed::Errors(list(ring, &text).await?),
        Errand::Retry(ids) => {
            let count = ring.retry_errors(&Selection::Ids(ids)).await?;
            Fed::Answer(format!("{} put back into the queue", counted(count, "error")))
        }
        Errand::Drop(ids) => {
            let count = ring.drop_errors(&Selection::Ids(ids)).await?;
            Fed::Answer(format!("{} dropped", counted(count, "error")))
        }
    })
}

async fn list(ring: &Ring, text: &str) -> Result<Page> {
    let kept = ring.error_count().await?;
    let mut page = Page { text: text.to_owned(), errors: Vec::new(), kept, searched: 0 };
    let (wanted, started) = (text.to_lowercase(), Instant::now());
    while page.errors.len() < PAGE && page.searched < kept.min(SEARCHED) && started.elapsed() < SEARCHING {
        let end = kept - page.searched;
        let from = end.saturating_sub(CHUNK);
        let chunk = ring.errors(from, end - from).await?;
        page.searched += end - from;
        page.errors.extend(chunk.into_iter().rev().filter(|error| contains(error, &wanted)));
    }
    page.errors.truncate(PAGE);
    Ok(page)
}

/// Whether anything that is shown of the error contains the text, in whatever case.
fn contains(error: &DeadLetter, wanted: &str) -> bool {
    let shown = || {
        let (reason, body) = (escape(error.reason.as_bytes()), escape(error.body()));
        format!("#{} {} {reason} {body}", error.id, error.member).to_lowercase()
    };
    wanted.is_empty() || shown().contains(wanted)
}
