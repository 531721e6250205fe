//! The library on a real Redis: one server per test, nodes inside the test process.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

mod bodies;
mod duties;
mod handlers;
mod keyspace;
mod later;
mod lifecycle;
mod liveness;
mod office;
mod poison;
mod publishers;
mod readers;
mod rings;
mod sources;
mod ticks;
mod time_limits;
