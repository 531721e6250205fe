//! What all pages see of one ring. A feed reads a snapshot every 500 ms, but only while at least one page listens.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use estafeta::{HistoryRange, Ring};
use estafeta_lab::ring_status::RingStatus;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::api::reasons::ReasonsCache;
use crate::points;

/// How often a feed looks at the ring.
const PACE: Duration = Duration::from_millis(500);
/// How many of the latest events a page gets. It fetches older ones itself.
const EVENTS: usize = 50;
/// How often a feed reads the newest sample of the history.
const SAMPLE_PACE: Duration = Duration::from_secs(1);

/// One ring, and what its pages see.
pub struct LiveFeed {
    ring: Ring,
    latest: watch::Sender<Arc<FeedFrame>>,
    /// Whether a task reads the ring.
    reads: Mutex<bool>,
    pub reasons: ReasonsCache,
}

/// What a page gets, as JSON that was written once.
#[derive(Debug, Default)]
pub struct FeedFrame {
    /// The state of the ring without its events. None while Redis is away, and before the first answer.
    pub snapshot: Option<Arc<str>>,
    /// The latest events.
    pub events: Arc<str>,
    /// The name of the newest one.
    pub newest_event: String,
    /// The newest point of the charts.
    pub point: Option<Arc<str>>,
    /// Why there is no snapshot.
    pub lost: Option<Arc<str>>,
}

impl LiveFeed {
    pub fn new(ring: Ring) -> Self {
        let latest = watch::Sender::new(Arc::new(FeedFrame::default()));
        Self { ring, latest, reads: Mutex::new(false), reasons: ReasonsCache::default() }
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Lets a page listen. The feed reads the ring from now on, until the last page has gone.
    pub fn listen(self: &Arc<Self>) -> watch::Receiver<Arc<FeedFrame>> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reads {
            // What was read before nobody listened is old.
            self.latest.send_replace(Arc::new(FeedFrame::default()));
            *reads = true;
            tokio::spawn(Arc::clone(self).read());
        }
        self.latest.subscribe()
    }

    async fn read(self: Arc<Self>) {
        let mut sampled: Option<Instant> = None;
        let mut lost_since: Option<Instant> = None;
        loop {
            let begun = tokio::time::Instant::now();
            let before = Arc::clone(&self.latest.borrow());
            let frame = match RingStatus::read(&self.ring, EVENTS).await {
                Ok(status) => {
                    lost_since = None;
                    let redis_ms = begun.elapsed().as_secs_f64() * 1000.0;
                    let mut point = before.point.clone();
                    if sampled.is_none_or(|at| at.elapsed() >= SAMPLE_PACE) {
                        sampled = Some(Instant::now());
                        point = self.newest_point().await.or(point);
                    }
                    FeedFrame::new(status, redis_ms, point)
                }
                Err(error) => {
                    let since = *lost_since.get_or_insert_with(Instant::now);
                    let lost =
                        json!({"reason": error.to_string(), "forMs": since.elapsed().as_millis() as u64});
                    FeedFrame {
                        events: Arc::clone(&before.events),
                        newest_event: before.newest_event.clone(),
                        lost: Some(lost.to_string().into()),
                        ..FeedFrame::default()
                    }
                }
            };
            self.latest.send_replace(Arc::new(frame));
            tokio::time::sleep_until(begun + PACE).await;
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            if self.latest.receiver_count() == 0 {
                *reads = false;
                return;
            }
        }
    }

    async fn newest_point(&self) -> Option<Arc<str>> {
        let history = self.ring.history(HistoryRange::FiveMinutes).await.ok()?;
        let newest = points::newest(&history)?;
        serde_json::to_string(&newest).ok().map(Into::into)
    }
}

impl FeedFrame {
    fn new(mut status: RingStatus, redis_ms: f64, point: Option<Arc<str>>) -> Self {
        let events = std::mem::take(&mut status.snapshot.events);
        let newest_event = events.last().map(|event| event.id.clone()).unwrap_or_default();
        let mut value = serde_json::to_value(&status).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            fields.insert("redisMs".to_owned(), json!(redis_ms));
        }
        Self {
            snapshot: Some(value.to_string().into()),
            events: serde_json::to_string(&events).unwrap_or_default().into(),
            newest_event,
            point,
            lost: None,
        }
    }
}
