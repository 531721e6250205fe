//! The body of the job does not implement `Deserialize`.

use estafeta::{Failure, Job, Node};

struct Order {
    id: u64,
}

async fn ship(job: Job<Order>) -> Result<(), Failure> {
    println!("{}", job.body.id);
    Ok(())
}

fn main() {
    let _ = Node::on("redis://127.0.0.1", "orders").unwrap().handle(ship);
}
