//! Tests of `estafeta web`: raw HTTP against the real program, and the page in a real browser.

#![allow(clippy::unwrap_used)]

mod api;
mod browser;
mod security;
mod server;
mod support;
