//! Errors as the API answers them: problem+json, as RFC 9457 describes it.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use estafeta::Error;
use serde::Serialize;
use utoipa::ToSchema;

/// Why a request failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// The kind of problem. Always `about:blank`: the status says it all.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name of the status.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// What is wrong with this request, for people.
    detail: String,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self { kind: "about:blank", title, status: status.as_u16(), detail: detail.into() }
    }

    /// A parameter or a body is wrong.
    pub fn expected(what: &str, expected: &str, got: &str) -> Self {
        let got: String = got.chars().take(100).collect();
        Self::new(StatusCode::BAD_REQUEST, format!("{what}: expected {expected}, got '{got}'"))
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Expected { .. } => StatusCode::BAD_REQUEST,
            Error::Unreachable { .. } | Error::Refused { .. } | Error::Unconfirmed { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Error::Layout { .. } | Error::Requires { .. } | Error::ForeignKey { .. } => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_string(&self).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        (status, [(header::CONTENT_TYPE, kind)], text).into_response()
    }
}
