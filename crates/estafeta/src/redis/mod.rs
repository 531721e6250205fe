//! The connection to Redis: what keeps it alive, and how a step is sent on it until Redis answers.
//!
//! All other modules use [`Store`]. It sends a step on a [`ManagedConnection`], which replaces its
//! [`Session`](session::Session) when that breaks. The store repeats the step as long as its patience lasts.
//! [`Topology`] finds the server for each session. [`steps`](crate::steps) defines the arguments and the answer of each step.

mod call_error;
mod confirmation;
mod connection;
mod endpoint;
mod reply;
mod sentinel;
mod server_info;
mod session;
mod store;
mod tls;
mod topology;

pub(crate) use call_error::CallError;
pub(crate) use connection::{FIRST, Keeper, ManagedConnection, pauses};
pub use endpoint::{Address, Endpoint};
pub(crate) use endpoint::{Door, Way};
pub(crate) use reply::Reply;
pub(crate) use store::Store;
pub(crate) use topology::Topology;
