//! The options of `estafeta publish`.

use std::ffi::OsString;

use clap::Args;

use super::run::library;
use super::{DurabilityArg, ShowDefault as _};
use crate::duration::HumanDuration;

/// How long a key is taken, if `--window` is not given.
pub const DEFAULT_WINDOW: &str = "24h";

#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The body of the message. It is read from stdin if there is none, or if it is a `-`
    #[arg(value_name = "BODY", conflicts_with = "lines")]
    pub body: Option<OsString>,

    /// Publish at most one message with this key: an equal one gets the id of the first, another one is refused
    #[arg(long, value_name = "KEY", conflicts_with = "lines")]
    pub key: Option<String>,

    /// How long the key is taken, counted from the first publish or from the end of its delay
    #[arg(long, value_name = "TIME", requires = "key", show_default = DEFAULT_WINDOW)]
    pub window: Option<HumanDuration>,

    /// Publish only if no message with this name waits: otherwise print the id of the waiting one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["key", "delay", "lines"])]
    pub single: Option<String>,

    /// How long each message waits before it goes to the queue, at most 10 years
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, show_default = "0")]
    pub delay: Option<HumanDuration>,

    /// Add a header to each message. May be repeated
    #[arg(long = "header", value_name = "NAME=VALUE")]
    pub headers: Vec<String>,

    /// Publish each line of stdin as one message
    #[arg(long)]
    pub lines: bool,

    /// Try again for this long while the ring is full or paused, or Redis cannot be reached or is busy
    #[arg(long, value_name = "TIME", show_default = "0")]
    pub patient: Option<HumanDuration>,

    /// Do not publish if more than this many messages would wait
    #[arg(long, value_name = "N", show_default = library().max_waiting)]
    pub max_waiting: Option<u64>,

    /// The largest body, in bytes
    #[arg(long, value_name = "BYTES", show_default = library().max_body)]
    pub max_body: Option<usize>,

    #[command(flatten)]
    pub stored: DurabilityArg,
}
