//! `estafeta upgrade`: raises a ring to the newest layout that this program knows.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::{print_result, with_existing_ring};
use crate::settings::Reach;
use estafeta::Layouts;

pub fn run(reach: &Reach, as_json: bool) -> Result<ExitCode> {
    let (name, from) =
        with_existing_ring(reach, async |ring| Ok((ring.name().to_string(), ring.upgrade().await?)))?;
    let to = Layouts::KNOWN.newest;
    if as_json {
        print_result(json!({"ring": name, "layout": to, "from": from}))?;
    } else {
        match from {
            Some(from) => print_result(format_args!("ring {name}: layout raised from {from} to {to}"))?,
            None => {
                print_result(format_args!("ring {name} has layout {to}, the newest that this program knows"))?
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
