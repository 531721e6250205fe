//! The library on a real Redis: one server per test, nodes inside the test process.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

mod bodies;
mod keyspace;
mod lifecycle;
mod liveness;
mod poison;
mod ticks;
