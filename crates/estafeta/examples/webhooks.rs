//! A webhook sender. Each event is sent until its receiver takes it, or refuses it for good.
//!
//! ```text
//! cargo run --example webhooks
//! estafeta publish --ring hooks '{"url":"http://127.0.0.1:8080/orders","event":{"order":17}}'
//! ```
//!
//! A receiver may get the same event twice if a node dies at the wrong moment. The header `Idempotency-Key` tells it so.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use estafeta::{Error, Failure, Job, Node, Outcome, Retry};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Response};
use serde::Deserialize;

#[derive(Deserialize)]
struct Hook {
    url: String,
    event: serde_json::Value,
}

async fn deliver(http: Client, job: Job<Hook>) -> Result<Outcome, Failure> {
    let Hook { url, event } = &job.body;
    let reply = http.post(url).header("Idempotency-Key", job.message_name()).json(event).send().await?;
    println!("{url}, attempt {}: {}", job.attempt(), reply.status());
    match reply.status().as_u16() {
        200..300 => Ok(Outcome::done()),
        // The receiver is busy. That is not the fault of this message, so it uses up no attempt.
        429 | 503 => Ok(Outcome::snooze(wait_of(&reply))),
        400..500 => Err(Failure::fatal(reply.status())),
        _ => Err(Failure::new(reply.status())),
    }
}

/// How long the receiver wants to be left alone.
fn wait_of(reply: &Response) -> Duration {
    let seconds = reply.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // The first wait after a failure, in seconds.
    let first = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10);
    Node::on(&redis, "hooks")?
        .handle_with(Client::new(), deliver)
        .retry(Retry::exponential(Duration::from_secs(first)).attempts(12))
        .time_limit(Duration::from_secs(30))
        .concurrency(64)
        .run()
        .await
}
