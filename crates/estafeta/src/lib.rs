//! **estafeta** is a relay race. Any number of equal nodes run one program and meet only in Redis. One elected node
//! *generates* messages, and all others *handle* them. Every message gets exactly one recorded outcome. A killed node is
//! replaced within a fraction of a second, a frozen or unplugged one when its lease ends.
//!
//! # A tour
//!
//! [`Node`] is one running process. It takes a [`Source`], which makes messages while the node is in office, and a
//! [`Handler`], which handles them while it is not. The node runs until it is asked to stop:
//!
//! ```no_run
//! use estafeta::{Config, Failure, Handler, Message, Node, Source};
//!
//! struct Clock(u64);
//! impl Source for Clock {
//!     async fn next(&mut self) -> Result<Vec<u8>, Failure> {
//!         self.0 += 1;
//!         Ok(format!("tick {}", self.0).into_bytes())
//!     }
//! }
//!
//! struct Print;
//! impl Handler for Print {
//!     async fn handle(&self, message: &Message) -> Result<(), Failure> {
//!         println!("#{} (delivery {}): {}", message.id, message.delivery, message.text());
//!         Ok(())
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = "redis://127.0.0.1:6379".parse()?;
//! let config = Config::new(redis, "ticks".parse()?);
//! let ten_seconds = tokio::time::sleep(std::time::Duration::from_secs(10));
//! Node::new(config, Clock(0), Print, ()).run(ten_seconds).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Publisher`] publishes messages from a process that is no node.
//!
//! An [`Observer`] receives notices of what happens to the node. [`Ring`] inspects a ring from outside: [`Snapshot`],
//! dead letters, clean-up. [`DeadLetterReader`] takes the dead letters out.
//!
//! Everything that matters happens in Redis, in Lua scripts, one atomic step per script. `docs/protocol.md` in the
//! repository describes how they fit together and what is promised.

/// Compiles every Rust block of the pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../README.ru.md")]
    struct ReadmeInRussian;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
}

mod config;
mod error;
mod handler;
mod headers;
mod identity;
mod inspect;
mod keys;
mod layout;
mod message;
mod node;
mod observer;
mod pack;
mod publisher;
mod redis;
mod retry;
mod source;
mod steps;

// Running a node.
pub use config::{Config, Missed};
pub use handler::{Failure, Handler, Outcome};
pub use headers::Headers;
pub use message::Message;
pub use node::Node;
pub use observer::{Notice, Observer, Postponed};
pub use retry::Retry;
pub use source::Source;

// Publishing from a process that is no node.
pub use publisher::{Draft, Publisher, Publishing, PublishingAll, Receipt};

// Looking at a ring from outside.
pub use inspect::{
    Burial, DeadLetterReader, Event, EventKind, GeneratorView, JournalEntry, MemberView, Ring, Role,
    Selection, Snapshot,
};
pub use message::DeadLetter;
pub use steps::{Duties, Health};

// Names and addresses.
pub use crate::redis::{Address, Endpoint};
pub use error::{Error, Result};
pub use identity::{Epoch, MemberId};
pub use keys::RingName;
pub use layout::Layouts;
