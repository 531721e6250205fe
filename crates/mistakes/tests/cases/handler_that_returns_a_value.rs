//! The handler returns a number, which is no outcome.

use estafeta::{Failure, Job, Node};

async fn count(job: Job<String>) -> Result<usize, Failure> {
    Ok(job.body.len())
}

fn main() {
    let _ = Node::on("redis://127.0.0.1", "words").unwrap().handle(count);
}
