//! The state of a ring, its history and its events; health of this server.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use estafeta::HistoryRange;
use estafeta_lab::ring_status::RingStatus;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Params, answer};
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
pub async fn meta(State(web): State<Arc<Web>>, Extension(visitor): Extension<Visitor>) -> Response {
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
#[utoipa::path(get, path = "/api/rings/{ring}", tag = "rings", params(("ring" = String, Path, description = "name of the ring")),
    responses((status = 200, description = "see docs/json.md", content_type = "application/json", body = Object),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn ring(State(web): State<Arc<Web>>, Path(ring): Path<String>) -> Result<Response, Problem> {
    let feed = web.registry.feed(&ring).await?;
    Ok(answer(&RingStatus::read(feed.ring(), SNAPSHOT_EVENTS).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryParams {
    /// `5m`, `1h` or `24h`.
    #[param(pattern = "^(5m|1h|24h)$")]
    range: String,
}

/// The history of a ring, as points of charts.
#[utoipa::path(get, path = "/api/rings/{ring}/history", tag = "rings", params(("ring" = String, Path, description = "name of the ring"), HistoryParams),
    responses((status = 200, body = ChartHistory),
              (status = 400, body = Problem, content_type = "application/problem+json"),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn history(
    State(web): State<Arc<Web>>,
    Path(ring): Path<String>,
    Params(params): Params<HistoryParams>,
) -> Result<Response, Problem> {
    let range: HistoryRange = params.range.parse()?;
    let feed = web.registry.feed(&ring).await?;
    Ok(answer(&ChartHistory::new(&feed.ring().history(range).await?)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventParams {
    /// The name of the event after which to begin, such as `1794776990426-0`. Empty: the oldest one that is kept.
    #[serde(default)]
    #[param(pattern = r"^(\d{1,15}(-\d{1,15})?)?$")]
    after: String,
    /// How many events, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    count: Option<u64>,
}

/// Events of a ring, oldest first.
#[utoipa::path(get, path = "/api/rings/{ring}/events", tag = "rings", params(("ring" = String, Path, description = "name of the ring"), EventParams),
    responses((status = 200, description = "see docs/json.md", content_type = "application/json", body = Vec<Object>),
              (status = 400, body = Problem, content_type = "application/problem+json"),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn events(
    State(web): State<Arc<Web>>,
    Path(ring): Path<String>,
    Params(params): Params<EventParams>,
) -> Result<Response, Problem> {
    let count = checked_count(params.count, MOST_EVENTS as u64, MOST_EVENTS as u64)?;
    if !is_event_name(&params.after) {
        return Err(Problem::expected("after", "the id of an event", &params.after));
    }
    let feed = web.registry.feed(&ring).await?;
    Ok(answer(&feed.ring().events_after(&params.after, count as usize).await?))
}

/// Whether this names an entry of a stream: milliseconds and a number, `1794776990426-0`. Nothing means the beginning.
fn is_event_name(text: &str) -> bool {
    let is_number =
        |part: &str| part.parse::<u64>().is_ok() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('-') {
        None => text.is_empty() || is_number(text),
        Some((ms, number)) => is_number(ms) && is_number(number),
    }
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
    /// Messages that wait or are being handled.
    pub backlog: u64,
    pub waiting: u64,
    pub in_flight: u64,
    /// Messages that wait for a time.
    pub later: u64,
    pub oldest_waiting_ms: u64,
}

/// How much work a ring has.
#[utoipa::path(get, path = "/api/rings/{ring}/backlog", tag = "rings", params(("ring" = String, Path, description = "name of the ring")),
    responses((status = 200, body = Backlog),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn backlog(State(web): State<Arc<Web>>, Path(ring): Path<String>) -> Result<Response, Problem> {
    let snapshot = web.registry.feed(&ring).await?.ring().snapshot(0).await?;
    Ok(answer(&Backlog {
        backlog: snapshot.waiting + snapshot.in_flight,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_by_numbers() {
        for name in ["", "0", "17", "1794776990426-0"] {
            assert!(is_event_name(name), "{name}");
        }
        for name in ["-", "1-", "-1", "+", "$", "1-2-3", "x", "+1-0", "99999999999999999999-0"] {
            assert!(!is_event_name(name), "{name}");
        }
    }
}
