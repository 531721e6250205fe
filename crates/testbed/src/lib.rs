//! Real Redis servers and real copies of the program, for tests.
//!
//! A ring's promises are about processes that die at the worst moment, so the tests kill real processes and
//! real servers instead of pretending. Everything here is a guard: dropped, it ends what it started and
//! removes what it wrote. Each server and each process has its own directory, so tests run side by side and
//! share nothing.
//!
//! - [`RedisServer`]: a private `redis-server` that can be killed, restarted and frozen.
//! - [`Process`]: a running program whose output is kept, line by line and byte by byte.
//! - [`Terminal`]: a program on a terminal of its own, whose screen can be read and whose keys can be typed.
//! - [`DataDir`]: the place of the user's data, given to several copies at once.
//! - [`Clock`], [`SmallDisk`]: a server's clock that can be moved, a disk that can be filled up.
//! - [`eventually`]: waits for a condition that nothing announces.
//!
//! Whatever goes wrong here is a failed test, so the functions panic with what they saw and return no errors.
//!
//! # Who is the parent
//!
//! A test binary that is itself killed cannot run destructors, so on Linux each child asks the kernel to be
//! killed together with its parent (`PR_SET_PDEATHSIG`). The kernel's "parent" is the *thread* that forked,
//! not the process: a server started from a test's own thread would be shot when that test ends, even if
//! another test still uses it. Hence one thread of this crate, which lives as long as the process, does all
//! the forking.

#![allow(clippy::unwrap_used)]

#[cfg(test)]
mod again;
mod capture;
mod clock;
mod data_dir;
mod eventually;
mod owned_child;
mod process;
mod redis_server;
#[cfg(target_os = "linux")]
mod small_disk;
mod spawner;
mod terminal;

pub use capture::Line;
pub use clock::Clock;
pub use data_dir::DataDir;
pub use eventually::eventually;
pub use nix::sys::signal::Signal;
pub use process::{NO_ENV, Output, Process};
pub use redis_server::{Builder, Fsync, RedisServer};
#[cfg(target_os = "linux")]
pub use small_disk::SmallDisk;
pub use terminal::{Terminal, vt100};
