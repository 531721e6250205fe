//! The handler takes the body instead of the job.

use estafeta::{Failure, Node};

async fn print(text: String) -> Result<(), Failure> {
    println!("{text}");
    Ok(())
}

fn main() {
    let _ = Node::on("redis://127.0.0.1", "words").unwrap().handle(print);
}
