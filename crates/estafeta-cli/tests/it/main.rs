//! The program as users meet it: real processes, real signals, a real Redis for each test.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

mod bad_input;
mod bad_redis;
mod chaos;
mod clean_temp;
mod errors;
mod exactly_once;
mod get_errors;
mod get_errors_cut_short;
mod lost_redis;
mod output;
mod private_redis;
mod record;
mod reset;
mod settings;
mod status;
mod stopping;
mod takeover;
mod terminal;
mod tls;
