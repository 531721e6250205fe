//! The metrics of all rings, for Prometheus. A node has its own metrics, about that node alone: only this page adds up
//! a ring, so that no dashboard counts its queue once per node. A ring with partitions has one series per partition, and
//! none for the sum, which a dashboard would count once more.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use estafeta::{Health, RingName, Snapshot};
use futures_util::future::join_all;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

use crate::exposition;
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

/// The metrics with further labels, or without a snapshot: the name and its help.
const UP: (&str, &str) = ("up", "1 if the ring could be read");
const MESSAGES: (&str, &str) = ("messages", "Messages by state");
const MEMBERS: (&str, &str) = ("members", "Members by role and state");

/// The metrics of all rings.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "metrics of all rings; OpenMetrics if it is asked for", content(
        (String = "text/plain"), (String = "application/openmetrics-text")))))]
pub async fn metrics(State(web): State<Arc<Web>>, headers: HeaderMap) -> Result<Response, Problem> {
    let names = web.registry.names().await;
    let rings = join_all(names.iter().map(|name| read(&web, name))).await.concat();
    let failed =
        |_| Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written");
    Ok(exposition::answer(&headers, text_of(&rings).map_err(failed)?))
}

/// A ring, or each of its partitions. None in the place of what cannot be read.
async fn read(web: &Web, name: &RingName) -> Vec<(Labels, Option<Snapshot>)> {
    let of_ring = vec![("ring", name.to_string())];
    let rings = async { Ok::<_, Problem>(web.registry.feed(name.as_str()).await?.rings().await?) };
    let Ok(rings) = rings.await else { return vec![(of_ring, None)] };
    // Together: if Redis is away, one after another would take longer than Prometheus waits.
    join_all(rings.all.iter().map(|ring| {
        let mut labels = of_ring.clone();
        if let Some(partition) = ring.name().partition().filter(|_| rings.are_several()) {
            labels.push(("partition", partition.to_string()));
        }
        async move { (labels, ring.snapshot(0).await.ok()) }
    }))
    .await
}

/// The text of the metrics. A ring whose snapshot cannot be read is not up, and has no other metrics.
fn text_of(rings: &[(Labels, Option<Snapshot>)]) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("estafeta_ring");
    let seen = || rings.iter().filter_map(|(labels, snapshot)| Some((labels, snapshot.as_ref()?)));
    let with = |labels: &Labels, more: &[(&'static str, String)]| [labels.as_slice(), more].concat();
    for (name, help, count) in COUNTS {
        let family = Family::<Labels, Counter>::default();
        for (ring, snapshot) in seen() {
            family.get_or_create(ring).inc_by(count(snapshot));
        }
        registry.register(name, help, family);
    }
    for (name, help, level) in LEVELS {
        let family = Family::<Labels, Level>::default();
        for (ring, snapshot) in seen() {
            family.get_or_create(ring).set(level(snapshot));
        }
        registry.register(name, help, family);
    }
    let up = Family::<Labels, Level>::default();
    for (ring, snapshot) in rings {
        up.get_or_create(ring).set(f64::from(u8::from(snapshot.is_some())));
    }
    registry.register(UP.0, UP.1, up);
    let (messages, members) = (Family::<Labels, Level>::default(), Family::<Labels, Level>::default());
    for (ring, snapshot) in seen() {
        for (state, count) in [
            ("waiting", snapshot.waiting),
            ("later", snapshot.later),
            ("in_flight", snapshot.in_flight),
            ("errors_kept", snapshot.errors_kept),
        ] {
            messages.get_or_create(&with(ring, &[("state", state.to_owned())])).set(count as f64);
        }
        for member in &snapshot.members {
            let (role, state) = (member.role.to_string(), member.state.to_string());
            members.get_or_create(&with(ring, &[("role", role), ("state", state)])).inc();
        }
    }
    registry.register(MESSAGES.0, MESSAGES.1, messages);
    registry.register(MEMBERS.0, MEMBERS.1, members);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/metrics.md");

    #[test]
    fn the_page_lists_exactly_the_metrics_of_rings() {
        let counters = COUNTS.map(|(name, ..)| (format!("estafeta_ring_{name}_total"), "counter".to_owned()));
        let levels =
            LEVELS.iter().map(|(name, ..)| *name).chain([UP, MESSAGES, MEMBERS].map(|(name, _)| name));
        let gauges = levels.map(|name| (format!("estafeta_ring_{name}"), "gauge".to_owned()));
        let mut exposed: Vec<(String, String)> = counters.into_iter().chain(gauges).collect();
        let rows = PAGE.lines().filter(|line| line.starts_with("| `estafeta_ring_"));
        let mut documented: Vec<(String, String)> = rows
            .map(|line| {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                let name = cells[1].trim_matches('`').split('{').next().unwrap_or_default();
                (name.to_owned(), cells[2].to_owned())
            })
            .collect();
        exposed.sort();
        documented.sort();
        assert_eq!(documented, exposed);
        assert_eq!(exposed.len(), 16);
    }
}
