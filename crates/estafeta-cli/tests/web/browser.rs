//! The page in a real Chromium. Where there is none, each test prints that it was skipped.

mod changes;
mod driver;
mod look;
mod partitions;
mod proxy;
mod watching;
