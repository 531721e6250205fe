//! The options of `estafeta cancel`.

use clap::Args;

use super::JsonArg;

#[derive(Debug, Args)]
#[group(required = true, multiple = false, args = ["ids", "key"])]
pub struct CancelArgs {
    /// Ids of the messages
    pub ids: Vec<u64>,

    /// Cancel the message that was published with this key, and free the key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,

    #[command(flatten)]
    pub output: JsonArg,
}
