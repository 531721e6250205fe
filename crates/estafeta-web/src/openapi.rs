//! The description of the API, as OpenAPI 3.1.

use axum::Json;
use utoipa::OpenApi;

use crate::api::{changes, errors, overview, plan};
use crate::{live, metrics};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "estafeta web",
        description = "Rings of estafeta: their state, their history and their errors."
    ),
    paths(
        overview::meta,
        overview::ring,
        overview::history,
        overview::events,
        overview::backlog,
        overview::livez,
        overview::readyz,
        errors::list,
        errors::one,
        errors::reasons,
        errors::download,
        changes::retry,
        changes::drop_errors,
        changes::pause,
        changes::resume,
        plan::schedule,
        plan::checkpoint,
        live::live,
        metrics::metrics,
    )
)]
struct Description;

pub async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}
