//! `estafeta health`: asks a node, or Redis, whether the node on this machine is well.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use estafeta::{Health, MemberView, Role, Snapshot};
use estafeta_lab::escape::escape;
use estafeta_lab::partitions::Partitions;

use super::{print_result, with_ring};
use crate::cli::HealthArgs;
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

/// Looks for a living node of the ring on this machine. It must live in every partition of the ring.
pub fn ask_redis(reach: &Reach) -> Result<ExitCode> {
    let parts = with_ring(reach, async |ring| Ok(Partitions::of(ring).await?.snapshots(0).await?))?;
    let (ring, host) = (&reach.ring, nix::unistd::gethostname()?.to_string_lossy().into_owned());
    let is_ours = |member: &&MemberView| member.role != Role::Reader && member.host == host;
    let is_alive = |member: &MemberView| member.state == Health::Alive;
    let lives_in = |part: &Snapshot| part.members.iter().filter(is_ours).any(is_alive);
    let is_anywhere = parts.iter().any(|part| part.members.iter().any(|member| is_ours(&member)));
    let sentence = match parts.iter().position(|part| !lives_in(part)) {
        None => format!("a node of ring {ring} on {host} is alive"),
        Some(_) if !is_anywhere => format!("no node of ring {ring} runs on {host}"),
        Some(index) if parts.iter().any(lives_in) => {
            format!("no node of ring {ring} on {host} is alive in partition {index}")
        }
        Some(_) => format!("the node of ring {ring} on {host} does not look alive"),
    };
    report(parts.iter().all(lives_in), &sentence)
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
