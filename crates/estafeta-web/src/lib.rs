//! The web page of estafeta: rings in the browser, as JSON, and as metrics for Prometheus.
//!
//! # Parts
//!
//! - `server` accepts connections, and ends them in the right order. `guard` decides which requests may pass: it is one
//!   function around everything else, so no handler can forget it. `access` knows the logins.
//! - `registry` knows the rings. Each has one `feed`, with all its partitions, however many pages watch it. The feed reads a snapshot every 500 ms
//!   while at least one page listens, and writes it as JSON once. `live` passes it on as server-sent events. A slow
//!   reader skips to the newest snapshot, so it costs no memory.
//! - `api` answers everything else under `/api`. Lists are read in pages with a time limit (`scan`). So are changes of
//!   many errors: the page sends one request per chunk, and stops by sending no more.
//! - `assets` holds the page itself, inside the program. It is plain HTML, CSS and JavaScript, and builds its elements
//!   from text nodes only.

#![allow(missing_docs)] // This crate is part of the program and not a public interface.

mod access;
mod api;
mod assets;
pub mod exposition;
mod feed;
mod guard;
mod live;
mod metrics;
mod openapi;
mod points;
mod problem;
mod registry;
mod scan;
mod server;
mod shown_id;

pub use access::{Login, Logins, Right};
pub use registry::ShownRings;
pub use server::{Unsafe, WebOptions, WebServer};
