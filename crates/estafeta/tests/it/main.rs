//! The library on a real Redis: one server for each test, members inside the test's own process.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

mod bodies;
mod keyspace;
mod lifecycle;
mod liveness;
mod poison;
mod ticks;
