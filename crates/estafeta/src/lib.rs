//! **estafeta** is a relay race: any number of equal copies of one program meet only in Redis; one of them, elected,
//! *generates* messages, all others *handle* them; every message gets exactly one recorded outcome; whoever is killed,
//! frozen or cut off is replaced within a fraction of a second.
//!
//! # A tour
//!
//! [`Member`] is one running copy. It is given a [`Source`], which makes messages while the copy is in office, and a
//! [`Handler`], which handles them while it is not, and runs until it is told to stop:
//!
//! ```no_run
//! use estafeta::{Config, Failure, Handler, Member, Message, RingName, Source};
//!
//! struct Clock(u64);
//! impl Source for Clock {
//!     async fn next(&mut self) -> Vec<u8> {
//!         self.0 += 1;
//!         format!("tick {}", self.0).into_bytes()
//!     }
//! }
//!
//! struct Print;
//! impl Handler for Print {
//!     async fn handle(&self, message: &Message) -> Result<(), Failure> {
//!         println!("#{} (attempt {}): {}", message.id, message.attempt, message.text());
//!         Ok(())
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = "redis://127.0.0.1:6379".parse()?;
//! let config = Config::new(redis, RingName::default());
//! let ten_seconds = tokio::time::sleep(std::time::Duration::from_secs(10));
//! Member::new(config, Clock(0), Print, ()).run(ten_seconds).await?;
//! # Ok(())
//! # }
//! ```
//!
//! An [`Observer`] hears what happens to the copy. [`Ring`] looks at a ring from outside: [`Snapshot`], errors,
//! clean-up. [`ErrorReader`] takes the errors out.
//!
//! Everything that matters happens in Redis, in Lua scripts, one atomic step each; `docs/protocol.md` in the repository
//! tells how they fit together and what is promised.

mod appetite;
mod bell;
mod config;
mod doubt;
mod election;
mod endpoint;
mod error;
mod errors;
mod generator;
mod heartbeat;
mod journal;
mod keys;
mod lane;
mod member;
mod member_id;
mod message;
mod observer;
mod pack;
mod pulse;
mod ring;
mod snapshot;
mod standing;
mod store;
mod sweeper;
mod work;

pub use config::{Config, Missed};
pub use endpoint::{Address, Endpoint};
pub use error::{Error, Result};
pub use errors::ErrorReader;
pub use journal::JournalEntry;
pub use keys::{RingName, SCHEMA};
pub use member::Member;
pub use member_id::{Epoch, MemberId};
pub use message::{FailedMessage, Message};
pub use observer::{Notice, Observer};
pub use ring::{Ring, Selection};
pub use snapshot::{Event, GeneratorView, MemberView, Role, Snapshot};
pub use store::Health;
pub use sweeper::Burial;
pub use work::{Failure, Handler, Source};
