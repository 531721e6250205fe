//! Real Redis servers and real processes of the program, for tests.
//!
//! A ring promises what happens when processes die at the worst moment. So the tests kill real processes and real
//! servers. Every type here is a guard: when it is dropped, it ends what it started and removes what it wrote. Each
//! server and each process has its own directory, so tests run in parallel and share nothing.
//!
//! - [`RedisServer`]: a private `redis-server` that a test can kill, restart and freeze.
//! - [`RedisSentinels`], [`RedisCluster`]: a master with replicas and sentinels, and a cluster. [`TlsFiles`] has
//!   certificates for them.
//! - [`Process`]: a running program whose output is kept, as lines and as bytes.
//! - [`Terminal`]: a program on a private terminal. A test can read its screen and type keys.
//! - [`DataDir`]: the directory of the user's data. Several nodes can share one.
//! - [`Clock`], [`SmallDisk`]: a server clock that a test can move, and a disk that it can fill up.
//! - [`eventually`]: waits for a condition that sends no notification.
//!
//! Any failure in this crate is a failed test. So its functions return no errors: they panic with what they saw.
//!
//! # Which thread is the parent
//!
//! A test binary that is killed cannot run destructors. So on Linux each child asks the kernel to kill it together with
//! its parent (`PR_SET_PDEATHSIG`). To the kernel, the parent is the *thread* that forked, not the process. A server
//! that one test started on its own thread would be killed when that test ends, even if another test still uses it. So
//! a single thread of this crate starts all children. It lives as long as the process.

#![allow(clippy::unwrap_used)]

#[cfg(test)]
mod again;
mod capture;
mod clock;
mod data_dir;
mod eventually;
mod owned_child;
mod process;
mod question;
mod redis_cluster;
mod redis_sentinels;
mod redis_server;
#[cfg(target_os = "linux")]
mod small_disk;
mod spawner;
mod terminal;
mod tls_files;

pub use capture::OutputLine;
pub use clock::Clock;
pub use data_dir::DataDir;
pub use eventually::eventually;
pub use nix::sys::signal::Signal;
pub use process::{NO_ENV, Output, Process};
pub use redis_cluster::{ClusterBuilder, RedisCluster, SlotMigration};
pub use redis_sentinels::{RedisSentinels, SentinelsBuilder};
pub use redis_server::{Builder, Fsync, RedisServer};
#[cfg(target_os = "linux")]
pub use small_disk::SmallDisk;
pub use terminal::{Terminal, vt100};
pub use tls_files::TlsFiles;
