//! What the generator of a ring follows: its schedule, and the checkpoint of its feed.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use estafeta_lab::report::planned_entry;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::overview::checked_count;
use super::{Params, answer};
use crate::problem::Problem;
use crate::server::Web;

const DEFAULT_RUNS: u64 = 5;
const MOST_RUNS: u64 = 1000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PlanParams {
    /// How many of the next runs of each entry, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000)]
    count: Option<u64>,
}

/// The schedule of the last generator, as `estafeta schedule --json` prints its entries.
#[utoipa::path(get, path = "/api/rings/{ring}/schedule", tag = "rings", params(("ring" = String, Path, description = "name of the ring"), PlanParams),
    responses((status = 200, description = "see docs/json.md", content_type = "application/json", body = Vec<Object>),
              (status = 400, body = Problem, content_type = "application/problem+json"),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn schedule(
    State(web): State<Arc<Web>>,
    Path(ring): Path<String>,
    Params(params): Params<PlanParams>,
) -> Result<Response, Problem> {
    let count = checked_count(params.count, DEFAULT_RUNS, MOST_RUNS)?;
    let entries = web.registry.feed(&ring).await?.ring().schedule(count as usize).await?;
    Ok(answer(&entries.iter().map(planned_entry).collect::<Vec<_>>()))
}

/// Where the feed of the next generator continues.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointObject {
    ring: String,
    /// The checkpoint, if there is one and it is text.
    checkpoint: Option<String>,
    /// A checkpoint that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_base64: Option<String>,
}

/// The checkpoint of a ring, as `estafeta checkpoint show --json` prints it.
#[utoipa::path(get, path = "/api/rings/{ring}/checkpoint", tag = "rings", params(("ring" = String, Path, description = "name of the ring")),
    responses((status = 200, body = CheckpointObject),
              (status = 404, body = Problem, content_type = "application/problem+json"),
              (status = 503, description = "Redis is away", body = Problem, content_type = "application/problem+json")))]
pub async fn checkpoint(State(web): State<Arc<Web>>, Path(ring): Path<String>) -> Result<Response, Problem> {
    let feed = web.registry.feed(&ring).await?;
    let value = feed.ring().checkpoint().await?;
    let text = value.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(ToOwned::to_owned);
    let encoded = value.filter(|_| text.is_none()).map(|bytes| STANDARD.encode(bytes));
    let ring = feed.ring().name().to_string();
    Ok(answer(&CheckpointObject { ring, checkpoint: text, checkpoint_base64: encoded }))
}
