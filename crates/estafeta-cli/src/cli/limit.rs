//! The options of `estafeta limit`.

use std::str::FromStr;

use clap::Args;
use estafeta::Rate;

use super::JsonArg;

#[derive(Debug, Args)]
pub struct LimitArgs {
    /// How many messages all nodes together may hold at one time, or `none`
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    pub in_flight: Option<OrNone<u64>>,

    /// How many messages nodes may claim per second (s), minute (m) or hour (h), or `none`
    #[arg(long, value_name = "N/s|none", allow_hyphen_values = true)]
    pub rate: Option<OrNone<Rate>>,

    #[command(flatten)]
    pub output: JsonArg,
}

/// A limit, or the word `none`.
#[derive(Clone, Copy, Debug)]
pub struct OrNone<T>(pub Option<T>);

impl FromStr for OrNone<u64> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self(None)),
            (_, Ok(limit @ 1..=1_000_000_000)) => Ok(Self(Some(limit))),
            _ => Err(format!("expected 1 to 1000000000 messages or none, got '{text}'")),
        }
    }
}

impl FromStr for OrNone<Rate> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self(None)),
            (_, Ok(rate)) => Ok(Self(Some(rate))),
            _ => Err(format!(
                "expected 1 to 1000000 messages per s, m or h, such as 50/s, or none, got '{text}'"
            )),
        }
    }
}
