//! The metrics of all rings, for Prometheus. A node has its own metrics, about that node alone: only this page adds up
//! a ring, so that no dashboard counts its queue once per node.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use estafeta::{Health, Snapshot};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

use crate::problem::Problem;
use crate::server::Web;

type Labels = Vec<(&'static str, String)>;
type Level = Gauge<f64, AtomicU64>;

/// Counts of a ring that only grow: the name, its help, and where the count is.
type CountOf = fn(&Snapshot) -> u64;
const COUNTS: [(&str, &str, CountOf); 9] = [
    ("published", "Messages ever published", |ring| ring.published),
    ("done", "Messages that were handled successfully", |ring| ring.done),
    ("failed", "Messages that became errors, each time", |ring| {
        ring.errors_kept + ring.errors_taken + ring.retried
    }),
    ("retried", "Errors that were put back into the queue", |ring| ring.retried),
    ("returned", "Messages that went back to the queue because their holder died or left", |ring| {
        ring.returned
    }),
    ("taken", "Errors that were taken out or dropped", |ring| ring.errors_taken),
    ("fenced", "Publishes that Redis refused because their epoch was over", |ring| ring.fenced),
    ("buried", "Members that were declared dead", |ring| ring.buried),
    ("takeovers", "How often the office passed from one member to another", |ring| ring.takeovers),
];

/// Levels of a ring, which rise and fall.
type LevelOf = fn(&Snapshot) -> f64;
const LEVELS: [(&str, &str, LevelOf); 4] = [
    ("oldest_waiting_seconds", "For how long the oldest message in the queue has waited", |ring| {
        ring.oldest_waiting_ms as f64 / 1000.0
    }),
    ("has_generator", "1 if a living member is in office", |ring| {
        let state = ring.generator.as_ref().and_then(|generator| generator.state);
        f64::from(u8::from(state == Some(Health::Alive)))
    }),
    ("epoch", "The term in office", |ring| ring.generator.as_ref().map_or(0.0, |g| g.epoch.0 as f64)),
    ("balanced", "1 if the balance of all messages adds up", |ring| f64::from(u8::from(ring.balanced))),
];

/// The metrics of all rings.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "metrics of all rings, in the text format of OpenMetrics", content_type = "application/openmetrics-text", body = String)))]
pub async fn metrics(State(web): State<Arc<Web>>) -> Result<Response, Problem> {
    let mut rings = Vec::new();
    for name in web.registry.names().await {
        let snapshot = match web.registry.feed(name.as_str()).await {
            Ok(feed) => feed.ring().snapshot(0).await.ok(),
            Err(_) => None,
        };
        rings.push((name.to_string(), snapshot));
    }
    let failed =
        |_| Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written");
    let text = text_of(&rings).map_err(failed)?;
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The text of the metrics. A ring whose snapshot cannot be read is not up, and has no other metrics.
fn text_of(rings: &[(String, Option<Snapshot>)]) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("estafeta_ring");
    let seen = || rings.iter().filter_map(|(name, snapshot)| Some((name, snapshot.as_ref()?)));
    let only = |name: &String| vec![("ring", name.clone())];
    for (name, help, count) in COUNTS {
        let family = Family::<Labels, Counter>::default();
        for (ring, snapshot) in seen() {
            family.get_or_create(&only(ring)).inc_by(count(snapshot));
        }
        registry.register(name, help, family);
    }
    for (name, help, level) in LEVELS {
        let family = Family::<Labels, Level>::default();
        for (ring, snapshot) in seen() {
            family.get_or_create(&only(ring)).set(level(snapshot));
        }
        registry.register(name, help, family);
    }
    let up = Family::<Labels, Level>::default();
    for (ring, snapshot) in rings {
        up.get_or_create(&only(ring)).set(f64::from(u8::from(snapshot.is_some())));
    }
    registry.register("up", "1 if the ring could be read", up);
    let (messages, members) = (Family::<Labels, Level>::default(), Family::<Labels, Level>::default());
    for (ring, snapshot) in seen() {
        for (state, count) in [
            ("waiting", snapshot.waiting),
            ("later", snapshot.later),
            ("in_flight", snapshot.in_flight),
            ("errors_kept", snapshot.errors_kept),
        ] {
            let labels = vec![("ring", ring.clone()), ("state", state.to_owned())];
            messages.get_or_create(&labels).set(count as f64);
        }
        for member in &snapshot.members {
            let (role, state) = (member.role.to_string(), member.state.to_string());
            members.get_or_create(&vec![("ring", ring.clone()), ("role", role), ("state", state)]).inc();
        }
    }
    registry.register("messages", "Messages by state", messages);
    registry.register("members", "Members by role and state", members);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}
