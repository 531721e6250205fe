//! Everything that is not the page itself.

pub mod changes;
pub mod errors;
pub mod overview;
pub mod plan;
pub mod reasons;
mod whole_number;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::whole_number::WholeNumber;
use crate::problem::Problem;
use crate::server::Web;
use crate::{assets, live, metrics, openapi};

/// The largest body of a request, and how long a client may take to send it.
const MOST_BODY: usize = 64 * 1024;
const BODY_TIME: Duration = Duration::from_secs(10);

/// The variable parts of a path.
pub struct Segments<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(Path::<T>::from_request_parts(parts, state).await?.0))
    }
}

/// No parameters. Any would be a mistake.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// The parameters of a request. What is wrong with them is a problem, not a page of text.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(Query::<T>::from_request_parts(parts, state).await?.0))
    }
}

/// The body of a request. It must be JSON, and its content type must say so.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if announced_size(request.headers()) > MOST_BODY {
            let expected = format!("expected a body of at most {MOST_BODY} bytes");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, expected));
        }
        match tokio::time::timeout(BODY_TIME, Json::<T>::from_request(request, state)).await {
            Ok(body) => Ok(Self(body?.0)),
            Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
        }
    }
}

/// The size of the body, if the client has announced it. Otherwise 0: then it is counted as it comes.
fn announced_size(headers: &HeaderMap) -> usize {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or_default()
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
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
