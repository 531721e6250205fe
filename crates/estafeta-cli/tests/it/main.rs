//! The program as users meet it: real processes, real signals, a real Redis for each test.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

mod exactly_once;
mod lost_redis;
mod output;
mod stopping;
mod takeover;
