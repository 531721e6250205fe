//! The state of a ring, its history and its events; health of this server.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use estafeta::HistoryRange;
use estafeta_lab::event_name::EventName;
use estafeta_lab::ring_status::RingStatus;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{NoParams, Params, Segments, answer};
use crate::access::{Right, Visitor};
use crate::points::ChartHistory;
use crate::problem::Problem;
use crate::server::Web;

/// How many events a snapshot has, as `status --json` has them.
const SNAPSHOT_EVENTS: usize = 50;
/// How many events one answer has at most.
const MOST_EVENTS: usize = 500;
/// How long Redis may take to answer `/readyz`.
const READY_TIME: Duration = Duration::from_secs(2);

/// This server, and what its visitor may do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    pub version: &'static str,
    /// The names of the rings.
    pub rings: Vec<String>,
    /// The address of Redis, without secrets.
    pub redis: String,
    /// Whether this server refuses every change.
    pub read_only: bool,
    /// Whether this visitor may change something.
    pub may_change: bool,
    /// The name that events about changes of this visitor have.
    pub user: String,
}

/// This server and its rings.
#[utoipa::path(get, path = "/api/meta", tag = "rings", responses((status = 200, body = Meta)))]
pub async fn meta(
    State(web): State<Arc<Web>>,
    Extension(visitor): Extension<Visitor>,
    _: Params<NoParams>,
) -> Response {
    answer(&Meta {
        version: env!("CARGO_PKG_VERSION"),
        rings: web.registry.names().await.iter().map(ToString::to_string).collect(),
        redis: web.registry.endpoint().to_string(),
        read_only: web.read_only,
        may_change: !web.read_only && visitor.right == Right::Change,
        user: visitor.name,
    })
}

/// A ring at this moment, as `estafeta status --json` prints it.
#[utoipa::path(get, path = "/api/rings/{ring}", tag = "rings", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    responses((status = 200, description = "see docs/json.md", content_type = "application/json", body = Object)))]
pub async fn ring(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    _: Params<NoParams>,
) -> Result<Response, Problem> {
    let rings = web.registry.feed(&ring).await?.rings().await?;
    Ok(answer(&RingStatus::read(&rings, SNAPSHOT_EVENTS).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryParams {
    /// `5m`, `1h` or `24h`.
    #[param(pattern = "^(5m|1h|24h)$")]
    range: String,
}

/// The history of a ring, as points of charts.
#[utoipa::path(get, path = "/api/rings/{ring}/history", tag = "rings", params(("ring" = String, Path, description = "name of the ring", example = "orders"), HistoryParams),
    responses((status = 200, body = ChartHistory)))]
pub async fn history(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    Params(params): Params<HistoryParams>,
) -> Result<Response, Problem> {
    let range: HistoryRange = params.range.parse()?;
    let rings = web.registry.feed(&ring).await?.rings().await?;
    Ok(answer(&ChartHistory::new(&rings.history(range).await?)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EventParams {
    /// The name of the event after which to begin, such as `1794776990426-0`, or `2:1794776990426-0` in a ring with
    /// partitions. Empty: the oldest one that is kept.
    #[serde(default)]
    #[param(pattern = r"^((\d{1,4}:)?\d{1,15}(-\d{1,15})?)?$")]
    after: String,
    /// How many events, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    count: Option<u64>,
}

/// Events of a ring, oldest first.
#[utoipa::path(get, path = "/api/rings/{ring}/events", tag = "rings", params(("ring" = String, Path, description = "name of the ring", example = "orders"), EventParams),
    responses((status = 200, description = "see docs/json.md", content_type = "application/json", body = Vec<Object>)))]
pub async fn events(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    Params(params): Params<EventParams>,
) -> Result<Response, Problem> {
    let count = checked_count(params.count, MOST_EVENTS as u64, MOST_EVENTS as u64)?;
    let wrong = |_| Problem::expected("after", "the id of an event", &params.after);
    let after: EventName = params.after.parse().map_err(wrong)?;
    let rings = web.registry.feed(&ring).await?.rings().await?;
    Ok(answer(&rings.events_after(&after, count as usize).await?))
}

/// A count from 1 to `most`.
pub fn checked_count(given: Option<u64>, default: u64, most: u64) -> Result<u64, Problem> {
    match given {
        None => Ok(default),
        Some(count) if (1..=most).contains(&count) => Ok(count),
        Some(count) => Err(Problem::expected("count", &format!("1 to {most}"), &count.to_string())),
    }
}

/// How much work a ring has, for programs that start and stop nodes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backlog {
    /// Messages that wait or are being handled. At least one while the time of a delayed message has come, even if no
    /// node runs that could move it to the queue.
    pub backlog: u64,
    pub waiting: u64,
    pub in_flight: u64,
    /// Messages that wait for a time.
    pub later: u64,
    pub oldest_waiting_ms: u64,
}

/// How much work a ring has.
#[utoipa::path(get, path = "/api/rings/{ring}/backlog", tag = "rings", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    responses((status = 200, body = Backlog)))]
pub async fn backlog(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    _: Params<NoParams>,
) -> Result<Response, Problem> {
    let snapshot = web.registry.feed(&ring).await?.rings().await?.snapshot().await?;
    Ok(answer(&Backlog {
        backlog: (snapshot.waiting + snapshot.in_flight).max(u64::from(snapshot.oldest_waiting_ms > 0)),
        waiting: snapshot.waiting,
        in_flight: snapshot.in_flight,
        later: snapshot.later,
        oldest_waiting_ms: snapshot.oldest_waiting_ms,
    }))
}

/// Whether this process runs. It does not ask Redis, so an outage of Redis restarts nothing.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = String)))]
pub async fn livez() -> &'static str {
    "alive\n"
}

/// Whether this process can show its rings: Redis answers.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = String), (status = 503, description = "why not", body = Problem, content_type = "application/problem+json")))]
pub async fn readyz(State(web): State<Arc<Web>>) -> Response {
    let why = match tokio::time::timeout(READY_TIME, web.registry.check()).await {
        Ok(Ok(())) => return "ready\n".into_response(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "Redis does not answer".to_owned(),
    };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}
