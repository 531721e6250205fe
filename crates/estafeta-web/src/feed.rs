//! What all pages see of one ring. A feed reads a snapshot every 500 ms, but only while at least one page listens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use estafeta::{HistoryRange, Ring};
use estafeta_lab::partitions::Partitions;
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

/// How long the number of partitions is believed. A ring may be deleted, and begun again with another number.
const PARTITIONS_AGE: Duration = Duration::from_secs(2);

/// One ring, and what its pages see.
pub struct LiveFeed {
    ring: Ring,
    /// Its partitions, and when they were counted.
    known: Mutex<Option<(Instant, Arc<Partitions>)>>,
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
    /// The newest point of the charts.
    pub point: Option<Arc<str>>,
    /// Why there is no snapshot.
    pub lost: Option<Arc<str>>,
}

impl LiveFeed {
    pub fn new(ring: Ring) -> Self {
        let latest = watch::Sender::new(Arc::new(FeedFrame::default()));
        let known = Mutex::new(None);
        Self { ring, known, latest, reads: Mutex::new(false), reasons: ReasonsCache::default() }
    }

    /// All partitions of the ring.
    pub async fn rings(&self) -> estafeta::Result<Arc<Partitions>> {
        let known = self.known().clone();
        if let Some((counted, rings)) = &known
            && counted.elapsed() < PARTITIONS_AGE
        {
            return Ok(Arc::clone(rings));
        }
        let rings = match (self.ring.partition_count().await, known) {
            (Ok(count), Some((_, rings))) if rings.all.len() == count as usize => rings,
            // The next call to Redis reports what is wrong.
            (Err(_), Some((_, rings))) => rings,
            _ => Arc::new(Partitions::of(self.ring.clone()).await?),
        };
        *self.known() = Some((Instant::now(), Arc::clone(&rings)));
        Ok(rings)
    }

    fn known(&self) -> MutexGuard<'_, Option<(Instant, Arc<Partitions>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
            let read = async {
                let rings = self.rings().await?;
                Ok::<_, estafeta::Error>((RingStatus::read(&rings, EVENTS).await?, rings))
            };
            let frame = match read.await {
                Ok((status, rings)) => {
                    lost_since = None;
                    let redis_ms = begun.elapsed().as_secs_f64() * 1000.0;
                    let mut point = before.point.clone();
                    if sampled.is_none_or(|at| at.elapsed() >= SAMPLE_PACE) {
                        sampled = Some(Instant::now());
                        point = newest_point(&rings).await.or(point);
                    }
                    FeedFrame::new(status, redis_ms, point)
                }
                Err(error) => {
                    let since = *lost_since.get_or_insert_with(Instant::now);
                    let lost =
                        json!({"reason": error.to_string(), "forMs": since.elapsed().as_millis() as u64});
                    FeedFrame {
                        events: Arc::clone(&before.events),
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
}

async fn newest_point(rings: &Partitions) -> Option<Arc<str>> {
    let history = rings.history(HistoryRange::FiveMinutes).await.ok()?;
    let newest = points::newest(&history)?;
    serde_json::to_string(&newest).ok().map(Into::into)
}

impl FeedFrame {
    fn new(mut status: RingStatus, redis_ms: f64, point: Option<Arc<str>>) -> Self {
        let events = std::mem::take(&mut status.snapshot.events);
        status.partitions.iter_mut().for_each(|part| part.events.clear());
        let mut value = serde_json::to_value(&status).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            fields.insert("redisMs".to_owned(), json!(redis_ms));
        }
        Self {
            snapshot: Some(value.to_string().into()),
            events: serde_json::to_string(&events).unwrap_or_default().into(),
            point,
            lost: None,
        }
    }
}
