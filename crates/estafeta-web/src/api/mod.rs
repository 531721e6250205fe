//! Everything that is not the page itself.

pub mod changes;
pub mod errors;
pub mod overview;
pub mod plan;
pub mod reasons;

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use crate::server::Web;
use crate::{assets, live, metrics, openapi};

/// The largest body of a request.
const MOST_BODY: usize = 64 * 1024;

/// The parameters of a request. What is wrong with them is a problem, not a page of text.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(Query::<T>::from_request_parts(parts, state).await?.0))
    }
}

/// The body of a request.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Ok(Self(Json::<T>::from_request(request, state).await?.0))
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let status = match rejection.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        Self::new(status, rejection.body_text())
    }
}

/// An answer as one line of JSON, written as the commands write it.
fn answer(value: &impl Serialize) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, estafeta_lab::report::json_line(value)).into_response()
}

pub fn router(web: Arc<Web>) -> Router {
    let ring = Router::new()
        .route("/", get(overview::ring))
        .route("/history", get(overview::history))
        .route("/events", get(overview::events))
        .route("/backlog", get(overview::backlog))
        .route("/live", get(live::live))
        .route("/errors", get(errors::list))
        .route("/errors/reasons", get(errors::reasons))
        .route("/errors/{id}", get(errors::one))
        .route("/errors.ndjson", get(errors::download))
        .route("/errors/retry", post(changes::retry))
        .route("/errors/drop", post(changes::drop_errors))
        .route("/pause", post(changes::pause))
        .route("/resume", post(changes::resume))
        .route("/schedule", get(plan::schedule))
        .route("/checkpoint", get(plan::checkpoint));
    Router::new()
        .merge(assets::routes())
        .route("/api/meta", get(overview::meta))
        .route("/api/openapi.json", get(openapi::document))
        .nest("/api/rings/{ring}", ring)
        .route("/metrics", get(metrics::metrics))
        .route("/livez", get(overview::livez))
        .route("/readyz", get(overview::readyz))
        .fallback(async || Problem::not_found("there is nothing at this address"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this address has no such method")
        })
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .with_state(web)
}
