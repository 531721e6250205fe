//! The options of `estafeta check`.

use std::ffi::OsString;

use clap::Args;

use super::RunArgs;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The body of the sample message. It is read from stdin if it is a `-`
    #[arg(value_name = "BODY", default_value = "sample")]
    pub body: OsString,

    #[command(flatten)]
    pub run: RunArgs,
}
