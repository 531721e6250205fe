//! **estafeta** is a relay race. Any number of equal nodes run one program and meet only in Redis. One elected node
//! *generates* messages, and all others *handle* them. By default the generator handles messages, too. Every message
//! gets exactly one recorded outcome. A killed node is replaced within a fraction of a second, a frozen or unplugged
//! one when its lease ends.
//!
//! # A tour
//!
//! A [`Node`] is one running process. It handles messages with an async function, and publishes some when it is elected:
//!
//! ```no_run
//! use std::time::Duration;
//! use estafeta::{Failure, Job, Node, every};
//!
//! async fn print(job: Job<String>) -> Result<(), Failure> {
//!     println!("#{} (attempt {}): {}", job.id(), job.attempt(), job.body);
//!     Ok(())
//! }
//!
//! # async fn example() -> Result<(), estafeta::Error> {
//! let ticks = every(Duration::from_secs(1), || async { Ok("tick") });
//! // Until SIGTERM or Ctrl-C.
//! Node::on("redis://127.0.0.1:6379", "ticks")?.generate(ticks).handle(print).run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - What a node handles: [`Job`], [`Outcome`], [`Failure`], [`Retry`].
//! - What the elected node publishes: a [`Schedule`], a [`Feed`] which continues where its predecessor stopped, or a
//!   function that is called [`every`] now and then.
//! - A [`Publisher`] publishes messages from a process that is no node.
//! - [`Ring`] inspects a ring from outside: [`Snapshot`], dead letters, clean-up. [`DeadLetterReader`] takes the dead
//!   letters out.
//! - The feature `testing` has the module `testing`, which tests all of this on a separate Redis.
//!
//! Everything that matters happens in Redis, in Lua scripts, one atomic step per script. `docs/protocol.md` in the
//! repository describes how they fit together and what is promised.

#![warn(missing_debug_implementations)]

/// Compiles every Rust block of the pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../README.ru.md")]
    struct ReadmeInRussian;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
    #[doc = include_str!("../../../docs/guides/first-job.md")]
    struct FirstJob;
    #[doc = include_str!("../../../docs/guides/retries-and-errors.md")]
    struct RetriesAndErrors;
    #[doc = include_str!("../../../docs/guides/schedules.md")]
    struct Schedules;
    #[doc = include_str!("../../../docs/guides/feeds-and-checkpoints.md")]
    struct FeedsAndCheckpoints;
    #[doc = include_str!("../../../docs/guides/publishing.md")]
    struct PublishingGuide;
    #[doc = include_str!("../../../docs/guides/effects-and-pipelines.md")]
    struct EffectsAndPipelines;
    #[doc = include_str!("../../../docs/guides/dead-letters.md")]
    struct DeadLetters;
    #[doc = include_str!("../../../docs/guides/inspecting.md")]
    struct Inspecting;
    #[doc = include_str!("../../../docs/guides/observability.md")]
    struct Observability;
    #[doc = include_str!("../../../docs/guides/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/guides/transactional-outbox.md")]
    struct TransactionalOutbox;
    #[doc = include_str!("../../../docs/scaling.md")]
    struct Scaling;
    #[doc = include_str!("../../../docs/guides/coming-from.md")]
    struct ComingFrom;
}

mod body;
mod config;
mod draft;
mod durability;
mod effects;
mod error;
mod failure;
mod feed;
mod handler;
mod headers;
mod identity;
mod inspect;
mod job;
mod keys;
mod latency;
mod layout;
mod message;
mod node;
mod observer;
mod outcome;
mod pack;
mod partition;
mod publisher;
mod redis;
mod retry;
mod schedule;
mod source;
mod steps;
#[cfg(feature = "testing")]
pub mod testing;
mod trace;

// Running a node.
pub use config::Config;
pub use durability::Durability;
pub use node::{Generate, Node};
pub use observer::{HandlingResult, HandlingTimes, Notice, Postponed};
pub use partition::Partition;
pub use retry::Retry;
pub use trace::{TraceContext, TracePropagator, set_trace_propagator};

/// Bodies that are not JSON.
pub use bytes::Bytes;

// Handling messages.
pub use failure::{Failure, FailureKind};
pub use handler::Next;
pub use headers::Headers;
pub use job::Job;
pub use message::Message;
pub use outcome::{Outcome, Outcomes};

// What the elected node publishes.
pub use feed::{Batch, Every, Feed, StreamFeed, every, feed_of};
pub use schedule::{Definition, Missed, Overlap, Schedule, ScheduleEntry, Tick, Times};

// Publishing from a process that is no node.
pub use draft::Draft;
pub use publisher::{Publisher, Publishing, PublishingAll, Receipt};

// Looking at a ring from outside.
pub use inspect::{
    Burial, CountRates, DeadLetterReader, Event, EventKind, GapReason, GeneratorView, HistoryGap,
    HistoryRange, JournalEntry, MemberView, MessageResult, Moment, Pause, PlannedEntry, Ring, RingHistory,
    Role, Sample, Selection, ServerFinding, Severity, Snapshot,
};
pub use latency::{LATENCY_BOUNDS, Latencies};
pub use message::DeadLetter;
pub use steps::{Activity, Duties, Health, Rate};

// Names and addresses.
pub use crate::redis::{Address, Endpoint};
pub use error::{Error, Result};
pub use identity::{Epoch, MemberId};
pub use keys::RingName;
pub use layout::Layouts;
