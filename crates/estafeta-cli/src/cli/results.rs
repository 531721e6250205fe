//! The options of `estafeta results`.

use clap::Args;

use super::JsonArg;
use estafeta_lab::message_id::MessageId;

#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// Ids of the messages (2:17 in partition 2); without an id, all results that are kept
    #[arg(value_name = "ID")]
    pub ids: Vec<MessageId>,

    #[command(flatten)]
    pub output: JsonArg,
}
