//! `estafeta limit`: shows, sets or removes the limits of a ring.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::{print_result, with_existing_ring};
use crate::cli::LimitArgs;
use crate::settings::Reach;
use estafeta_lab::text::limits;

pub fn run(reach: &Reach, args: &LimitArgs) -> Result<ExitCode> {
    with_existing_ring(reach, async |ring| {
        if let Some(limit) = args.in_flight {
            ring.limit_in_flight(limit.0).await?;
        }
        if let Some(limit) = args.rate {
            ring.limit_rate(limit.0).await?;
        }
        let snapshot = ring.snapshot(0).await?;
        if args.output.json {
            let (in_flight, rate) = (snapshot.in_flight_limit, snapshot.rate_limit);
            let ring = &snapshot.ring;
            print_result(json!({"ring": ring, "inFlightLimit": in_flight, "rateLimit": rate}))?;
        } else {
            let state = limits(&snapshot).unwrap_or_else(|| "no limits".to_owned());
            print_result(format_args!("ring {}: {state}", snapshot.ring))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
