//! Everything that changes a ring. Each change is signed with the name of its visitor.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use estafeta::{Activity, Ring};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::errors::{ErrorFilter, parse_cursor};
use super::{JsonBody, answer};
use crate::access::Visitor;
use crate::problem::Problem;
use crate::scan::{Cursor, Placed, Scan, cursor_of};
use crate::server::Web;

/// How long one request may work. The answer then has a cursor with which the next one goes on.
const WORK_TIME: Duration = Duration::from_millis(250);
/// How many errors one request changes at most.
const MOST_CHANGES: usize = 200;
/// How many ids one request may name.
const MOST_IDS: usize = 1000;

/// Which errors to change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected `ids`, or `all` with an optional `text` and `reason`")]
pub enum ChosenErrors {
    Ids(ChosenIds),
    All(ChosenAll),
}

/// Errors by the ids of their messages.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChosenIds {
    #[schema(max_items = 1000)]
    ids: Vec<u64>,
    /// `next` of the answer before, or `cursor` of the newest error that is meant, so that the search begins there.
    #[serde(default)]
    #[schema(pattern = r"^(\d{1,15}-\d{1,15})?$")]
    after: String,
}

/// All errors that fit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChosenAll {
    /// Without it, none are meant.
    all: bool,
    /// Only errors with this text.
    #[serde(default)]
    #[schema(max_length = 200)]
    text: String,
    /// Only errors of the group that shows this reason.
    #[serde(default)]
    reason: String,
    /// `next` of the answer before.
    #[serde(default)]
    #[schema(pattern = r"^(\d{1,15}-\d{1,15})?$")]
    after: String,
}

/// What a request has changed.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChangedErrors {
    /// How many errors were changed. Those that were taken or changed meanwhile do not count.
    changed: u64,
    /// How many errors were looked at.
    scanned: u64,
    /// The cursor with which to go on. Null if there is no more to do.
    next: Option<String>,
}

enum Chosen {
    Ids(BTreeSet<u64>),
    Fitting(ErrorFilter),
}

impl ChosenErrors {
    /// What is chosen, and where the search begins.
    fn check(self) -> Result<(Chosen, Option<Cursor>), Problem> {
        match self {
            Self::Ids(ChosenIds { ids, .. }) if ids.len() > MOST_IDS => {
                Err(Problem::bad_request(format!("ids: expected at most {MOST_IDS}")))
            }
            Self::Ids(ChosenIds { ids, after }) => {
                // The error of the cursor may be meant as well, so the search begins above it.
                let after = parse_cursor(&after)?.map(Cursor::above);
                Ok((Chosen::Ids(ids.into_iter().collect()), after))
            }
            Self::All(ChosenAll { all: false, .. }) => Ok((Chosen::Ids(BTreeSet::new()), None)),
            Self::All(ChosenAll { text, reason, after, .. }) => {
                Ok((Chosen::Fitting(ErrorFilter { text, reason }.check()?), parse_cursor(&after)?))
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Verb {
    Retry,
    Drop,
}

async fn change(
    web: &Web,
    ring: &str,
    visitor: &Visitor,
    chosen: ChosenErrors,
    verb: Verb,
) -> Result<Response, Problem> {
    let (mut chosen, after) = chosen.check()?;
    let feed = web.registry.feed(ring).await?;
    let ring = feed.ring().acting_as(&visitor.name);
    let begun = Instant::now();
    let mut scan = Scan::begin(&ring, after).await?;
    let mut done = ChangedErrors { changed: 0, scanned: 0, next: None };
    while !scan.is_over() {
        let chunk = scan.next().await?;
        done.scanned += chunk.len() as u64;
        done.next = chunk.last().map(|placed| cursor_of(placed).to_string());
        let meant: Vec<Placed> = chunk.into_iter().filter(|(_, letter)| chosen.has(letter)).collect();
        if let Chosen::Ids(ids) = &mut chosen {
            ids.retain(|id| meant.iter().all(|(_, letter)| letter.message.id != *id));
        }
        done.changed += resolve(&ring, verb, &meant).await?;
        if scan.is_over() || matches!(&chosen, Chosen::Ids(ids) if ids.is_empty()) {
            done.next = None;
            break;
        }
        if done.changed >= MOST_CHANGES as u64 || begun.elapsed() > WORK_TIME {
            break;
        }
    }
    feed.reasons.forget().await;
    Ok(answer(&done))
}

impl Chosen {
    fn has(&self, letter: &estafeta::DeadLetter) -> bool {
        match self {
            Self::Ids(ids) => ids.contains(&letter.message.id),
            Self::Fitting(filter) => filter.has(letter),
        }
    }
}

async fn resolve(ring: &Ring, verb: Verb, meant: &[Placed]) -> estafeta::Result<u64> {
    match verb {
        _ if meant.is_empty() => Ok(0),
        Verb::Retry => ring.retry_seen(meant).await,
        Verb::Drop => ring.drop_seen(meant).await,
    }
}

/// Puts errors back into the queue, a chunk per request.
#[utoipa::path(post, path = "/api/rings/{ring}/errors/retry", tag = "changes", params(("ring" = String, Path, description = "name of the ring")),
    request_body = ChosenErrors,
    responses((status = 200, body = ChangedErrors),
              (status = 400, body = Problem, content_type = "application/problem+json"),
              (status = 403, body = Problem, content_type = "application/problem+json"),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 413, body = Problem, content_type = "application/problem+json"),
              (status = 415, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn retry(
    State(web): State<Arc<Web>>,
    Path(ring): Path<String>,
    Extension(visitor): Extension<Visitor>,
    JsonBody(chosen): JsonBody<ChosenErrors>,
) -> Result<Response, Problem> {
    change(&web, &ring, &visitor, chosen, Verb::Retry).await
}

/// Deletes errors, a chunk per request.
#[utoipa::path(post, path = "/api/rings/{ring}/errors/drop", tag = "changes", params(("ring" = String, Path, description = "name of the ring")),
    request_body = ChosenErrors,
    responses((status = 200, body = ChangedErrors),
              (status = 400, body = Problem, content_type = "application/problem+json"),
              (status = 403, body = Problem, content_type = "application/problem+json"),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 413, body = Problem, content_type = "application/problem+json"),
              (status = 415, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn drop_errors(
    State(web): State<Arc<Web>>,
    Path(ring): Path<String>,
    Extension(visitor): Extension<Visitor>,
    JsonBody(chosen): JsonBody<ChosenErrors>,
) -> Result<Response, Problem> {
    change(&web, &ring, &visitor, chosen, Verb::Drop).await
}

/// What a pause stops.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PauseTarget {
    Producing,
    Handling,
    Both,
}

impl From<PauseTarget> for Activity {
    fn from(target: PauseTarget) -> Self {
        match target {
            PauseTarget::Producing => Self::Producing,
            PauseTarget::Handling => Self::Handling,
            PauseTarget::Both => Self::Both,
        }
    }
}

/// What to pause.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WantedPause {
    what: PauseTarget,
    /// For how long, in milliseconds, at most ten years. Absent: until it is resumed.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 315_576_000_000_u64)]
    for_ms: Option<u64>,
}

/// What to resume.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedResume {
    what: PauseTarget,
}

/// Pauses producing, handling or both.
#[utoipa::path(post, path = "/api/rings/{ring}/pause", tag = "changes", params(("ring" = String, Path, description = "name of the ring")),
    request_body = WantedPause,
    responses((status = 204, description = "it is paused"),
              (status = 400, body = Problem, content_type = "application/problem+json"),
              (status = 403, body = Problem, content_type = "application/problem+json"),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 413, body = Problem, content_type = "application/problem+json"),
              (status = 415, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn pause(
    State(web): State<Arc<Web>>,
    Path(ring): Path<String>,
    Extension(visitor): Extension<Visitor>,
    JsonBody(wanted): JsonBody<WantedPause>,
) -> Result<StatusCode, Problem> {
    let feed = web.registry.feed(&ring).await?;
    let time = wanted.for_ms.map(Duration::from_millis);
    feed.ring().acting_as(&visitor.name).pause(wanted.what.into(), time).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a pause now.
#[utoipa::path(post, path = "/api/rings/{ring}/resume", tag = "changes", params(("ring" = String, Path, description = "name of the ring")),
    request_body = WantedResume,
    responses((status = 204, description = "it is not paused any more"),
              (status = 400, body = Problem, content_type = "application/problem+json"),
              (status = 403, body = Problem, content_type = "application/problem+json"),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 413, body = Problem, content_type = "application/problem+json"),
              (status = 415, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn resume(
    State(web): State<Arc<Web>>,
    Path(ring): Path<String>,
    Extension(visitor): Extension<Visitor>,
    JsonBody(wanted): JsonBody<WantedResume>,
) -> Result<StatusCode, Problem> {
    let feed = web.registry.feed(&ring).await?;
    feed.ring().acting_as(&visitor.name).resume(wanted.what.into()).await?;
    Ok(StatusCode::NO_CONTENT)
}
