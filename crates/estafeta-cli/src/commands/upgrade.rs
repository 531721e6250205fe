//! `estafeta upgrade`: raises a ring to the newest layout that this program knows.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::{print_result, with_partitions};
use crate::settings::Reach;
use estafeta::Layouts;

pub fn run(reach: &Reach, as_json: bool) -> Result<ExitCode> {
    with_partitions(reach, async |partitions| {
        for ring in &partitions.all {
            report(&ring.name().to_string(), ring.upgrade().await?, as_json)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn report(name: &str, from: Option<u32>, as_json: bool) -> Result<()> {
    let to = Layouts::KNOWN.newest;
    if as_json {
        return print_result(json!({"ring": name, "layout": to, "from": from}));
    }
    match from {
        Some(from) => print_result(format_args!("ring {name}: layout raised from {from} to {to}")),
        None => print_result(format_args!("ring {name} has layout {to}, the newest that this program knows")),
    }
}
