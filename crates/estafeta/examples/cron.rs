//! A cron that survives its server. Run it on three machines: each tick is published once, and any of them handles it.
//!
//! ```text
//! cargo run --example cron                        # reports at half past two, in Berlin
//! cargo run --example cron -- '* * * * * *' UTC   # every second
//! ```

#![allow(clippy::print_stdout)]

use std::time::SystemTime;

use estafeta::{Error, Failure, Job, Missed, Node, Schedule};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Report {
    shop: u32,
}

async fn render(job: Job<Report>) -> Result<(), Failure> {
    let tick = job.tick().ok_or("only the schedule publishes here")?;
    let second = tick.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    println!("report of shop {} for {second}", job.body.shop);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (times, zone) = match &words[..] {
        [times, zone] => (times.as_str(), zone.as_str()),
        _ => ("30 2 * * *", "Europe/Berlin"),
    };
    let nightly = Schedule::cron("nightly", times, zone)?
        .missed(Missed::Last)
        .each(|_tick| [1, 2, 3].map(|shop| Report { shop }));
    Node::on(&redis, "reports")?.generate(nightly).handle(render).run().await
}
