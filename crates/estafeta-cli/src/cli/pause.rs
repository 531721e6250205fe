//! The options of `estafeta pause` and `estafeta resume`.

use clap::Args;
use estafeta::Activity;

use super::JsonArg;
use crate::duration::HumanDuration;

#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    pub activity: ActivityArgs,

    /// How long. Without it, the pause lasts until `estafeta resume`
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub time: Option<HumanDuration>,

    #[command(flatten)]
    pub output: JsonArg,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub activity: ActivityArgs,

    #[command(flatten)]
    pub output: JsonArg,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct ActivityArgs {
    /// Only new messages: those of the generator and of publishers
    #[arg(long)]
    pub producing: bool,

    /// Only the handling of messages
    #[arg(long)]
    pub handling: bool,
}

impl ActivityArgs {
    pub fn activity(self) -> Activity {
        match (self.producing, self.handling) {
            (true, false) => Activity::Producing,
            (false, true) => Activity::Handling,
            _ => Activity::Both,
        }
    }
}
