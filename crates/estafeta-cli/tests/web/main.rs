//! Tests of `estafeta web`: raw HTTP against the real program, and the page in a real browser.

#![allow(clippy::unwrap_used)]

mod api;
mod bad_input;
mod browser;
mod fuzz;
mod monitoring;
mod partitions;
mod security;
mod server;
mod support;
