//! The options of `estafeta monitor`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::RunArgs;
use crate::duration::HumanDuration;

#[derive(Debug, Args)]
pub struct MonitorArgs {
    /// Nodes to start, up to 200 [default: 5, or 0 if the ring has members already]
    #[arg(short = 'n', long, alias = "copies", value_name = "N")]
    pub nodes: Option<usize>,

    /// Only watch, and start no nodes
    #[arg(long, conflicts_with_all = ["nodes", "respawn"])]
    pub attach: bool,

    /// Delete the ring first, if no node uses it and it belongs to the demo
    #[arg(long, conflicts_with = "attach")]
    pub fresh: bool,

    /// Start a node again after it was killed or failed
    #[arg(long)]
    pub respawn: bool,

    /// Also serve the web page, as `estafeta web` does, at this address of this machine [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:7070")]
    pub web: Option<SocketAddr>,

    /// Quit after this time
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<HumanDuration>,

    /// File for the logs of the nodes [default: monitor.log in ESTAFETA_DATA, or in ~/.local/share/estafeta]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    #[command(flatten)]
    pub run: RunArgs,
}
