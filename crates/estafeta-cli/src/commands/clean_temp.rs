//! `estafeta cleanTemp`: returns the messages of dead members to the queue now.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::{print_result, with_partitions};
use crate::settings::Reach;
use estafeta_lab::text::counted;

pub fn run(reach: &Reach, as_json: bool) -> Result<ExitCode> {
    let burials = with_partitions(reach, async |partitions| {
        let mut burials = Vec::new();
        for ring in &partitions.all {
            burials.extend(ring.sweep().await?);
        }
        Ok(burials)
    })?;
    let returned: u64 = burials.iter().map(|burial| burial.returned).sum();
    let gave_up: u64 = burials.iter().map(|burial| burial.gave_up).sum();
    if as_json {
        print_result(json!({"returned": returned, "gaveUp": gave_up, "buried": burials.len()}))?;
    } else {
        let (messages, members) =
            (counted(returned, "message"), counted(burials.len() as u64, "dead member"));
        print_result(format_args!("{messages} of {members} returned to the queue"))?;
        if gave_up > 0 {
            let messages = counted(gave_up, "message");
            print_result(format_args!("{messages} had too many deaths: now among the errors"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
