//! `estafeta redis status|stop`: the private Redis that was started because no other was found.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::failure::FAILED;
use crate::output::grouped;
use crate::private_redis::PrivateRedis;

pub fn status(as_json: bool) -> Result<ExitCode> {
    let private = PrivateRedis::locate()?;
    let mut out = std::io::stdout();
    let Some(status) = private.status()? else {
        match as_json {
            true => writeln!(out, "{}", json!({"running": false, "directory": private.directory()}))?,
            false => writeln!(out, "no private Redis runs in {}", private.directory().display())?,
        }
        return Ok(FAILED.into());
    };
    if as_json {
        let object = json!({
            "running": true,
            "pid": status.pid,
            "version": status.version,
            "uptime_s": status.uptime.as_secs(),
            "used_memory": status.used_memory,
            "connected_clients": status.connected_clients,
            "socket": status.socket,
            "directory": status.directory,
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(
            out,
            "private Redis {}, pid {}, up for {}, {} bytes in use, {} clients\nsocket {}\ndata   {}",
            status.version,
            status.pid,
            humantime::format_duration(status.uptime),
            grouped(status.used_memory),
            status.connected_clients,
            status.socket.display(),
            status.directory.display(),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn stop() -> Result<ExitCode> {
    let private = PrivateRedis::locate()?;
    let told = if private.stop()? { "stopped; its data stay in" } else { "does not run in" };
    writeln!(std::io::stdout(), "the private Redis {told} {}", private.directory().display())?;
    Ok(ExitCode::SUCCESS)
}
