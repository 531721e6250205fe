//! `estafeta cleanTemp`: returns what dead members held to the queue, now.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::with_ring;
use crate::settings::Reach;

pub fn run(reach: &Reach, max_attempts: Option<u32>, as_json: bool) -> Result<ExitCode> {
    let burials = with_ring(reach, async |ring| Ok(ring.sweep(max_attempts.unwrap_or(5)).await?))?;
    let returned: u64 = burials.iter().map(|burial| burial.returned).sum();
    let gave_up: u64 = burials.iter().map(|burial| burial.gave_up).sum();
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json!({"returned": returned, "gave_up": gave_up, "buried": burials.len()}))?;
    } else {
        writeln!(out, "{returned} messages of {} dead members returned to the queue", burials.len())?;
        if gave_up > 0 {
            writeln!(out, "{gave_up} messages used up their attempts and are errors now")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
