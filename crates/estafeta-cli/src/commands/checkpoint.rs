//! `estafeta checkpoint`: shows, sets or removes the place where the feed of a ring continues.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use estafeta_lab::escape::escape;
use serde_json::json;

use super::{print_result, with_one_partition};
use crate::cli::CheckpointCommand;
use crate::settings::Reach;

/// One byte more than the largest checkpoint. That is enough to refuse it.
const ENOUGH: u64 = 64 * 1024 + 1;

pub fn run(reach: &Reach, command: CheckpointCommand) -> Result<ExitCode> {
    match command {
        CheckpointCommand::Show(output) => with_one_partition(reach, async |ring| {
            let (name, checkpoint) = (ring.name(), ring.checkpoint().await?);
            if output.json {
                let text = checkpoint.as_deref().map(String::from_utf8_lossy);
                print_result(json!({"ring": name.to_string(), "checkpoint": text}))?;
                return Ok(ExitCode::SUCCESS);
            }
            let Some(checkpoint) = checkpoint else { bail!("ring {name} has no checkpoint") };
            print_result(escape(&checkpoint))?;
            Ok(ExitCode::SUCCESS)
        }),
        CheckpointCommand::Set(args) => {
            let value = value(args.value)?;
            with_one_partition(reach, async |ring| {
                ring.set_checkpoint(Some(&value)).await?;
                print_result(format_args!("ring {}: the checkpoint is set", ring.name()))?;
                Ok(ExitCode::SUCCESS)
            })
        }
        CheckpointCommand::Clear => with_one_partition(reach, async |ring| {
            ring.set_checkpoint(None).await?;
            print_result(format_args!("ring {}: the checkpoint is gone", ring.name()))?;
            Ok(ExitCode::SUCCESS)
        }),
    }
}

fn value(word: OsString) -> Result<Vec<u8>> {
    if word != "-" {
        return Ok(word.into_vec());
    }
    let mut value = Vec::new();
    std::io::stdin().lock().take(ENOUGH).read_to_end(&mut value).context("cannot read stdin")?;
    Ok(value)
}
