//! What the generator of a ring follows: its schedule, and the checkpoint of its feed.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use estafeta::Ring;
use estafeta_lab::report::planned_entry;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::overview::checked_count;
use super::{NoParams, Params, Segments, answer};
use crate::problem::Problem;
use crate::server::Web;

const DEFAULT_RUNS: u64 = 5;
const MOST_RUNS: u64 = 1000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PlanParams {
    /// How many of the next runs of each entry, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000)]
    count: Option<u64>,
}

/// The schedule of the last generator, as `estafeta schedule --json` prints its entries. In a ring with partitions, each
/// entry has its `partition`.
#[utoipa::path(get, path = "/api/rings/{ring}/schedule", tag = "rings", params(("ring" = String, Path, description = "name of the ring", example = "orders"), PlanParams),
    responses((status = 200, description = "see docs/json.md", content_type = "application/json", body = Vec<Object>)))]
pub async fn schedule(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    Params(params): Params<PlanParams>,
) -> Result<Response, Problem> {
    let count = checked_count(params.count, DEFAULT_RUNS, MOST_RUNS)?;
    let rings = web.registry.feed(&ring).await?.rings().await?;
    let mut entries = Vec::new();
    for ring in &rings.all {
        for entry in ring.schedule(count as usize).await? {
            let mut object = planned_entry(&entry);
            if rings.are_several() {
                object["partition"] = json!(ring.name().partition());
            }
            entries.push(object);
        }
    }
    Ok(answer(&entries))
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
    /// The checkpoint of each partition, if there are several. The ring itself then has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    partitions: Vec<CheckpointObject>,
}

impl CheckpointObject {
    async fn read(ring: &Ring) -> estafeta::Result<Self> {
        let value = ring.checkpoint().await?;
        let text = value.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(ToOwned::to_owned);
        let encoded = value.filter(|_| text.is_none()).map(|bytes| STANDARD.encode(bytes));
        let ring = ring.name().to_string();
        Ok(Self { ring, checkpoint: text, checkpoint_base64: encoded, partitions: Vec::new() })
    }
}

/// The checkpoint of a ring, as `estafeta checkpoint show --json` prints it.
#[utoipa::path(get, path = "/api/rings/{ring}/checkpoint", tag = "rings", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    responses((status = 200, body = CheckpointObject)))]
pub async fn checkpoint(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    _: Params<NoParams>,
) -> Result<Response, Problem> {
    let rings = web.registry.feed(&ring).await?.rings().await?;
    let mut whole = CheckpointObject::read(&rings.whole).await?;
    for ring in rings.all.iter().filter(|_| rings.are_several()) {
        whole.partitions.push(CheckpointObject::read(ring).await?);
    }
    Ok(answer(&whole))
}
