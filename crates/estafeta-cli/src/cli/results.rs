//! The options of `estafeta results`.

use clap::Args;

use super::JsonArg;

#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// Ids of the messages; without an id, all results that are kept
    pub ids: Vec<u64>,

    #[command(flatten)]
    pub output: JsonArg,
}
