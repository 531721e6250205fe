//! `estafeta health`: asks a node, or Redis, whether the node on this machine is well.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use estafeta::{Health, Ring, Role};
use estafeta_lab::escape::escape;

use super::print_result;
use crate::cli::HealthArgs;
use crate::find_redis;
use crate::settings::Reach;

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of an answer that are read.
const MOST_BYTES: u64 = 64 * 1024;

/// Asks the node at its metrics address.
pub fn ask_node(args: &HealthArgs, address: &str) -> Result<ExitCode> {
    let path = if args.live { "/livez" } else { "/readyz" };
    let (status, sentence) = get(address, path).with_context(|| format!("no node answers at {address}"))?;
    report(status == 200, &sentence)
}

/// Looks for a living node of the ring on this machine.
pub fn ask_redis(reach: &Reach) -> Result<ExitCode> {
    let endpoint = find_redis::existing(&reach.redis)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let snapshot = runtime
        .block_on(async { Ring::connect(endpoint.clone(), reach.ring.clone()).await?.snapshot(0).await })?;
    let host = nix::unistd::gethostname()?.to_string_lossy().into_owned();
    let nodes = snapshot.members.iter().filter(|member| member.role != Role::Reader && member.host == host);
    let (all, alive) = (nodes.clone().count(), nodes.filter(|node| node.state == Health::Alive).count());
    let sentence = match (alive, all) {
        (0, 0) => format!("no node of ring {} runs on {host}", reach.ring),
        (0, _) => format!("the node of ring {} on {host} does not look alive", reach.ring),
        _ => format!("a node of ring {} on {host} is alive", reach.ring),
    };
    report(alive > 0, &sentence)
}

fn report(is_well: bool, sentence: &str) -> Result<ExitCode> {
    print_result(escape(sentence.as_bytes()))?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends one request. Returns the status and the body of the answer.
fn get(address: &str, path: &str) -> Result<(u16, String)> {
    let address = address.to_socket_addrs()?.next().context("the address names no host")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("the answer is not HTTP") };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.context("the answer is not HTTP")?, body.trim_end().to_owned()))
}
