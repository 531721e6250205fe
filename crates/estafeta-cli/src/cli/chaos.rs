//! The options of `estafeta chaos`.

use std::path::PathBuf;

use clap::Args;
use estafeta_lab::chaos::Wanted;

use super::JsonArg;
use crate::duration::HumanDuration;

#[derive(Debug, Args)]
pub struct ChaosArgs {
    /// Nodes to start, 2 to 200
    #[arg(short = 'n', long, alias = "copies", value_name = "N", default_value_t = 8)]
    pub nodes: usize,

    /// How long to attack
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    pub length: HumanDuration,

    /// Faults to inject, separated by commas: all, or some of kill, freeze, cut, lag, half-open, lost-reply,
    /// redis-kill, redis-stall, script-flush, client-kill, flood
    ///
    /// Chaos starts its own Redis, unless --redis or --host names one. It never attacks a named Redis itself, so only
    /// the first six faults are possible there.
    #[arg(long, value_name = "KINDS", default_value = "all")]
    pub faults: Wanted,

    /// Seed of the plan of faults [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    #[command(flatten)]
    pub output: JsonArg,

    /// Write an HTML page with a timeline of the run
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}
