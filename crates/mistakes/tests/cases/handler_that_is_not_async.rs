//! The handler forgot `async`.

use estafeta::{Failure, Job, Node};

fn print(job: Job<String>) -> Result<(), Failure> {
    println!("{}", job.body);
    Ok(())
}

fn main() {
    let _ = Node::on("redis://127.0.0.1", "words").unwrap().handle(print);
}
