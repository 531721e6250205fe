//! `estafeta pause` and `estafeta resume`: stop producing, handling or both for a while.

use std::process::ExitCode;

use anyhow::Result;
use estafeta::Error;
use serde_json::json;

use super::{print_result, with_partitions};
use crate::cli::{PauseArgs, ResumeArgs};
use crate::failure::usage;
use crate::settings::Reach;
use estafeta_lab::partitions::Partitions;
use estafeta_lab::text::paused;

pub fn pause(reach: &Reach, args: &PauseArgs) -> Result<ExitCode> {
    let (what, time) = (args.activity.activity(), args.time.map(|time| time.0));
    with_partitions(reach, async |partitions| {
        for ring in &partitions.all {
            match ring.pause(what, time).await {
                Err(Error::Expected { what: "for", expected, got }) => {
                    return Err(usage(format!("--for: expected {expected}, got {got}")));
                }
                paused => paused?,
            }
        }
        report(&partitions, args.output.json).await
    })
}

pub fn resume(reach: &Reach, args: &ResumeArgs) -> Result<ExitCode> {
    with_partitions(reach, async |partitions| {
        for ring in &partitions.all {
            ring.resume(args.activity.activity()).await?;
        }
        report(&partitions, args.output.json).await
    })
}

/// Prints what is paused now.
async fn report(partitions: &Partitions, as_json: bool) -> Result<ExitCode> {
    let snapshot = partitions.snapshot().await?;
    if as_json {
        let (producing, handling) = (snapshot.producing_pause, snapshot.handling_pause);
        let ring = &snapshot.ring;
        print_result(json!({"ring": ring, "producingPause": producing, "handlingPause": handling}))?;
    } else {
        let state = paused(&snapshot).unwrap_or_else(|| "nothing is paused".to_owned());
        print_result(format_args!("ring {}: {state}", snapshot.ring))?;
    }
    Ok(ExitCode::SUCCESS)
}
