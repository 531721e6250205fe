//! The entry of a schedule says when, but not what.

use std::time::Duration;

use estafeta::{Node, Schedule};

fn main() {
    let entry = Schedule::every("pulse", Duration::from_secs(1)).unwrap();
    let _ = Node::on("redis://127.0.0.1", "pulses").unwrap().generate(entry);
}
