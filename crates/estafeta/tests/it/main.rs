//! The library on a real Redis: one server per test, nodes inside the test process.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

mod batches;
mod bodies;
mod checkpoints;
mod checkup;
mod clusters;
mod demotions;
mod drafts;
mod durability;
mod duties;
mod effects;
mod examples;
mod feeds;
mod handlers;
mod history;
mod jobs;
mod keyspace;
mod later;
mod lifecycle;
mod limits;
mod liveness;
mod office;
mod overlaps;
mod partitions;
mod pauses;
mod plans;
mod poison;
mod public_types;
mod publishers;
mod readers;
mod rings;
mod schedules;
mod sentinels;
mod sources;
mod standstills;
mod testing;
mod ticks;
mod time_limits;
mod traces;
