//! `estafeta limit`: shows, sets or removes the limits of a ring.

use std::process::ExitCode;

use anyhow::Result;
use estafeta::{Partition, Rate};
use serde_json::json;

use super::{print_result, with_partitions};
use crate::cli::LimitArgs;
use crate::failure::usage;
use crate::settings::Reach;
use estafeta_lab::text::limits;

pub fn run(reach: &Reach, args: &LimitArgs) -> Result<ExitCode> {
    with_partitions(reach, async |partitions| {
        let count = partitions.all.len() as u64;
        let least =
            [args.in_flight.and_then(|limit| limit.0), args.rate.and_then(|limit| limit.0?.messages.into())];
        if least.into_iter().flatten().any(|least| least < count) {
            return Err(usage(format!("expected a limit of at least {count}, one for each partition")));
        }
        // The limits of all partitions add up to those of the ring.
        for (part, ring) in Partition::all(partitions.all.len() as u32).zip(&partitions.all) {
            if let Some(limit) = args.in_flight {
                ring.limit_in_flight(limit.0.map(|most| part.share_of(most))).await?;
            }
            if let Some(limit) = args.rate {
                let share = |rate: Rate| Rate { messages: part.share_of(rate.messages), ..rate };
                ring.limit_rate(limit.0.map(share)).await?;
            }
        }
        let snapshot = partitions.snapshot().await?;
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
