//! The options of `estafeta health`.

use clap::Args;

use crate::settings::File;

#[derive(Debug, Args)]
pub struct HealthArgs {
    /// The address at which the node serves its metrics [default: look for the node in Redis]
    #[arg(long, value_name = "ADDRESS", env = "ESTAFETA_METRICS")]
    pub metrics: Option<String>,

    /// Ask only whether the node lives, even if Redis does not answer it
    #[arg(long)]
    pub live: bool,
}

impl HealthArgs {
    /// The address of the node, by the command line, the environment or the settings file.
    pub fn address(&self, file: &File) -> Option<String> {
        self.metrics.clone().or_else(|| file.run.metrics.clone())
    }
}
