//! `estafeta redis status|stop`: shows or stops the private Redis.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::json;

use crate::private_redis::PrivateRedis;
use estafeta_lab::exit_code::FAILED;
use estafeta_lab::text::{counted, grouped};

use super::{confirmed, print_result};

pub fn status(as_json: bool) -> Result<ExitCode> {
    let private = PrivateRedis::locate()?;
    let Some(status) = private.status()? else {
        match as_json {
            true => print_result(json!({"running": false, "directory": private.directory()}))?,
            false => {
                print_result(format_args!("no private Redis runs in {}", private.directory().display()))?
            }
        }
        return Ok(FAILED.into());
    };
    if as_json {
        let object = json!({
            "running": true,
            "pid": status.pid,
            "version": status.version,
            "uptimeS": status.uptime.as_secs(),
            "usedMemory": status.used_memory,
            "connectedClients": status.connected_clients,
            "socket": status.socket,
            "directory": status.directory,
        });
        print_result(object)?;
    } else {
        print_result(format_args!(
            "private Redis {}, pid {}, up for {}, {} bytes in use, {}\nsocket {}\ndata   {}",
            status.version,
            status.pid,
            humantime::format_duration(status.uptime),
            grouped(status.used_memory),
            counted(status.connected_clients, "client"),
            status.socket.display(),
            status.directory.display(),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn stop(yes: bool) -> Result<ExitCode> {
    let private = PrivateRedis::locate()?;
    // The connection of this query is one of the clients.
    let clients =
        || private.status().ok().flatten().map_or(0, |status| status.connected_clients.saturating_sub(1));
    let clients = if yes { 0 } else { clients() };
    if clients > 0 {
        let question = format!("Stop the private Redis, which has {}?", counted(clients, "other client"));
        if !confirmed(&question)? {
            bail!("nothing was stopped");
        }
    }
    let result = if private.stop()? { "was stopped; its data stay in" } else { "does not run in" };
    print_result(format_args!("the private Redis {result} {}", private.directory().display()))?;
    Ok(ExitCode::SUCCESS)
}
