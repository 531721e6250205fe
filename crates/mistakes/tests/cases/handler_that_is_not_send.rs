//! A value that cannot move between threads lives across an await.

use std::rc::Rc;

use estafeta::{Failure, Job, Node};

async fn count(job: Job<String>) -> Result<(), Failure> {
    let letters = Rc::new(job.body.len());
    tokio::task::yield_now().await;
    println!("{letters}");
    Ok(())
}

fn main() {
    let _ = Node::on("redis://127.0.0.1", "words").unwrap().handle(count);
}
