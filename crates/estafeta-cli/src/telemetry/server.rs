//! Serves the metrics and the health of a node over HTTP: `/metrics`, `/livez` and `/readyz`.
//!
//! It has a separate thread, so that handlers that burn or block their threads do not keep it from answering.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use estafeta_web::exposition;

use super::connection_limit::FewConnections;
use super::health::NodeHealth;
use super::metrics::NodeMetrics;
use crate::settings::wrong;

/// Listens at this address, and serves it until the process ends.
pub fn start(address: &str, health: Arc<NodeHealth>, metrics: Arc<NodeMetrics>) -> Result<()> {
    let refused = |error: std::io::Error| {
        let expected = "an address that this node can listen at, such as 127.0.0.1:9464";
        wrong("metrics", expected, &format!("'{address}': {error}"))
    };
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true)?;
    tracing::info!("metrics and health at http://{}", listener.local_addr()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(FewConnections::new(listener), routes(health, metrics)).await
    };
    std::thread::Builder::new().name("estafeta-metrics".into()).spawn(move || runtime.block_on(serve))?;
    Ok(())
}

fn routes(health: Arc<NodeHealth>, metrics: Arc<NodeMetrics>) -> Router {
    let alive = Arc::clone(&health);
    Router::new()
        .route(
            "/metrics",
            get(move |headers: HeaderMap| async move { exposition::answer(&headers, metrics.text()) }),
        )
        .route("/livez", get(move || async move { answer(alive.liveness(Instant::now())) }))
        .route("/readyz", get(move || async move { answer(health.readiness(Instant::now())) }))
}

fn answer(sentence: Result<String, String>) -> Response {
    let (status, sentence) = match sentence {
        Ok(sentence) => (StatusCode::OK, sentence),
        Err(sentence) => (StatusCode::SERVICE_UNAVAILABLE, sentence),
    };
    (status, [(header::CACHE_CONTROL, "no-store")], sentence + "\n").into_response()
}
