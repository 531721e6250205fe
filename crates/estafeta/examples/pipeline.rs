//! Two rings, and counters that are exact although nodes die: each order becomes one mail.
//!
//! ```text
//! cargo run --example pipeline
//! estafeta publish --ring shop/orders '{"customer":"ada","pizzas":2}'
//! redis-cli get '{shop}/orders:u:pizzas'
//! ```
//!
//! Both rings are of the group `shop`, so one step can settle a message in one of them and publish a message in the other.

#![allow(clippy::print_stdout)]

use estafeta::{Error, Failure, Job, Node, Outcome, RingName};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Order {
    customer: String,
    pizzas: i64,
}

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
    text: String,
}

async fn accept(mails: RingName, job: Job<Order>) -> Result<Outcome, Failure> {
    let Order { customer, pizzas } = job.body;
    let mail = Mail { to: customer, text: format!("{pizzas} pizzas are on their way") };
    Outcome::done().add("pizzas", pizzas).forward_json(&mails, &mail)
}

async fn send(job: Job<Mail>) -> Result<Outcome, Failure> {
    println!("to {}: {}", job.body.to, job.body.text);
    Ok(Outcome::done().add("sent", 1))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let orders = Node::on(&redis, "shop/orders")?.handle_with("shop/mails".parse::<RingName>()?, accept);
    let mails = Node::on(&redis, "shop/mails")?.handle(send).concurrency(4);
    tokio::try_join!(orders.run(), mails.run())?;
    Ok(())
}
