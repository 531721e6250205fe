//! The options of `estafeta errors`.

use clap::{Args, Subcommand};

use super::{DurabilityArg, JsonArg, YesArg};
use estafeta_lab::message_id::MessageId;

#[derive(Debug, Subcommand)]
pub enum ErrorsCommand {
    /// Print the errors, oldest first, and leave them where they are
    List(ListArgs),
    /// Print how many errors are kept
    Count(JsonArg),
    /// Put errors back into the queue with fresh counts of failures and deaths
    Retry(SelectArgs),
    /// Delete errors
    Drop(DropArgs),
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print one line per reason instead, the most frequent one first
    ///
    /// Each line has the number of errors, the times of the first and the last one, and the id of the last one. Reasons
    /// that differ only in numbers of four or more digits are one group, with # for each of them. After 1,000 groups,
    /// errors with further reasons are counted together.
    #[arg(long)]
    pub by_reason: bool,

    #[command(flatten)]
    pub output: JsonArg,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false, args = ["ids", "all"])]
pub struct SelectArgs {
    /// Ids of the messages; 2:17 is message 17 of partition 2
    #[arg(value_name = "ID")]
    pub ids: Vec<MessageId>,

    /// All errors
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub stored: DurabilityArg,

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
