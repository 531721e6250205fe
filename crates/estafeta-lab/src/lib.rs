//! Attacks and measures rings of estafeta.
//!
//! [`chaos`] injects faults into a ring and judges the result. [`mod@bench`] measures a ring. The other modules have one
//! job each: child processes, Redis servers, a misbehaving proxy, the records of nodes, and text for people. The
//! program uses them as well.

#![allow(missing_docs)] // These are parts of the program, not a public interface.

pub mod bench;
pub mod by_reason;
pub mod chaos;
pub mod child_process;
pub mod clock;
pub mod ephemeral_redis;
pub mod escape;
pub mod event_name;
pub mod exit_code;
pub mod fleet;
pub mod message_id;
pub mod paint;
pub mod partitions;
pub mod plot;
pub mod printer;
pub mod proxy;
pub mod quantile;
pub mod record;
pub mod redis_program;
pub mod redis_servers;
pub mod report;
pub mod ring_status;
pub mod scratch_dir;
pub mod server;
pub mod text;
