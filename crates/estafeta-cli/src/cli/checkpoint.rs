//! The options of `estafeta checkpoint`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::JsonArg;

#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// Print the checkpoint
    ///
    /// Fails if the ring has none. Other characters than visible ones are printed as escapes, unless with --json.
    Show(JsonArg),
    /// Set the checkpoint
    ///
    /// The next generator opens its feed with it. Stop all nodes that may generate first: the command is refused while one
    /// of them is in office.
    Set(SetCheckpointArgs),
    /// Remove the checkpoint
    ///
    /// The next generator opens its feed as if it were the first one. Refused while a node is in office.
    Clear,
}

#[derive(Debug, Args)]
pub struct SetCheckpointArgs {
    /// The checkpoint, at most 64 KiB. `-` reads it from stdin
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: OsString,
}
