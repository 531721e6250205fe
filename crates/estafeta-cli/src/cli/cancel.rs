//! The options of `estafeta cancel`.

use clap::Args;

use super::{DurabilityArg, JsonArg};
use estafeta_lab::message_id::MessageId;

#[derive(Debug, Args)]
#[group(required = true, multiple = false, args = ["ids", "key"])]
pub struct CancelArgs {
    /// Ids of the messages; 2:17 is message 17 of partition 2
    #[arg(value_name = "ID")]
    pub ids: Vec<MessageId>,

    /// Cancel the message that was published with this key, and free the key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,

    #[command(flatten)]
    pub stored: DurabilityArg,

    #[command(flatten)]
    pub output: JsonArg,
}
