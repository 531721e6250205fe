//! A worker for a container. On SIGTERM it finishes the job in hand, and leaves the rest to other nodes.
//!
//! ```text
//! cargo run --example graceful_stop
//! estafeta publish --ring slow-jobs '"a long film"'
//! ```
//!
//! Let the program be process 1 of the container, without a shell in front that keeps the signal to itself:
//!
//! ```text
//! ENTRYPOINT ["/app/worker"]
//! ```
//!
//! An orchestrator kills the container after a while, such as 10 s with `docker stop` and 30 s in Kubernetes
//! (`terminationGracePeriodSeconds`). `stop_deadline` must be shorter than that. A handler that has not ended by then is
//! dropped, and its message goes back to the queue.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use estafeta::{Error, Failure, Job, Node};

async fn render(job: Job<String>) -> Result<(), Failure> {
    println!("begin {}", job.body);
    for _ in 0..20 {
        // Stands for work that takes two seconds.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("end {}", job.body);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    Node::on(&redis, "slow-jobs")?
        .handle(render)
        .configure(|config| config.stop_deadline = Duration::from_secs(8))
        .run()
        .await
}
