//! The options of `estafeta web`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::DurabilityArg;

/// Where the page is, unless the user wants it elsewhere.
const DEFAULT_PAGE: &str = "127.0.0.1:7070";

#[derive(Debug, Args)]
pub struct WebArgs {
    /// Address to listen on. One that other machines reach needs a login
    #[arg(long, value_name = "ADDRESS", env = "ESTAFETA_WEB_LISTEN", default_value = DEFAULT_PAGE)]
    pub listen: SocketAddr,

    /// Refuse every change
    #[arg(long)]
    pub read_only: bool,

    /// File with logins that may change something, one NAME:SECRET per line
    #[arg(long, value_name = "FILE", env = "ESTAFETA_WEB_ADMIN_FILE")]
    pub admin_file: Option<PathBuf>,

    /// File with logins that may only look, one NAME:SECRET per line
    #[arg(long, value_name = "FILE", env = "ESTAFETA_WEB_VIEWER_FILE")]
    pub viewer_file: Option<PathBuf>,

    /// Name under which browsers reach this server, for example through a proxy; may be repeated
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub allow_host: Vec<String>,

    #[command(flatten)]
    pub stored: DurabilityArg,
}

impl WebArgs {
    /// A page at this address, with no other options.
    pub fn at(listen: SocketAddr, stored: DurabilityArg) -> Self {
        Self { listen, read_only: false, admin_file: None, viewer_file: None, allow_host: Vec::new(), stored }
    }
}
