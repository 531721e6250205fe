//! The options of `estafeta bench`.

use std::path::PathBuf;

use clap::Args;
use estafeta_lab::bench;

use super::JsonArg;
use crate::duration::HumanDuration;

#[derive(Debug, Args)]
pub struct BenchWorkerArgs {
    /// From where it gets its messages: node or streams
    pub kind: bench::WorkerKind,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure: throughput, latency, work, failover, redelivery, idle, scale, or all [default: all]
    #[arg(value_name = "WHAT")]
    pub what: Vec<bench::Choice>,

    /// How long each measurement lasts [default: 3s]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<HumanDuration>,

    /// How often a node is killed, stopped and frozen, for failover and redelivery [default: 50]
    #[arg(long, value_name = "N")]
    pub tries: Option<u64>,

    /// Messages in the queue before they are handled; fewer if --for is too short [default: 1000000]
    #[arg(long, value_name = "N")]
    pub messages: Option<u64>,

    /// Size of a message's body
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub body: u64,

    /// Handlers, for throughput
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub handlers: u64,

    /// Messages that each handler handles concurrently, for throughput
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub concurrency: u64,

    /// Numbers of nodes for idle and scale, separated by commas [default: 1,10,100 and 1,2,5,10,20,50,100,200]
    #[arg(short = 'n', long, alias = "copies", value_name = "LIST", value_delimiter = ',')]
    pub nodes: Vec<usize>,

    /// Run everything for a moment: this shows that it works, not how fast
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub output: JsonArg,

    /// Print the tables as Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Draw the results
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}
