//! The options of `estafeta errors`.

use clap::{Args, Subcommand};

use super::{JsonArg, YesArg};

#[derive(Debug, Subcommand)]
pub enum ErrorsCommand {
    /// Print the errors, oldest first, and leave them where they are
    List(JsonArg),
    /// Print how many errors are kept
    Count(JsonArg),
    /// Put errors back into the queue with fresh counts of failures and deaths
    Retry(SelectArgs),
    /// Delete errors
    Drop(DropArgs),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false, args = ["ids", "all"])]
pub struct SelectArgs {
    /// Ids of the messages
    pub ids: Vec<u64>,

    /// All errors
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub output: JsonArg,
}

#[derive(Debug, Args)]
pub struct DropArgs {
    #[command(flatten)]
    pub which: SelectArgs,

    #[command(flatten)]
    pub confirm: YesArg,
}
