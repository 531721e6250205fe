//! The stream of a page: server-sent events, one kind per part of the picture.
//!
//! `snapshot` comes whenever the feed has read the ring. `events` comes if there are new ones, with the latest ones.
//! `sample` is the newest point of the charts. `lost` comes instead of `snapshot` while Redis is away. `bye` is the last
//! one: the server stops.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch;

use crate::api::{NoParams, Params, Segments};
use crate::feed::FeedFrame;
use crate::problem::Problem;
use crate::server::Web;

/// A proxy may close a stream on which nothing comes for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a browser waits before it connects again.
const RETRY: Duration = Duration::from_secs(1);

struct Listener {
    frames: watch::Receiver<Arc<FeedFrame>>,
    web: Arc<Web>,
    /// What this page got last.
    events: Option<Arc<str>>,
    point: Option<Arc<str>>,
    /// Events of one frame that are still to be sent, the last one first.
    pending: Vec<Event>,
    is_over: bool,
}

/// The live stream of a ring.
#[utoipa::path(get, path = "/api/rings/{ring}/live", tag = "live", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    responses((status = 200, description = "server-sent events: snapshot, sample, events, lost, bye", content_type = "text/event-stream", body = String)))]
pub async fn live(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    _: Params<NoParams>,
) -> Result<Response, Problem> {
    let feed = web.registry.feed(&ring).await?;
    let listener = Listener {
        frames: feed.listen(),
        web,
        events: None,
        point: None,
        pending: vec![Event::default().retry(RETRY).comment("estafeta")],
        is_over: false,
    };
    let events = stream::unfold(listener, async |mut listener| {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Nginx would keep the events until its buffer is full.
    let unbuffered = (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(([unbuffered], stream).into_response())
}

impl Listener {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let stop = self.web.stop.clone();
            tokio::select! {
                () = stop.cancelled() => {
                    self.is_over = true;
                    return Some(Event::default().event("bye").data("{}"));
                }
                changed = self.frames.changed() => {
                    changed.ok()?;
                    let frame = Arc::clone(&self.frames.borrow_and_update());
                    self.take(&frame);
                }
            }
        }
    }

    fn take(&mut self, frame: &FeedFrame) {
        let event = |kind: &str, data: &str| Event::default().event(kind).data(data);
        if let Some(lost) = &frame.lost {
            self.pending.push(event("lost", lost));
        }
        if let Some(point) = &frame.point
            && self.point.as_ref() != Some(point)
        {
            self.pending.push(event("sample", point));
            self.point = Some(Arc::clone(point));
        }
        if frame.snapshot.is_some() && self.events.as_ref() != Some(&frame.events) {
            self.pending.push(event("events", &frame.events));
            self.events = Some(Arc::clone(&frame.events));
        }
        if let Some(snapshot) = &frame.snapshot {
            self.pending.push(event("snapshot", snapshot));
        }
    }
}
