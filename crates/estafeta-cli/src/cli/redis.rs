//! The options of `estafeta redis`.

use clap::Subcommand;

use super::{JsonArg, YesArg};

#[derive(Debug, Subcommand)]
pub enum RedisCommand {
    /// Show whether it runs, and where
    Status(JsonArg),
    /// Stop it and keep its data
    Stop(YesArg),
}
