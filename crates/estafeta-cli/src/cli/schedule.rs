//! The options of `estafeta schedule`.

use clap::Args;

use super::JsonArg;

#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// How many of the next runs to print for each entry, at most 1000
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(..=1000))]
    pub count: u16,

    #[command(flatten)]
    pub output: JsonArg,
}
