//! An HTTP service that publishes: it accepts orders, and nodes handle them elsewhere.
//!
//! ```text
//! cargo run --example http_service -- 127.0.0.1:8080
//! curl -i -H 'content-type: application/json' -d '{"id":"17","pizzas":2}' http://127.0.0.1:8080/orders
//! ```
//!
//! The id of an order is its publish key. So a client that got no answer just sends its order again: the order is published
//! once, and each answer has the same number.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use estafeta::{Error, Publisher};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    pizzas: u32,
}

/// A clone of the publisher is cheap, and all clones share one connection.
async fn accept(
    State(orders): State<Publisher<Order>>,
    Json(order): Json<Order>,
) -> (StatusCode, Json<Value>) {
    let publish = orders.publish(&order).key(&order.id).patient(Duration::from_secs(2));
    match publish.await {
        Ok(receipt) => {
            (StatusCode::ACCEPTED, Json(json!({ "number": receipt.id, "duplicate": receipt.duplicate })))
        }
        Err(error) => {
            let status = match &error {
                Error::KeyReused { .. } => StatusCode::CONFLICT,
                Error::Expected { .. } | Error::BodyTooLarge { .. } => StatusCode::BAD_REQUEST,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, Json(json!({ "error": error.to_string() })))
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let orders = Publisher::on(&redis, "orders").await?;
    let service = Router::new().route("/orders", post(accept)).with_state(orders);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, service).await?;
    Ok(())
}
