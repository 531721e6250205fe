//! Everything that changes a ring. Each change is signed with the name of its visitor.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use estafeta::{Activity, DeadLetter};
use estafeta_lab::message_id::MessageId;
use estafeta_lab::partitions::Partitions;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::errors::ErrorFilter;
use super::{JsonBody, Segments, WholeNumber, answer};
use crate::access::Visitor;
use crate::problem::Problem;
use crate::scan::{Cursor, PlacedError, Scan};
use crate::server::Web;
use crate::shown_id::GivenId;

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
    ids: Vec<GivenId>,
    /// `next` of the answer before, or the `cursor` of each error that is meant, with commas between them, so that the
    /// search begins there.
    #[serde(default)]
    #[schema(pattern = r"^((\d{1,4}:)?\d{1,15}-\d{1,15}(,(\d{1,4}:)?\d{1,15}-\d{1,15})*)?$")]
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
    #[schema(pattern = r"^((\d{1,4}:)?\d{1,15}-\d{1,15}(,(\d{1,4}:)?\d{1,15}-\d{1,15})*)?$")]
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
    Ids(BTreeSet<MessageId>),
    Fitting(ErrorFilter),
}

impl ChosenErrors {
    /// What is chosen, and where the search begins.
    fn check(self, rings: &Partitions) -> Result<(Chosen, Cursor), Problem> {
        match self {
            Self::Ids(ChosenIds { ids, .. }) if ids.len() > MOST_IDS => {
                Err(Problem::bad_request(format!("ids: expected at most {MOST_IDS}")))
            }
            Self::Ids(ChosenIds { ids, after }) => {
                // The errors of the cursor may be meant as well, so the search begins above them.
                let after = after.parse::<Cursor>()?.above();
                let ids = ids.iter().map(|id| message_id(id, rings)).collect::<Result<_, _>>()?;
                Ok((Chosen::Ids(ids), after))
            }
            Self::All(ChosenAll { all, text, reason, after }) => {
                let (filter, after) = (ErrorFilter { text, reason }.check()?, after.parse()?);
                Ok((if all { Chosen::Fitting(filter) } else { Chosen::Ids(BTreeSet::new()) }, after))
            }
        }
    }
}

/// An id with its partition, as errors have it. An id in a partition that does not exist belongs to no error.
fn message_id(given: &GivenId, rings: &Partitions) -> Result<MessageId, Problem> {
    let (name, count) = (rings.whole.name(), rings.all.len());
    match given.message() {
        None => Err(Problem::bad_request("ids: expected numbers, or text such as \"2:17\"")),
        Some(MessageId { partition: None, id }) if rings.are_several() => Err(Problem::bad_request(format!(
            "ids: expected PARTITION:ID, such as \"0:{id}\", because ring {name} has {count} partitions"
        ))),
        Some(MessageId { partition, id }) => Ok(MessageId { partition: partition.or(name.partition()), id }),
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
    let feed = web.registry.feed(ring).await?;
    let rings = feed.rings().await?.acting_as(&visitor.name);
    let (mut chosen, after) = chosen.check(&rings)?;
    let begun = Instant::now();
    let mut scan = Scan::begin(&rings.all, &after).await?;
    let (mut cursor, mut changed, mut scanned) = (scan.cursor(), 0, 0);
    while !scan.is_over() && !chosen.is_empty() {
        let chunk = scan.next().await?;
        scanned += chunk.len() as u64;
        chunk.iter().for_each(|error| cursor.pass(error));
        let meant: Vec<PlacedError<'_>> = chunk.into_iter().filter(|error| chosen.take(error)).collect();
        changed += resolve(&rings, verb, meant).await?;
        if changed >= MOST_CHANGES as u64 || begun.elapsed() > WORK_TIME {
            break;
        }
    }
    feed.reasons.forget().await;
    let next = (!scan.is_over() && !chosen.is_empty()).then(|| cursor.to_string());
    Ok(answer(&ChangedErrors { changed, scanned, next }))
}

impl Chosen {
    /// Whether this error is meant. A message is meant once.
    fn take(&mut self, error: &PlacedError<'_>) -> bool {
        match self {
            Self::Ids(ids) => ids.remove(&error.id()),
            Self::Fitting(filter) => filter.has(&error.letter),
        }
    }

    /// Whether nothing is left to look for.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Ids(ids) if ids.is_empty())
    }
}

async fn resolve(rings: &Partitions, verb: Verb, mut meant: Vec<PlacedError<'_>>) -> estafeta::Result<u64> {
    let mut resolved = 0;
    for ring in &rings.all {
        let is_here = |error: &mut PlacedError<'_>| error.ring.name() == ring.name();
        let here = meant.extract_if(.., is_here).map(|error| (error.place, error.letter));
        let here: Vec<(u64, DeadLetter)> = here.collect();
        resolved += match verb {
            _ if here.is_empty() => 0,
            Verb::Retry => ring.retry_seen(&here).await?,
            Verb::Drop => ring.drop_seen(&here).await?,
        };
    }
    Ok(resolved)
}

/// Puts errors back into the queue, a chunk per request.
#[utoipa::path(post, path = "/api/rings/{ring}/errors/retry", tag = "changes", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    request_body = ChosenErrors,
    responses((status = 200, body = ChangedErrors)))]
pub async fn retry(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    Extension(visitor): Extension<Visitor>,
    JsonBody(chosen): JsonBody<ChosenErrors>,
) -> Result<Response, Problem> {
    change(&web, &ring, &visitor, chosen, Verb::Retry).await
}

/// Deletes errors, a chunk per request.
#[utoipa::path(post, path = "/api/rings/{ring}/errors/drop", tag = "changes", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    request_body = ChosenErrors,
    responses((status = 200, body = ChangedErrors)))]
pub async fn drop_errors(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
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
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 315_576_000_000_u64)]
    for_ms: Option<WholeNumber>,
}

/// What to resume.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedResume {
    what: PauseTarget,
}

/// Pauses producing, handling or both.
#[utoipa::path(post, path = "/api/rings/{ring}/pause", tag = "changes", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    request_body = WantedPause,
    responses((status = 204, description = "it is paused")))]
pub async fn pause(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    Extension(visitor): Extension<Visitor>,
    JsonBody(wanted): JsonBody<WantedPause>,
) -> Result<StatusCode, Problem> {
    let rings = web.registry.feed(&ring).await?.rings().await?.acting_as(&visitor.name);
    let time = wanted.for_ms.map(|ms| Duration::from_millis(ms.0));
    for ring in &rings.all {
        ring.pause(wanted.what.into(), time).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a pause now.
#[utoipa::path(post, path = "/api/rings/{ring}/resume", tag = "changes", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    request_body = WantedResume,
    responses((status = 204, description = "it is not paused any more")))]
pub async fn resume(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    Extension(visitor): Extension<Visitor>,
    JsonBody(wanted): JsonBody<WantedResume>,
) -> Result<StatusCode, Problem> {
    let rings = web.registry.feed(&ring).await?.rings().await?.acting_as(&visitor.name);
    for ring in &rings.all {
        ring.resume(wanted.what.into()).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
