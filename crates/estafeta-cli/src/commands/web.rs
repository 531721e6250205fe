//! `estafeta web`: serves the web page.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use estafeta::{Endpoint, RingName};
use estafeta_web::{Login, Logins, Right, ShownRings, Unsafe, WebOptions, WebServer};
use tokio_util::sync::CancellationToken;

use super::print_result;
use crate::cli::{DEFAULT_RING, WebArgs};
use crate::failure::usage;
use crate::find_redis;
use crate::settings::{Where, read_file};
use crate::signals::stop_signal;

/// The largest file with logins, in KiB.
const MOST_KIB: u64 = 64;

pub fn run(redis: &Where, rings: Option<Vec<RingName>>, args: &WebArgs) -> Result<ExitCode> {
    let endpoint = find_redis::existing(redis)?;
    let options = options(endpoint, rings, args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = bind(options).await?;
        print_result(format_args!("estafeta web: {}", server.url()?))?;
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.serve(stop.clone()));
        stop_signal().await;
        stop.cancel();
        serving.await.context("the web server failed")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Listens. A server that strangers could reach is a wrong call.
pub async fn bind(options: WebOptions) -> Result<WebServer> {
    WebServer::bind(options).await.map_err(|error| match error.downcast_ref::<Unsafe>() {
        Some(refused) => usage(refused.to_string()),
        None => error,
    })
}

pub fn options(endpoint: Endpoint, rings: Option<Vec<RingName>>, args: &WebArgs) -> Result<WebOptions> {
    let rings = match rings {
        Some(names) => ShownRings::Named(names),
        None => ShownRings::All { or: DEFAULT_RING.parse()? },
    };
    let mut logins = Vec::new();
    for (right, file, option, variable) in [
        (Right::Change, &args.admin_file, "admin-file", "ESTAFETA_WEB_ADMIN"),
        (Right::Look, &args.viewer_file, "viewer-file", "ESTAFETA_WEB_VIEWER"),
    ] {
        logins.extend(logins_of(right, file.as_deref(), option, variable)?);
    }
    Ok(WebOptions {
        endpoint,
        rings,
        durability: args.stored.durability,
        listen: args.listen,
        read_only: args.read_only,
        logins: Logins::new(logins),
        allowed_hosts: args.allow_host.clone(),
    })
}

fn logins_of(right: Right, file: Option<&Path>, option: &str, variable: &str) -> Result<Vec<Login>> {
    let (text, place) = match (file, std::env::var(variable)) {
        (Some(path), _) => (read_file(path, &format!("--{option}"), MOST_KIB)?, format!("--{option}")),
        (None, Ok(text)) => (text, format!("variable {variable}")),
        (None, Err(_)) => return Ok(Vec::new()),
    };
    Login::parse_all(&text, right, &place).map_err(|error| usage(error.to_string()))
}
